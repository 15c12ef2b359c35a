"""Any sequence task: inputs that a user's function draws, or that are listed, with the positions that count."""

import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int

from drasp.errors import DraspError
from drasp.tasks.reading import read_inputs, read_tokens
from drasp.tasks.rows import HOLE, any_token, joined
from drasp.tasks.task import Bins, EditKind, Inputs, Offsets, Rows, Source, Task, shown
from drasp.vocabulary import Output, Vocabulary

Array = np.ndarray
T = TypeVar("T")
# A number of inputs to so many, each `(tokens, counted)` or `(tokens, counted, targets)`.
DrawInputs = Callable[[np.random.Generator, int], Iterable[Any]]
# The ids of an input to those of another that is an input as well.
EditInput = Callable[[np.random.Generator, list[int]], Sequence[Any]]
_PROBED = 1000  # inputs, from which lengths are known
_MORE = 4  # times as many are drawn as are needed, where inputs must be of given lengths
_ROUNDS = 20


def sequence_task(
    name: str,
    vocabulary: Sequence[str],
    draw: DrawInputs | Source | None = None,
    *,
    output: Output = "softmax",
    special: Sequence[str] = (),
    every: Iterable[Any] | None = None,
    edit: EditInput | None = None,
    offsets: Sequence[int] | Offsets = (0,),
    bins: Sequence[tuple[int, int]] | None = None,
    about: str = "",
) -> Task:
    """A task over any vocabulary, with answers at any positions.

    `vocabulary` are the tokens' names in the order of their ids; `special` those that edits leave alone.
    `draw(rng, count)` gives so many inputs, each `(tokens, counted)` or `(tokens, counted, targets)`: ids or names, the
    positions whose predictions count (None: all), and what should be said there (for sigmoid, lists). Without targets
    nothing is said of right and wrong. `every` lists all inputs where they are few. `edit(rng, tokens)` changes an
    input so that it stays one, of the same length; without it, any ordinary token becomes any other. Positions begin at
    0, or at one of `offsets`. Lengths are what is drawn, and `bins` are their terciles.
    """
    if not isinstance(name, str) or not name:
        raise DraspError(f"a task is called {name!r}; expected its name")
    tokens = checked_vocabulary(name, vocabulary, special)
    if output not in ("softmax", "sigmoid"):
        raise DraspError(f"task {name}: output={output!r}; expected softmax or sigmoid")
    if not callable(offsets):
        found = _listed(offsets)
        if not found or any(not _is_whole(each) or each < 0 for each in found):
            raise DraspError(f"task {name}: offsets={offsets!r}; expected positions from 0 on, such as range(100)")
        offsets = tuple(int(each) for each in found)
        if every is not None and offsets != (0,):
            raise DraspError(f"task {name}: every= lists all inputs at positions from 0: it does not go with offsets=")
    if draw is None and every is None:
        raise DraspError(f"task {name}: says neither how inputs are drawn (draw=) nor which there are (every=)")
    if draw is None or callable(draw):
        if edit is not None and not callable(edit):
            raise DraspError(f"task {name}: edit={edit!r}; expected a function edit(rng, tokens)")
        source = Drawn(tokens, output, draw, _every(name, every), edit, _bins(name, bins))
        return Task(name, tokens, output, source, about, offsets)
    if not isinstance(draw, Source):
        found = type(draw).__name__
        raise DraspError(
            f"task {name}: draw= is a {found}; expected a function draw(rng, count) (every= takes a list of all inputs)"
        )
    return Task(name, tokens, output, draw, about, offsets)


def _listed(values: Any) -> tuple[Any, ...] | None:
    """What is listed; None where nothing can be."""
    return tuple(values) if isinstance(values, Iterable) else None


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool | np.bool_)


def _every(task: str, every: Any) -> tuple[Any, ...] | None:
    if every is not None and not isinstance(every, Iterable):
        raise DraspError(f"task {task}: every= is a {type(every).__name__}; expected a list of all inputs")
    return _listed(every)


def checked_vocabulary(task: str, names: Sequence[Any], special: Sequence[Any]) -> Vocabulary:
    if isinstance(names, Set | Mapping):
        raise DraspError(
            f"task {task}: vocabulary= is a {type(names).__name__}; expected a list of the names of tokens in the "
            "order of their ids"
        )
    for what, given in (("vocabulary", names), ("special", special)):
        if (listed := _listed(given)) is None:
            raise DraspError(f"task {task}: {what}={given!r}; expected a list of the names of tokens")
        if wrong := [name for name in listed if not isinstance(name, str)]:
            raise DraspError(f"task {task}: {what}= holds {wrong[0]!r}; expected the names of tokens")
    try:
        return Vocabulary(tuple(names), tuple(special))
    except DraspError as error:
        raise DraspError(f"task {task}: {error}") from None


