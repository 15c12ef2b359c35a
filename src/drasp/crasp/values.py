"""What is known of a variable's value at a position: by cases, a vector, a mixture of vectors, or a curve.

A mixture is what an aggregate gives: vectors, each as often as it was counted, times a weight. It takes as many values
as there are counts, but its entries have one denominator: linear inequalities of them are inequalities of counts.
A curve is a function of one share, such as an MLP of one frequency.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import TypeAlias

import numpy as np
from jaxtyping import Float

from drasp.crasp.builder import ALWAYS, Builder, Guard
from drasp.crasp.exact import Form, near
from drasp.crasp.syntax import CraspError, Formula, Truth, conjunction, disjunction

Vector: TypeAlias = tuple[Fraction, ...]
MAX_CASES = 2_000
_GRID = 20_001  # points at which a curve is looked at
_CLOSE = 1e-9  # how near to a zero of a curve the fraction is that stands for it


@dataclass(frozen=True)
class Part:
    count: Form
    weight: Fraction
    vector: Vector


@dataclass(frozen=True)
class Mixture:
    """Σ count · weight · vector / Σ count · weight."""

    parts: tuple[Part, ...]

    @cached_property
    def denominator(self) -> Form:
        return Form.total((part.weight, part.count) for part in self.parts)

    def numerator(self, row: Sequence[Fraction]) -> Form:
        """The numerator of the entries times a row, added up."""
        return Form.total((part.weight * dot(part.vector, row), part.count) for part in self.parts)

    def entry(self, index: int) -> Form:
        return Form.total((part.weight * part.vector[index], part.count) for part in self.parts)

    def mapped(self, function: Callable[[Vector], Vector]) -> "Mixture":
        """A linear function of it."""
        return Mixture(tuple(Part(part.count, part.weight, function(part.vector)) for part in self.parts))

    @property
    def dims(self) -> int:
        return len(self.parts[0].vector)


@dataclass(frozen=True)
class Curve:
    """`function` of the share numerator / denominator, which lies between `low` and `high`; a row of values a share."""

    numerator: Form
    denominator: Form
    low: float
    high: float
    function: Callable[[Float[np.ndarray, " n"]], Float[np.ndarray, "n dims"]]


Payload: TypeAlias = Vector | Mixture | Curve


@dataclass(frozen=True)
class Case:
    guard: Guard
    value: Payload


def dot(vector: Sequence[Fraction], row: Sequence[Fraction]) -> Fraction:
    return sum((x * y for x, y in zip(vector, row, strict=True) if x and y), Fraction(0))


def joint(builder: Builder, variables: Sequence[Sequence[Case]]) -> list[tuple[Guard, tuple[Payload, ...]]]:
    """Every way in which the cases of several variables can hold together."""
    found: list[tuple[Guard, tuple[Payload, ...]]] = [(ALWAYS, ())]
    for cases in variables:
        check_size(len(found) * len(cases) // 20)  # most of which exclude each other
        found = [
            (guard, (*values, case.value))
            for (before, values), case in product(found, cases)
            if (guard := builder.both(before, case.guard)) is not None
        ]
        check_size(len(found))
    return found


def check_size(count: int) -> None:
    if count > MAX_CASES:
        raise CraspError(f"it takes {count:,} cases, expected at most {MAX_CASES:,}")


def simplified(mixture: Mixture) -> Payload:
    """A vector where all that is mixed is the same."""
    vectors = {part.vector for part in mixture.parts}
    return vectors.pop() if len(vectors) == 1 else mixture


def is_positive(builder: Builder, constant: Fraction, parts: Sequence[tuple[Payload, Sequence[Fraction]]]) -> Formula:
    """The formula that a constant plus values, each times a row, is above 0; raises where counts cannot say it."""
    sums: dict[Form, list[Form]] = {}
    curves: list[tuple[Curve, Sequence[Fraction]]] = []
    for value, row in parts:
        match value:
            case Mixture():
                numerator = value.numerator(row)
                share = numerator.ratio(value.denominator)
                if share is not None:
                    constant += share
                elif numerator.terms or numerator.constant:
                    scale = value.denominator.exact.ratio(value.denominator)
                    assert scale is not None
                    sums.setdefault(value.denominator.exact, []).append(numerator * scale)
            case Curve():
                if any(row):
                    curves.append((value, row))
            case _:
                constant += dot(value, row)
    if len(curves) + len(sums) > 1:
        raise CraspError("it adds up shares with different denominators, or a share and a function of one")
    for denominator, numerators in sums.items():
        total = Form.total((Fraction(1), numerator) for numerator in numerators)
        return builder.positive(total + denominator * constant)
    for curve, row in curves:
        return _curve_is_positive(builder, constant, curve, row)
    return Truth(constant > 0)


def _curve_is_positive(builder: Builder, constant: Fraction, curve: Curve, row: Sequence[Fraction]) -> Formula:
    """A union of intervals of the share, with rational ends."""
    weights = np.array([float(x) for x in row])

    def holds(shares: Float[np.ndarray, " n"]) -> np.ndarray:
        return curve.function(shares) @ weights + float(constant) > 0

    grid = np.unique(np.append(np.linspace(curve.low, curve.high, _GRID), np.clip(0.0, curve.low, curve.high)))
    above = holds(grid)
    ends: list[tuple[Fraction, bool]] = []  # where the answer changes, and whether the end is above
    for i in np.flatnonzero(above[1:] != above[:-1]):
        left, right = float(grid[i]), float(grid[i + 1])
        while right - left > _CLOSE / 4:
            middle = (left + right) / 2
            left, right = (middle, right) if bool(holds(np.array([middle]))[0]) == above[i] else (left, middle)
        end = near((left + right) / 2, _CLOSE)
        ends.append((end, bool(holds(np.array([float(end)]))[0])))

    def beyond(end: Fraction, included: bool) -> Formula:
        form = curve.numerator - curve.denominator * end
        return builder.not_negative(form) if included else builder.positive(form)

    def short_of(end: Fraction, included: bool) -> Formula:
        form = curve.denominator * end - curve.numerator
        return builder.not_negative(form) if included else builder.positive(form)

    intervals: list[Formula] = []
    begun: Formula | None = Truth(True) if above[0] else None
    for end, included in ends:
        if begun is None:
            begun = beyond(end, included)
        else:
            intervals.append(conjunction([begun, short_of(end, included)]))
            begun = None
    return disjunction([*intervals, *([begun] if begun is not None else [])])
