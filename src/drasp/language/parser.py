"""Reads the text form: the grammar (grammar.lark) gives a tree, and this module gives it meaning."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from lark import Lark, Token, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from torch import Tensor

from drasp.activations import ACTIVATIONS
from drasp.errors import DraspError
from drasp.language.function_primitives import function_primitives
from drasp.language.remarks import read_remark
from drasp.language.syntax import (
    CALLS,
    DEFAULT_SCALE,
    INITIAL_VARIABLES,
    ONE,
    Argument,
    Function,
    Network,
    Operand,
    Place,
    Prediction,
    PrimitiveFunction,
    PrimitiveTensor,
    Program,
    ProgramError,
    Reference,
    Statement,
    TensorName,
    TensorOp,
)
from drasp.language.tensor_primitives import known_texts, parse_primitive
from drasp.vocabulary import Vocabulary

_LONGEST = 200_000  # letters of a line that is no list of tokens
_MOST_POSITIONS = 1_000_000
# Lark's trees are not typed: what a node holds is what the grammar says.
Node: TypeAlias = Any

# How messages call the grammar's terminals.
_TERMINALS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "LINE_NUMBER": "a line number",
    "WORD": "a token",
    "STRING": "a token in quotes",
    "PRIMITIVE": "a primitive in parentheses",
    "_NEWLINE": "the end of the line",
    "$END": "the end of the program",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "EQUAL": "`=`",
    "COMMA": "`,`",
    "PLUS": "`+`",
    "SLASH": "`/`",
    "STAR": "`*`",
}


def parse(text: str, tensors: Mapping[str, Tensor] | None = None) -> Program:
    """The program that a text stands for. Raises a ProgramError with the place of the first mistake."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > _LONGEST and not line.startswith(("vocab", "special")):
            raise ProgramError(
                Place(number, 1), f"found {len(line):,} letters in a line, expected at most {_LONGEST:,}"
            )
    try:
        tree = _lark().parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(error, text) from None
    lines = text.split("\n")
    header: dict[str, Any] = {}
    statements: list[Statement] = []
    for item in tree.children:
        if item.data == "statement":
            statements.append(_statement(item, _comment(item, lines)))
        else:
            _read_header(item, header)
    missing = next((key for key in ("vocab", "positions") if key not in header), None)
    if missing:
        raise ProgramError(Place(1, 1), f"the program does not say `{missing} = …`")
    try:
        vocabulary = Vocabulary(header["vocab"][0], header.get("special", ((), None))[0])
    except DraspError as error:
        raise ProgramError(header.get("special", header["vocab"])[1], str(error)) from None
    return Program(vocabulary, header["positions"][0], tuple(statements), tensors or {})


