"""Finds what is wrong with a program before it runs, and what each of its variables is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeAlias

import torch

from drasp.errors import DraspError
from drasp.language.bases import Basis, One, Positions, Space, Tokens, describe, size
from drasp.language.function_primitives import function_primitives
from drasp.language.syntax import (
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Place,
    Prediction,
    PrimitiveFunction,
    PrimitiveTensor,
    Program,
    ProgramError,
    Project,
    Reference,
    Select,
    Statement,
    TensorName,
    TensorOp,
    once,
)
from drasp.language.tensor_primitives import NotApplicable, build

# Those of eight bits have no arithmetic.
_NUMBERS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Activation:
    basis: Basis


@dataclass(frozen=True)
class Selector:
    """A score for each pair of positions."""

    query: Basis
    key: Basis


@dataclass(frozen=True)
class Divisor:
    """What `norm` gives: one number a position."""


@dataclass(frozen=True)
class Logits:
    """What `project` gives: one number a token."""


VariableType: TypeAlias = Activation | Selector | Divisor | Logits

_KINDS: dict[type[VariableType], str] = {
    Activation: "an activation variable",
    Selector: "a selector",
    Divisor: "a norm",
    Logits: "logits",
}


def variable_types(program: Program) -> Mapping[str, VariableType]:
    """The type of every variable; raises the first error where the program has one."""
    return once(program.of_shape, "types", lambda: _types(program))


def _types(program: Program) -> Mapping[str, VariableType]:
    types, errors = _check(program)
    if errors:
        raise errors[0]
    return types


def basis_of(program: Program, operand: Operand) -> Basis:
    """What the dimensions of an activation variable mean."""
    found = variable_types(program)[operand.variable]
    assert isinstance(found, Activation)
    return found.basis


def op_bases(program: Program, statement: Select | Project) -> tuple[Basis, Basis]:
    """What the rows and the columns of a line's tensor mean."""
    match statement:
        case Select(query=query, key=key):
            return basis_of(program, query), basis_of(program, key)
        case Project(input=source):
            return basis_of(program, source), Tokens(program.vocabulary)


def check(program: Program) -> list[ProgramError]:
    """Everything that is wrong with the program, in the order of its lines."""
    return _check(program)[1]


def _check(program: Program) -> tuple[dict[str, VariableType], list[ProgramError]]:
    types: dict[str, VariableType] = {
        "token": Activation(Tokens(program.vocabulary)),
        "pos": Activation(Positions(program.n_positions)),
        "one": Activation(One()),
    }
    errors: list[ProgramError] = []
    broken: set[str] = set()  # defined by a line with an error: what uses them is not blamed
    for number, statement in enumerate(program.statements):
        reader = _LineReader(program, types, broken)
        try:
            if statement.name in types or statement.name in broken:
                raise ProgramError(statement.place, f"variable `{statement.name}` is defined a second time")
            result = reader.type_of(statement)
            if isinstance(statement, Prediction) and number + 1 < len(program.statements):
                place = program.statements[number + 1].place
                raise ProgramError(place, "found a line after the prediction, expected it to be the last")
        except _UsesBrokenError:
            broken.add(statement.name)
        except ProgramError as error:
            errors.append(error)
            broken.add(statement.name)
        else:
            if result:
                types[statement.name] = result
    last = program.statements[-1] if program.statements else None
    if not any(isinstance(statement, Prediction) for statement in program.statements):
        place = Place(last.place.line if last else 1, last.place.column if last else 1)
        errors.append(ProgramError(place, "the program ends here, expected `prediction = softmax(…)` or `sigmoid(…)`"))
    return types, errors


class _UsesBrokenError(Exception):
    pass


