"""The eleven algorithmic tasks: an input, SEP, and an answer that the model must say."""

import string

import numpy as np

from drasp.tasks.framed import MAX_LENGTH, answer_task
from drasp.tasks.rows import HOLE, any_token, scatter, swapped, uniform, within
from drasp.tasks.task import EditKind

Array = np.ndarray

_NUMBERS = [str(n) for n in range(MAX_LENGTH)]
_N_BIGRAM_SYMBOLS = 16
_PLUS = 2


def _unbalanced_bits(rng: np.random.Generator, lengths: Array) -> Array:
    """Draws bits with a number of 0s that is uniform over all but a tie, shuffled."""
    even = lengths % 2 == 0
    zeros = rng.integers(0, lengths + 1 - even)
    zeros = zeros + (even & (zeros >= lengths // 2))
    inside = within(lengths)
    return np.where(inside, np.where(scatter(rng, inside, zeros), 0, 1), HOLE)


def _interleaved_bits(rng: np.random.Generator, lengths: Array) -> Array:
    three = _unbalanced_bits(rng, np.repeat(lengths // 3, 3))
    return three.reshape(len(lengths), 3, -1).swapaxes(1, 2).reshape(len(lengths), -1)


def _bits_of_any_count(rng: np.random.Generator, lengths: Array) -> Array:
    """Draws bits with a uniform number of 1s, shuffled."""
    inside = within(lengths)
    return np.where(inside, scatter(rng, inside, rng.integers(0, lengths + 1)), HOLE)


def _letters_with_a_winner(rng: np.random.Generator, lengths: Array) -> Array:
    """Draws independent letters, again until one is more frequent than every other."""
    x = np.full((len(lengths), int(lengths.max(initial=0))), HOLE)
    todo = np.arange(len(lengths))
    while len(todo):
        drawn = uniform(26)(rng, lengths[todo])
        x[todo, : drawn.shape[1]] = drawn
        most = np.sort(_counts(drawn, 26), axis=1)
        todo = todo[most[:, -1] == most[:, -2]]
    return x


def _distinct_numbers(rng: np.random.Generator, lengths: Array) -> Array:
    """Draws numbers without replacement."""
    order = rng.random((len(lengths), MAX_LENGTH), dtype=np.float32).argsort(axis=1)
    inside = within(lengths)
    return np.where(inside, order[:, : inside.shape[1]], HOLE)


def _distinct_bigrams(rng: np.random.Generator, lengths: Array) -> Array:
    """Draws rows with no pair of neighbours twice: the next symbol has odds by how many ways on from it are left."""
    x = np.full((len(lengths), int(lengths.max(initial=0))), HOLE)
    todo = np.arange(len(lengths))
    while len(todo):
        rows = np.arange(len(todo))
        free = np.ones((len(todo), _N_BIGRAM_SYMBOLS, _N_BIGRAM_SYMBOLS), bool)
        ways = np.full((len(todo), _N_BIGRAM_SYMBOLS), _N_BIGRAM_SYMBOLS)
        now = rng.integers(0, _N_BIGRAM_SYMBOLS, len(todo))
        stuck = np.zeros(len(todo), bool)
        x[todo] = HOLE
        for column in range(int(lengths[todo].max())):
            inside = lengths[todo] > column
            if column:
                sums = (free[rows, now] * ways).cumsum(1)
                stuck |= inside & (sums[:, -1] == 0)
                then = (rng.random(len(todo))[:, None] * sums[:, -1:] >= sums).sum(1) % _N_BIGRAM_SYMBOLS
                free[rows, now, then] = False
                ways[rows, now] -= 1
                now = then
            x[todo, column] = np.where(inside, now, HOLE)
        # Rarely a row runs out of ways on.
        todo = todo[stuck]
    return x


def _first_and_last(rng: np.random.Generator, lengths: Array) -> Array:
    start = rng.integers(0, MAX_LENGTH + 1 - lengths)
    return np.stack([start, start + lengths - 1], axis=1)


def _two_summands(rng: np.random.Generator, lengths: Array) -> Array:
    """Draws two binary numbers: the place of the plus uniform, bits uniform, no leading zeros."""
    inside = within(lengths)
    plus = rng.integers(1, lengths - 1)
    x = rng.integers(0, 2, inside.shape)
    rows = np.arange(len(x))
    x[rows, 0] |= plus > 1
    x[rows, plus + 1] |= lengths - plus - 1 > 1
    x[rows, plus] = _PLUS
    return np.where(inside, x, HOLE)


def _counts(x: Array, n_symbols: int) -> Array:
    """How often each row holds each symbol."""
    rows = np.broadcast_to(np.arange(len(x))[:, None], x.shape)
    flat = (rows * n_symbols + x)[x != HOLE]
    return np.bincount(flat, minlength=len(x) * n_symbols).reshape(len(x), n_symbols)


def _edit_distinct(rng: np.random.Generator, x: Array, kind: EditKind) -> Array:
    """One number becomes another that is not there; or all are drawn anew; or two are swapped."""
    if kind == "two swapped":
        return swapped(rng, x)
    if kind == "all tokens":
        fresh = _distinct_numbers(rng, (x != HOLE).sum(1))
        return np.pad(fresh, ((0, 0), (0, x.shape[1] - fresh.shape[1])), constant_values=HOLE)
    free = _counts(x, MAX_LENGTH) == 0
    other = scatter(rng, free, np.minimum(free.sum(1), 1)).argmax(1)
    place = scatter(rng, x != HOLE, np.minimum(free.sum(1), 1))
    return np.where(place, other[:, None], x)


_OTHER_BIGRAM_SYMBOL = any_token(_N_BIGRAM_SYMBOLS)
_ATTEMPTS = 20  # at an edit that leaves no pair of neighbours twice; the longest inputs have few such edits


def _edit_bigrams(rng: np.random.Generator, x: Array, kind: EditKind) -> Array:
    """One token becomes another, or two are swapped, so that no pair is there twice; or all are drawn anew."""
    if kind == "all tokens":
        fresh = _distinct_bigrams(rng, (x != HOLE).sum(1))
        return np.pad(fresh, ((0, 0), (0, x.shape[1] - fresh.shape[1])), constant_values=HOLE)
    new = x.copy()
    todo = np.arange(len(x))
    for _ in range(_ATTEMPTS):
        tried = _OTHER_BIGRAM_SYMBOL(rng, x[todo], kind)
        pairs = np.where(tried[:, 1:] == HOLE, HOLE, tried[:, :-1] * _N_BIGRAM_SYMBOLS + tried[:, 1:])
        fine = (_counts(pairs, _N_BIGRAM_SYMBOLS**2) <= 1).all(1)
        new[todo[fine]] = tried[fine]
        todo = todo[~fine]
    return new


def _edit_range(rng: np.random.Generator, x: Array, kind: EditKind) -> Array:
    """Ranges whose ends have both moved alike, which keeps the answer's length; nothing else does."""
    if kind != "all tokens":
        return x
    start = rng.integers(0, MAX_LENGTH - (x[:, 1] - x[:, 0]))
    return np.where(x == HOLE, HOLE, x + (start - x[:, 0])[:, None])


def _edit_bits_of_summands(rng: np.random.Generator, x: Array, kind: EditKind) -> Array:
    """Bits that do not lead, changed or swapped; the plus stays where it is."""
    before = np.pad(x, ((0, 0), (1, 0)), constant_values=_PLUS)[:, :-1]
    free = (x != HOLE) & (x != _PLUS) & (before != _PLUS)
    bits = np.where(free, x, HOLE)
    return np.where(free, any_token(2)(rng, bits, kind), x)


def _most_frequent(x: Array) -> Array:
    return _counts(x, int(x.max(initial=0)) + 1).argmax(1)[:, None]


def _three_most_frequent(x: Array) -> Array:
    return np.concatenate([_most_frequent(x[:, i::3]) for i in range(3)], axis=1)


def _parity(x: Array) -> Array:
    return (x == 1).sum(1, keepdims=True) % 2


def _count_up(x: Array) -> Array:
    numbers = np.broadcast_to(np.arange(MAX_LENGTH), (len(x), MAX_LENGTH))
    return np.where((numbers >= x[:, :1]) & (numbers <= x[:, 1:2]), numbers, HOLE)


def _sum(x: Array) -> Array:
    """Adds column by column from the right, all rows at once."""
    n, width = x.shape
    length = (x != HOLE).sum(1)
    plus = (x == _PLUS).argmax(1)
    rows = np.arange(n)
    total = np.full((n, width), HOLE)
    carry = np.zeros(n, int)
    for digit in range(width):
        left, right = plus - 1 - digit, length - 1 - digit
        both = np.where(left >= 0, x[rows, left], 0) + np.where(right > plus, x[rows, right], 0) + carry
        inside = (left >= 0) | (right > plus)
        total[:, width - 1 - digit] = np.where(inside | (both > 0), both % 2, HOLE)
        carry = both // 2
    return total


ALGORITHMIC = (
    answer_task("bin_majority", "01", _most_frequent, draw=_unbalanced_bits, ends=False, about="the more frequent bit"),
    answer_task(
        "bin_majority_interleave",
        "01",
        _three_most_frequent,
        draw=_interleaved_bits,
        lengths=range(3, MAX_LENGTH + 1, 3),
        longest_answer=3,
        about="the more frequent bit of every third, from the first, second and third on",
    ),
    answer_task(
        "majority",
        string.ascii_lowercase,
        _most_frequent,
        draw=_letters_with_a_winner,
        ends=False,
        about="the most frequent letter",
    ),
    answer_task(
        "sort",
        _NUMBERS,
        lambda x: np.sort(x, axis=1),
        draw=_distinct_numbers,
        edit=_edit_distinct,
        longest_answer=MAX_LENGTH,
        about="distinct numbers in ascending order",
    ),
    answer_task(
        "count",
        _NUMBERS,
        _count_up,
        draw=_first_and_last,
        lengths=range(2, MAX_LENGTH + 1),
        longest_input=2,
        edit=_edit_range,
        longest_answer=MAX_LENGTH,
        about="the numbers from the first to the second",
    ),
    answer_task(
        "unique_copy",
        _NUMBERS,
        lambda x: x,
        draw=_distinct_numbers,
        edit=_edit_distinct,
        longest_answer=MAX_LENGTH,
        about="the same again, no token twice",
    ),
    answer_task(
        "unique_bigram_copy",
        [str(n) for n in range(_N_BIGRAM_SYMBOLS)],
        lambda x: x,
        draw=_distinct_bigrams,
        edit=_edit_bigrams,
        longest_answer=MAX_LENGTH,
        about="the same again, no pair of neighbours twice",
    ),
    answer_task(
        "unique_reverse",
        _NUMBERS,
        lambda x: x[:, ::-1],
        draw=_distinct_numbers,
        edit=_edit_distinct,
        longest_answer=MAX_LENGTH,
        about="the same backwards, no token twice",
    ),
    answer_task("repeat_copy", "ab", lambda x: x, longest_answer=MAX_LENGTH, about="the same again, any tokens"),
    answer_task("parity", "01", _parity, draw=_bits_of_any_count, ends=False, about="the number of 1s modulo 2"),
    answer_task(
        "addition",
        "01+",
        _sum,
        draw=_two_summands,
        lengths=range(4, MAX_LENGTH + 1),
        edit=_edit_bits_of_summands,
        longest_answer=MAX_LENGTH - 1,
        about="the sum of two binary numbers, most significant bit first",
    ),
)
