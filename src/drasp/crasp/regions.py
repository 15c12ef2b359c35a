"""Boolean combinations of linear inequalities in whole numbers that tell the points of a finite set apart."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

from drasp.crasp.syntax import CraspError, Formula, Truth, conjunction, disjunction, negation

Array = np.ndarray
Points = Int[Array, "n dims"]
MAX_INEQUALITIES = 40
_SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 200, 500, 1000, 10_000, 10**5, 10**6, 10**7, 10**8)
_HEAVY = 1000.0  # how much more points of one kind count where a split shall leave none of them behind
_STEPS = 60


def region(points: Points, inside: Bool[Array, " n"], above: Callable[[tuple[int, ...]], Formula]) -> Formula:
    """A formula that holds at the points that are inside, and not at the others.

    `above(weights)` says that Σ weight · coordinate is above 0. Points of which one is a multiple of the other cannot
    be told apart by such inequalities.
    """
    divisor = np.gcd.reduce(points, axis=1)
    points, place = np.unique(points // np.where(divisor == 0, 1, divisor)[:, None], axis=0, return_inverse=True)
    place = place.reshape(-1)
    count = np.bincount(place, minlength=len(points))
    within = np.bincount(place, weights=inside, minlength=len(points))
    if ((within > 0) & (within < count)).any():
        raise CraspError("the same counts go with different answers")
    left = MAX_INEQUALITIES

    def told(points: Points, inside: Bool[Array, " n"]) -> Formula:
        nonlocal left
        if inside.all() or not inside.any():
            return Truth(bool(inside.all()))
        left -= 1
        if left < 0:
            raise CraspError(f"more than {MAX_INEQUALITIES} inequalities in one case")
        weights = _split(points, inside)
        up = points @ np.array(weights) > 0
        formula, yes, no = above(weights), told(points[up], inside[up]), told(points[~up], inside[~up])
        if yes == Truth(True):
            return disjunction([formula, no])
        if no == Truth(True):
            return disjunction([negation(formula), yes])
        return disjunction([conjunction([formula, yes]), conjunction([negation(formula), no])])

    return told(points, within > 0)


def _split(points: Points, inside: Bool[Array, " n"]) -> tuple[int, ...]:
    """The weights, as small as can be, of the inequality that leaves the least to be told apart."""
    best: tuple[int, ...] = ()
    least = _mixed(inside | True, inside)
    candidates = _candidates(points, inside)
    for size in _SIZES:
        for weights in candidates:
            whole = np.rint(weights / np.abs(weights).max() * size).astype(int)
            if (mixed := _mixed(points @ whole > 0, inside)) < least:
                best, least = tuple(whole.tolist()), mixed
    if not best:
        raise CraspError(f"an inequality takes whole numbers above {_SIZES[-1]:,}")
    return best


def _candidates(points: Points, inside: Bool[Array, " n"]) -> list[Float[Array, " dims"]]:
    scale = np.maximum(np.abs(points).max(0), 1)
    unit = points / scale
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    # Halfway between two points, which tells at least these apart.
    found = [unit[inside][0] - unit[~inside][0]]
    found += [_direction(unit, inside, np.where(inside, heavy, 1.0)) for heavy in (_HEAVY, 1 / _HEAVY, 1.0)]
    return [weights / scale for weights in found if weights.any()]


def _direction(
    points: Float[Array, "n dims"], inside: Bool[Array, " n"], importance: Float[Array, " n"]
) -> Float[Array, " dims"]:
    """Newton's method for the squared hinge loss, which ends with the widest margin where there is one."""
    signed = points * np.where(inside, 1.0, -1.0)[:, None]
    weights = np.zeros(points.shape[1])

    def loss(weights: Float[Array, " dims"]) -> float:
        return float(importance @ np.maximum(1 - signed @ weights, 0) ** 2 + 1e-9 * weights @ weights)

    value = loss(weights)
    for _ in range(_STEPS):
        near = signed @ weights < 1
        part = signed[near] * importance[near][:, None]
        step = np.linalg.solve(part.T @ signed[near] + 1e-9 * np.eye(len(weights)), part.sum(0)) - weights
        size = 1.0
        while (after := loss(weights + size * step)) > value and size > 1e-6:
            size /= 2
        if after >= value * (1 - 1e-12):
            break
        weights, value = weights + size * step, after
    return weights


def _mixed(up: Bool[Array, " n"], inside: Bool[Array, " n"]) -> float:
    """0 where each side has points of one kind only, and more the more each has of both."""
    counts = [(int(side.sum()), int(inside[side].sum())) for side in (up, ~up)]
    return sum(own * (count - own) / count for count, own in counts if count)