@dataclass(frozen=True)
class _LineReader:
    """What a line may read: the variables before it, and the tensors."""

    program: Program
    types: Mapping[str, VariableType]
    broken: set[str]

    def type_of(self, statement: Statement) -> VariableType | None:
        match statement:
            case Select(query=query, key=key, op=op, special_op=special_op):
                rows, columns = self.basis(query), self.basis(key)
                self.check_op(op, special_op, rows, columns)
                return Selector(rows, columns)
            case Aggregate(selectors=selectors, value=value):
                for selector in selectors:
                    self.expect(selector, Selector)
                return Activation(self.basis(value))
            case ElementWise(inputs=inputs, function=function):
                bases = [self.basis(v) for v in inputs]
                match function:
                    case Network():
                        return Activation(self.network_basis(bases, function))
                    case PrimitiveFunction():
                        return Activation(self.function_basis(bases, function))
            case Norm(inputs=inputs, op=op):
                self.check_sources(op.name, [self.basis(v) for v in inputs], op.place)
                return Divisor()
            case Project(input=source, op=op, special_op=special_op):
                self.check_op(op, special_op, self.basis(source), Tokens(self.program.vocabulary))
                return Logits()
            case Prediction(logits=logits):
                for reference in logits:
                    self.expect(reference, Logits)
                return None

    def basis(self, operand: Operand) -> Basis:
        found = self.expect(operand, Activation)
        assert isinstance(found, Activation)
        if operand.norm:
            self.expect(Reference(operand.norm, operand.place), Divisor)
        return found.basis

    def expect(self, use: Operand | Reference, kind: type[VariableType]) -> VariableType:
        if use.variable in self.broken:
            raise _UsesBrokenError
        found = self.types.get(use.variable)
        if found is None:
            close = get_close_matches(use.variable, self.types, 1)
            hint = f"; did you mean `{close[0]}`?" if close else ""
            raise ProgramError(use.place, f"variable `{use.variable}` is not defined before this line{hint}")
        if not isinstance(found, kind):
            raise ProgramError(use.place, f"`{use.variable}` is {_KINDS[type(found)]}, expected {_KINDS[kind]}")
        return found

    def check_op(self, op: TensorOp, special_op: PrimitiveTensor | None, rows: Basis, columns: Basis) -> None:
        match op:
            case TensorName(name, place):
                if special_op:
                    raise ProgramError(
                        special_op.place, "special_op= goes with a primitive op=, not with a stored tensor"
                    )
                self.check_tensor(name, (size(rows), size(columns)), place, f"{describe(rows)} by {describe(columns)}")
            case PrimitiveTensor(place=place):
                try:
                    build(op, special_op, rows, columns)
                except NotApplicable as error:
                    raise ProgramError(place, str(error)) from None

    def check_tensor(self, name: str, shape: tuple[int, ...], place: Place, meaning: str) -> None:
        tensor = self.program.tensors.get(name)
        if tensor is None:
            raise ProgramError(place, f"tensor `{name}` is not among the program's tensors")
        if tuple(tensor.shape) != shape:
            found = list(tensor.shape)
            raise ProgramError(place, f"tensor `{name}` has shape {found}, expected {list(shape)}: {meaning}")
        if tensor.dtype not in _NUMBERS or not torch.isfinite(tensor).all():
            raise ProgramError(place, f"tensor `{name}` holds something else than finite floating-point numbers")

    def check_sources(self, name: str, bases: list[Basis], place: Place) -> int:
        """The tensors that map each input into one common space; gives that space's dimension."""
        first = self.program.tensors.get(f"{name}.0")
        width = first.shape[-1] if first is not None and first.ndim == 2 else 0
        for i, basis in enumerate(bases):
            self.check_tensor(f"{name}.{i}", (size(basis), width), place, f"{describe(basis)} by the common space")
        return width

    def network_basis(self, bases: list[Basis], network: Network) -> Basis:
        name, place = network.name, network.place
        width = self.check_sources(name, bases, place)
        hidden = self.program.tensors.get(f"{name}.hidden_bias")
        units = hidden.shape[0] if hidden is not None and hidden.ndim == 1 else 0
        self.check_tensor(f"{name}.hidden_bias", (units,), place, "one number a hidden unit")
        self.check_tensor(f"{name}.hidden", (width, units), place, "the common space by the hidden units")
        out = self.program.tensors.get(f"{name}.out")
        result = out.shape[-1] if out is not None and out.ndim == 2 else 0
        self.check_tensor(f"{name}.out", (units, result), place, "the hidden units by the result")
        self.check_tensor(f"{name}.out_bias", (result,), place, "one number a dimension of the result")
        return Space(result)

    def function_basis(self, bases: list[Basis], function: PrimitiveFunction) -> Basis:
        primitive = function_primitives()[function.primitive]
        if primitive.inputs is not None and len(bases) != primitive.inputs:
            count = f"{primitive.inputs} variable" + ("s" if primitive.inputs > 1 else "")
            raise ProgramError(function.place, f"`{primitive.name}` got {len(bases)} variables, expected {count}")
        rule: Callable[..., Basis] = primitive.basis
        try:
            return rule(bases, *function.arguments)
        except DraspError as error:
            raise ProgramError(function.place, str(error)) from None
