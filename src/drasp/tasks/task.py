"""What a task is: which inputs it draws, and what counts as the answer on each.

Tokens are drawn for many inputs at once, as an array with a row for each input. Rows differ in length, so
an array may have holes (-1) anywhere; they are closed when the rows are put together.
"""

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from drasp.errors import DraspError
from drasp.tasks.automaton import Language
from drasp.vocabulary import Output, Vocabulary

HOLE = -1
MAX_LENGTH = 150
# Trained in the first bin, tested in all three.
BINS = ((1, 50), (51, 100), (101, 150))
_DIGESTED = 20  # inputs

Array = np.ndarray
# Lengths to the tokens of an input (without BOS, SEP, EOS), and those to the tokens of its answer.
Draw = Callable[[np.random.Generator, Array], Array]
Answer = Callable[[Array], Array]
# How the tokens of an input are changed; and what does it, leaving rows as they are that have no such change in kind.
EditKind: TypeAlias = Literal["one token", "all tokens", "two swapped"]
EDITS: tuple[EditKind, ...] = get_args(EditKind)
EditTokens = Callable[[np.random.Generator, Array, EditKind], Array]


@dataclass(frozen=True)
class Inputs:
    """Inputs as a model reads them, padded on the right, with what it should say where it counts.

    `targets` holds the next token (softmax) or which tokens may come next (sigmoid).
    """

    ids: Int[Tensor, "n width"]
    sizes: Int[Tensor, " n"]
    lengths: Int[Tensor, " n"]
    offsets: Int[Tensor, " n"]
    counted: Bool[Tensor, "n width"]
    targets: Int[Tensor, "n width"] | Bool[Tensor, "n width n_vocab"]

    def __len__(self) -> int:
        return self.ids.shape[0]

    @cached_property
    def positions(self) -> Int[Tensor, "n width"]:
        """Position ids; padding repeats the last one, so that none lies beyond the model's table."""
        columns = torch.arange(self.ids.shape[1]).minimum(self.sizes[:, None] - 1)
        return self.offsets[:, None] + columns

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
            self.targets[which, :width],
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


