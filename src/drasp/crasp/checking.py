"""Compares a D-RASP program with its C-RASP programs on every string up to a length, at every position.

Both are run; and the D-RASP program once more with error bounds, which prove what it says in exact arithmetic.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from drasp.certificates.checker import program_levels, program_tensors
from drasp.certificates.findings import answers as certain_answers
from drasp.certificates.inputs import number_text
from drasp.certificates.lowering import lowered_program
from drasp.certificates.tree import Walk, Words
from drasp.crasp.interpreter import all_strings, answers
from drasp.crasp.syntax import CraspProgram
from drasp.errors import DraspError
from drasp.language import Interpreter, Program
from drasp.vocabulary import Vocabulary

Array = np.ndarray
MOST_STRINGS = 2_000_000
_MEANT = 100_000  # strings of ordinary tokens that are checked where no length is asked for
_ANY = 20_000  # strings of any tokens
_TIE = 1e-9  # logits nearer than this, relative to their size, are a tie that rounding decides


@dataclass(frozen=True)
class StringDisagreement:
    """A string after which a token is said by one side only."""

    string: tuple[str, ...]
    token: str
    said: bool  # by the D-RASP program


@dataclass(frozen=True)
class Comparison:
    """`length` and `strings` are of strings over the ordinary tokens, behind BOS where there is one.

    The `short` ones are over the whole vocabulary. `ties` are strings after which rounding decides what is said, and
    error bounds do not.
    `undecided` are strings after which error bounds leave open what the program says, None where it has no bounds; if
    there are none, that both say the same is proved, by that `margin` (None: without rounding).
    """

    length: int
    strings: int
    short_length: int
    short_strings: int
    ties: int
    disagreement: StringDisagreement | None
    undecided: int | None = None
    margin: float | None = None

    @property
    def proved(self) -> bool:
        return self.disagreement is None and self.undecided == 0

    def __str__(self) -> str:
        ties = f"; at {self.ties:,} positions rounding decides" if self.ties else ""
        short = (
            f" and all {self.short_strings:,} of up to {self.short_length} of any tokens" if self.short_length else ""
        )
        return f"all {self.strings:,} strings of up to {self.length} ordinary tokens{short}{ties}; {self.certainty}"

    @property
    def certainty(self) -> str:
        """How far running both proves anything."""
        if self.undecided is None:
            return "not proved, since a function has no error bounds"
        if self.undecided:
            return f"proved but for {self.undecided:,}, after which margins are within error bounds"
        return "proved, without rounding" if self.margin is None else f"proved, smallest margin {self.margin:.3g}"


def compare(
    program: Program, said: Mapping[str, CraspProgram], length: int | None = None, any_tokens: bool = True
) -> Comparison:
    """Runs both on all strings; stops at the first disagreement, which is one of the shortest.

    Without `any_tokens`, only strings that begin as inputs do, and have no other special token.
    """
    vocabulary = program.vocabulary
    ordinary, begin = _alphabet(vocabulary)
    length = checked_length(program, length)
    room = program.n_positions - len(begin)
    short = min(_length_for(len(vocabulary), length, _ANY), room) if any_tokens else 0
    ties = 0
    for ids in _strings(ordinary, begin, length, range(len(vocabulary)), short):
        expected, tied = _said(program, ids)
        found = _counted(said, ids, vocabulary)
        wrong = (expected != found) & ~tied[..., None]
        ties += int(tied.sum())
        if wrong.any():
            column = int(np.flatnonzero(wrong.any((0, 2)))[0])
            row = int(np.flatnonzero(wrong[:, column].any(1))[0])
            token = int(np.flatnonzero(wrong[row, column])[0])
            string = tuple(vocabulary.tokens[i] for i in ids[row, : column + 1])
            shown = StringDisagreement(string, vocabulary.tokens[token], bool(expected[row, column, token]))
            return Comparison(length, 0, short, 0, ties, shown)
    trees = [_Tree(tuple(ordinary), first, length + len(begin) - 1) for first in begin or ordinary]
    trees += [_Tree(tuple(range(len(vocabulary))), first, short - 1) for first in range(len(vocabulary)) if short]
    undecided, margin, shown = _bounded(program, said, trees)
    if shown is not None:
        return Comparison(length, 0, short, 0, ties, shown)
    counts = (sum(n**k for k in range(m + 1)) for n, m in ((len(ordinary), length), (len(vocabulary), short)))
    # What bounds decide is no tie, however a machine adds: an exact 0 need not come out as one.
    ties = 0 if undecided == 0 else ties
    return Comparison(length, next(counts), short, next(counts), ties, None, undecided, margin)


def checked_length(program: Program, length: int | None) -> int:
    """The length up to which all strings are looked at, if they are not too many; without one, what takes seconds."""
    ordinary, begin = _alphabet(program.vocabulary)
    room = program.n_positions - len(begin)
    if length is None:
        return min(_length_for(len(ordinary), 10 if len(ordinary) <= 3 else 7), room)
    if length > room:
        raise DraspError(f"length {length}: the program has positions for {room} tokens")
    if len(ordinary) ** length > MOST_STRINGS:
        most = _length_for(len(ordinary), length, MOST_STRINGS)
        raise DraspError(
            f"length {length}: {number_text(len(ordinary) ** length)} strings of {len(ordinary)} tokens, at most "
            f"{MOST_STRINGS:,} are compared; --length {most} would do"
        )
    return length


def answers_to_all(
    program: Program, length: int
) -> tuple[Int[Array, "batch pos"], Bool[Array, "batch pos n_vocab"], Bool[Array, "batch pos"]]:
    """All strings of so many ordinary tokens, behind BOS if there is one; what is said at each position, and ties."""
    ordinary, begin = _alphabet(program.vocabulary)
    batches = list(_strings(ordinary, begin, length, [], 0))
    said, tied = zip(*(_said(program, ids) for ids in batches), strict=True)
    return np.concatenate(batches), np.concatenate(said), np.concatenate(tied)


def _alphabet(vocabulary: Vocabulary) -> tuple[list[int], list[int]]:
    """The ids that strings are made of, and what they begin with."""
    ordinary = [i for i, token in enumerate(vocabulary.tokens) if token not in vocabulary.special]
    return ordinary or list(range(len(vocabulary))), [vocabulary.ids["BOS"]] if "BOS" in vocabulary.special else []


def _counted(
    said: Mapping[str, CraspProgram], ids: Int[Array, "batch pos"], vocabulary: Vocabulary
) -> Bool[Array, "batch pos n_vocab"]:
    """What the C-RASP programs say at each position."""
    nothing, tokens = np.zeros(ids.shape, bool), vocabulary.tokens
    return np.stack([answers(said[token], ids, tokens) if token in said else nothing for token in tokens], -1)


class _Tree(NamedTuple):
    """All strings that go on from a first token with at most so many others."""

    symbols: tuple[int, ...]
    first: int
    longest: int


@dataclass(frozen=True)
class _Strings(Words):
    """Words over any ids."""

    ids: tuple[int, ...] = ()

    @property
    def tokens(self) -> Sequence[int]:
        return [*self.ids, self.bos]


def _bounded(
    program: Program, said: Mapping[str, CraspProgram], trees: Sequence[_Tree]
) -> tuple[int | None, float | None, StringDisagreement | None]:
    """After how many strings error bounds leave open what the program says, the smallest margin after the others, and
    a string after which it certainly says something else than the C-RASP programs. (None, None, None) without bounds.
    """
    try:
        lowered = lowered_program(program)
    except DraspError:
        return None, None, None
    tensors, vocabulary = program_tensors(lowered), program.vocabulary
    undecided, margin = 0, np.inf
    for symbols, first, longest in trees:
        nowhere, anything = np.zeros((1, len(symbols)), int), np.zeros((1, len(vocabulary)), bool)
        strings = _Strings(nowhere, anything, 0, first, longest, True, symbols)
        side = program_levels(lowered, tensors, strings.tokens, 0)
        with np.errstate(all="ignore"):
            for nodes, _, [logits] in Walk(strings, [side], longest):
                ids = np.array(strings.tokens)[nodes.codes]
                own, found = certain_answers(logits, program.output), _counted(said, ids, vocabulary)[:, -1]
                says = own.said if program.output == "sigmoid" else np.arange(found.shape[1]) == own.said
                wrong = own.certain & (says != found)
                if wrong.any():
                    row, token = (int(place[0]) for place in np.nonzero(wrong))
                    string = tuple(vocabulary.tokens[i] for i in ids[row])
                    return None, None, StringDisagreement(string, vocabulary.tokens[token], bool(says[row, token]))
                decided = own.certain.all(1)
                undecided += int((~decided).sum())
                margin = min(margin, own.margin[decided].min(initial=np.inf))
    return undecided, float(margin) if np.isfinite(margin) else None, None


def _strings(
    ordinary: Sequence[int], begin: Sequence[int], length: int, every: Sequence[int], short: int
) -> Iterator[Array]:
    for ids in all_strings(ordinary, length):
        yield np.concatenate([np.tile(np.array(begin, dtype=np.int64), (len(ids), 1)), ids], 1)
    if short:
        yield from all_strings(every, short)


def _length_for(symbols: int, longest: int, strings: int = _MEANT) -> int:
    """The largest length of which there are not too many strings."""
    length = 1
    while length < longest and symbols ** (length + 1) <= strings:
        length += 1
    return length


def _said(program: Program, ids: Array) -> tuple[Bool[Array, "batch pos n_vocab"], Bool[Array, "batch pos"]]:
    """What the program says at each position, and where that is a tie."""
    interpreter = Interpreter.of(program, torch.float64)
    positions = torch.arange(ids.shape[1]).expand(len(ids), -1)
    with torch.no_grad():
        logits: Float[Array, "batch pos n_vocab"] = interpreter(torch.tensor(ids), positions).numpy()
    size = 1 + np.abs(logits).max(-1)
    if program.output == "sigmoid":
        # Exactly 0 is not said, by either side; what is only near to it could have been anything.
        near = np.abs(logits) < _TIE * size[..., None]
        return logits > 0, (near & (logits != 0)).any(-1)
    order = np.sort(logits, -1)
    margin = order[..., -1] - order[..., -2] if logits.shape[-1] > 1 else np.full(ids.shape, np.inf)
    largest = logits.argmax(-1)
    return np.arange(logits.shape[-1]) == largest[..., None], (margin < _TIE * size) & (margin != 0)
