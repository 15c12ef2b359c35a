"""Tasks of the form `BOS x SEP y EOS`, where y follows from x, or `BOS x EOS` with x in a language.

Tokens of x and y are given for many inputs at once, as an array with a row for each input. Rows differ in length, so
an array may have holes (-1) anywhere; they are closed when the rows are put together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int

from drasp.errors import DraspError
from drasp.tasks.automaton import Language
from drasp.tasks.rows import HOLE, EditTokens, any_token, closed, uniform
from drasp.tasks.sequence import called, checked_vocabulary, sequence_task
from drasp.tasks.task import Bins, EditKind, Inputs, Offsets, Rows, Source, Task
from drasp.vocabulary import SPECIAL_TOKENS, Output, Vocabulary

MAX_LENGTH = 150
# Trained in the first bin, tested in all three.
BINS = ((1, 50), (51, 100), (101, 150))

Array = np.ndarray
# Lengths to the tokens of an input (without BOS, SEP, EOS), and those to the tokens of its answer.
Draw = Callable[[np.random.Generator, Array], Array]
Answer = Callable[[Array], Array]


@dataclass(frozen=True)
class Framed(Source):
    """Draws x of given lengths, and puts it and its answer between special tokens."""

    vocabulary: Vocabulary
    draw_x: Draw
    answer: Answer | Language
    possible: tuple[int, ...]  # lengths
    most: int  # tokens of an input, all included
    ends: bool = True  # whether EOS closes the answer
    edit: EditTokens | None = None  # changes that keep x in kind; without, any ordinary token for another

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.possible

    @property
    def longest(self) -> int:
        return self.most

    @property
    def bins(self) -> Bins:
        return tuple(b for b in BINS if any(b[0] <= n <= b[1] for n in self.lengths))

    @property
    def training_bins(self) -> Bins:
        return self.bins

    def draw(self, rng: np.random.Generator, count: int, shortest: int | None, longest: int | None) -> Rows:
        """Inputs whose lengths are uniform over those that exist."""
        least, most = shortest or 1, MAX_LENGTH if longest is None else longest
        return self.of_lengths(rng, rng.choice(np.array([n for n in self.lengths if least <= n <= most]), count))

    def of_lengths(self, rng: np.random.Generator, lengths: Int[Array, " n"]) -> Rows:
        return self.around(self._tokens("draw", lambda: self.draw_x(rng, lengths), len(lengths)), lengths)

    def around(self, x: Int[Array, "n any"], lengths: Int[Array, " n"]) -> Rows:
        """Inputs with these tokens, and their answers."""
        return self._rows(x, self._answers(x), lengths)

    def like(self, rng: np.random.Generator, inputs: Inputs) -> Rows:
        return self.of_lengths(rng, inputs.lengths.cpu().numpy())

    def every(self) -> None:
        return None

    def edited(self, rng: np.random.Generator, inputs: Inputs, kind: EditKind) -> Rows:
        """The rows with tokens of x changed, and the answers to what they are now.

        Where there is no answer to that, the old one stays. Sizes may change with answers.
        """
        rows, ordinary = inputs.ids.cpu().numpy(), len(self.vocabulary.ordinary)
        in_x = np.minimum.accumulate(rows[:, 1:] < ordinary, axis=1)
        x = np.where(in_x, rows[:, 1:], HOLE)
        edit = self.edit or any_token(ordinary)
        new = self._tokens("edit", lambda: edit(rng, x.copy(), kind), len(x))
        try:
            y = self._answers(new)
        except DraspError:
            y = self._answers(x)
        return self._rows(new, y, inputs.lengths.cpu().numpy())

    def _answers(self, x: Int[Array, "n any"]) -> Int[Array, "n some"] | None:
        if isinstance(self.answer, Language):
            return None
        answer = self.answer
        return self._tokens("answer", lambda: answer(x), len(x))

    def _rows(self, x: Int[Array, "n any"], y: Int[Array, "n some"] | None, lengths: Int[Array, " n"]) -> Rows:
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
        row, sizes = closed(np.concatenate(parts, axis=1), ids["PAD"])
        if int(sizes.max(initial=0)) > self.longest:
            raise DraspError(
                f"an input of {sizes.max()} tokens does not fit its {self.longest} positions; give the longest answer"
            )
        columns = np.arange(row.shape[1])
        counted = (columns >= first[:, None]) & (columns < sizes[:, None] - 1)
        if isinstance(self.answer, Language):
            targets = self.answer.allowed_after(row, counted)
        else:
            targets = np.where(counted, np.roll(row, -1, axis=1), 0)
        return Rows(row, sizes, lengths, counted, targets)

    def _tokens(self, what: str, make: Callable[[], Array], count: int) -> Int[Array, "n any"]:
        """What a task's own function gives, checked: it may be a user's."""
        tokens = np.asarray(called(what, make))
        ordinary = len(self.vocabulary.ordinary)
        if tokens.ndim != 2 or len(tokens) != count or tokens.dtype.kind not in "iub":
            found = f"{tokens.dtype} of shape {tokens.shape}"
            raise DraspError(f"its {what} should give whole numbers [{count}, …], found {found}")
        wrong = tokens[(tokens < HOLE) | (tokens >= ordinary)]
        if len(wrong):
            raise DraspError(f"its {what} gave token id {wrong[0]}, expected 0 to {ordinary - 1}, or {HOLE} for none")
        return tokens.astype(int)


def answer_task(
    name: str,
    symbols: Sequence[Any],  # names, which are checked
    answer: Answer,
    *,
    draw: Draw | None = None,
    about: str = "",
    lengths: Sequence[Any] = range(1, MAX_LENGTH + 1),
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
    vocabulary = checked_vocabulary(name, (*symbols, *SPECIAL_TOKENS), SPECIAL_TOKENS)
    lengths = _lengths(name, lengths)
    longest = longest_input + longest_answer + 3
    source = Framed(vocabulary, draw or uniform(len(symbols)), answer, tuple(lengths), longest, ends, edit)
    spread = 2 if longest_answer == longest_input else 1
    return _framed_task(name, "softmax", source, about, WithinRoom(room, spread))


def language_task(
    name: str,
    language: Language,
    *,
    draw: Draw | None = None,
    about: str = "",
    lengths: Sequence[Any] = range(1, MAX_LENGTH + 1),
    room: int = MAX_LENGTH,
) -> Task:
    """A task `BOS x EOS` with x in a language, where the model says which tokens may come next.

    Without `draw`, x is uniform over the language's words of its length. An input's offset and length add up to at most
    `room`.
    """
    possible = tuple(n for n in _lengths(name, lengths) if language.has_length(n))
    source = Framed(language.vocabulary, draw or language.uniform_words, language, possible, room + 2)
    return _framed_task(name, "sigmoid", source, about or language.about, WithinRoom(room))


def _lengths(task: str, lengths: Sequence[Any]) -> tuple[int, ...]:
    found = tuple(lengths)
    wrong = [n for n in found if type(n) is not int or not 1 <= n <= MAX_LENGTH]
    if wrong:
        raise DraspError(f"task {task}: lengths= holds {wrong[0]!r}; expected whole numbers from 1 to {MAX_LENGTH}")
    return tuple(sorted(set(found)))


def _whole(tokens: list[Any]) -> list[int]:
    """The tokens of an answer, of which none is rounded unseen."""
    for token in tokens:
        if not hasattr(token, "__index__"):
            raise DraspError(f"its answer holds {token!r}, expected ids of tokens")
    return tokens


def _framed_task(name: str, output: Output, source: "Framed", about: str, offsets: Offsets) -> Task:
    if not source.lengths:
        raise DraspError(f"task {name}: no length from 1 to {MAX_LENGTH} exists")
    tokens, special = source.vocabulary.tokens, source.vocabulary.special
    task = sequence_task(name, tokens, source, output=output, special=special, offsets=offsets, about=about)
    return replace(task, limit=source.longest)


@dataclass(frozen=True)
class WithinRoom:
    """Offsets uniform over what still fits; an input takes up `spread` positions for each unit of its length."""

    room: int
    spread: int = 1

    def __call__(self, rng: np.random.Generator, lengths: Array) -> Array:
        return rng.integers(0, self.spread * (self.room - lengths) + 1)


def each_row(function: Callable[[list[int]], Sequence[int]]) -> Answer:
    """An answer computed one input at a time: simpler to write than on arrays, and slower."""

    def answer(x: Array) -> Array:
        rows = [_whole(list(function([int(i) for i in row if i != HOLE]))) for row in x]
        y = np.full((len(rows), max(map(len, rows), default=0)), HOLE)
        for i, row in enumerate(rows):
            y[i, : len(row)] = row
        return y

    return answer


def language_of(task: Task) -> Language | None:
    """The language whose words are a task's inputs `BOS x EOS`; None for all other tasks."""
    answer = task.source.answer if isinstance(task.source, Framed) else None
    return answer if isinstance(answer, Language) else None
