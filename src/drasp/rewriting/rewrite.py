"""Replacing a variable by another of which it is a linear function: the map goes into the tensors that follow."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from drasp.language import Interpreter
from drasp.language.syntax import (
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Program,
    Project,
    Select,
    Statement,
    TensorName,
)
from drasp.rewriting.provenance import concise, handed_on, standing, with_sites
from drasp.rewriting.tidy import without_unused
from drasp.tasks import Inputs


def dtype_of(program: Program) -> torch.dtype:
    """The type of the stored tensors: what is added to them must not make them coarser."""
    return next((tensor.dtype for tensor in program.tensors.values()), torch.float32)


def dense_ops(program: Program) -> Mapping[str, Float[Tensor, "rows columns"]]:
    """The tensor of every select and project, whether stored or of the library."""
    return Interpreter.of(program, dtype_of(program)).ops


def with_op(statement: Select | Project, tensor: str) -> Select | Project:
    return replace(statement, op=TensorName(tensor), special_op=None)


def fresh_name(program: Program, name: str) -> str:
    """A name that neither a variable nor a tensor of the program has."""
    taken = {*program.tensors, *(s.name for s in program.statements)}
    while name in taken or any(other.startswith(f"{name}.") for other in taken):
        name += "_"
    return name


@runtime_checkable
class Counted(Protocol):
    """Inputs with the positions at which answers count, padded; `valid` says where there is one."""

    @property
    def inputs(self) -> Inputs: ...
    @property
    def where(self) -> Int[Tensor, "batch counted"]: ...
    @property
    def valid(self) -> Bool[Tensor, "batch counted"]: ...


def where_it_matters(program: Program, names: Sequence[str], batch: Counted) -> Bool[Tensor, "batch pos"]:
    """The positions at which variables can have a part in answers that count.

    Where no head reads them, directly or through other lines, those are the answers' own; otherwise all up to the last.
    """
    counted = torch.zeros_like(batch.inputs.ids).scatter_reduce(1, batch.where, batch.valid.long(), "amax")
    if any(_is_attended(program, name) for name in names):
        counted = counted.flip(1).cummax(1).values.flip(1)
    return counted.bool()


def _is_attended(program: Program, name: str) -> bool:
    reached = {name}
    for statement in program.statements:
        if reached.intersection(statement.reads):
            if isinstance(statement, Select | Aggregate):
                return True
            reached.add(statement.name)
    return False


def reexpress(program: Program, name: str, new: Operand, matrix: Float[Tensor, "new old"]) -> Program | None:
    """The program in which `name` is read as `new` times a matrix; None where a reader cannot take the matrix in.

    What aggregates the variable aggregates `new`, and its own readers take the matrix in. The lines of the program
    list all edges (`explicit`), since what is read says less of them from now on.
    """
    result = _Reexpression(program, name, new, matrix).result()
    return result and concise(result)


class _Reexpression:
    """`instead` holds what is read instead of which variable; all of them are to be multiplied by the matrix."""

    def __init__(self, program: Program, name: str, new: Operand, matrix: Tensor) -> None:
        self.program, self.name, self.instead = program, name, {name: new}
        old, known = program.find(name), standing(program)
        assert old is not None
        # What stands for the same goes on saying it.
        same = known[name] and set(known[name]) <= set(known[new.variable])
        self.handed_on = () if same else handed_on(program, old)
        self.matrix = matrix.to(dtype_of(program))
        self.ops = dense_ops(program)
        self.tensors = dict(program.tensors)

    def result(self) -> Program | None:
        statements: list[Statement] = []
        for statement in self.program.statements:
            changed = self.changed(statement)
            if changed is None:
                return None
            taken_in = any(operand.variable == self.name for operand in statement.operands)
            statements.append(with_sites(changed, self.handed_on) if taken_in else changed)
        return without_unused(replace(self.program, statements=tuple(statements), tensors=self.tensors))

    def changed(self, statement: Statement) -> Statement | None:
        match statement:
            case Select(name, query, key) if self.meant(query) or self.meant(key):
                left, right = self.operand(query), self.operand(key)
                if left is None or right is None:
                    return None
                op = self.ops[name]
                op = self.matrix @ op if self.meant(query) else op
                op = op @ self.matrix.T if self.meant(key) else op
                return replace(with_op(statement, self.store(f"A_{name}", op)), query=left, key=right)
            case Project(name, source) if self.meant(source):
                read = self.operand(source)
                stored = self.store(f"R_{name}", self.matrix @ self.ops[name])
                return read and replace(with_op(statement, stored), input=read)
            case Aggregate(name, value=value) if self.meant(value):
                read = self.operand(value)
                if read is None:
                    return None
                self.instead[name] = Operand(name)
                return replace(statement, value=read)
            case Norm() | ElementWise(function=Network()):
                return self.changed_inputs(statement)
            case _:
                return None if any(map(self.meant, statement.operands)) else statement

    def changed_inputs(self, statement: Norm | ElementWise) -> Statement | None:
        read = [self.operand(operand) for operand in statement.inputs]
        if any(operand is None for operand in read):
            return None
        for tensor, operand in zip(statement.source_names, statement.inputs, strict=True):
            if self.meant(operand):
                self.tensors[tensor] = self.matrix @ self.tensors[tensor]
        return replace(statement, inputs=tuple(operand for operand in read if operand))

    def meant(self, operand: Operand) -> bool:
        return operand.variable in self.instead

    def operand(self, old: Operand) -> Operand | None:
        """What is read instead; a variable cannot be divided twice."""
        new = self.instead.get(old.variable)
        if new is None:
            return old
        return None if new.norm and old.norm else Operand(new.variable, new.norm or old.norm)

    def store(self, name: str, tensor: Tensor) -> str:
        name = fresh_name(replace(self.program, tensors=self.tensors), name)
        self.tensors[name] = tensor
        return name
