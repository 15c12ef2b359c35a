"""What of a program has to be computed, in what order and for how long it is kept: planned before any input is seen."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drasp.edits import Edit, Replaced
from drasp.language.syntax import INITIAL_VARIABLES, Aggregate, ElementWise, Norm, Operand, Select, Statement


def pattern_of(aggregate: str) -> str:
    """What the attention weights of an aggregate are called."""
    return f"{aggregate} pattern"


@dataclass(frozen=True)
class Schedule:
    """The lines that have to be computed, and the line after which each variable is needed no more."""

    needed: frozenset[str]
    last_use: Mapping[str, int]


@dataclass(frozen=True)
class Schedules:
    """What follows from the lines alone.

    `seen_by_others` are variables that other positions look at, as keys or values or by way of what these depend on,
    and the selectors of such queries. `plain` is the schedule without edits and records.
    """

    names: frozenset[str]
    statements: tuple[Statement, ...]
    selects: Mapping[str, Select]
    seen_by_others: frozenset[str]
    plain: Schedule

    @classmethod
    def of(cls, statements: tuple[Statement, ...]) -> "Schedules":
        selects = {s.name: s for s in statements if isinstance(s, Select)}
        patterns = (pattern_of(s.name) for s in statements if isinstance(s, Aggregate))
        names = frozenset((*INITIAL_VARIABLES, *(s.name for s in statements), *patterns))
        plain = _schedule(statements, selects, frozenset(), frozenset(), frozenset())
        return cls(names, statements, selects, _seen_by_others(statements), plain)

    def schedule(self, edits: Mapping[str, Edit], record: frozenset[str]) -> Schedule:
        replaced = frozenset(name for name, edit in edits.items() if isinstance(edit, Replaced))
        apart = frozenset(self.selects.keys() & (edits.keys() | record))
        return _schedule(self.statements, self.selects, replaced, record, apart) if edits or record else self.plain


def _schedule(
    statements: tuple[Statement, ...],
    selects: Mapping[str, Select],
    replaced: frozenset[str],
    record: frozenset[str],
    apart: frozenset[str],
) -> Schedule:
    """Selects count where they are aggregated, except those that are evaluated `apart`."""

    def read_by(statement: Statement) -> Iterable[Operand]:
        match statement:
            case Aggregate(name, selectors, value):
                pattern = pattern_of(name)
                if name not in replaced:
                    yield value
                if pattern not in replaced and (name not in replaced or pattern in record):
                    needed.update(selector.variable for selector in selectors)
                    for selector in selectors:
                        if selector.variable not in apart:
                            yield from selects[selector.variable].operands
            case Select(name) if name not in apart:
                pass
            case _ if statement.name not in replaced:
                needed.update(reference.variable for reference in statement.references)
                yield from statement.operands
            case _:
                pass

    needed = {"prediction", *(name.removesuffix(" pattern") for name in record)}
    last_use: dict[str, int] = {}
    for number, statement in reversed(list(enumerate(statements))):
        if statement.name in needed:
            for operand in read_by(statement):
                for name in (operand.variable, operand.norm):
                    if name:
                        needed.add(name)
                        last_use.setdefault(name, number)
    return Schedule(frozenset(needed), last_use)


def _seen_by_others(statements: tuple[Statement, ...]) -> frozenset[str]:
    seen = set(INITIAL_VARIABLES)  # which are there everywhere anyhow
    for statement in reversed(statements):
        match statement:
            case Select(name, query, key):
                read = [query, key] if name in seen else [key]
            case Aggregate(name, selectors, value):
                read = [value]
                if name in seen:
                    seen |= {selector.variable for selector in selectors}
            case ElementWise(name, inputs) | Norm(name, inputs) if name in seen:
                read = list(inputs)
            case _:
                read = []
        seen |= {name for operand in read for name in (operand.variable, operand.norm) if name}
    return frozenset(seen)
