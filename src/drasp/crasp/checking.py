"""Compares a D-RASP program with its C-RASP programs on every string up to a length, at every position."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float

from drasp.crasp.interpreter import all_strings, answers
from drasp.crasp.syntax import Program
from drasp.errors import DraspError
from drasp.language import Interpreter
from drasp.language import Program as DraspProgram

Array = np.ndarray
MOST_STRINGS = 2_000_000
_MEANT = 100_000  # strings of ordinary tokens that are checked where no length is asked for
_ANY = 20_000  # strings of any tokens
_TIE = 1e-9  # logits nearer than this, relative to their size, are a tie that rounding decides


@dataclass(frozen=True)
class Disagreement:
    """A string after which a token is said by one side only."""

    string: tuple[str, ...]
    token: str
    said: bool  # by the D-RASP program


@dataclass(frozen=True)
class Comparison:
    """`length` and `strings` are of strings over the ordinary tokens, behind BOS where there is one.

    The `short` ones are over the whole vocabulary. `ties` are positions at which rounding decides what is said.
    """

    length: int
    strings: int
    short_length: int
    short_strings: int
    ties: int
    disagreement: Disagreement | None

    def __str__(self) -> str:
        ties = f"; at {self.ties:,} positions rounding decides" if self.ties else ""
        return (
            f"all {self.strings:,} strings of up to {self.length} ordinary tokens and all {self.short_strings:,} of up "
            f"to {self.short_length} of any tokens{ties}"
        )


def compare(
    program: DraspProgram, said: Mapping[str, Program], length: int | None = None, any_tokens: bool = True
) -> Comparison:
    """Runs both on all strings; stops at the first disagreement, which is one of the shortest.

    Without `any_tokens`, only strings that begin as inputs do, and have no other special token.
    """
    vocabulary = program.vocabulary
    ordinary = [i for i, token in enumerate(vocabulary.tokens) if token not in vocabulary.special]
    ordinary = ordinary or list(range(len(vocabulary)))
    begin = [vocabulary.ids["BOS"]] if "BOS" in vocabulary.special else []
    room = program.n_positions - len(begin)
    if length is None:
        length = min(_length_for(len(ordinary), 10 if len(ordinary) <= 3 else 7), room)
    if length > room:
        raise DraspError(f"length {length}: the program has positions for {room} tokens")
    if len(ordinary) ** length > MOST_STRINGS:
        most = _length_for(len(ordinary), length, MOST_STRINGS)
        raise DraspError(
            f"length {length}: {len(ordinary) ** length:,} strings of {len(ordinary)} tokens, at most {MOST_STRINGS:,} "
            f"are compared; --length {most} would do"
        )
    short = min(_length_for(len(vocabulary), length, _ANY), room) if any_tokens else 0
    ties = 0
    for ids in _strings(ordinary, begin, length, range(len(vocabulary)), short):
        expected, tied = _said(program, ids)
        found = np.stack(
            [
                answers(said[token], ids, vocabulary.tokens) if token in said else np.zeros(ids.shape, bool)
                for token in vocabulary.tokens
            ],
            -1,
        )
        wrong = (expected != found) & ~tied[..., None]
        ties += int(tied.sum())
        if wrong.any():
            column = int(np.flatnonzero(wrong.any((0, 2)))[0])
            row = int(np.flatnonzero(wrong[:, column].any(1))[0])
            token = int(np.flatnonzero(wrong[row, column])[0])
            string = tuple(vocabulary.tokens[i] for i in ids[row, : column + 1])
            shown = Disagreement(string, vocabulary.tokens[token], bool(expected[row, column, token]))
            return Comparison(length, 0, short, 0, ties, shown)
    counts = (sum(n**k for k in range(m + 1)) for n, m in ((len(ordinary), length), (len(vocabulary), short)))
    return Comparison(length, next(counts), short, next(counts), ties, None)


def _strings(
    ordinary: Sequence[int], begin: Sequence[int], length: int, every: Sequence[int], short: int
) -> Iterator[Array]:
    for ids in all_strings(ordinary, length):
        yield np.concatenate([np.tile(np.array(begin, dtype=np.int64), (len(ids), 1)), ids], 1)
    yield from all_strings(every, short)


def _length_for(symbols: int, longest: int, strings: int = _MEANT) -> int:
    """The largest length of which there are not too many strings."""
    length = 1
    while length < longest and symbols ** (length + 1) <= strings:
        length += 1
    return length


def _said(program: DraspProgram, ids: Array) -> tuple[Bool[Array, "batch pos n_vocab"], Bool[Array, "batch pos"]]:
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
