"""Lossy rewriting: lines of a program, or inputs of them, taken away for their means in a bias (mean ablation).

Whatever is done here may change answers, so that a judge decides on it; what never does is in `drasp.rewriting`.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Norm,
    Operand,
    Program,
    Project,
    Reference,
    Select,
    Statement,
    TensorName,
)
from drasp.rewriting.provenance import without_heard
from drasp.rewriting.rewrite import dense_ops, dtype_of, fresh_name, with_op
from drasp.rewriting.tidy import bias_of, changed, without_logits, without_unused
from drasp.sites import OUT

Means = Mapping[Operand, Float[Tensor, " dims"]]
Reader = TypeVar("Reader", bound=ElementWise | Norm)


def _drop_variable(program: Program, name: str, means: Means) -> Program | None:
    """Every line that reads it does without; what only passes it on goes too."""
    result: Program | None = program if program.find(name) else None
    while result is not None and (reader := next((s for s in result.statements if _reads(s, name)), None)):
        match reader:
            case Select():
                result = drop_select(result, reader.name, means)
            case Project():
                result = drop_project(result, reader.name, means)
            case Aggregate():
                result = _drop_variable(result, reader.name, means)
            case ElementWise(inputs=inputs) | Norm(inputs=inputs):
                operand = next(v for v in inputs if v.variable == name)
                result = drop_input(result, reader.name, operand, means)
            case _:
                return None
    return result


def _reads(statement: Statement, name: str) -> bool:
    return any(operand.variable == name for operand in statement.operands)


def drop_norm(program: Program, name: str, means: Means) -> Program | None:
    """What was divided by the norm is divided by a constant."""
    if program.find(name) is None:
        return None
    return divided_by_constant(program, name, float(means[Operand("one", name)][0]))


def with_bias(program: Program) -> Program:
    """The program with a project of `one`, the bias, in which means are left; one of zeros changes nothing."""
    if bias_of(program) is not None:
        return program
    name, prediction = fresh_name(program, "bias"), program.prediction
    bias = Project(name, ONE, TensorName(f"R_{name}"), sites=(OUT,))
    zeros = torch.zeros(1, len(program.vocabulary), dtype=dtype_of(program))
    statements = (*program.statements[:-1], bias, replace(prediction, logits=(*prediction.logits, Reference(name))))
    return replace(program, statements=statements, tensors={**program.tensors, f"R_{name}": zeros})


def drop_select(program: Program, name: str, means: Means) -> Program | None:
    """The program without a select, whose mean over queries joins the head's key-only select of that key."""
    select = program.find(name)
    if not isinstance(select, Select):
        return None
    if select.query != ONE and isinstance(select.op, TensorName):
        users = program.readers(name)
        twin = next((s for s in program.statements if _is_twin(s, select, users)), None)
        if twin is not None:
            [target] = twin.tensor_names
            extra = means[select.query] @ program.tensors[select.op.name]
            program = program.with_tensors({target: program.tensors[target] + extra[None]})
    return without_select(program, name)


def _is_twin(statement: Statement, select: Select, users: list[Statement]) -> bool:
    return (
        isinstance(statement, Select)
        and (statement.query, statement.key) == (ONE, select.key)
        and all(statement.name in user.reads for user in users)
    )


def drop_project(program: Program, name: str, means: Means) -> Program | None:
    """The program without a project, whose mean joins the bias."""
    project, bias = program.find(name), bias_of(program)
    if not isinstance(project, Project) or not isinstance(project.op, TensorName) or bias is None:
        return None
    [target] = bias.tensor_names
    extra = means[project.input] @ program.tensors[project.op.name]
    prediction = without_logits(program, name)
    return changed(program, {name: None, "prediction": prediction}, {target: program.tensors[target] + extra[None]})


def drop_line(program: Program, name: str, operand: Operand | None, means: Means) -> Program | None:
    """The program without a select, a project, a norm, or an input of a function, which goes with its last one."""
    match program.find(name):
        case Select():
            return drop_select(program, name, means)
        case Project():
            return drop_project(program, name, means)
        case Norm():
            return drop_norm(program, name, means)
        case ElementWise(inputs=(only,)) if only == operand:
            return _drop_variable(program, name, means)
        case ElementWise() if operand is not None:
            return drop_input(program, name, operand, means)
        case _:
            return None


def drop_input(program: Program, name: str, operand: Operand, means: Means) -> Program | None:
    statement = program.find(name)
    if not isinstance(statement, ElementWise | Norm) or operand not in statement.inputs or len(statement.inputs) < 2:
        return None
    smaller, tensors = without_input(program, statement, operand, means)
    return changed(program, {name: smaller}, tensors)


def without_input(
    program: Program, statement: Reader, operand: Operand, means: Means
) -> tuple[Reader, Mapping[str, Tensor]]:
    """The line without an input, whose mean joins the constant: the input `one`, else the hidden bias."""
    parts = {v: program.tensors[name] for v, name in zip(statement.inputs, statement.source_names, strict=True)}
    extra = means[operand] @ parts.pop(operand)
    tensors: dict[str, Tensor] = {}
    if ONE in parts or isinstance(statement, Norm):
        parts[ONE] = parts.get(ONE, torch.zeros_like(extra[None])) + extra[None]
    else:
        hidden = f"{statement.stored}.hidden_bias"
        tensors[hidden] = program.tensors[hidden] + extra @ program.tensors[f"{statement.stored}.hidden"]
    smaller = replace(statement, inputs=tuple(parts), sites=without_heard(program, statement, operand))
    return smaller, tensors | dict(zip(smaller.source_names, parts.values(), strict=True))


def without_select(program: Program, name: str) -> Program:
    new: dict[str, Statement | None] = {name: None}
    for user in program.readers(name):
        if isinstance(user, Aggregate):
            new[user.name] = replace(user, selectors=tuple(r for r in user.selectors if r.variable != name))
    return changed(program, new, {})


def divided_by_constant(program: Program, norm: str, inverse: float) -> Program:
    """The program in which a norm is a number; the number goes into the tensors.

    A function of the library has none: what it reads is then not divided at all.
    """
    ops = dense_ops(program)
    tensors = dict(program.tensors)
    statements: list[Statement] = []
    scaled: dict[str, float] = {}  # variables that have become larger, since they aggregate what is no more divided

    def factor(operand: Operand) -> float:
        return (inverse if operand.norm == norm else 1.0) * scaled.get(operand.variable, 1.0)

    def plain(operand: Operand) -> Operand:
        return Operand(operand.variable) if operand.norm == norm else operand

    for s in program.statements:
        factors = [factor(operand) for operand in s.operands]
        if s.name == norm:
            continue
        if all(f == 1.0 for f in factors):
            statements.append(s)
            continue
        match s:
            case Select() | Project():
                tensors[f"scaled_{s.name}"] = ops[s.name] * prod(factors)
                s = with_op(s, f"scaled_{s.name}")
            case Aggregate():
                scaled[s.name] = factors[0]
            case Norm() | ElementWise():
                tensors |= {name: tensors[name] * f for name, f in zip(s.source_names, factors, strict=False)}
            case _:
                pass
        statements.append(s.map(plain))
    return without_unused(replace(program, statements=tuple(statements), tensors=tensors))
