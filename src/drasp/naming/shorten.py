"""Lines that the answers can do without, once the projects are fitted to the answers anew.

Pruning keeps the model's own tensors and settles constants only. Here the tensors of the projects are free, so
more can go: norms, projects, and (elsewhere) selects, and functions that a linear map can stand in for.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from drasp.decompiler.oracle import Oracle
from drasp.decompiler.tidy import changed, operands_of, variables_read, without_logits
from drasp.language import Interpreter
from drasp.language.bases import size
from drasp.language.interpreter import basis_of
from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Prediction,
    Program,
    Project,
    Reference,
    Select,
    Statement,
    TensorName,
)
from drasp.naming.head import projects_of
from drasp.naming.judge import Judge
from drasp.naming.rewrite import dense_ops, dtype_of, fresh_name
from drasp.naming.simplify import simplify


def shorten(program: Program, judge: Judge) -> Program:
    """Whatever can go, goes, as long as enough answers stay the model's."""
    tried: set[str] = set()
    while True:
        for name, shorter in _moves(program, judge.fit):
            if name in tried:
                continue
            tried.add(name)
            mended = judge.mended(shorter)
            if mended is not None:
                program = simplify(mended)
                tried.clear()
                break
        else:
            return program


def _moves(program: Program, oracle: Oracle) -> Iterator[tuple[str, Program]]:
    """Each with a name that tells it apart from the others of the same program."""
    for statement in program.statements:
        match statement:
            case Norm(name):
                yield name, _without_norm(program, name, oracle)
            case Project(name) if len(projects_of(program)) > 1:
                yield name, changed(program, {name: None, "prediction": without_logits(program, name)}, {})
            case _:
                pass


def without_select(program: Program, name: str) -> Program:
    new: dict[str, Statement | None] = {name: None}
    for user in program.statements:
        if isinstance(user, Aggregate) and name in variables_read(user):
            new[user.name] = replace(user, selectors=tuple(r for r in user.selectors if r.variable != name))
    return changed(program, new, {})


@torch.no_grad()
def _without_norm(program: Program, name: str, oracle: Oracle) -> Program:
    """What was divided by the norm is divided by its mean."""
    interpreter = Interpreter(program)
    total, count = 0.0, 0
    for batch in oracle.batches[::4]:
        [inverse] = interpreter.values(batch.inputs.ids, batch.inputs.positions, [Operand("one", name)])
        total += float(inverse[..., 0][batch.real].sum())
        count += int(batch.real.sum())
    return divided_by_constant(program, name, total / count)


def divided_by_constant(program: Program, norm: str, inverse: float) -> Program:
    """The program in which a norm is a number; the number goes into the tensors."""
    ops = dense_ops(program)
    tensors = dict(program.tensors)
    statements: list[Statement] = []
    scaled: dict[str, float] = {}  # variables that have become larger, since they aggregate what is no more divided

    def factor(operand: Operand) -> float:
        return (inverse if operand.norm == norm else 1.0) * scaled.get(operand.variable, 1.0)

    def plain(operand: Operand) -> Operand:
        return Operand(operand.variable) if operand.norm == norm else operand

    for s in program.statements:
        factors = [factor(operand) for operand in operands_of(s)]
        if s.name == norm:
            continue
        if all(f == 1.0 for f in factors):
            statements.append(s)
            continue
        match s:
            case Select(query=query, key=key):
                tensors[f"scaled_{s.name}"] = ops[s.name] * factors[0] * factors[1]
                s = replace(s, query=plain(query), key=plain(key), op=TensorName(f"scaled_{s.name}"), special_op=None)
            case Project(input=source):
                tensors[f"scaled_{s.name}"] = ops[s.name] * factors[0]
                s = replace(s, input=plain(source), op=TensorName(f"scaled_{s.name}"), special_op=None)
            case Aggregate(value=value):
                scaled[s.name] = factors[0]
                s = replace(s, value=plain(value))
            case Norm(inputs=inputs, op=TensorName(tensor)) | ElementWise(inputs=inputs, function=Network(tensor)):
                tensors |= {f"{tensor}.{i}": tensors[f"{tensor}.{i}"] * f for i, f in enumerate(factors)}
                s = replace(s, inputs=tuple(map(plain, inputs)))
            case _:
                pass
        statements.append(s)
    names = replace(program, statements=tuple(statements), tensors=tensors)
    return changed(names, {}, {})


def with_linear(program: Program, function: ElementWise) -> Program | None:
    """A function that is only projected gives way to projects of what it reads; their tensors begin as 0."""
    readers = [s for s in program.statements if function.name in variables_read(s)]
    if not all(isinstance(s, Project) for s in readers):
        return None
    prediction = program.statements[-1]
    assert isinstance(prediction, Prediction)
    interpreter = Interpreter(program)
    there = {p.input for p in projects_of(program)}
    added: list[Project] = []
    tensors: dict[str, Tensor] = {}
    for operand in function.inputs:
        if operand in there or operand == ONE:
            continue
        name = fresh_name(program, f"linear_{operand.variable}")
        rows = size(basis_of(interpreter.types, operand))
        tensors[f"R_{name}"] = torch.zeros(rows, len(program.vocabulary), dtype=dtype_of(program))
        added.append(Project(name, operand, TensorName(f"R_{name}"), comment=function.comment))
    gone = {reader.name for reader in readers}
    logits = tuple(r for r in prediction.logits if r.variable not in gone)
    new = replace(prediction, logits=(*logits, *(Reference(p.name) for p in added)))
    kept = [s for s in program.statements[:-1] if s.name not in gone]
    return changed(replace(program, statements=(*kept, *added, new)), {}, tensors)
