"""Tokens of many inputs as an array with a row for each: drawn, changed and put together. Holes are -1."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Int

from drasp.tasks.task import EditKind, Rows

HOLE = -1
Array = np.ndarray
# Changes tokens, and leaves rows as they are that have no such change in kind.
EditTokens = Callable[[np.random.Generator, Array, EditKind], Array]


def within(lengths: Int[Array, " n"]) -> Bool[Array, "n width"]:
    """Which columns lie inside rows of these lengths."""
    return np.arange(lengths.max(initial=0)) < lengths[:, None]


def uniform(n_symbols: int) -> Callable[[np.random.Generator, Array], Array]:
    """A function that draws independent and uniform symbols."""

    def draw(rng: np.random.Generator, lengths: Array) -> Array:
        inside = within(lengths)
        return np.where(inside, rng.integers(0, n_symbols, inside.shape), HOLE)

    return draw


def any_token(n_symbols: int) -> EditTokens:
    """An edit that changes one token to any other, or draws all of them anew, or swaps two that differ."""

    def edit(rng: np.random.Generator, x: Array, kind: EditKind) -> Array:
        real = x != HOLE
        if kind == "two swapped":
            return swapped(rng, x)
        if kind == "all tokens":
            return np.where(real, rng.integers(0, n_symbols, x.shape), x)
        # One step or more around the circle of symbols; with a single symbol there is none.
        steps = rng.integers(1, n_symbols, x.shape) if n_symbols > 1 else np.zeros_like(x)
        return np.where(scatter(rng, real, np.minimum(real.sum(1), 1)), (x + steps) % n_symbols, x)

    return edit


def swapped(rng: np.random.Generator, x: Int[Array, "n width"]) -> Int[Array, "n width"]:
    """The rows, in each of which a token and another that differs from it have changed places."""
    new, rows = x.copy(), np.arange(len(x))
    if not x.shape[1]:
        return new
    first = scatter(rng, x != HOLE, np.minimum((x != HOLE).sum(1), 1)).argmax(1)
    others = (x != HOLE) & (x != x[rows, first][:, None])
    second = np.where(others.any(1), scatter(rng, others, np.minimum(others.sum(1), 1)).argmax(1), first)
    new[rows, first], new[rows, second] = x[rows, second], x[rows, first]
    return new


def scatter(
    rng: np.random.Generator, places: Bool[Array, "n width"], counts: Int[Array, " n"]
) -> Bool[Array, "n width"]:
    """Marks on as many of each row's places as `counts` says, any choice as likely as another."""
    keys = np.where(places, rng.random(places.shape, dtype=np.float32), np.float32(2))
    marked = np.zeros_like(places)
    np.put_along_axis(marked, keys.argsort(axis=1), np.arange(places.shape[1]) < counts[:, None], axis=1)
    return marked


def closed(tokens: Int[Array, "n any"], pad: int) -> tuple[Int[Array, "n width"], Int[Array, " n"]]:
    """Moves the tokens of each row to the left over the holes, and pads on the right."""
    real = tokens != HOLE
    sizes = real.sum(1)
    inside = within(sizes)
    rows = np.full(inside.shape, pad)
    rows[inside] = tokens[real]
    return rows, sizes


def joined(parts: Sequence[Rows], pad: int) -> Rows:
    """The inputs of several draws, one after the other, as wide as the widest; targets where all have them."""
    width = max(part.ids.shape[1] for part in parts)

    def wide(array: Array, value: int) -> Array:
        room = [(0, 0), (0, width - array.shape[1]), *[(0, 0)] * (array.ndim - 2)]
        return np.pad(array, room, constant_values=value)

    targets = [part.targets for part in parts if part.targets is not None]
    return Rows(
        np.concatenate([wide(part.ids, pad) for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([wide(part.counted, 0) for part in parts]),
        np.concatenate([wide(each, 0) for each in targets]) if len(targets) == len(parts) else None,
    )
