"""Moves on a program: a line or an input of one is taken away, and its mean joins a bias."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.decompiler.elimination import Move
from drasp.fitting.oracle import Oracle
from drasp.language import Interpreter
from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Program,
    Project,
    Reference,
    Select,
    Statement,
    TensorName,
)
from drasp.rewriting.parts import divided_by_constant, without_select
from drasp.rewriting.provenance import without_heard
from drasp.rewriting.rewrite import dtype_of, fresh_name
from drasp.rewriting.tidy import bias_of, changed, without_logits
from drasp.sites import OUT

Means = Mapping[Operand, Float[Tensor, " dims"]]
Reader = TypeVar("Reader", bound=ElementWise | Norm)


@torch.no_grad()
def operand_means(program: Program, oracle: Oracle) -> Means:
    """The mean of everything that a line reads, and of every function, over all positions of some inputs."""
    interpreter = Interpreter.of(program)
    wanted = {operand for statement in program.statements for operand in statement.operands}
    wanted |= {Operand("one", s.name) for s in program.statements if isinstance(s, Norm)}
    wanted |= {Operand(s.name) for s in program.statements if isinstance(s, ElementWise)}
    sums: dict[Operand, Tensor] = {}
    count = 0
    for batch in oracle.batches:
        values = interpreter.values(batch.inputs.ids, batch.inputs.positions, tuple(wanted))
        count += int(batch.real.sum())
        for operand, value in zip(wanted, values, strict=True):
            part = value[batch.real].sum(0)
            sums[operand] = sums[operand] + part if operand in sums else part
    return {operand: total / count for operand, total in sums.items()}


# ---------------------------------------------------------------------------------------- moves


def line_moves(program: Program, means: Means) -> list[Move[Program]]:
    """Everything that could go: selects, projects, norms, and inputs of norms and of element-wise functions."""
    moves: list[Move[Program]] = []
    for statement in program.statements:
        match statement:
            case Select(name):
                moves.append(Move(("select", name), lambda p, name=name: _drop_select(p, name, means)))
            case Project(name, source) if source != ONE:
                moves.append(Move(("project", name), lambda p, name=name: _drop_project(p, name, means)))
            case Norm(name, inputs):
                moves.append(Move(("norm", name), lambda p, name=name: _drop_norm(p, name, means)))
                moves += _input_moves(name, inputs, means)
            case ElementWise(name, inputs, Network()):
                moves += _input_moves(name, inputs, means)
            case _:
                pass
    return moves


def _input_moves(name: str, inputs: tuple[Operand, ...], means: Means) -> list[Move[Program]]:
    return [Move(("input", name, v), lambda p, v=v: _drop_input(p, name, v, means)) for v in inputs if v != ONE]


def _drop_variable(program: Program, name: str, means: Means) -> Program | None:
    """Every line that reads it does without; what only passes it on goes too."""
    result: Program | None = program if program.find(name) else None
    while result is not None and (reader := next((s for s in result.statements if _reads(s, name)), None)):
        match reader:
            case Select():
                result = _drop_select(result, reader.name, means)
            case Project():
                result = _drop_project(result, reader.name, means)
            case Aggregate():
                result = _drop_variable(result, reader.name, means)
            case ElementWise(inputs=inputs) | Norm(inputs=inputs):
                operand = next(v for v in inputs if v.variable == name)
                result = _drop_input(result, reader.name, operand, means)
            case _:
                return None
    return result


def _reads(statement: Statement, name: str) -> bool:
    return any(operand.variable == name for operand in statement.operands)


def _drop_norm(program: Program, name: str, means: Means) -> Program | None:
    """What was divided by the norm is divided by a constant."""
    if program.find(name) is None:
        return None
    return divided_by_constant(program, name, float(means[Operand("one", name)][0]))


def with_bias(program: Program) -> Program:
    """With a project of `one`, for what goes to leave its mean in; one of zeros changes nothing."""
    if bias_of(program) is not None:
        return program
    name, prediction = fresh_name(program, "bias"), program.prediction
    bias = Project(name, ONE, TensorName(f"R_{name}"), sites=(OUT,))
    zeros = torch.zeros(1, len(program.vocabulary), dtype=dtype_of(program))
    statements = (*program.statements[:-1], bias, replace(prediction, logits=(*prediction.logits, Reference(name))))
    return replace(program, statements=statements, tensors={**program.tensors, f"R_{name}": zeros})


def _drop_select(program: Program, name: str, means: Means) -> Program | None:
    """Its mean over queries joins a key-only select of the same key, where the head has one."""
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


def _drop_project(program: Program, name: str, means: Means) -> Program | None:
    """Its mean joins the bias."""
    project, bias = program.find(name), bias_of(program)
    if not isinstance(project, Project) or not isinstance(project.op, TensorName) or bias is None:
        return None
    [target] = bias.tensor_names
    extra = means[project.input] @ program.tensors[project.op.name]
    prediction = without_logits(program, name)
    return changed(program, {name: None, "prediction": prediction}, {target: program.tensors[target] + extra[None]})


def drop_line(program: Program, name: str, operand: Operand | None, means: Means) -> Program | None:
    """Without a select, a project, a norm, or one input of a function: with the last one, the function goes."""
    match program.find(name):
        case Select():
            return _drop_select(program, name, means)
        case Project():
            return _drop_project(program, name, means)
        case Norm():
            return _drop_norm(program, name, means)
        case ElementWise(inputs=(only,)) if only == operand:
            return _drop_variable(program, name, means)
        case ElementWise() if operand is not None:
            return _drop_input(program, name, operand, means)
        case _:
            return None


def _drop_input(program: Program, name: str, operand: Operand, means: Means) -> Program | None:
    statement = program.find(name)
    if not isinstance(statement, ElementWise | Norm) or operand not in statement.inputs or len(statement.inputs) < 2:
        return None
    smaller, tensors = without_input(program, statement, operand, means)
    return changed(program, {name: smaller}, tensors)


def without_input(
    program: Program, statement: Reader, operand: Operand, means: Means
) -> tuple[Reader, Mapping[str, Tensor]]:
    """Its mean joins the constant: the input `one`, or of a function without it the hidden bias."""
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


# -------------------------------------------------------------------------------------- settling


def constants_of(program: Program) -> list[str]:
    """The tensors that stand for constants: biases, and what key-only selects look for."""
    names: list[str] = []
    for statement in program.statements:
        match statement:
            case Select(query=query, op=TensorName(name)) if query == ONE:
                names.append(name)
            case Project(input=source, op=TensorName(name)) if source == ONE:
                names.append(name)
            case ElementWise(function=Network(name)):
                names += [f"{name}.hidden_bias", f"{name}.out_bias"]
            case _:
                pass
    return names
