"""Writes the text form: what the parser reads back as the same program."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from drasp.language.remarks import remark
from drasp.language.statements import (
    ONE,
    Argument,
    Function,
    Network,
    Operand,
    Prediction,
    PrimitiveFunction,
    PrimitiveTensor,
    Statement,
    TensorName,
    TensorOp,
)
from drasp.language.tables import quote
from drasp.language.tensor_primitives import print_number, print_primitive
from drasp.vocabulary import Vocabulary

_WIDTH = 100


def program_text(vocabulary: Vocabulary, n_positions: int, statements: Sequence[Statement]) -> str:
    """A program's parts as its text: a header that names the vocabulary, and the numbered lines."""
    header = [
        _token_list("vocab", vocabulary.tokens),
        _token_list("special", vocabulary.special),
        f"positions = {n_positions}",
    ]
    return "\n".join(header) + "\n\n" + listing(statements) + "\n"


def listing(statements: Sequence[Statement]) -> str:
    """The numbered lines, as a person reads them."""
    return "\n".join(f"{number}. {_line(line)}" for number, line in enumerate(statements, 1))


def _line(statement: Statement) -> str:
    text, behind = statement_text(statement), remark(statement)
    return f"{text}  # {behind}" if behind else text


def statement_text(statement: Statement) -> str:
    """One statement without number and comment."""
    call = statement.output if isinstance(statement, Prediction) else statement.kind
    arguments = [_argument(a, statement.parts[a.field], statement.kind) for a in statement.arguments]
    return f"{statement.name} = {call}({', '.join(text for text in arguments if text)})"


def _argument(argument: Argument, value: Any, statement: str) -> str:
    if argument.optional and value in (None, ONE):
        return ""
    text = _value(argument, value, statement)
    return f"{argument.keyword}={text}" if argument.keyword else text


def _value(argument: Argument, value: Any, statement: str) -> str:
    match argument.form:
        case "operand":
            return _operand(value)
        case "operands":
            return ", ".join(map(_operand, value))
        case "references" | "sum":
            return "+".join(reference.variable for reference in value) or "[]"
        case "tensor" | "stored" | "primitive":
            return _tensor(value, statement)
        case "function":
            return _function(value)
        case "fraction":
            return print_number(value)


def _operand(operand: Operand) -> str:
    return f"{operand.variable}/{operand.norm}" if operand.norm else operand.variable


def _tensor(op: TensorOp, statement: str) -> str:
    match op:
        case TensorName(name):
            return name
        case PrimitiveTensor():
            return print_primitive(op, statement)


def _function(function: Function) -> str:
    match function:
        case Network(name, activation, eps):
            normed = "" if eps is None else f", eps={print_number(eps)}"
            return f"mlp({name}, {activation}{normed})"
        case PrimitiveFunction(primitive, ()):
            return primitive
        case PrimitiveFunction(primitive, arguments):
            return f"{primitive}({', '.join(map(print_number, arguments))})"


def _token_list(name: str, tokens: tuple[str, ...]) -> str:
    text = f"{name} = [{', '.join(map(quote, tokens))}]"
    # A token may hold spaces, so only lists of plain words are wrapped.
    if len(text) <= _WIDTH or any(quote(token) != token for token in tokens):
        return text
    return fill(text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)
