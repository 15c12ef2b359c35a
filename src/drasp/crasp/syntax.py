"""C-RASP as frozen dataclasses: a program is a list of definitions, the last of which is its answer.

A formula is true or false at each position of a string: token tests, their Boolean combinations, and comparisons of
linear combinations of counts. `Count(f)` is the number of positions up to and including this one at which `f` holds.
`Local`, `Periodic` and `Residue` are an extension (Huang et al. 2025): with them a program looks at positions.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from drasp.errors import DraspError


class CraspError(DraspError):
    """What is wrong with a C-RASP program."""


# ------------------------------------------------------------------------------- the extension


@dataclass(frozen=True)
class Local:
    """Counts only the position that lies `distance` before this one."""

    distance: int

    @property
    def name(self) -> str:
        return f"back_{self.distance}"

    @property
    def python(self) -> str:
        return f"j == i - {self.distance}"


@dataclass(frozen=True)
class Periodic:
    """Counts only positions whose distance from this one leaves a remainder."""

    period: int
    remainder: int

    @property
    def name(self) -> str:
        return f"every_{self.period}_{self.remainder}"

    @property
    def python(self) -> str:
        return f"(i - j) % {self.period} == {self.remainder}"


@dataclass(frozen=True)
class Residue:
    """A formula: this position, counted from 0, leaves a remainder."""

    period: int
    remainder: int

    @property
    def name(self) -> str:
        return f"position_{self.period}_{self.remainder}"

    @property
    def python(self) -> str:
        return f"i % {self.period} == {self.remainder}"


Relation: TypeAlias = Local | Periodic
Predicate: TypeAlias = Local | Periodic | Residue


# ------------------------------------------------------------------------------------ formulas


@dataclass(frozen=True)
class Token:
    """The token at this position is `symbol`."""

    symbol: str


@dataclass(frozen=True)
class Truth:
    value: bool


@dataclass(frozen=True)
class FormulaName:
    """A formula that was defined before."""

    name: str


@dataclass(frozen=True)
class Not:
    body: "Formula"


@dataclass(frozen=True)
class And:
    parts: "tuple[Formula, ...]"


@dataclass(frozen=True)
class Or:
    parts: "tuple[Formula, ...]"


Operator: TypeAlias = Literal["<", "<=", ">", ">=", "==", "!="]


@dataclass(frozen=True)
class Compare:
    left: "Number"
    operator: Operator
    right: "Number"


Formula: TypeAlias = Token | Truth | FormulaName | Not | And | Or | Compare | Residue


# -------------------------------------------------------------------------------------- counts


@dataclass(frozen=True)
class Count:
    """How many positions up to this one, or of those in a relation to it, make the formula true."""

    body: Formula
    relation: Relation | None = None


@dataclass(frozen=True)
class CountName:
    """A count that was defined before."""

    name: str


@dataclass(frozen=True)
class Constant:
    value: int


@dataclass(frozen=True)
class Sum:
    parts: "tuple[Number, ...]"


@dataclass(frozen=True)
class Difference:
    left: "Number"
    right: "Number"


@dataclass(frozen=True)
class Times:
    factor: int
    body: "Number"


Number: TypeAlias = Count | CountName | Constant | Sum | Difference | Times
Expression: TypeAlias = Formula | Number


def children(expression: Expression) -> tuple[Expression, ...]:
    """What an expression is made of, without what its names stand for."""
    match expression:
        case Not(body) | Count(body) | Times(_, body):
            return (body,)
        case And(parts) | Or(parts) | Sum(parts):
            return parts
        case Compare(left, _, right) | Difference(left, right):
            return (left, right)
        case Token() | Truth() | FormulaName() | CountName() | Constant() | Residue():
            return ()


def is_formula(expression: Expression) -> bool:
    return isinstance(expression, Token | Truth | FormulaName | Not | And | Or | Compare | Residue)


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all that it is made of."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def conjunction(formulas: Iterable[Formula]) -> Formula:
    """The formula that all hold, without what is plainly true."""
    parts = tuple(f for f in dict.fromkeys(formulas) if f != Truth(True))
    if Truth(False) in parts:
        return Truth(False)
    return parts[0] if len(parts) == 1 else And(parts) if parts else Truth(True)


def disjunction(formulas: Iterable[Formula]) -> Formula:
    """The formula that one holds, without what is plainly false."""
    parts = tuple(f for f in dict.fromkeys(formulas) if f != Truth(False))
    if Truth(True) in parts:
        return Truth(True)
    return parts[0] if len(parts) == 1 else Or(parts) if parts else Truth(False)


def negation(formula: Formula) -> Formula:
    match formula:
        case Truth(value):
            return Truth(not value)
        case Not(body):
            return body
        case _:
            return Not(formula)


# ------------------------------------------------------------------------------------ programs


@dataclass(frozen=True)
class Definition:
    name: str
    expression: Expression


@dataclass(frozen=True)
class CraspProgram:
    """Definitions, each of which may use those before it; what the last one says is the program's answer."""

    definitions: tuple[Definition, ...]

    def __post_init__(self) -> None:
        kinds: dict[str, bool] = {}
        for definition in self.definitions:
            for part in walk(definition.expression):
                if isinstance(part, FormulaName | CountName) and kinds.get(part.name) != isinstance(part, FormulaName):
                    raise CraspError(f"`{definition.name}` uses `{part.name}`, which is not defined so before it")
            if definition.name in kinds:
                raise CraspError(f"`{definition.name}` is defined a second time")
            kinds[definition.name] = is_formula(definition.expression)
        if not self.definitions or not kinds[self.definitions[-1].name]:
            raise CraspError("a program ends with a formula, which is its answer")

    @property
    def answer(self) -> Definition:
        return self.definitions[-1]

    @property
    def needed(self) -> "CraspProgram":
        """The program without the definitions that the answer does not need."""
        names = {self.answer.name}
        for definition in reversed(self.definitions):
            if definition.name in names:
                parts = walk(definition.expression)
                names |= {part.name for part in parts if isinstance(part, FormulaName | CountName)}
        return CraspProgram(tuple(d for d in self.definitions if d.name in names))

    @cached_property
    def predicates(self) -> tuple[Predicate, ...]:
        """The predicates of the extension that it uses, in the order of their first use."""
        found: dict[Predicate, None] = {}
        for definition in self.definitions:
            for part in walk(definition.expression):
                match part:
                    case Count(relation=Local() | Periodic() as relation):
                        found[relation] = None
                    case Residue():
                        found[part] = None
                    case _:
                        pass
        return tuple(found)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The tokens that it tests for."""
        parts = (part for definition in self.definitions for part in walk(definition.expression))
        return tuple(dict.fromkeys(part.symbol for part in parts if isinstance(part, Token)))

    @cached_property
    def depth(self) -> int:
        """How deep counts are nested in counts."""
        depths: dict[str, int] = {}
        for definition in self.definitions:
            depths[definition.name] = _depth(definition.expression, depths)
        return depths[self.answer.name]


def _depth(expression: Expression, known: Mapping[str, int]) -> int:
    match expression:
        case FormulaName(name) | CountName(name):
            return known[name]
        case _:
            inner = max((_depth(child, known) for child in children(expression)), default=0)
            return inner + isinstance(expression, Count)
