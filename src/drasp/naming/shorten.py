"""Lines that the answers can do without, once the projects are fitted to the answers anew.

Pruning keeps the model's own tensors and settles constants only. Here the tensors of the projects are free, so
more can go: norms, projects, and (elsewhere) selects, and functions that a linear map can stand in for.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from drasp.fitting.head import projects_of
from drasp.fitting.oracle import Oracle
from drasp.language import Interpreter
from drasp.language.bases import size
from drasp.language.checker import basis_of
from drasp.language.syntax import (
    ONE,
    ElementWise,
    Norm,
    Operand,
    Program,
    Project,
    Reference,
    Statement,
    TensorName,
)
from drasp.naming.judge import PATIENCE, Judge
from drasp.rewriting.parts import divided_by_constant
from drasp.rewriting.provenance import handed_on, with_sites
from drasp.rewriting.rewrite import dtype_of, fresh_name
from drasp.rewriting.simplify import simplify
from drasp.rewriting.tidy import changed, without_logits
from drasp.sites import joined


def shorten(program: Program, judge: Judge) -> Program:
    """Whatever can go, goes, as long as enough answers stay the model's."""
    while (shorter := _shortened(program, judge)) is not None:
        program = shorter
    return program


def _shortened(program: Program, judge: Judge) -> Program | None:
    for shorter in sorted(_moves(program, judge.fit), key=judge.closeness, reverse=True)[:PATIENCE]:
        mended = judge.mended(shorter)
        if mended is not None:
            return simplify(mended)
    return None


def _moves(program: Program, oracle: Oracle) -> Iterator[Program]:
    for statement in program.statements:
        match statement:
            case Norm(name):
                yield _without_norm(program, name, oracle)
            case Project(name) if len(projects_of(program)) > 1:
                yield changed(program, {name: None, "prediction": without_logits(program, name)}, {})
            case _:
                pass


@torch.no_grad()
def _without_norm(program: Program, name: str, oracle: Oracle) -> Program:
    """What was divided by the norm is divided by its mean."""
    interpreter = Interpreter.of(program)
    total, count = 0.0, 0
    for batch in oracle.batches[::4]:
        [inverse] = interpreter.values(batch.inputs.ids, batch.inputs.positions, [Operand("one", name)])
        total += float(inverse[..., 0][batch.real].sum())
        count += int(batch.real.sum())
    return divided_by_constant(program, name, total / count)


def with_linear(program: Program, function: ElementWise) -> Program | None:
    """A function that is only projected gives way to projects of what it reads; their tensors begin as 0."""
    readers = program.readers(function.name)
    if not all(isinstance(s, Project) for s in readers):
        return None
    # What the projects of the function carry is from now on carried by those of what it reads.
    taken_in = joined(*(reader.sites for reader in readers), handed_on(program, function))
    there = {p.input: p for p in projects_of(program)}
    new: dict[str, Statement | None] = {reader.name: None for reader in readers}
    added: list[Project] = []
    tensors: dict[str, Tensor] = {}
    for operand in function.inputs:
        if operand in there and operand != ONE:
            new[there[operand].name] = with_sites(there[operand], taken_in)
        elif operand != ONE:
            name = fresh_name(program, f"linear_{operand.variable}")
            rows = size(basis_of(program, operand))
            tensors[f"R_{name}"] = torch.zeros(rows, len(program.vocabulary), dtype=dtype_of(program))
            stored = TensorName(f"R_{name}")
            added.append(Project(name, operand, stored, sites=taken_in, comment=function.comment))
    prediction = program.prediction
    logits = tuple(r for r in prediction.logits if new.get(r.variable, prediction) is not None)
    last = replace(prediction, logits=(*logits, *(Reference(p.name) for p in added)))
    return changed(replace(program, statements=(*program.statements[:-1], *added, last)), new, tensors)
