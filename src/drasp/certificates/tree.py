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

    A node is there once for each input whose answer counts there. `targets` are tokens [m] (softmax) or which tokens
    may come next [m, n_vocab] (sigmoid); `begins` are the first nodes of their inputs at which answers count.
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

    def counts(self) -> Iterator[int]:
        """How many strings there are up to each length, from 0 to the longest."""
        here, total = {self.start: 1}, 0
        for _ in range(self.longest + 1):
            total += sum(here.values())
            yield total
            there: dict[int, int] = {}
            for state, ways in here.items():
                for target in self.after[state].tolist():
                    if self.everything or target != DEAD:
                        there[target] = there.get(target, 0) + ways
            here = there

    def count(self) -> int:
        return max(self.counts())


@dataclass(frozen=True)
class Listed:
    """Inputs that are written out: rows of ids in lexicographic order, padded with -1, each with its length.

    Answers count where `counted` [n, width] says; `targets` are tokens [n, width] (softmax) or which tokens may come
    next [n, width, n_vocab] (sigmoid). `known` says of which inputs they are what the task asks for.
    """

    rows: Array
    lengths: Array
    counted: Array
    targets: Array
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
        """How many tokens of each row are read: those up to the last answer that counts."""
        return self.rows.shape[1] - self.counted[:, ::-1].argmax(1)

    @cached_property
    def _first(self) -> Array:
        return self.counted.argmax(1)

    def rows_of(self, which: Array) -> "Listed":
        parts = (self.rows, self.lengths, self.counted, self.targets, self.known)
        return Listed(*(part[which] for part in parts))

    def up_to(self, length: int) -> "Listed":
        short = self.lengths <= length
        return self if short.all() else self.rows_of(short)

    def root(self) -> Nodes:
        everything = Nodes(np.zeros((1, 0), np.int32), np.array([[0, len(self.rows)]]))
        return self.children(everything, self.longest)[1]

    def children(self, nodes: Nodes, longest: int) -> tuple[Array, Nodes]:
        del longest  # the list has no longer ones than it should
        depth = nodes.codes.shape[1]
        parent, rows = self._rows(nodes)
        there = self._sizes[rows] > depth
        parent, rows = parent[there], rows[there]
        code = self._codes[rows, min(depth, self.rows.shape[1] - 1)]
        # Rows are in order: a child's follow one another.
        begins = np.append(True, (code[1:] != code[:-1]) | (parent[1:] != parent[:-1]))[: len(rows)]
        first, parent = rows[begins], parent[begins]
        # They end where the next child's begin, or with its parent's.
        is_last = np.append(parent[1:] != parent[:-1], True)[: len(parent)]
        stop = np.where(is_last, nodes.mark[parent, 1], np.append(first[1:], 0)[: len(first)])
        return parent, Nodes(self._codes[first, : depth + 1], np.stack([first, stop], 1))

    def judged(self, nodes: Nodes) -> Judged:
        """Inputs that share a node may ask for different answers there: each is judged."""
        column = nodes.codes.shape[1] - 1
        which, row = self._rows(nodes)
        counts = self.counted[row, column]
        which, row = which[counts], row[counts]
        begins = self._first[row] == column
        return Judged(which, self.lengths[row], self.targets[row, column], self.known[row], begins)

    def count(self) -> int:
        return len(self.rows)

    def _rows(self, nodes: Nodes) -> tuple[Array, Array]:
        """The rows below nodes, each with the number of its node."""
        starts, stops = nodes.mark[:, 0], nodes.mark[:, 1]
        sizes = stops - starts
        rows = np.arange(sizes.sum()) + np.repeat(starts - (sizes.cumsum() - sizes), sizes)
        return np.repeat(np.arange(len(nodes)), sizes), rows


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
        waiting = [(nothing, np.zeros(len(root), int), root)]
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
