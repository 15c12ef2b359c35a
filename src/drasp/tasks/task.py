"""What a task is: which inputs there are, at which positions their answers count, and what should be said there.

Inputs come from a `Source`, many at once, as `Rows`; a task adds the positions at which they begin, and checks that
they fit. `sequence.py` has the sources that a user writes, `framed.py` those of the form `BOS x SEP y EOS`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from itertools import islice
from typing import Literal, TypeAlias, TypeVar, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from drasp.errors import DraspError
from drasp.vocabulary import Output, Vocabulary

_DIGESTED = 20  # inputs
_SHOWN = 12  # tokens of an input in a message

Array = np.ndarray
Bins: TypeAlias = tuple[tuple[int, int], ...]
# How the tokens of an input are changed.
EditKind: TypeAlias = Literal["one token", "all tokens", "two swapped"]
EDITS: tuple[EditKind, ...] = get_args(EditKind)
# The positions at which inputs may begin, all as likely; or a function from their lengths to where they do.
Offsets: TypeAlias = tuple[int, ...] | Callable[[np.random.Generator, Array], Array]
T = TypeVar("T")


@dataclass(frozen=True)
class Rows:
    """Inputs as a source gives them, padded on the right, without the positions at which they begin.

    `lengths` are what bins are made of: the size of an input, or of the part of it that a frame goes around.
    """

    ids: Int[Array, "n width"]
    sizes: Int[Array, " n"]
    lengths: Int[Array, " n"]
    counted: Bool[Array, "n width"]
    targets: Int[Array, "n width"] | Bool[Array, "n width n_vocab"] | None

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, which: Int[Array, " m"] | Bool[Array, " n"]) -> "Rows":
        targets = None if self.targets is None else self.targets[which]
        return Rows(self.ids[which], self.sizes[which], self.lengths[which], self.counted[which], targets)


@dataclass(frozen=True)
class Inputs:
    """Inputs as a model reads them, padded on the right, with what it should say where it counts.

    `targets` holds the next token (softmax) or which tokens may come next (sigmoid); None where a task does not say.
    `every`: these are all inputs that there are, and not a sample of them.
    """

    ids: Int[Tensor, "n width"]
    sizes: Int[Tensor, " n"]
    lengths: Int[Tensor, " n"]
    offsets: Int[Tensor, " n"]
    counted: Bool[Tensor, "n width"]
    targets: Int[Tensor, "n width"] | Bool[Tensor, "n width n_vocab"] | None
    every: bool = False

    def __len__(self) -> int:
        return self.ids.shape[0]

    @cached_property
    def positions(self) -> Int[Tensor, "n width"]:
        """Position ids; padding repeats the last one, so that none lies beyond the model's table."""
        columns = torch.arange(self.ids.shape[1]).minimum(self.sizes[:, None] - 1)
        return self.offsets[:, None] + columns

    @property
    def real(self) -> Bool[Tensor, "n width"]:
        """Where there are tokens and not padding."""
        return torch.arange(self.ids.shape[1]) < self.sizes[:, None]

    def rows(self, which: Int[Tensor, " m"] | slice) -> "Inputs":
        """Some of the inputs, no wider than they need."""
        sizes = self.sizes[which]
        width = int(sizes.max()) if len(sizes) else 0
        return Inputs(
            self.ids[which, :width],
            sizes,
            self.lengths[which],
            self.offsets[which],
            self.counted[which, :width],
            None if self.targets is None else self.targets[which, :width],
        )

    def spread(self, every: int) -> "Inputs":
        """Every so-many-th of the inputs in the order of their sizes: fewer, of all sizes."""
        order = self.sizes.argsort(stable=True)
        return self.rows(order[min(every // 2, len(order) - 1) :: every])

    def batches(self, tokens: int = 16384) -> Iterator[tuple[Int[Tensor, " m"], "Inputs"]]:
        """Inputs of like size together, `tokens` at a time, each batch with the rows that it holds."""
        order = self.sizes.argsort(stable=True)
        start = 0
        while start < len(order):
            # Sizes ascend, so a batch of n starting here is at most as wide as its last row.
            wide = self.sizes[order[start:]] * torch.arange(1, len(order) - start + 1)
            stop = start + max(1, int(torch.searchsorted(wide, tokens, right=True)))
            which = order[start:stop]
            yield which, self.rows(which)
            start = stop


class Source(ABC):
    """The source of a task's inputs. What is wrong with them is a `DraspError` that names the input."""

    vocabulary: Vocabulary

    @property
    @abstractmethod
    def lengths(self) -> tuple[int, ...]:
        """The lengths that inputs have, ascending."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """How many tokens an input has at most, as far as is known."""

    @property
    @abstractmethod
    def bins(self) -> Bins:
        """Ranges of lengths that measures are split by."""

    @property
    @abstractmethod
    def training_bins(self) -> Bins:
        """Ranges of lengths that a model is trained on (the first) and tested on (all)."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, count: int, shortest: int | None, longest: int | None) -> Rows:
        """Draws so many inputs of lengths in a range, or of any."""

    @abstractmethod
    def of_lengths(self, rng: np.random.Generator, lengths: Int[Array, " n"]) -> Rows:
        """An input of each of these lengths, which are among `lengths`."""

    @abstractmethod
    def like(self, rng: np.random.Generator, inputs: Inputs) -> Rows:
        """Draws another of its length for each input, with answers at the same positions as far as there are such."""

    @abstractmethod
    def edited(self, rng: np.random.Generator, inputs: Inputs, kind: EditKind) -> Rows:
        """The inputs with tokens changed; those that have no such change in kind stay as they are."""

    @abstractmethod
    def every(self) -> Rows | None:
        """All inputs, where they are few enough to be listed."""


@dataclass(frozen=True)
class Task:
    """Draws inputs, with the positions at which answers count and, where it is known, what should be said there.

    `limit` is how many positions there are, where that is known: those of a model. `sequence_task`, `answer_task` and
    `language_task` make tasks.
    """

    name: str
    vocabulary: Vocabulary
    output: Output
    source: Source
    about: str = ""
    offsets: Offsets = (0,)
    limit: int | None = None

    def __repr__(self) -> str:
        return f"<Task {self.name}: {self.about or 'a task of its own'}; {len(self.vocabulary)} tokens, {self.output}>"

    @property
    def lengths(self) -> tuple[int, ...]:
        return self._from_source(lambda: self.source.lengths)

    @property
    def bins(self) -> Bins:
        """The length bins in which the task has inputs."""
        return self._from_source(lambda: self.source.bins)

    @property
    def training_bins(self) -> Bins:
        """Models are trained in the first of them, and tested in all."""
        return self._from_source(lambda: self.source.training_bins)

    @cached_property
    def n_positions(self) -> int:
        """How many positions a model must have: those that there are, or those that drawn inputs take up."""
        return self.reach if self.limit is None else self.limit

    @cached_property
    def reach(self) -> int:
        """How many positions drawn inputs take up; where offsets depend on lengths, all that there are."""
        if isinstance(self.offsets, tuple):
            return self._from_source(lambda: self.source.longest) + max(self.offsets)
        assert self.limit is not None, "a task whose offsets depend on lengths says what room there is"
        return self.limit

    def pool(
        self,
        count: int,
        rng: np.random.Generator,
        shortest: int | None = None,
        longest: int | None = None,
        random_offsets: bool = True,
    ) -> Inputs:
        """Draws so many inputs, of any length or of those in a range."""
        least = self.lengths[0] if shortest is None else shortest
        most = self.lengths[-1] if longest is None else longest
        if not any(least <= n <= most for n in self.lengths):
            nearest = min(self.lengths, key=lambda n: max(least - n, n - most))
            raise DraspError(
                f"task {self.name}: no inputs of lengths {least} to {most}; the nearest length is {nearest}"
            )
        rows = self._from_source(lambda: self.source.draw(rng, count, shortest, longest))
        return self._inputs(rows, self._offsets(rng, rows.lengths, random_offsets))

    def inputs(self, lengths: Int[Array, " n"], rng: np.random.Generator, random_offsets: bool = True) -> Inputs:
        """One input of each of the given lengths; without `random_offsets` their positions begin at 0."""
        missing = set(lengths.tolist()) - set(self.lengths)
        if missing:
            raise DraspError(f"task {self.name}: no inputs of length {min(missing)}")
        rows = self._from_source(lambda: self.source.of_lengths(rng, lengths))
        return self._inputs(rows, self._offsets(rng, lengths, random_offsets))

    def measured(self, count: int, rng: np.random.Generator) -> Inputs:
        """The inputs that agreement is reported on: all that there are where they are listed, else so many."""
        listed = self._from_source(self.source.every)
        if listed is None:
            return self.pool(count, rng)
        return replace(self._inputs(listed, self._offsets(rng, listed.lengths)), every=True)

    def like(self, inputs: Inputs, rng: np.random.Generator) -> Inputs:
        """Draws another of the same length for each input, at an offset of its own."""
        rows = self._from_source(lambda: self.source.like(rng, inputs))
        return self._inputs(rows, self._offsets(rng, rows.lengths))

    def edited(self, inputs: Inputs, kind: EditKind, rng: np.random.Generator) -> Inputs:
        """The inputs with tokens changed, at their offsets; those that cannot be changed in this way stay."""
        rows = self._from_source(lambda: self.source.edited(rng, inputs, kind))
        return self._inputs(rows, inputs.offsets.cpu().numpy())

    def fitted(self, n_vocab: int, n_positions: int) -> "Task":
        """The task for a model of so many tokens and positions: tokens that it never draws get names of their own."""
        if n_vocab < len(self.vocabulary):
            names = shown(self.vocabulary, range(len(self.vocabulary)))
            raise DraspError(
                f"task {self.name}: has {len(self.vocabulary)} tokens ({names}), but the model has {n_vocab}"
            )
        if self.n_positions > n_positions:
            at_zero = self.offsets == (0,)
            longest = self.inputs(np.array([self.lengths[-1]]), np.random.default_rng(0), random_offsets=False)
            takes = f"its longest input ({shown(self.vocabulary, longest.ids[0].tolist())}) has {longest.ids.shape[1]}"
            more = "" if at_zero else ", and the offsets it may begin at are added"
            hint = "draw shorter inputs" + ("" if at_zero else ", or let positions begin at 0")
            raise DraspError(
                f"task {self.name}: needs {self.n_positions} positions ({takes}{more}), "
                f"but the model has {n_positions}; {hint}"
            )
        limit = n_positions if self.limit is None else self.limit
        if (n_vocab, limit) == (len(self.vocabulary), self.limit):
            return self
        return replace(self, vocabulary=self.vocabulary.widened(n_vocab), limit=limit)

    def _from_source(self, make: Callable[[], T]) -> T:
        """What the source gives; the task's name stands before what is wrong."""
        try:
            return make()
        except DraspError as error:
            raise DraspError(f"task {self.name}: {error}") from error.__cause__

    def _offsets(self, rng: np.random.Generator, lengths: Int[Array, " n"], at_random: bool = True) -> Int[Array, " n"]:
        if not at_random or self.offsets == (0,):
            return np.zeros_like(lengths)
        if isinstance(self.offsets, tuple):
            return rng.choice(np.array(self.offsets), len(lengths))
        return self.offsets(rng, lengths)

    def _inputs(self, rows: Rows, offsets: Int[Array, " n"]) -> Inputs:
        ends = offsets + rows.sizes
        if self.limit is not None and int(ends.max(initial=0)) > self.limit:
            row = int(ends.argmax())
            tokens = shown(self.vocabulary, rows.ids[row, : rows.sizes[row]].tolist())
            raise DraspError(
                f"task {self.name}: an input of {rows.sizes[row]} tokens at offset {offsets[row]} ({tokens}) "
                f"does not fit {self.limit} positions; draw shorter ones"
            )
        tensor = torch.as_tensor  # unlike `from_numpy`, on torch's default device
        targets = None if rows.targets is None else tensor(rows.targets)
        if targets is not None and targets.ndim == 3:
            # Tokens that a model has beside the task's may never come next.
            targets = F.pad(targets, (0, len(self.vocabulary) - targets.shape[-1]))
        return Inputs(
            tensor(rows.ids), tensor(rows.sizes), tensor(rows.lengths), tensor(offsets), tensor(rows.counted), targets
        )

    def digest(self) -> str:
        """A SHA-256 of what the task is, as far as it shows: its tokens, positions, and some inputs with answers."""
        made = sha256(repr((self.vocabulary, self.output, self.n_positions, self.lengths)).encode())
        inputs = self.pool(_DIGESTED, np.random.default_rng(0))
        for part in (inputs.ids, inputs.offsets, inputs.counted, inputs.targets):
            if part is not None:
                made.update(part.cpu().numpy().tobytes())
        return made.hexdigest()

    def example(self) -> str:
        """A short input, the same at every call."""
        length = min(self.lengths, key=lambda n: abs(n - 6))
        inputs = self.inputs(np.array([length]), np.random.default_rng(1), random_offsets=False)
        return " ".join(self.vocabulary.tokens[i] for i in inputs.ids[0])


def bin_name(low: int, high: int) -> str:
    return f"{low}-{high}" if low < high else f"{low}"


def shown(vocabulary: Vocabulary, ids: Iterable[int]) -> str:
    """The first tokens of an input, by their names, for a message."""
    names = [vocabulary.tokens[i] for i in islice(ids, _SHOWN + 1)]
    return " ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
