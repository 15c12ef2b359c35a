"""Running error bounds: arrays of float64 numbers, each with how far exact arithmetic can be from it.

Every bound below holds for any order of summation, with or without fused multiply-add, if single operations and
square roots are rounded to nearest, and exp, tanh, erf and powers are within 4 units in the last place. Bounds are
themselves computed in float64: each formula is multiplied by `GROW`, which is more than its own roundings can take
away, and `SMALL` stands for what underflow can.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

Array = np.ndarray

U = 2.0**-53
GROW = 1 + 2.0**-20
SMALL = 2.0**-480
NEARLY_NOTHING = 2.0**-300  # squares of what is larger do not underflow
WHOLE = 2.0**52  # sums and products of whole numbers below this are exact
ULP4 = 8 * U  # four units in the last place, as a share of the number
STEEPEST_GELU = 1.13  # the largest slope of either gelu is 1.12900


def gamma(terms: int) -> float:
    """How far, as a share of the sum of their sizes, the sum of so many rounded products can be off."""
    return terms * U / (1 - terms * U)


def norms(x: Array) -> Array:
    """The Euclidean norm of each row."""
    return np.sqrt(np.einsum("...i,...i->...", x, x))


def is_whole(x: Array) -> bool:
    return bool((x == np.rint(x)).all()) and float(np.abs(x).max(initial=0)) < WHOLE


@dataclass(frozen=True)
class BoundedRows:
    """Vectors [n, d], each within `error` [n] of the true one in the Euclidean norm, all divided by `over`.

    `over` is a whole number that is not divided by until it must be: means of whole numbers stay exact.
    """

    value: Array
    error: Array
    over: int = 1

    @staticmethod
    def exact(value: Array, over: int = 1) -> "BoundedRows":
        return BoundedRows(value, np.zeros(len(value)), over)

    @cached_property
    def is_exact(self) -> bool:
        return not self.error.any()

    @cached_property
    def is_whole(self) -> bool:
        return self.is_exact and is_whole(self.value)

    @cached_property
    def is_unit(self) -> bool:
        """Whether every row has at most one number that is not 0, and that is 1."""
        if not self.is_exact or self.over != 1:
            return False
        return bool(((self.value == 0) | (self.value == 1)).all() and (self.value.sum(1) <= 1).all())

    @property
    def plain(self) -> "BoundedRows":
        """The same with nothing left to divide by."""
        if self.over == 1:
            return self
        value = self.value / self.over
        small = 0.0 if self.is_whole else SMALL
        return BoundedRows(value, (self.error / self.over + U * norms(value) + small) * GROW)

    def take(self, which: "Array | slice") -> "BoundedRows":
        return BoundedRows(self.value[which], self.error[which], self.over)


@dataclass(frozen=True)
class Matrix:
    """A matrix of exact numbers, and what bounds need to know of it."""

    value: Array

    @cached_property
    def is_whole(self) -> bool:
        return is_whole(self.value)

    @cached_property
    def columns(self) -> Array:
        """The norm of each column; exactly 0 where there is nothing."""
        size = np.abs(self.value).max(0, initial=0)  # squares of numbers of this size do not underflow
        return norms(self.value.T / np.where(size == 0, 1, size)[:, None]) * size * GROW

    @cached_property
    def frobenius(self) -> float:
        size = self.columns.max(initial=0)
        return float(np.sqrt(((self.columns / (size or 1)) ** 2).sum()) * size) * GROW

    @cached_property
    def spectral(self) -> float:
        """An upper bound of the largest singular value: the fourth root of the sum of their fourth powers."""
        scale = self.frobenius or 1.0
        small = self.value / scale
        gram = small.T @ small if small.shape[0] > small.shape[1] else small @ small.T
        rounding = gamma(max(small.shape))
        return min(self.frobenius, math.sqrt(float(np.linalg.norm(gram)) + rounding) * scale * GROW)


def linear(x: BoundedRows, m: Matrix) -> BoundedRows:
    """Rows times a matrix."""
    value = x.value @ m.value
    if x.is_exact and _is_exact_product(x, m, value):
        return BoundedRows.exact(value, x.over)
    rounding = (gamma(x.value.shape[1]) * norms(x.value) + SMALL) * m.frobenius
    error = (x.error * m.spectral + rounding + SMALL) * GROW
    # A product that leaves float64 is not known, even where its bound is a number.
    return BoundedRows(value, np.where(np.isfinite(value).all(1), error, np.nan), x.over)


def _is_exact_product(x: BoundedRows, m: Matrix, value: Array) -> bool:
    if x.is_unit:
        return True
    # A sum of sizes is no less than any partial sum; each is at most the product of norms.
    sizes = norms(x.value).max(initial=0) * m.columns.max(initial=0)
    return m.is_whole and x.is_whole and float(sizes) < WHOLE and bool(np.isfinite(value).all())


def add(a: BoundedRows, b: BoundedRows) -> BoundedRows:
    """The sum of two; one of them may be a single row, which is added to every other."""
    if a.over != b.over:
        a, b = a.plain, b.plain
    value = a.value + b.value
    if a.is_whole and b.is_whole and is_whole(value):
        return BoundedRows.exact(value, a.over)
    return BoundedRows(value, (a.error + b.error + U * norms(value) + SMALL) * GROW, a.over)


def divide(x: BoundedRows, by: BoundedRows) -> BoundedRows:
    """Each row by a number of its own, [n, 1], that is known to be positive where the result is known."""
    x, by = x.plain, by.plain
    least = by.value[:, 0] - by.error
    value = x.value / by.value
    error = (x.error + norms(value) * by.error) / np.where(least > 0, least, np.nan)
    return BoundedRows(value, (error + U * norms(value) + SMALL) * GROW)


def centred(x: BoundedRows) -> BoundedRows:
    """Rows minus their mean."""
    width = x.value.shape[1]
    value = x.value - x.value.mean(1, keepdims=True)
    return BoundedRows(value, (x.error + gamma(width + 4) * norms(x.value) + SMALL) * GROW)


def root_mean_square(x: BoundedRows, eps: float) -> BoundedRows:
    """The root of the mean square plus eps, [n, 1]. It moves by no more than 1/√d of what a row does."""
    width = x.value.shape[1]
    value = np.sqrt(np.einsum("ni,ni->n", x.value, x.value) / width + eps)
    return BoundedRows(value[:, None], (x.error / math.sqrt(width) + gamma(width + 6) * value + SMALL) * GROW)


def normalised(x: BoundedRows, eps: float) -> BoundedRows:
    """Rows divided by the root of their mean square plus eps.

    The slope of this is at most one over that root, anywhere between the row and the true one. Where squares are too
    large for float64, nothing is known.
    """
    width = x.value.shape[1]
    root = np.sqrt(np.einsum("ni,ni->n", x.value, x.value) / width + eps)
    value = x.value / root[:, None]
    least = root * (1 - gamma(width + 6)) - x.error / math.sqrt(width) * GROW
    known = (least > NEARLY_NOTHING) & np.isfinite(root)
    error = x.error / np.where(known, least, np.nan) + gamma(width + 10) * norms(value)
    return BoundedRows(value, (error + SMALL) * GROW)


def scaled(x: BoundedRows, by: Array) -> BoundedRows:
    """Each column times an exact number of its own."""
    value = x.value * by
    return BoundedRows(value, (x.error * float(np.abs(by).max(initial=0)) + U * norms(value) + SMALL) * GROW)


def side_by_side(parts: Sequence[BoundedRows]) -> BoundedRows:
    parts = [part.plain for part in parts]
    error = np.sqrt(sum(part.error**2 for part in parts)) * GROW + SMALL * any(p.error.any() for p in parts)
    return BoundedRows(np.concatenate([part.value for part in parts], axis=1), error)


_ROOT_2_OVER_PI = math.sqrt(2 / math.pi)


def activated(x: BoundedRows, activation: str) -> BoundedRows:
    """An MLP's activation, number by number.

    The inner argument of tanh is within 10 U of its size, which moves tanh by less than 5 U; with the function's own
    error and the last three roundings, gelu is within 16 U of the size of its argument, and so is that of erf.
    """
    v = x.value
    if activation == "relu":
        return BoundedRows(np.maximum(v, 0), x.error)
    if activation == "gelu_new":
        value = 0.5 * v * (1 + np.tanh(_ROOT_2_OVER_PI * (v + 0.044715 * (v * v * v))))
    elif activation == "gelu":
        value = 0.5 * v * (1 + np.vectorize(math.erf, otypes=[float])(v / math.sqrt(2)))
    else:
        raise ValueError(f"no bound is known for the activation {activation!r}")
    return BoundedRows(value, (STEEPEST_GELU * x.error + 16 * U * norms(v) + SMALL) * GROW)


def softmax(scores: Array, delta: Array) -> tuple[Array, Array]:
    """Attention weights [n, keys] from scores within `delta` [n] of the true ones, and the sum of their errors [n].

    A score off by d changes a share by a factor of at most exp(2d). A rounding of a difference to the largest
    score moves its exponential by less than U; exponentials, their sum and the division add what is counted below.
    """
    keys = scores.shape[1]
    if keys == 1:
        return np.ones_like(scores), np.zeros(len(scores))
    largest = scores.max(1, keepdims=True)
    powers = np.exp(scores - largest)
    weights = powers / powers.sum(1, keepdims=True)
    off = (np.expm1(2 * delta) * GROW + (2 * keys + 24) * U) * GROW
    is_finite = np.isfinite(largest[:, 0]) & np.isfinite(scores.min(1))
    return weights, np.where(is_finite, off, np.nan)


@dataclass(frozen=True)
class BoundedLogits:
    """Numbers [n, n_vocab], each with an error of its own, [n, n_vocab]; all divided by `over`, which is positive."""

    value: Array
    error: Array
    over: int = 1

    def take(self, which: "Array | slice") -> "BoundedLogits":
        return BoundedLogits(self.value[which], self.error[which], self.over)


def to_logits(x: BoundedRows, m: Matrix) -> BoundedLogits:
    """Rows times a matrix, with an error for each column: a column of zeros gives exactly 0."""
    value = x.value @ m.value
    if x.is_exact and _is_exact_product(x, m, value):
        return BoundedLogits(value, np.zeros_like(value), x.over)
    row = x.error + gamma(x.value.shape[1]) * norms(x.value) + SMALL
    # Products with the smallest numbers underflow, and so would their bound.
    error = (row[:, None] * m.columns + SMALL * (m.columns > 0)) * GROW
    return BoundedLogits(value, np.where(np.isfinite(value), error, np.nan), x.over)


def add_logits(a: BoundedLogits, b: BoundedLogits) -> BoundedLogits:
    over = math.lcm(a.over, b.over)
    a, b = (_multiplied(each, over // each.over) for each in (a, b))
    value = a.value + b.value
    exact = not a.error.any() and not b.error.any() and is_whole(a.value) and is_whole(b.value)
    rounding = 0.0 if exact else U * np.abs(value)
    return BoundedLogits(value, (a.error + b.error + rounding) * GROW, over)


def _multiplied(x: BoundedLogits, by: int) -> BoundedLogits:
    if by == 1:
        return x
    value = x.value * by
    exact = not x.error.any() and is_whole(x.value) and is_whole(value)
    return BoundedLogits(value, (x.error * by + (0.0 if exact else U * np.abs(value))) * GROW, x.over * by)
