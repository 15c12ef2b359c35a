"""The library's element-wise functions, with error bounds.

Where a function jumps and the bounds do not tell on which side a number lies, the result's error is as large as the
jump, so that what depends on it counts as undecided.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from drasp.certificates.bounds import GROW, SMALL, ULP4, Array, BoundedRows, U, gamma, is_whole, norms


def _above(x: BoundedRows, limit: float) -> tuple[Array, Array]:
    """Whether each number is above a limit, and whether that is certain."""
    if x.is_whole:
        above = x.value > math.floor(Fraction(limit) * x.over)
        return above, np.ones_like(above)
    x = x.plain
    distance = x.value - limit
    return distance > 0, np.abs(distance) > (x.error[:, None] + U * np.abs(distance)) * GROW


def no_op(inputs: Sequence[BoundedRows]) -> BoundedRows:
    return inputs[0]


def keep(inputs: Sequence[BoundedRows], i: float) -> BoundedRows:
    return inputs[int(i) - 1]


def maximum(inputs: Sequence[BoundedRows]) -> BoundedRows:
    a, b = (x.plain for x in inputs) if inputs[0].over != inputs[1].over else inputs
    return BoundedRows(np.maximum(a.value, b.value), np.hypot(a.error, b.error) * GROW, a.over)


def _power(x: BoundedRows, n: float, at_least_0: bool = False) -> BoundedRows:
    """Each number to a power. What may be negative is known for whole powers only."""
    x = x.plain
    off = x.error[:, None]
    value = x.value**n
    if n > 0 and n == int(n):
        # Whole, and so small that 4 units in the last place are less than a half: then it is the power itself.
        if x.is_whole and is_whole(value) and is_whole(8 * value):
            return BoundedRows.exact(value)
        spread = n * (np.abs(x.value) + off) ** (n - 1) * off + 2 * ULP4 * np.abs(value)
        return BoundedRows(value, (norms(spread) + SMALL) * GROW)
    reach = off * GROW + 4 * U * np.abs(x.value)
    low, high = x.value - reach, x.value + reach
    known = (n > 0) & ((x.value >= off).all(1) | at_least_0)
    top, bottom = high**n, np.maximum(low, 0) ** n
    spread = np.maximum(top - value, value - bottom) + 3 * ULP4 * top
    return BoundedRows(value, np.where(known, (norms(spread) + SMALL) * GROW, np.nan))


def _shared(x: BoundedRows) -> BoundedRows:
    """Each number as a share of the sum of its row; a row that adds up to 0 as it is."""
    width = x.value.shape[1]
    total = x.value.sum(1)
    error = np.sqrt(width) * x.error + gamma(width) * np.abs(x.value).sum(1)
    least = np.abs(total) - error * GROW
    nothing = (total == 0) & (error == 0)
    value = x.value / np.where(total == 0, 1, total)[:, None]
    bound = (x.error + norms(value) * error) / np.where(least > 0, least, np.nan) + U * norms(value) + SMALL
    return BoundedRows(value, np.where(nothing, 0, bound * GROW))


def sharpen(inputs: Sequence[BoundedRows], n: float) -> BoundedRows:
    return _shared(_power(inputs[0], n))


def harden(inputs: Sequence[BoundedRows]) -> BoundedRows:
    """1 for the first of the largest numbers of a row, 0 for the others."""
    x = inputs[0]
    best = x.value.argmax(1)
    value = 1.0 * (np.arange(x.value.shape[1]) == best[:, None])
    lead = x.value[np.arange(len(best)), best][:, None] - x.value
    # Two numbers of a row are together off by at most √2 of its error.
    clear = lead > (1.5 * x.error[:, None] + U * np.abs(x.value)) * GROW
    certain = clear | (value > 0) | x.is_exact
    return BoundedRows(value, np.sqrt((~certain).sum(1) + 1.0 * (~certain).any(1)))


def balance_01(inputs: Sequence[BoundedRows], n: float) -> BoundedRows:
    x = inputs[0]
    difference = x.value[:, 1] - x.value[:, 0]
    exact = x.is_whole and is_whole(difference)
    error = np.zeros(len(difference)) if exact else (1.5 * x.error + U * np.abs(difference)) * GROW
    more_ones, more_zeros = (
        _power(BoundedRows(np.maximum(sign * difference, 0)[:, None], error, x.over), n, True) for sign in (1, -1)
    )
    value = np.stack([more_ones.value[:, 0], more_zeros.value[:, 0]], 1)
    rest = 1 - value[:, :1] - value[:, 1:]
    off = more_ones.error + more_zeros.error
    return BoundedRows(np.concatenate([value, rest], 1), 2 * off * GROW + 4 * U * (off > 0))


def is_pure(inputs: Sequence[BoundedRows], tau: float) -> BoundedRows:
    pure, certain = _above(inputs[0], tau)
    value = np.concatenate([1.0 * pure, 1 - pure.sum(1, keepdims=True)], 1)
    doubtful = (~certain).sum(1)
    return BoundedRows(value, np.sqrt(doubtful + doubtful**2))


def compare(inputs: Sequence[BoundedRows]) -> BoundedRows:
    """The sign of each difference of two numbers of a row, 0 within a millionth."""
    x = inputs[0]
    first, second = np.triu_indices(x.value.shape[1], 1)
    value = x.value[:, first] - x.value[:, second]
    exact = x.is_whole and is_whole(value)
    error = np.zeros(len(value)) if exact else (1.5 * x.error + U * np.abs(value).max(1, initial=0)) * GROW
    difference = BoundedRows(value, error, x.over)
    above, clear = _above(difference, 1e-6)
    below, also_clear = _above(BoundedRows(-value, error, x.over), 1e-6)
    return BoundedRows(1.0 * above - 1.0 * below, 2 * np.sqrt((~(clear & also_clear)).sum(1)))


def cartesian(inputs: Sequence[BoundedRows]) -> BoundedRows:
    smallest = inputs[0].plain
    for other in inputs[1:]:
        x = other.plain
        pairs = np.minimum(smallest.value[:, :, None], x.value[:, None, :])
        # Each number of either is in at most as many pairs as the other has numbers.
        error = smallest.error * np.sqrt(x.value.shape[1]) + x.error * np.sqrt(smallest.value.shape[1])
        smallest = BoundedRows(pairs.reshape(len(pairs), -1), error * GROW)
    return _shared(smallest)


def difference_mod(inputs: Sequence[BoundedRows], m: float) -> BoundedRows:
    """How much of the first input minus the second leaves which remainder."""
    period = int(m)
    first, second = (_folded(x.plain, period) for x in inputs)
    value = np.stack([(np.roll(first.value, -r, axis=1) * second.value).sum(1) for r in range(period)], 1)
    if first.is_whole and second.is_whole and is_whole(value):
        return BoundedRows.exact(value)
    sizes = norms(first.value) * norms(second.value)
    off = first.error * (norms(second.value) + second.error) + norms(first.value) * second.error
    return BoundedRows(value, np.sqrt(period) * (off + gamma(period + 1) * sizes + SMALL) * GROW)


def _folded(x: BoundedRows, period: int) -> BoundedRows:
    """Numbers added up by their place modulo the period."""
    width = x.value.shape[1]
    value = np.stack([x.value[:, r::period].sum(1) for r in range(period)], 1)
    if x.is_whole and is_whole(value):
        return BoundedRows.exact(value)
    terms = -(-width // period)
    sizes = norms(np.abs(x.value)) * np.sqrt(terms)
    return BoundedRows(value, (np.sqrt(terms) * x.error + gamma(terms) * sizes + SMALL) * GROW)


_KNOWN = (no_op, keep, maximum, sharpen, harden, balance_01, is_pure, compare, cartesian, difference_mod)
FUNCTIONS: dict[str, Callable[..., BoundedRows]] = {function.__name__: function for function in _KNOWN}