class _JoinBracketedLines:
    """Inside brackets, the end of a line is white space."""

    always_accept = ("_NEWLINE",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        depth = 0
        for token in stream:
            depth += (token.type in ("LPAR", "LSQB")) - (token.type in ("RPAR", "RSQB"))
            if token.type != "_NEWLINE" or depth <= 0:
                yield token


@cache
def _lark() -> Any:
    return Lark(
        Path(__file__).with_name("grammar.lark").read_text(),
        start="program",
        parser="lalr",
        postlex=_JoinBracketedLines(),  # type: ignore[arg-type]
        propagate_positions=True,
    )


def _syntax_error(error: UnexpectedInput, text: str) -> ProgramError:
    lines = text.split("\n")
    match error:
        case UnexpectedToken(token=Token() as token) if token.type != "$END":
            place = _place(token)
            found = "the end of the line" if token.type == "_NEWLINE" else f"`{token}`"
            expected = error.accepts or error.expected
        case UnexpectedToken():
            place = Place(len(lines), len(lines[-1]) + 1)
            found, expected = "the end of the program", error.accepts or error.expected
        case UnexpectedCharacters():
            place = Place(error.line, error.column)
            found, expected = f"`{lines[error.line - 1][error.column - 1]}`", error.allowed or set[str]()
        case _:
            place, found, expected = Place(error.line, error.column), "something else", set[str]()
    names = sorted({_TERMINALS.get(terminal, f"`{terminal.lower()}=`") for terminal in expected})
    return ProgramError(place, f"found {found}, expected {' or '.join(names) or 'something else'}")


def _place(token: Token) -> Place:
    return Place(token.line or 0, token.column or 0)


def _comment(item: Node, lines: list[str]) -> str:
    """What follows `#` behind a statement, on its last line."""
    rest = lines[(item.meta.end_line or 1) - 1][(item.meta.end_column or 1) - 1 :].strip()
    return rest.lstrip("#").strip()


def _read_header(item: Node, header: dict[str, Any]) -> None:
    keyword, value = item.children
    name, place = str(keyword), _place(keyword)
    if name in header:
        raise ProgramError(place, f"`{name} = …` stands here a second time")
    if name == "positions":
        header[name] = (_whole_number(value, 1, _MOST_POSITIONS), place)
    else:
        header[name] = (tuple(_token(token) for token in value.children), place)


def _token(token: Token) -> str:
    if token.type == "WORD":
        return str(token)
    try:
        return str(json.loads(token))
    except ValueError:
        raise ProgramError(_place(token), f"found {token}, expected a token in JSON's quotes") from None


def _whole_number(token: Token, least: int, most: int) -> int:
    if not token.isdigit() or len(token) > len(str(most)) or not least <= int(token) <= most:
        raise ProgramError(_place(token), f"found {token}, expected a whole number from {least} to {most:,}")
    return int(token)


def _number(token: Token) -> float:
    number = float(token)
    if not math.isfinite(number):
        raise ProgramError(_place(token), f"found {token}, expected a number that fits")
    return number


# ------------------------------------------------------------------------------------- statements


@dataclass(frozen=True)
class _Arguments:
    """The arguments of one call; `take` gives those that the call may have, `finish` refuses the rest."""

    call: Token
    keywords: dict[str, tuple[Token, Any]]
    positional: list[Node]

    def take(self, keyword: str) -> Any:
        found = self.take_if_there(keyword)
        if found is None:
            raise ProgramError(_place(self.call), f"`{self.call}` needs the argument `{keyword}=`")
        return found

    def take_if_there(self, keyword: str) -> Any:
        return self.keywords.pop(keyword, (None, None))[1]

    def finish(self) -> None:
        if self.positional:
            place = _operand(self.positional[0].children[0]).place
            raise ProgramError(place, f"found an argument without a name, but `{self.call}` takes none")
        for keyword, _ in self.keywords.values():
            raise ProgramError(_place(keyword), f"found `{keyword}=`, which `{self.call}` does not take")


def _statement(item: Node, comment: str) -> Statement:
    names = [child for child in item.children if getattr(child, "type", "") == "NAME"]
    target, call = names
    arguments = _Arguments(call, {}, [])
    for child in item.children:
        match getattr(child, "data", ""):
            case "keyword":
                keyword, value = child.children
                if str(keyword) in arguments.keywords:
                    raise ProgramError(_place(keyword), f"`{keyword}=` is given twice")
                arguments.keywords[str(keyword)] = (keyword, value)
            case "sum":
                arguments.positional.append(child)
            case _:
                pass  # the names and the line number
    statement = _call(str(target), arguments)
    arguments.finish()
    place = _place(target)
    if isinstance(statement, Prediction) != (target == "prediction"):
        expected = "prediction" if isinstance(statement, Prediction) else "another name"
        raise ProgramError(place, f"found `{target} = {call}(…)`, expected {expected} before the `=`")
    if target in INITIAL_VARIABLES:
        raise ProgramError(place, f"`{target}` is a variable of every program and cannot be defined")
    sites, words = read_remark(comment)
    return replace(statement, sites=sites, comment=words, place=place)


def _call(name: str, arguments: _Arguments) -> Statement:
    call = str(arguments.call)
    kind = CALLS.get(call)
    if kind is None:
        raise ProgramError(_place(arguments.call), f"found `{call}`, expected {_nearest(call, list(CALLS))}")
    first = {"output": call} if kind is Prediction else {"name": name}
    return kind(**first, **{a.field: _value(a, arguments, kind.kind) for a in kind.arguments})


def _value(argument: Argument, arguments: _Arguments, statement: str) -> Any:
    """What fills a field: what stands behind the argument's keyword, or without one."""
    match argument.form:
        case "operands":
            return _inputs(arguments)
        case "sum":
            return _logits(arguments)
        case _:
            take = arguments.take_if_there if argument.optional else arguments.take
            node = take(argument.keyword)
    match argument.form:
        case "operand":
            return _operand(node) if node else ONE
        case "references":
            return tuple(Reference(str(token), _place(token)) for token in node.children)
        case "tensor":
            return _tensor(node, statement)
        case "stored":
            return _stored(node, statement)
        case "primitive":
            return _special(node, statement)
        case "function":
            return _function(node)
        case "fraction":
            return _fraction(node, statement)


def _nearest(found: str, known: tuple[str, ...] | list[str]) -> str:
    close = get_close_matches(found, known, 1)
    return f"`{close[0]}`" if close else "one of " + ", ".join(f"`{name}`" for name in known)


def _operand(node: Node) -> Operand:
    variable, *norm = node.children
    return Operand(str(variable), str(norm[0]) if norm else None, _place(variable))


def _inputs(arguments: _Arguments) -> tuple[Operand, ...]:
    inputs: list[Operand] = []
    for argument in arguments.positional:
        first, *more = argument.children
        if more:
            place = _place(more[0].children[0])
            raise ProgramError(place, f"`{arguments.call}` takes its variables one by one: expected `,` before this")
        inputs.append(_operand(first))
    arguments.positional.clear()
    if not inputs:
        raise ProgramError(_place(arguments.call), f"`{arguments.call}` needs a variable")
    return tuple(inputs)


def _logits(arguments: _Arguments) -> tuple[Reference, ...]:
    if len(arguments.positional) != 1:
        raise ProgramError(
            _place(arguments.call), f"`{arguments.call}` takes one sum of logits, as in (logits1+logits2)"
        )
    operands = [_operand(node) for node in arguments.positional.pop().children]
    divided = next((operand for operand in operands if operand.norm), None)
    if divided:
        raise ProgramError(divided.place, "logits cannot be divided by a norm")
    return tuple(Reference(operand.variable, operand.place) for operand in operands)


def _tensor(node: Node, statement: str) -> TensorOp:
    token = node.children[0]
    place = _place(token)
    if node.data == "tensor_name":
        return TensorName(str(token), place)
    found = parse_primitive(token[1:-1], statement)
    if found is None:
        known = ", ".join(f"({text})" for text in known_texts(statement)) or "the name of a tensor"
        raise ProgramError(place, f"found the unknown primitive {token}, expected one of {known}")
    scale = _number(node.children[1]) if len(node.children) > 1 else DEFAULT_SCALE
    return PrimitiveTensor(*found, scale, place)


_NEEDS = "`{}` needs a stored tensor `op=` and an `eps=` from 0 to 1"


def _stored(node: Node, statement: str) -> TensorName:
    match _tensor(node, statement):
        case TensorName() as name:
            return name
        case PrimitiveTensor(place=place):
            raise ProgramError(place, _NEEDS.format(statement))


def _fraction(token: Token, statement: str) -> float:
    if not 0 <= _number(token) < 1:
        raise ProgramError(_place(token), _NEEDS.format(statement))
    return _number(token)


def _special(node: Node | None, statement: str) -> PrimitiveTensor | None:
    if node is None:
        return None
    match _tensor(node, statement):
        case PrimitiveTensor() as primitive:
            return primitive
        case TensorName(name, place):
            raise ProgramError(place, f"found the tensor `{name}`, expected a primitive in parentheses")


def _function(node: Node) -> Function:
    name, *rest = node.children
    place = _place(name)
    values: list[Token] = [child.children[0] for child in rest if getattr(child, "data", "") == "value"]
    eps: Token | None = next((child for child in rest if getattr(child, "type", "") == "NUMBER"), None)
    if name == "mlp":
        if [value.type for value in values] != ["NAME", "NAME"]:
            raise ProgramError(place, "found another form of `mlp`, expected mlp(TENSOR, ACTIVATION)")
        tensor, activation = map(str, values)
        if activation not in ACTIVATIONS:
            known = _nearest(activation, list(ACTIVATIONS))
            raise ProgramError(_place(values[1]), f"found the activation `{activation}`, expected {known}")
        return Network(tensor, activation, _number(eps) if eps else None, place)
    primitive = function_primitives().get(str(name))
    if primitive is None:
        known = _nearest(str(name), ["mlp", *function_primitives()])
        raise ProgramError(place, f"found the unknown function `{name}`, expected {known}")
    numbers = [value for value in values if value.type == "NUMBER"]
    if eps or len(numbers) != len(values) or len(numbers) != len(primitive.parameters):
        expected = f"{name}({', '.join(primitive.parameters)})" if primitive.parameters else str(name)
        raise ProgramError(place, f"found other arguments of `{name}`, expected {expected} with numbers")
    return PrimitiveFunction(str(name), tuple(_number(number) for number in numbers), place)