def _bins(task: str, bins: Sequence[tuple[int, int]] | None) -> Bins | None:
    if bins is None:
        return None
    if not (pairs := _listed(bins)):
        raise DraspError(f"task {task}: bins={bins!r}; expected a list such as [(1, 50), (51, 100)]")
    for pair in pairs:
        ends = _listed(pair) or ()
        if len(ends) != 2 or not all(map(_is_whole, ends)) or ends[0] > ends[1]:
            raise DraspError(f"task {task}: bins= holds {pair!r}; expected (shortest, longest)")
    return tuple((int(low), int(high)) for low, high in pairs)


def called(what: str, make: Callable[[], T]) -> T:
    """What a function of the task's own gives; where it fails, the place is named."""
    try:
        return make()
    except (DraspError, KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # `sys.exit` among them
        frame = traceback.extract_tb(error.__traceback__)[-1]
        # An error in this very file is that of the call: the function takes other arguments.
        where = "" if frame.filename == __file__ else f" in {Path(frame.filename).name}, line {frame.lineno}"
        raise DraspError(f"its {what} failed{where}: {error!r}") from error


@dataclass(frozen=True)
class Drawn(Source):
    """Inputs that a function draws, or that are listed. An input's length is how many tokens it has."""

    vocabulary: Vocabulary
    output: Output
    draw_inputs: DrawInputs | None
    listed: tuple[Any, ...] | None
    edit: EditInput | None
    given_bins: Bins | None

    @cached_property
    def _probe(self) -> Rows:
        """Inputs from which is known what lengths there are: all, or a sample."""
        return self._listed or self._drawn(np.random.default_rng(0), _PROBED)

    @cached_property
    def _listed(self) -> Rows | None:
        if self.listed is None:
            return None
        if not self.listed:
            raise DraspError("every= lists no input")
        rows = read_inputs(self.listed, self.vocabulary, self.output, "every=")
        first: dict[bytes, int] = {}
        for number, key in enumerate(_keys(rows)):
            if first.setdefault(key, number) != number:
                tokens = shown(self.vocabulary, rows.ids[number, : rows.sizes[number]].tolist())
                raise DraspError(f"input {number} of every= ({tokens}) is input {first[key]} again; list each once")
        return rows

    @cached_property
    def _known(self) -> frozenset[bytes]:
        return frozenset(_keys(self._listed)) if self._listed else frozenset()

    def every(self) -> Rows | None:
        return self._listed

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(sorted(set(self._probe.lengths.tolist())))

    @property
    def lengths(self) -> tuple[int, ...]:
        return self._lengths

    @property
    def longest(self) -> int:
        return self.lengths[-1]

    @property
    def bins(self) -> Bins:
        """The bins as given; else terciles of the lengths that are drawn."""
        if self.given_bins is not None:
            return self.given_bins
        ordered = np.sort(self._probe.lengths)
        ends = sorted({int(ordered[len(ordered) * part // 3 - 1]) for part in (1, 2, 3) if len(ordered) * part >= 3})
        starts = [self.lengths[0], *(min(n for n in self.lengths if n > end) for end in ends[:-1])]
        return tuple(zip(starts, ends, strict=True))

    @property
    def training_bins(self) -> Bins:
        """A model is trained on all lengths: there is no reason to take some of them for long."""
        return ((self.lengths[0], self.longest),)

    def draw(self, rng: np.random.Generator, count: int, shortest: int | None, longest: int | None) -> Rows:
        least, most = shortest or 0, longest or max(self.longest, 10**9)
        if least <= self.lengths[0] and self.longest <= most:
            return self._any(rng, count)
        found: list[Rows] = []
        for _ in range(_ROUNDS):
            rows = self._any(rng, max(count, 50))
            found.append(rows.rows((rows.lengths >= least) & (rows.lengths <= most)))
            if sum(map(len, found)) >= count:
                break
        rows = joined(found, self.vocabulary.padding).rows(np.arange(min(count, sum(map(len, found)))))
        known = np.flatnonzero((self._probe.lengths >= least) & (self._probe.lengths <= most))
        more = self._probe.rows(rng.choice(known, count - len(rows)))
        return joined([rows, more], self.vocabulary.padding)

    def of_lengths(self, rng: np.random.Generator, lengths: Int[Array, " n"]) -> Rows:
        pool = joined([self._any(rng, _MORE * len(lengths)), self._probe], self.vocabulary.padding)
        chosen = np.zeros(len(lengths), int)
        for length in set(lengths.tolist()):
            places, there = np.flatnonzero(lengths == length), np.flatnonzero(pool.lengths == length)
            # Inputs of the probe come last: they are taken only where too few others are of this length.
            first = there[: len(places)]
            chosen[places] = np.concatenate([first, rng.choice(there, len(places) - len(first))])
        return pool.rows(chosen)

    def like(self, rng: np.random.Generator, inputs: Inputs) -> Rows:
        """Inputs of the same length, rather those with answers at the same positions; answers count where they did.

        Where there is no other, an input is given for itself.
        """
        ids, counted = inputs.ids.cpu().numpy(), inputs.counted.cpu().numpy()
        sizes = inputs.sizes.cpu().numpy()
        own = Rows(ids, sizes, sizes, counted, None)
        pool = joined([own, self._any(rng, _MORE * len(own))], self.vocabulary.padding)
        by_length, by_places = defaultdict[Any, list[int]](list), defaultdict[Any, list[int]](list)
        for row, size in enumerate(pool.sizes.tolist()):
            if row >= len(own):
                by_length[size].append(row)
                by_places[pool.counted[row, :size].tobytes()].append(row)
        chosen = [
            rng.choice(by_places.get(pool.counted[row, :size].tobytes()) or by_length.get(size) or [row])
            for row, size in enumerate(sizes.tolist())
        ]
        rows = pool.rows(np.array(chosen, int))
        return Rows(rows.ids, sizes, sizes, pool.counted[: len(own)], None)

    def edited(self, rng: np.random.Generator, inputs: Inputs, kind: EditKind) -> Rows:
        """The inputs after `edit`, applied once or as often as there are tokens, or else after any change of tokens."""
        ids, sizes = inputs.ids.cpu().numpy(), inputs.sizes.cpu().numpy()
        if self.edit is None:
            new = self._edited_anyhow(rng, ids, sizes, kind)
        else:
            new = ids.copy()
            for row, size in enumerate(sizes.tolist() if kind != "two swapped" else ()):
                new[row, :size] = self._edited(rng, ids[row, :size].tolist(), 1 if kind == "one token" else size)
        return Rows(new, sizes, sizes, inputs.counted.cpu().numpy(), None)

    def _edited_anyhow(self, rng: np.random.Generator, ids: Array, sizes: Array, kind: EditKind) -> Array:
        ordinary = np.array(self.vocabulary.ordinary)
        if not len(ordinary):
            return ids
        number = np.full(max(len(self.vocabulary), int(ids.max(initial=0)) + 1), HOLE)
        number[ordinary] = np.arange(len(ordinary))
        x = np.where(np.arange(ids.shape[1]) < sizes[:, None], number[ids], HOLE)
        new = any_token(len(ordinary))(rng, x, kind)
        return np.where(x == HOLE, ids, ordinary[new])

    def _edited(self, rng: np.random.Generator, tokens: list[int], times: int) -> list[int]:
        assert self.edit is not None
        edit, before = self.edit, tokens
        for _ in range(times):
            new = called("edit", lambda tokens=tokens: edit(rng, list(tokens)))
            name = f"what its edit made of {shown(self.vocabulary, tokens)}"
            tokens = read_tokens(new, self.vocabulary, name)
            if len(tokens) != len(before):
                raise DraspError(f"{name}: has {len(tokens)} tokens of {len(before)}; an edit keeps an input's length")
        return tokens

    def _any(self, rng: np.random.Generator, count: int) -> Rows:
        """Inputs drawn or listed; of listed ones, none comes a second time before all have come."""
        if self.draw_inputs is not None:
            return self._drawn(rng, count)
        assert self._listed is not None
        total = len(self._listed)
        orders = [rng.permutation(total) for _ in range(-(-count // total))]
        return self._listed.rows(np.concatenate([*orders, np.zeros(0, int)])[:count])

    def _drawn(self, rng: np.random.Generator, count: int) -> Rows:
        draw = self.draw_inputs
        assert draw is not None
        given = called("draw", lambda: draw(rng, count))
        if not isinstance(given, Iterable):
            raise DraspError(f"its draw gave {given!r}; expected {count} inputs (does it `return` or `yield` them?)")
        # One more than was asked for is enough to see that there are more: a draw may be endless.
        found = called("draw", lambda: list(islice(given, count + 1)))
        if len(found) != count:
            number = f"more than {count}" if len(found) > count else str(len(found))
            raise DraspError(f"its draw gave {number}, where {count} inputs were asked for")
        rows = read_inputs(found, self.vocabulary, self.output, "its draw")
        if self._listed is not None:
            for number, key in enumerate(_keys(rows)):
                if key not in self._known:
                    tokens = shown(self.vocabulary, rows.ids[number, : rows.sizes[number]].tolist())
                    raise DraspError(f"input {number} of its draw ({tokens}) is not among those that every= lists")
        return rows


def _keys(rows: Rows) -> Iterator[bytes]:
    """What tells an input from others: its tokens, and the positions that count."""
    for ids, counted, size in zip(rows.ids, rows.counted, rows.sizes.tolist(), strict=True):
        yield ids[:size].tobytes() + counted[:size].tobytes()
