"""One level of a tree of inputs: what is known at its nodes, and what their ancestors have left to look at.

All nodes of a level stand at the same position. What depends on token and position alone is computed once for each
token (*local*); the rest, once for each node. Keys and values of attention are kept likewise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from drasp.certificates.bounds import GROW, SMALL, Array, BoundedRows, U, gamma, norms, softmax

Wanted = Array | slice
"""Which nodes: their numbers, or all."""


@dataclass(frozen=True)
class LevelValue:
    """Rows for each token that the inputs have (`local`), or for each node."""

    rows: BoundedRows
    local: bool

    def at(self, codes: Array) -> BoundedRows:
        """The rows of nodes whose own tokens are these."""
        return self.rows.take(codes) if self.local else self.rows

    def only(self, wanted: Wanted) -> "LevelValue":
        return self if self.local else LevelValue(self.rows.take(wanted), False)


@dataclass(frozen=True)
class Joined:
    """Rows of all tokens at each position so far, one below the other; their largest norm and error.

    `ones` says where each row has its 1, if all are unit vectors.
    """

    value: Array
    ones: Array | None
    largest: float
    error: float


@dataclass
class Tables:
    """Keys or values that depend on token and position alone: those of all tokens, up to each position so far."""

    levels: list[Joined] = field(default_factory=list[Joined])

    def up_to(self, depth: int, rows: BoundedRows) -> "Tables":
        """The tables with one more position; levels are met again in every part of the tree, where they are known."""
        if len(self.levels) > depth:
            return self
        rows = rows.plain
        largest, error = float(norms(rows.value).max()) * GROW, float(rows.error.max())
        ones = rows.value.argmax(1) if rows.is_unit and rows.value.any(1).all() else None
        value = rows.value
        if self.levels:
            last = self.levels[-1]
            value = np.concatenate([last.value, value])
            ones = None if ones is None or last.ones is None else np.concatenate([last.ones, ones])
            # Unlike Python's own, this maximum is no number where either is none.
            largest, error = (float(np.maximum(*pair)) for pair in ((largest, last.largest), (error, last.error)))
        self.levels.append(Joined(value, ones, largest, error))
        return self


@dataclass(frozen=True)
class Own:
    """Keys or values of a node's own: its ancestors' and its own, [n, depth + 1, d]; their largest norm and error."""

    value: Array
    largest: Array
    error: Array

    def only(self, wanted: Wanted) -> "Own":
        return Own(self.value[wanted], self.largest[wanted], self.error[wanted])


@dataclass(frozen=True)
class RunningSum:
    """What a uniform mean has added up so far."""

    rows: BoundedRows


Kept = Mapping[str, Own | RunningSum]
"""What nodes keep for their descendants, by name."""


def grown(before: Own | RunningSum | None, parent: Array, rows: BoundedRows) -> Own:
    """The children's: what their parents have, and the next."""
    rows = rows.plain
    largest, error = norms(rows.value) * GROW, rows.error
    if not isinstance(before, Own):
        return Own(rows.value[:, None], largest, error)
    value = np.empty((len(parent), before.value.shape[1] + 1, rows.value.shape[1]))
    np.take(before.value, parent, axis=0, out=value[:, :-1])
    value[:, -1] = rows.value
    return Own(value, np.maximum(before.largest[parent], largest), np.maximum(before.error[parent], error))


Seen = Tables | Own


@dataclass(frozen=True)
class Scores:
    """One number for each node and each of its ancestors, itself included: [n, depth + 1], each within `delta` [n]."""

    value: Array
    delta: Array


def places(codes: Array, tokens: int) -> Array:
    """The places of the rows of a node's ancestors in joined tables."""
    return codes + np.arange(codes.shape[1]) * tokens


def scores(query: LevelValue, seen: Seen, codes: Array, tokens: int) -> Scores:
    """Dot products of queries and keys; `codes` [n, depth + 1] are the tokens of nodes and their ancestors."""
    rows, own = query.rows.plain, codes[:, -1]
    width = rows.value.shape[1]
    size = norms(rows.value)
    if isinstance(seen, Own):
        found = query.at(own).plain
        value = np.matmul(seen.value, found.value[:, :, None])[:, :, 0]
        size, error = norms(found.value), found.error
        delta = size * (seen.error + gamma(width) * seen.largest) + error * (seen.largest + seen.error)
        return Scores(value, (delta + SMALL) * GROW)
    keys = seen.levels[codes.shape[1] - 1]
    if keys.ones is not None:
        products, delta = rows.value[:, keys.ones], rows.error
    else:
        products = rows.value @ keys.value.T
        off = size * (keys.error + gamma(width) * keys.largest) + rows.error * (keys.largest + keys.error)
        delta = (off + SMALL) * GROW
    where = places(codes, tokens)
    if query.local:
        return Scores(products[own[:, None], where], delta[own])
    return Scores(np.take_along_axis(products, where, axis=1), delta)


def add_scores(a: Scores, b: Scores) -> Scores:
    value = a.value + b.value
    return Scores(value, (a.delta + b.delta + U * np.abs(value).max(1)) * GROW)


def mixed(given: Scores, seen: Seen, codes: Array, tokens: int) -> BoundedRows:
    """What nodes see on average, with the softmax of scores as weights."""
    weights, off = softmax(given.value, given.delta)
    keys = weights.shape[1]
    if isinstance(seen, Own):
        value = np.matmul(weights[:, None, :], seen.value)[:, 0]
        largest, error = seen.largest, seen.error
    else:
        table = seen.levels[keys - 1]
        largest, error = table.largest, table.error
        if table.ones is not None:
            value = np.zeros((len(weights), table.value.shape[1]))
            everyone, chosen = np.arange(len(weights)), table.ones[places(codes, tokens)]
            for key in range(keys):
                value[everyone, chosen[:, key]] += weights[:, key]
        else:
            spread = np.zeros((len(weights), keys * tokens))
            np.put_along_axis(spread, places(codes, tokens), weights, axis=1)
            value = spread @ table.value
    if keys == 1 and not np.any(error):
        return BoundedRows.exact(value)
    # Weights add up to 1, so that errors of what is seen count once; so do roundings.
    return BoundedRows(value, (off * largest + error + gamma(keys) * (1 + off) * largest + SMALL) * GROW)