@dataclass(frozen=True)
class Task:
    """Draws inputs `BOS x SEP y EOS` (or `BOS x EOS` for a language) with their answers."""

    name: str
    about: str
    vocabulary: Vocabulary
    draw: Draw
    answer: Answer | Language
    lengths: tuple[int, ...]
    n_positions: int
    ends: bool = True  # whether EOS closes the answer
    spread: int = 1  # positions that an input takes up for each unit of its length
    room: int = MAX_LENGTH  # the length at which an input leaves no room for an offset
    edit: EditTokens | None = None  # changes that keep inputs in kind; without, any ordinary token for another

    def __post_init__(self) -> None:
        if not self.lengths:
            raise DraspError(f"task {self.name}: no length from 1 to {MAX_LENGTH} exists")

    @property
    def output(self) -> Output:
        return "sigmoid" if isinstance(self.answer, Language) else "softmax"

    @property
    def bins(self) -> tuple[tuple[int, int], ...]:
        """The length bins in which the task has inputs."""
        return tuple(b for b in BINS if any(b[0] <= n <= b[1] for n in self.lengths))

    def pool(
        self,
        count: int,
        rng: np.random.Generator,
        shortest: int = 1,
        longest: int = MAX_LENGTH,
        random_offsets: bool = True,
    ) -> Inputs:
        """Inputs of lengths drawn uniformly from those that exist."""
        choices = [n for n in self.lengths if shortest <= n <= longest]
        if not choices:
            nearest = min(self.lengths, key=lambda n: max(shortest - n, n - longest))
            raise DraspError(
                f"task {self.name}: no inputs of lengths {shortest} to {longest}; the nearest length is {nearest}"
            )
        return self.inputs(rng.choice(np.array(choices), count), rng, random_offsets)

    def inputs(self, lengths: Int[Array, " n"], rng: np.random.Generator, random_offsets: bool = True) -> Inputs:
        """One input of each of the given lengths; without `random_offsets` their positions begin at 0."""
        missing = set(lengths.tolist()) - set(self.lengths)
        if missing:
            raise DraspError(f"task {self.name}: no inputs of length {min(missing)}")
        x = self._tokens("draw", lambda: self.draw(rng, lengths), len(lengths))
        if random_offsets:
            offsets = rng.integers(0, self.spread * (self.room - lengths) + 1)
        else:
            offsets = np.zeros_like(lengths)
        return self._inputs(x, self._answers(x), lengths, offsets)

    def inputs_of(self, x: Int[Array, "n any"], lengths: Int[Array, " n"]) -> Inputs:
        """Inputs with these tokens and their answers, at offset 0."""
        return self._inputs(x, self._answers(x), lengths, np.zeros_like(lengths))

    def edited(self, inputs: Inputs, kind: EditKind, rng: np.random.Generator) -> Inputs:
        """The inputs with tokens of x changed, at their offsets, with the answers to what they are now.

        Where the task has no answer to that, the old one stays. Rows that cannot be changed in this way stay as they
        are; the sizes of others may change with their answers.
        """
        rows, ordinary = inputs.ids.cpu().numpy(), len(self.vocabulary) - len(self.vocabulary.special)
        in_x = np.minimum.accumulate(rows[:, 1:] < ordinary, axis=1)
        x = np.where(in_x, rows[:, 1:], HOLE)
        edit = self.edit or any_token(ordinary)
        new = self._tokens("edit", lambda: edit(rng, x.copy(), kind), len(x))
        try:
            y = self._answers(new)
        except DraspError:
            y = self._answers(x)
        return self._inputs(new, y, inputs.lengths.cpu().numpy(), inputs.offsets.cpu().numpy())

    def _answers(self, x: Int[Array, "n any"]) -> Int[Array, "n some"] | None:
        if isinstance(self.answer, Language):
            return None
        answer = self.answer
        return self._tokens("answer", lambda: answer(x), len(x))

    def _inputs(
        self,
        x: Int[Array, "n any"],
        y: Int[Array, "n some"] | None,
        lengths: Int[Array, " n"],
        offsets: Int[Array, " n"],
    ) -> Inputs:
        ids = self.vocabulary.ids

        def column(token: str) -> Array:
            return np.full((len(x), 1), ids[token])

        if y is None:
            parts = [column("BOS"), x, column("EOS")]
            first = np.zeros(len(x), int)
        else:
            end = [column("EOS")] if self.ends else []
            parts = [column("BOS"), x, column("SEP"), y, *end]
            first = 1 + (x != HOLE).sum(1)
        row, sizes = _close(np.concatenate(parts, axis=1), ids["PAD"])
        columns = np.arange(row.shape[1])
        counted = (columns >= first[:, None]) & (columns < sizes[:, None] - 1)
        if isinstance(self.answer, Language):
            targets = self.answer.allowed_after(row, counted)
        else:
            targets = np.where(counted, np.roll(row, -1, axis=1), 0)
        if int((offsets + sizes).max(initial=0)) > self.n_positions:
            raise DraspError(
                f"task {self.name}: an input of {sizes.max()} tokens does not fit its {self.n_positions} positions; "
                "give the longest answer"
            )
        tensor = torch.as_tensor  # unlike `from_numpy`, on torch's default device
        return Inputs(tensor(row), tensor(sizes), tensor(lengths), tensor(offsets), tensor(counted), tensor(targets))

    def _tokens(self, what: str, make: Callable[[], Array], count: int) -> Int[Array, "n any"]:
        """What a task's own function gives, checked: it may be a user's."""
        try:
            tokens = np.asarray(make())
        except DraspError:
            raise
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}, line {frame.lineno}"
            raise DraspError(f"task {self.name}: its {what} failed in {where}: {error!r}") from error
        ordinary = len(self.vocabulary) - len(self.vocabulary.special)
        if tokens.ndim != 2 or len(tokens) != count or tokens.dtype.kind not in "iub":
            found = f"{tokens.dtype} of shape {tokens.shape}"
            raise DraspError(f"task {self.name}: its {what} should give whole numbers [{count}, …], found {found}")
        wrong = tokens[(tokens < HOLE) | (tokens >= ordinary)]
        if len(wrong):
            raise DraspError(
                f"task {self.name}: its {what} gave token id {wrong[0]}, "
                f"expected 0 to {ordinary - 1}, or {HOLE} for none"
            )
        return tokens.astype(int)

    def digest(self) -> str:
        """A SHA-256 of what the task is, as far as it shows: its tokens, positions, and some inputs with answers."""
        made = sha256(repr((self.vocabulary, self.output, self.n_positions, self.lengths)).encode())
        inputs = self.pool(_DIGESTED, np.random.default_rng(0))
        for part in (inputs.ids, inputs.offsets, inputs.counted, inputs.targets):
            made.update(part.cpu().numpy().tobytes())
        return made.hexdigest()

    def example(self) -> str:
        """A short input, the same at every call."""
        length = min(self.lengths, key=lambda n: abs(n - 6))
        inputs = self.inputs(np.array([length]), np.random.default_rng(1), random_offsets=False)
        return " ".join(self.vocabulary.tokens[i] for i in inputs.ids[0])


