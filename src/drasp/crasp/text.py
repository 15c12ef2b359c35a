"""The `.cr` form of C-RASP, both ways: `NAME = expression` a line, as the interpreter by m-hahn reads it.

Positions count from 0, `#import NAME` announces a predicate of the extension, and all is in brackets. The names of
predicates say what they are (`back_1`, `every_3_0`, `position_2_1`): nothing is read from a `predefined.py`, which is
only written, for other interpreters.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from lark import Lark, UnexpectedInput

from drasp.crasp.syntax import (
    And,
    Compare,
    Constant,
    Count,
    CountName,
    CraspError,
    CraspProgram,
    Definition,
    Difference,
    Expression,
    Formula,
    FormulaName,
    Local,
    Not,
    Number,
    Or,
    Periodic,
    Predicate,
    Residue,
    Sum,
    Times,
    Token,
    Truth,
    is_formula,
)


def to_text(program: CraspProgram, header: Iterable[str] = ()) -> str:
    """The program as the text of a `.cr` file, with comments before it."""
    lines = [f"// {line}".rstrip() for line in header]
    lines += [f"#import {predicate.name}" for predicate in program.predicates]
    lines += [f"{d.name} = {_written(d.expression)}" for d in program.definitions]
    return "\n".join(lines) + "\n"


def predefined(predicates: Iterable[Predicate]) -> str:
    """The Python file in which other interpreters look for what `#import` names."""
    functions = ['"""Predicates of positions, which count from 0: i is where a formula stands, j where it counts."""\n']
    for predicate in sorted(set(predicates), key=lambda p: p.name):
        arguments = "i: int" if isinstance(predicate, Residue) else "i: int, j: int"
        functions.append(f"\ndef {predicate.name}({arguments}) -> bool:\n    return {predicate.python}\n")
    return "\n".join(functions)


def _written(expression: Expression) -> str:
    match expression:
        case Token(symbol):
            if re.search(r'["\n\r]', symbol):
                raise CraspError(
                    f"token {symbol!r} cannot be written: the .cr form has no way to say a quote or a line"
                )
            return f'"{symbol}"'
        case Truth(value):
            return "(0 == 0)" if value else "(0 == 1)"  # `true` is a name to some readers
        case FormulaName(name) | CountName(name):
            return name
        case Residue():
            return expression.name
        case Constant(value):
            return str(value) if value >= 0 else f"(0 - {-value})"
        case Not(body):
            return f"(!{_written(body)})"
        case And(parts):
            return _row(parts, "&&", "(0 == 0)")
        case Or(parts):
            return _row(parts, "||", "(0 == 1)")
        case Sum(parts):
            return _row(parts, "+", "0")
        case Compare(left, operator, right):
            return f"({_written(left)} {operator} {_written(right)})"
        case Difference(left, right):
            return f"({_written(left)} - {_written(right)})"
        case Times(factor, body):
            times = f"({abs(factor)} * {_written(body)})"
            return times if factor >= 0 else f"(0 - {times})"
        case Count(body, relation):
            guard = f"[{relation.name}] " if relation else " "
            return f"(#{guard}{_written(body)})"


def _row(parts: tuple[Expression, ...], operator: str, empty: str) -> str:
    written = [_written(part) for part in parts]
    return empty if not written else written[0] if len(written) == 1 else f"({f' {operator} '.join(written)})"


# ------------------------------------------------------------------------------------- reading


@cache
def _grammar() -> Lark:
    text = (Path(__file__).parent / "crasp.lark").read_text()
    return Lark(text, start="program", parser="lalr", propagate_positions=True, maybe_placeholders=False)


_TRUTHS = {Compare(Constant(0), "==", Constant(int(not value))): Truth(value) for value in (True, False)}
_KEYWORDS = re.compile(r"\b(min|max|if|else)\b")


def parse(text: str, source: str = "program") -> CraspProgram:
    """Reads a program; what is wrong is said with its line."""
    try:
        tree = _grammar().parse(text)
    except UnexpectedInput as error:
        line = error.line if error.line and error.line > 0 else text.count("\n") + 1
        found = text.split("\n")[line - 1].strip() if line <= text.count("\n") + 1 else ""
        hint = ": different operators in one expression need brackets"
        if _KEYWORDS.search(found):
            hint = ": min, max and if … else are not read; write cases with &&, || and comparisons"
        elif not found:
            hint = ": the program ends in the middle of a definition"
        raise CraspError(f"{source}:{line}: cannot read `{found}`{hint}") from None
    reader = _CraspReader(source)
    for line in tree.children:
        reader.read(line)
    try:
        return CraspProgram(tuple(reader.definitions))
    except CraspError as error:
        raise CraspError(f"{source}: {error}") from None


class _CraspReader:
    """Gives a tree its meaning, line by line. Trees of lark are not typed: the grammar says what a node holds."""

    def __init__(self, source: str) -> None:
        self.source, self.line = source, 0
        self.definitions: list[Definition] = []
        self.kinds: dict[str, bool] = {}
        self.imports: dict[str, Predicate] = {}

    def error(self, problem: str) -> CraspError:
        return CraspError(f"{self.source}:{self.line}: {problem}")

    def read(self, line: Any) -> None:
        self.line = line.meta.line
        if line.data == "imported":
            name = str(line.children[1])
            self.imports[name] = self.predicate(name)
            return
        name, expression = str(line.children[0]), self.expression(line.children[1])
        if name in self.kinds or name in self.imports:
            raise self.error(f"`{name}` is defined a second time")
        self.kinds[name] = is_formula(expression)
        self.definitions.append(Definition(name, expression))

    def predicate(self, name: str) -> Predicate:
        match re.fullmatch(r"(back|every|position)_(\d{1,6})(?:_(\d{1,6}))?", name):
            case re.Match() as found if found[1] == "back" and found[3] is None:
                return Local(int(found[2]))
            case re.Match() as found if found[3] is not None and int(found[3]) < int(found[2]):
                kind = Periodic if found[1] == "every" else Residue
                if found[1] != "back":
                    return kind(int(found[2]), int(found[3]))
            case _:
                pass
        raise self.error(
            f"predicate `{name}` is not known; expected back_D (j == i-D), every_M_R ((i-j) % M == R) or "
            "position_M_R (i % M == R), with R below M"
        )

    def expression(self, node: Any) -> Expression:
        parts = node.children
        match node.data:
            case "token":
                return Token(str(parts[0])[1:-1])
            case "true" | "false":
                return Truth(node.data == "true")
            case "constant":
                return Constant(int(parts[0]))
            case "name":
                return self.named(str(parts[0]))
            case "negation":
                return Not(self.formula(parts[0]))
            case "conjunction":
                return And(tuple(map(self.formula, parts)))
            case "disjunction":
                return Or(tuple(map(self.formula, parts)))
            case "comparison":
                found = Compare(self.number(parts[0]), parts[1].value, self.number(parts[2]))
                return _TRUTHS.get(found, found)
            case "times":
                return Times(int(parts[0]), self.number(parts[1]))
            case "total":
                return Sum(tuple(map(self.number, parts)))
            case "difference":
                return Difference(self.number(parts[0]), self.number(parts[1]))
            case "count":
                return Count(self.formula(parts[0]))
            case _:
                relation = self.imports.get(str(parts[0]))
                if not isinstance(relation, Local | Periodic):
                    raise self.error(f"`#[{parts[0]}]` needs a line `#import {parts[0]}` before it, of two positions")
                return Count(self.formula(parts[1]), relation)

    def named(self, name: str) -> Expression:
        if isinstance(found := self.imports.get(name), Residue):
            return found
        if name not in self.kinds:
            raise self.error(f"`{name}` is not defined before this line")
        return FormulaName(name) if self.kinds[name] else CountName(name)

    def formula(self, node: Any) -> Formula:
        found = self.expression(node)
        if not is_formula(found):
            raise self.error("found a count where a formula is expected")
        return found  # pyright: ignore[reportReturnType]

    def number(self, node: Any) -> Number:
        found = self.expression(node)
        if is_formula(found):
            raise self.error("found a formula where a count is expected; `# formula` counts it")
        return found  # pyright: ignore[reportReturnType]
