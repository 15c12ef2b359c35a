"""The inputs of a task as a tree, and the walk through it that computes what inputs share only once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from drasp.certificates.bounds import Array, BoundedLogits
from drasp.certificates.level import Kept, Own, Wanted
from drasp.certificates.model_levels import ModelLevels
from drasp.certificates.program_levels import ProgramLevels

DEAD = 0  # the automaton's state after which no word of the language can follow
MOST_WORDS = 200_000_000  # that are looked at
MOST_NODES = 8192  # that are computed together
BYTES = 2**26  # that they may keep


@dataclass(frozen=True)
class Nodes:
    """Prefixes of inputs, all of one length: their tokens as `codes` [n, depth + 1], and the tree's `mark` on each."""

    codes: Array
    mark: Array

    def __len__(self) -> int:
        return len(self.codes)

    def rows(self, start: int, stop: int) -> "Nodes":
        return Nodes(self.codes[start:stop], self.mark[start:stop])


@dataclass(frozen=True)
class Judged:
    """The nodes at which answers count, with the length of their inputs and what should be said, where it is known.

    `targets` are tokens [m] (softmax) or which tokens may come next [m, n_vocab] (sigmoid); `begins` are the first
    nodes of their inputs at which answers count.
    """

    which: Wanted
    lengths: Array
    targets: Array
    known: Array
    begins: Array


@dataclass(frozen=True)
class Words:
    """BOS and the prefixes of the words of a language, or, with `everything`, all strings over its symbols.

    `after` [state, symbol] is the automaton's next state, `allowed` [state, n_vocab] what may come next.
    """

    after: Array
    allowed: Array
    start: int
    bos: int
    longest: int
    everything: bool

    @property
    def tokens(self) -> Sequence[int]:
        return [*range(self.after.shape[1]), self.bos]

    def up_to(self, length: int) -> "Words":
        return replace(self, longest=min(self.longest, length))

    def root(self) -> Nodes:
        return Nodes(np.array([[self.after.shape[1]]], np.int32), np.array([self.start]))

    def children(self, nodes: Nodes, longest: int) -> tuple[Array, Nodes]:
        """The children, as far as inputs of at most that length have them, and the number of each one's parent."""
        following = self.after[nodes.mark]
        if nodes.codes.shape[1] > longest:
            following = following[:0]
        parent, symbol = np.nonzero(np.ones_like(following, bool) if self.everything else following != DEAD)
        codes = np.concatenate([nodes.codes[parent], symbol[:, None].astype(np.int32)], axis=1)
        return parent, Nodes(codes, following[parent, symbol])

    def judged(self, nodes: Nodes) -> Judged:
        lengths, every = np.full(len(nodes), nodes.codes.shape[1] - 1), np.ones(len(nodes), bool)
        return Judged(slice(None), lengths, self.allowed[nodes.mark], nodes.mark != DEAD, every)

    def count(self) -> int:
        """How many strings there are."""
        here, total = {self.start: 1}, 0
        for _ in range(self.longest + 1):
            total += sum(here.values())
            there: dict[int, int] = {}
            for state, ways in here.items():
                for target in self.after[state].tolist():
                    if self.everything or target != DEAD:
                        there[target] = there.get(target, 0) + ways
            here = there
        return total


@dataclass(frozen=True)
class Listed:
    """Inputs that are written out: rows of ids in lexicographic order, padded with -1, each with its length.

    Answers count from column `first` on; what should be said there is the next id of the row, so that the last one of
    a row is said and not read. `known` says of which inputs the answers are the task's own.
    """

    rows: Array
    first: Array
    lengths: Array
    known: Array

    @cached_property
    def tokens(self) -> Sequence[int]:
        return np.unique(self.rows[self.rows >= 0]).tolist()

    @property
    def longest(self) -> int:
        return int(self.lengths.max(initial=0))

    @cached_property
    def _codes(self) -> Array:
        return np.searchsorted(np.array(self.tokens), self.rows).astype(np.int32)

    @cached_property
    def _sizes(self) -> Array:
        """How many tokens of each row are read."""
        return (self.rows >= 0).sum(1) - 1

    @cached_property
    def _shared(self) -> Array:
        """How many tokens each row shares with the one before."""
        same = np.cumprod(self.rows[1:] == self.rows[:-1], axis=1).sum(1)
        return np.concatenate([[0], same])

    def up_to(self, length: int) -> "Listed":
        short = self.lengths <= length
        return (
            self if short.all() else Listed(self.rows[short], self.first[short], self.lengths[short], self.known[short])
        )

    def root(self) -> Nodes:
        return Nodes(self._codes[:1, :1], np.array([[0, len(self.rows)]]))

    def children(self, nodes: Nodes, longest: int) -> tuple[Array, Nodes]:
        del longest  # the list has no longer ones than it should
        depth = nodes.codes.shape[1]
        starts, stops = nodes.mark[:, 0], nodes.mark[:, 1]
        sizes = stops - starts
        rows = np.arange(sizes.sum()) + np.repeat(starts - (sizes.cumsum() - sizes), sizes)
        parent = np.repeat(np.arange(len(nodes)), sizes)
        is_there = self._sizes[rows] > depth
        begins = is_there & (self._shared[rows] <= depth)
        first, parent = rows[begins], parent[begins]
        # A child's rows end where the next child's begin, or with its parent's.
        following = np.append(first[1:], 0)
        is_last = np.append(parent[1:] != parent[:-1], True)
        stop = np.where(is_last, stops[parent], following)
        return parent, Nodes(self._codes[first, : depth + 1], np.stack([first, stop], 1))

    def judged(self, nodes: Nodes) -> Judged:
        column, row = nodes.codes.shape[1] - 1, nodes.mark[:, 0]
        which = np.flatnonzero(self.first[row] <= column)
        row = row[which]
        begins = self.first[row] == column
        return Judged(which, self.lengths[row], self.rows[row, column + 1], self.known[row], begins)

    def count(self) -> int:
        return len(self.rows)


Inputs = Words | Listed
"""A tree of inputs. `tokens` are the ids that codes stand for; `longest` the greatest length."""


Side = ProgramLevels | ModelLevels
"""What is computed level by level."""


@dataclass
class Walk:
    """A walk through all nodes of a tree, many at a time and each after its parent.

    `longest` may be lowered on the way: then longer inputs are passed over.
    """

    inputs: Inputs
    sides: Sequence[Side]
    longest: int

    def __iter__(self) -> Iterator[tuple[Nodes, Judged, list[BoundedLogits]]]:
        root = self.inputs.root()
        nothing: list[Kept] = [{} for _ in self.sides]
        waiting = [(nothing, np.zeros(1, int), root)]
        while waiting:
            before, parent, nodes = waiting.pop()
            judged = self.inputs.judged(nodes)
            kept: list[Kept] = []
            logits: list[BoundedLogits] = []
            for side, old in zip(self.sides, before, strict=True):
                keep, said = side.extend(old, parent, nodes.codes, judged.which)
                kept.append(keep)
                logits.append(said)
            yield nodes, judged, logits
            parent, children = self.inputs.children(nodes, self.longest)
            size = _together(kept, len(nodes))
            for start in range(0, len(children), size):
                stop = start + size
                waiting.append((kept, parent[start:stop], children.rows(start, stop)))


def _together(kept: Sequence[Kept], nodes: int) -> int:
    """How many nodes are computed together, so that what they keep does not fill the memory."""
    size = sum(own.value.nbytes for keep in kept for own in keep.values() if isinstance(own, Own)) / nodes
    return int(max(64, min(MOST_NODES, BYTES // (size + 1))))