def answer_task(
    name: str,
    symbols: Sequence[str],
    answer: Answer,
    *,
    draw: Draw | None = None,
    about: str = "",
    lengths: Sequence[int] = range(1, MAX_LENGTH + 1),
    longest_input: int = MAX_LENGTH,
    longest_answer: int = 1,
    ends: bool = True,
    room: int = MAX_LENGTH,
    edit: EditTokens | None = None,
) -> Task:
    """A task `BOS x SEP y EOS`, where the model says y and EOS; without `draw`, x is uniform over the symbols.

    `longest_input` and `longest_answer` are the tokens that x and y have at most, at the longest length. `room` is that
    length: an input's offset and length add up to at most as much. `edit` changes x so that it stays in kind, where not
    every string of symbols is an input.
    """
    return Task(
        name=name,
        about=about,
        vocabulary=Vocabulary.with_specials(tuple(symbols)),
        draw=draw or uniform(len(symbols)),
        answer=answer,
        lengths=tuple(lengths),
        n_positions=longest_input + longest_answer + 3,
        ends=ends,
        edit=edit,
        spread=2 if longest_answer == longest_input else 1,
        room=room,
    )


def language_task(
    name: str,
    language: Language,
    *,
    draw: Draw | None = None,
    about: str = "",
    lengths: Sequence[int] = range(1, MAX_LENGTH + 1),
    room: int = MAX_LENGTH,
) -> Task:
    """A task `BOS x EOS` with x in a language, where the model says which tokens may come next.

    Without `draw`, x is uniform over the language's words of its length. An input's offset and length add up to at most
    `room`.
    """
    return Task(
        name=name,
        about=about or language.about,
        vocabulary=language.vocabulary,
        draw=draw or language.uniform_words,
        answer=language,
        lengths=tuple(n for n in lengths if language.has_length(n)),
        n_positions=room + 2,
        room=room,
    )


def each_row(function: Callable[[list[int]], Sequence[int]]) -> Answer:
    """An answer computed one input at a time: simpler to write than on arrays, and slower."""

    def answer(x: Array) -> Array:
        rows = [list(function([int(i) for i in row if i != HOLE])) for row in x]
        y = np.full((len(rows), max(map(len, rows), default=0)), HOLE)
        for i, row in enumerate(rows):
            y[i, : len(row)] = row
        return y

    return answer


def within(lengths: Int[Array, " n"]) -> Bool[Array, "n width"]:
    """Which columns lie inside rows of these lengths."""
    return np.arange(lengths.max(initial=0)) < lengths[:, None]


def uniform(n_symbols: int) -> Draw:
    """Symbols independent and uniform."""

    def draw(rng: np.random.Generator, lengths: Array) -> Array:
        inside = within(lengths)
        return np.where(inside, rng.integers(0, n_symbols, inside.shape), HOLE)

    return draw


def any_token(n_symbols: int) -> EditTokens:
    """Changes one token to any other, or draws all of them anew, or swaps two that differ."""

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
    """In each row, a token and another that differs from it change places."""
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
    """In each row, marks as many of the places as `counts` says, any choice as likely as another."""
    keys = np.where(places, rng.random(places.shape, dtype=np.float32), np.float32(2))
    marked = np.zeros_like(places)
    np.put_along_axis(marked, keys.argsort(axis=1), np.arange(places.shape[1]) < counts[:, None], axis=1)
    return marked


def _close(tokens: Int[Array, "n any"], pad: int) -> tuple[Int[Array, "n width"], Int[Array, " n"]]:
    """Moves the tokens of each row to the left over the holes, and pads on the right."""
    real = tokens != HOLE
    sizes = real.sum(1)
    inside = within(sizes)
    closed = np.full(inside.shape, pad)
    closed[inside] = tokens[real]
    return closed, sizes
