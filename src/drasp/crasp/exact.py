"""Exact numbers: simple fractions near given numbers, linear forms of counts, and softmax weights as fractions."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

TOLERANCE = 1e-6
"""How far, relative to it, a number may be from the fraction that stands for it: about the precision of float32."""
HARD = 40.0
"""Scores that differ by so much are a hard choice: exp(-40) times a hundred is below what float64 can add to 1."""

MOST = 10**9
"""Coefficients above this are made smaller where that is within the tolerance."""


def simplest(low: Fraction, high: Fraction) -> Fraction:
    """The fraction with the smallest denominator between two others, these included."""
    if low > high:
        raise ValueError("the lower end is above the upper one")
    if low <= 0 <= high:
        return Fraction(0)
    if high < 0:
        return -simplest(-high, -low)
    whole = math.ceil(low)
    if whole <= high:
        return Fraction(whole)
    floor = math.floor(low)
    return floor + 1 / simplest(1 / (high - floor), 1 / (low - floor))


def rational(x: float, tolerance: float = TOLERANCE) -> Fraction:
    """The simplest fraction within a relative tolerance of a number."""
    exact = Fraction(x)
    width = abs(exact) * Fraction(tolerance)
    return simplest(exact - width, exact + width)


def near(x: float, distance: float) -> Fraction:
    """The simplest fraction within a distance of a number."""
    return simplest(Fraction(x) - Fraction(distance), Fraction(x) + Fraction(distance))


def floor_to(x: Fraction, bits: int) -> Fraction:
    """Rounded downwards to a multiple of 2^-bits."""
    return Fraction(math.floor(x * 2**bits), 2**bits)


def softmax_levels(scores: Sequence[float]) -> list[dict[int, Fraction]]:
    """What a softmax over some of these scores comes to: levels, highest first, of indices with their weights.

    Only the highest level of which a member is there counts, and in it weights are the exponentials of scores, up to
    a factor.
    """
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    levels: list[list[int]] = []
    for before, i in zip([None, *order], order, strict=False):
        if before is None or scores[before] - scores[i] >= HARD:
            levels.append([])
        levels[-1].append(i)
    return [{i: rational(math.exp(scores[i] - scores[level[0]])) for i in level} for level in levels]


@dataclass(frozen=True)
class Form:
    """Σ coefficient · count + constant, where counts are named."""

    terms: tuple[tuple[str, Fraction], ...] = ()
    constant: Fraction = Fraction(0)

    @classmethod
    def of(cls, terms: Mapping[str, Fraction], constant: Fraction | int = 0) -> "Form":
        return cls(tuple(sorted((name, x) for name, x in terms.items() if x)), Fraction(constant))

    @classmethod
    def total(cls, parts: Iterable[tuple[Fraction, "Form"]]) -> "Form":
        """A linear combination of forms."""
        terms: dict[str, Fraction] = {}
        constant = Fraction(0)
        for factor, form in parts:
            if factor:
                constant += factor * form.constant
                for name, x in form.terms:
                    terms[name] = terms.get(name, Fraction(0)) + factor * x
        return cls.of(terms, constant)

    def __add__(self, other: "Form") -> "Form":
        return Form.total([(Fraction(1), self), (Fraction(1), other)])

    def __sub__(self, other: "Form") -> "Form":
        return Form.total([(Fraction(1), self), (Fraction(-1), other)])

    def __mul__(self, factor: Fraction | int) -> "Form":
        return Form.total([(Fraction(factor), self)])

    @cached_property
    def coefficients(self) -> Mapping[str, Fraction]:
        return dict(self.terms)

    @cached_property
    def exact(self) -> "Form":
        """A positive multiple of it in whole numbers without a common divisor."""
        numbers = [x for _, x in self.terms] + [self.constant]
        scale = math.lcm(*(x.denominator for x in numbers))
        divisor = math.gcd(*(int(x * scale) for x in numbers))
        return self * Fraction(scale, divisor) if divisor else self

    @cached_property
    def whole(self) -> "Form":
        """The same; where numbers would be very large, and are of like size, others within the tolerance."""
        numbers = dict(self.exact.terms) | {"": self.exact.constant}
        sizes = [abs(x) for x in numbers.values() if x]
        if not sizes or max(sizes) <= MOST or max(sizes) >= 10**6 * min(sizes):
            return self.exact
        scale = Fraction(1 / TOLERANCE) / min(sizes)
        rounded = {name: Fraction(round(x * scale)) for name, x in numbers.items()}
        constant = rounded.pop("")
        return Form.of(rounded, constant).exact

    def ratio(self, other: "Form") -> Fraction | None:
        """The factor by which the other form has to be multiplied to give this one; None where there is none."""
        if self.terms:
            name, x = self.terms[0]
            factor = x / other.coefficients.get(name, Fraction(1))
        elif other.constant:
            factor = self.constant / other.constant
        else:
            factor = Fraction(0)
        return factor if self == other * factor else None
