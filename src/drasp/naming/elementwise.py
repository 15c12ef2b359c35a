"""Names for element-wise functions: which function of the library can stand for an MLP.

An MLP's result means nothing by itself, so a function stands for it if a linear map leads from the one to the
other (least squares over many positions); the map goes into the tensors that follow. Then the answers decide.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.errors import DraspError
from drasp.fitting.oracle import Oracle
from drasp.language import Interpreter
from drasp.language.bases import size
from drasp.language.checker import basis_of
from drasp.language.function_primitives import function_primitives
from drasp.language.syntax import ONE, ElementWise, Operand, PrimitiveFunction, Program, Project, Statement
from drasp.naming.judge import Judge
from drasp.naming.linear import with_linear
from drasp.naming.splitting import split
from drasp.rewriting.provenance import explicit
from drasp.rewriting.rewrite import fresh_name, reexpress, where_it_matters
from drasp.rewriting.simplify import simplify
from drasp.settings import DEFAULT, NamingSettings


def name_function(program: Program, function: ElementWise, judge: Judge) -> Program | None:
    """The program with a linear map, a function of the library or a sum of parts instead; None where none will do."""
    linear = [
        with_linear(program, function.name, inputs, judge.fit, judge.settings.least_squares)
        for inputs in _choices(function)
    ]
    nearest = sorted((found for found in linear if found), key=lambda found: (simplify(found[0]).lines, found[1]))
    for tried in (constant for found in nearest for constant in _constants(found[0], judge)):
        if judge.passes(program, tried):
            return tried
    found = [
        r
        for r in _replacements(program, function, judge.fit, judge.settings)
        if r.residual < judge.settings.most_residual
    ]
    # A linear map costs no line, so it goes before all others; of those that come about equally near, the smallest.
    found.sort(key=lambda r: (not r.is_linear, round(r.residual, 2), r.dimensions))
    named = (tried for r in found[: judge.settings.functions] for tried in _constants(r.program, judge))
    named = next((tried for tried in named if judge.passes(program, tried)), None)
    return named if named is not None else _split(program, function, judge)


def _constants(program: Program, judge: Judge) -> Iterator[Program]:
    """The program as it is, which may spare a line for the bias, and with the output's constant settled."""
    yield program
    yield judge.settled(program)


def _choices(function: ElementWise) -> list[tuple[Operand, ...]]:
    """What a function may do with: each of its inputs alone, which makes fewer lines, or all of them."""
    inputs = tuple(operand for operand in function.inputs if operand != ONE)
    return list(dict.fromkeys([*((operand,) for operand in inputs), inputs]))


def _split(program: Program, function: ElementWise, judge: Judge) -> Program | None:
    """A sum of functions of one variable, where that makes no more lines: those of one-hot variables are tables."""
    parts = split(program, function.name, judge.fit.part(judge.settings.means_by))
    if parts is None or simplify(parts).lines > simplify(program).lines:
        return None
    parts = judge.settled(parts)
    return parts if judge.passes(program, parts) else None


@dataclass(frozen=True)
class Replacement:
    """`residual` is the share of the MLP's variance that a linear map of the function leaves unexplained."""

    program: Program
    residual: float
    dimensions: int
    is_linear: bool


def _replacements(
    program: Program, function: ElementWise, oracle: Oracle, settings: NamingSettings = DEFAULT.naming
) -> Iterator[Replacement]:
    """Functions of all inputs, and of each of them alone."""
    *_, inputs = _choices(function)
    samples = Samples.of(program, function, inputs, oracle, settings.positions)
    # Where a function is only projected, a linear map of all inputs has been tried before.
    only_projected = all(isinstance(reader, Project) for reader in program.readers(function.name))
    skipped = ("no_op", "keep") if only_projected else ("keep",)
    for chosen in reversed(_choices(function)):
        some = replace(samples, inputs=[samples.inputs[inputs.index(operand)] for operand in chosen])
        for primitive in function_primitives().values():
            takes = len(chosen) > 1 if primitive.inputs is None else primitive.inputs == len(chosen)
            for arguments in primitive.tried if takes and primitive.name not in skipped else ():
                try:
                    new = PrimitiveFunction(primitive.name, arguments)
                    found = replaced_by(program, function, chosen, new, some, settings.most_dimensions)
                except DraspError:
                    continue  # it makes no sense for these inputs
                if found is not None:
                    yield found


def replaced_by(
    program: Program,
    function: ElementWise,
    inputs: tuple[Operand, ...],
    primitive: PrimitiveFunction,
    samples: "Samples",
    most_dimensions: int = DEFAULT.naming.most_dimensions,
) -> Replacement | None:
    """The program with a function of the library, and a linear map behind it, in the place of an MLP."""
    new = replace(function, name=fresh_name(program, f"{function.name}_named"), inputs=inputs, function=primitive)
    statements: list[Statement] = []
    for statement in program.statements:
        statements += [statement, new] if statement.name == function.name else [statement]
    wider = replace(program, statements=tuple(statements))
    # Refuses functions that make no sense here.
    dimensions = size(basis_of(wider, Operand(new.name)))
    if dimensions > most_dimensions:
        return None
    run = function_primitives()[primitive.primitive].function
    values = run(torch, samples.inputs, *primitive.arguments).float()
    matrix, residual = nearest_map(values, samples.result)
    result = reexpress(explicit(wider), function.name, Operand(new.name), matrix)
    is_linear = primitive.primitive in ("no_op", "keep")
    return None if result is None else Replacement(result, residual, dimensions, is_linear)


def nearest_map(x: Float[Tensor, "n new"], y: Float[Tensor, "n old"]) -> tuple[Float[Tensor, "new old"], float]:
    """Least squares, and the share of the variance that it leaves."""
    left, right = x.double(), y.double()
    # Columns may depend on each other (shares add up to one): a little damping picks the smallest solution.
    gram = left.T @ left
    damping = 1e-9 * gram.diagonal().mean() + 1e-12
    matrix = torch.linalg.solve(gram + damping * torch.eye(len(gram), dtype=gram.dtype), left.T @ right)
    left_over = (right - left @ matrix).square().sum()
    spread = (right - right.mean(0)).square().sum()
    return matrix.float(), float(left_over / spread.clamp(min=1e-30))


@dataclass(frozen=True)
class Samples:
    """Values of the inputs and of the MLP, where they matter."""

    inputs: list[Float[Tensor, "n _"]]
    result: Float[Tensor, "n _"]

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        program: Program,
        function: ElementWise,
        inputs: tuple[Operand, ...],
        oracle: Oracle,
        positions: int = DEFAULT.naming.positions,
    ) -> "Samples":
        interpreter = Interpreter.of(program)
        columns: list[list[Tensor]] = []
        count = 0
        for batch in sorted(oracle.batches, key=lambda b: b.inputs.ids.shape[1] * 7919 % 101):
            values = interpreter.values(batch.inputs.ids, batch.inputs.positions, [*inputs, Operand(function.name)])
            matters = where_it_matters(program, [function.name], batch)
            columns.append([v[matters] for v in values])
            count += len(columns[-1][0])
            if count >= positions:
                break
        joined = [torch.cat(parts)[:positions] for parts in zip(*columns, strict=True)]
        return cls(joined[:-1], joined[-1])
