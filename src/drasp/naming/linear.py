"""MLPs that are only projected, as linear maps of what they read."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.fitting.dropping import with_bias
from drasp.fitting.oracle import Oracle
from drasp.language import Interpreter
from drasp.language.bases import size
from drasp.language.checker import basis_of
from drasp.language.syntax import ONE, ElementWise, Operand, Program, Project, Reference, Statement, TensorName
from drasp.rewriting.provenance import handed_on, with_sites, without_heard
from drasp.rewriting.tidy import bias_of, changed
from drasp.settings import DEFAULT
from drasp.sites import joined


def with_linear(
    program: Program,
    name: str,
    inputs: Sequence[Operand],
    oracle: Oracle,
    most_answers: int = DEFAULT.naming.least_squares,
) -> tuple[Program, float] | None:
    """The program in which projects of an MLP are projects of some of what it reads; None where others read it too.

    The map is the linear one that comes nearest to what the MLP itself says, where answers count (at most
    `most_answers` of them); with it comes the share of the variance that it leaves unexplained.
    """
    program = with_bias(program)
    statement, bias = program.find(name), bias_of(program)
    readers = program.readers(name)
    if not isinstance(statement, ElementWise) or bias is None:
        return None
    if not all(isinstance(r, Project) and not r.input.norm and r.tensor_names for r in readers):
        return None
    maps, constant, residual = _nearest_linear(program, inputs, name, oracle, most_answers)
    [target] = bias.tensor_names
    tensors = dict(program.tensors)
    new: dict[str, Statement | None] = {}
    added: list[Project] = []
    own = handed_on(program, _reading_only(program, statement, inputs))
    for reader in readers:
        assert isinstance(reader, Project)
        assert isinstance(reader.op, TensorName)
        matrix = program.tensors[reader.op.name]
        tensors[target] = tensors[target] + (constant @ matrix)[None]
        new[reader.name] = None
        for i, (operand, linear) in enumerate(zip(inputs, maps, strict=True)):
            twin = next((s for s in program.statements if isinstance(s, Project) and s.input == operand), None)
            if twin is not None and (names := twin.tensor_names):
                tensors[names[0]] = tensors[names[0]] + linear @ matrix
                new[twin.name] = with_sites(new.get(twin.name) or twin, reader.sites, own)
            else:
                stored = TensorName(f"{reader.op.name}_{i}")
                project = Project(f"{reader.name}_{i}", operand, stored, sites=joined(reader.sites, own))
                tensors[f"{reader.op.name}_{i}"] = linear @ matrix
                added.append(project)
    prediction, gone = program.prediction, {reader.name for reader in readers}
    kept = tuple(r for r in prediction.logits if r.variable not in gone)
    logits = (*kept, *(Reference(project.name) for project in added))
    last = replace(prediction, logits=logits)
    wider = replace(program, statements=(*program.statements[:-1], *added, last), tensors=tensors)
    return changed(wider, new, {}), residual


def _reading_only(program: Program, function: ElementWise, inputs: Sequence[Operand]) -> ElementWise:
    """The function as one that hears only some of what it hears."""
    for operand in function.inputs:
        if operand not in (*inputs, ONE):
            function = replace(function, sites=without_heard(program, function, operand))
    return replace(function, inputs=(*inputs, *(ONE for _ in range(ONE in function.inputs))))


@torch.no_grad()
def _nearest_linear(
    program: Program, inputs: Sequence[Operand], name: str, oracle: Oracle, most_answers: int
) -> tuple[list[Float[Tensor, "_ dims"]], Float[Tensor, " dims"], float]:
    """Least squares from the inputs, and a constant, to the variable; and the share of the variance that it leaves."""
    interpreter = Interpreter.of(program)
    widths = [size(basis_of(program, v)) for v in inputs]
    left: list[Tensor] = []
    right: list[Tensor] = []
    for batch in oracle.batches:
        *read, said = interpreter.values(batch.inputs.ids, batch.inputs.positions, [*inputs, ONE, Operand(name)])
        left.append(batch.at_counted(torch.cat(read, -1))[batch.valid])
        right.append(batch.at_counted(said)[batch.valid])
    every = 1 + sum(map(len, left)) // most_answers
    x, y = torch.cat(left)[::every].double(), torch.cat(right)[::every].double()
    # Columns may depend on each other (shares add up to one): the smallest of all solutions.
    solution = torch.linalg.pinv(x, rtol=1e-6) @ y
    left_over = (y - x @ solution).square().sum() / (y - y.mean(0)).square().sum().clamp(min=1e-30)
    *maps, constant = solution.float().split([*widths, 1])
    return maps, constant[0], float(left_over)
