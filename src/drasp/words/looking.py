"""Where a select looks, in words: from its scores alone.

Positions are compared with patterns (one position before, every second one …) by the overlap of attention weights;
tokens by what each query scores highest.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from drasp.language.bases import Basis, One, Positions, Space, labels, size
from drasp.words.labels import heard, levels, listed, ordinary

Matrix = Float[np.ndarray, "rows columns"]
Mask = Bool[np.ndarray, "rows columns"]

ALIKE = "all positions alike"
_MOST = 0.5  # of the weight
_OVERLAP = 0.9  # of attention weights, from which on a pattern is what a select looks for
_CLEAR = 4.0  # a lead of the best key that leaves the others little
_FLAT = 0.5  # scores that differ by less are all alike
_FAINT = 2.3  # where they differ by less, no key has ten times the weight of another
_STEP = 0.1  # of the range of scores: what differs by less is the same
_FURTHEST, _PERIODS, _WINDOW = 8, range(2, 7), 6
_LONGEST = 12  # labels of a basis that are told one by one
_GROUPS = 6  # kinds of queries that are told one by one
_LEVELS = 5  # of a ranking
_POSITION_IS = "the position is "
_ORDERED = 4  # tokens, from which on an order of them shows


@dataclass(frozen=True)
class Look:
    """`place` says which positions score highest; `sharp` whether these are looked at almost alone.

    `faint`: the scores differ so little that all others are looked at as well, and weigh more where they are many.
    """

    place: str
    sharp: bool
    faint: bool = False


def look(scores: Matrix, rows: Basis, columns: Basis, query: str, key: str, causal: bool, divided: bool) -> Look:
    """Scores to where they are highest. `query` and `key` are what the two are called.

    `causal`: rows and columns are the positions of query and key, of which the latter never is behind the former.
    `divided`: a norm divides the scores, so that their size is not known from here.
    """
    if isinstance(rows, Space) or isinstance(columns, Space):
        return Look(f"positions by how well {key} fits {query}", sharp=False)
    match rows, columns:
        case One(), Positions():
            found = _ranked_positions(scores[0], divided)
        case Positions(), Positions():
            found = _pattern(scores, query, causal, divided)
            found = found or Look(f"positions by a table of {query} and the key's position", sharp=False)
        case _:
            found = _by_label(scores, rows, columns, query, key, divided)
    if divided or found.place == ALIKE:
        return found
    part = scores[np.ix_(heard(rows), heard(columns))]
    seen = np.tri(*part.shape, dtype=bool) if causal else np.ones(part.shape, bool)
    spans = np.where(seen, part, -np.inf).max(1) - np.where(seen, part, np.inf).min(1)
    return replace(found, faint=bool(spans.max() < _FAINT))


# ---------------------------------------------------------------------------------------- positions


def _ranked_positions(scores: Float[np.ndarray, " columns"], divided: bool) -> Look:
    steps = np.diff(scores)
    if np.ptp(scores) < _FLAT and not divided:
        return Look(ALIKE, sharp=False)
    for sign, place in ((1, "the latest position"), (-1, "the first position")):
        if (sign * steps > 0).mean() >= _OVERLAP:
            return Look(place, sharp=not divided and float(np.median(sign * steps)) >= _CLEAR)
    return Look("some positions more than others, whatever the query", sharp=False)


def _pattern(scores: Matrix, query: str, causal: bool, divided: bool) -> Look | None:
    """The pattern whose weights overlap most with those of the scores; else with those of the highest scores alone.

    Else the pattern of the best key, where that has more than half of the weight.
    """
    count = min(scores.shape)
    scores = scores[:count, :count]
    seen = np.tri(count, dtype=bool) if causal else np.ones((count, count), bool)
    own = _weights(scores, seen)
    if not divided and (found := _best(own, query, seen, causal)):
        return Look(found, sharp=True)
    found = _best(_highest(scores, seen, _STEP), query, seen, causal)
    if not found and not divided and np.mean(own.max(1) > _MOST) >= _OVERLAP:
        found = _best(_highest(scores, seen, 0.0), query, seen, causal)
    return Look(found, sharp=False) if found else None


def _best(weights: Matrix, query: str, seen: Mask, causal: bool) -> str | None:
    count = len(weights)
    best, words = _OVERLAP, None
    for place, keys in _patterns(count, query, causal):
        mask = keys & seen
        rows = mask.any(1)
        if not rows.any():
            continue
        pattern = mask[rows] / mask[rows].sum(1, keepdims=True)
        overlap = float(np.minimum(pattern, weights[rows]).sum(1).mean())
        if overlap > best + 1e-6:
            best, words = overlap, place
    return words


def _patterns(count: int, query: str, causal: bool) -> Iterator[tuple[str, Mask]]:
    """Words, and the keys that each query looks for, from the simple to the less so."""
    i, j = np.arange(count)[:, None], np.arange(count)[None, :]
    yield ALIKE, np.ones((count, count), bool)
    for step in (0, *(sign * d for d in range(1, _FURTHEST + 1) for sign in ((-1,) if causal else (-1, 1)))):
        yield _at(step, query, causal), j == i + step
    if not causal:
        return
    for period in _PERIODS:
        for rest in range(period):
            yield _every(period, rest), (i - j) % period == rest
    for far in range(1, _WINDOW + 1):
        for near in range(far):
            yield f"the positions {near} to {far} before", (j >= i - far) & (j <= i - near)
    yield "the first position", (j == 0) & (i >= 0)


def _at(step: int, query: str, causal: bool) -> str:
    if causal:
        return ("its own position", "the position before")[-step] if step > -2 else f"the position {-step} before"
    side = "behind" if step > 0 else "before"
    far = "the position" if abs(step) == 1 else f"the position {abs(step)}"
    return f"{far} {side} {query}" if step else query


def _every(period: int, rest: int) -> str:
    if period == 2:
        return f"positions at an {'odd' if rest else 'even'} distance"
    return f"positions at a distance of {rest}, {rest + period}, {rest + 2 * period} …"


def _weights(scores: Matrix, seen: Mask) -> Matrix:
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def _highest(scores: Matrix, seen: Mask, step: float) -> Matrix:
    """All weight on the highest scores: those that are less than a step below the first, as a part of their range."""
    masked = np.where(seen, scores, -np.inf)
    lowest = np.where(seen, scores, np.inf).min(1, keepdims=True)
    top = masked.max(1, keepdims=True)
    chosen = masked >= top - step * (top - lowest)
    return chosen / chosen.sum(1, keepdims=True)


# ----------------------------------------------------------------------------------------- labels


def _by_label(scores: Matrix, rows: Basis, columns: Basis, query: str, key: str, divided: bool) -> Look:
    """The keys that each query scores highest; queries that look for the same are told together."""
    queries, keys = heard(rows), heard(columns)
    part = scores[np.ix_(queries, keys)]
    spans = np.ptp(part, axis=1)
    flat = spans < (_STEP * spans.max() if divided else _FLAT)
    if flat.all():
        return Look(ALIKE, sharp=False)
    sharp = not divided and all(_lead(row) >= _CLEAR for row in part[~flat])
    row_names, key_names = labels(rows), labels(columns)
    places: dict[int, str | None] = {}
    for i, row, level in zip(queries, part, flat.tolist(), strict=True):
        place = _order(row) if isinstance(columns, Positions) else _ranking(row, [key_names[k] for k in keys], key)
        if place is None:
            return Look(f"positions by a table of {query} and {key}", sharp=False)
        places[i] = None if level else place
    if size(rows) == size(columns) and row_names == key_names:
        same = [i for i in queries if scores[i, i] >= scores[i, keys].max() - _STEP * np.ptp(scores[i, keys])]
        if set(ordinary(rows)) <= set(same):
            return Look(_with_exceptions(f"positions where {key} is {query}", places, same, row_names), sharp)
        if _is_next_above(scores, ordinary(rows)):
            return Look(f"positions where {key} is the next above {query}", sharp)
    groups: dict[str | None, list[str]] = {}
    for i, place in places.items():
        groups.setdefault(place, []).append(row_names[i])
    if len(groups) == 1:
        place = str(next(iter(groups)))
        if isinstance(columns, Positions):
            return Look(f"{place.removeprefix(_POSITION_IS)} positions", sharp)
        return Look(f"positions where {place}", sharp)
    if len(queries) > _LONGEST or len(groups) > _GROUPS:
        return Look(f"positions by a table of {query} and {key}", sharp=False)
    told = [f"{listed(names, 'or')}: {f'where {place}' if place else 'all alike'}" for place, names in groups.items()]
    return Look(f"positions by what {query} is ({'; '.join(told)})", sharp)


def _lead(row: Float[np.ndarray, " keys"]) -> float:
    """The margin by which the best keys lead over the next."""
    ranks = levels(row, _STEP * float(np.ptp(row)))
    return float(row[ranks[0]].min() - row[ranks[1]].max()) if len(ranks) > 1 else 0.0


def _ranking(row: Float[np.ndarray, " keys"], names: list[str], key: str) -> str:
    ranks = levels(row, _STEP * float(np.ptp(row)))
    first, last = ([names[i] for i in rank] for rank in (ranks[0], ranks[-1]))
    if len(ranks) == 2 and len(last) < len(first):
        return f"{key} is not {listed(last, 'or')}"
    if len(ranks) > _LEVELS:
        return f"{key} is high in a ranking, {listed(first, 'or')} first"
    ranked = [listed([names[i] for i in rank], "or") for rank in ranks[:-1]]
    return f"{key} is {', else '.join(ranked)}"


def _order(row: Float[np.ndarray, " positions"]) -> str | None:
    """What the positions that score high have in common: early, late, odd or even."""
    steps = np.diff(row)
    for sign, words in ((1, "late"), (-1, "early")):
        if (sign * steps > 0).mean() >= _OVERLAP:
            return f"{_POSITION_IS}{words}"
    odd = np.arange(len(row)) % 2 == 1
    middle = (row[odd].mean() + row[~odd].mean()) / 2 if odd.any() else 0.0
    for chosen, words in ((odd, "odd"), (~odd, "even")):
        if ((row > middle) == chosen).mean() >= _OVERLAP:
            return f"{_POSITION_IS}{words}"
    return None


def _with_exceptions(words: str, places: dict[int, str | None], same: list[int], names: tuple[str, ...]) -> str:
    """What special tokens look for, where that is something else."""
    others = [(names[i], place) for i, place in places.items() if i not in same and place is not None]
    return "; ".join([words, *(f"from {name}, where {place}" for name, place in others)])


def _is_next_above(scores: Matrix, tokens: list[int]) -> bool:
    """Whether queries look for the least of the keys above them."""
    if len(tokens) < _ORDERED:
        return False
    part = scores[np.ix_(tokens, tokens)]
    rows = [row[i + 1] >= row.max() and row[i + 1 :].mean() > row[: i + 1].max() for i, row in enumerate(part[:-1])]
    return bool(rows) and float(np.mean(rows)) >= _OVERLAP
