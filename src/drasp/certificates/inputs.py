"""All inputs of a task up to a length: by a language's automaton, or written out with what should be said to them."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from drasp.certificates.tree import MOST_WORDS, Listed, Words
from drasp.errors import DraspError
from drasp.tasks import TASKS, Language, Task
from drasp.tasks.framed import Framed, language_of
from drasp.tasks.rows import joined
from drasp.tasks.task import Rows

Array = np.ndarray

MOST_LISTED = 3_000_000


def _any(x: Int[Array, "n length"]) -> Bool[Array, " n"]:
    return np.ones(len(x), bool)


def _x_length(x: Int[Array, "n length"]) -> Int[Array, " n"]:
    return np.full(len(x), x.shape[1])


@dataclass(frozen=True)
class Rule:
    """Which strings are the x of inputs `BOS x SEP y`.

    `begins` says whether an input can begin so, of strings that without their last token can; `is_input` whether it can
    end there; `length` is what the task calls its length, `count` how many there are of a length, at most.
    """

    count: Callable[[int], int]
    begins: Callable[[Array], Array] = _any
    is_input: Callable[[Array], Array] = _any
    length: Callable[[Array], Array] = _x_length
    longest_x: int | None = None


def _unbalanced(x: Array) -> Array:
    return 2 * x.sum(1) != x.shape[1]


def _thirds_unbalanced(x: Array) -> Array:
    return np.logical_and.reduce([_unbalanced(x[:, i::3]) for i in range(3)])


def _one_winner(x: Array) -> Array:
    counts = np.sort([(x == letter).sum(1) for letter in range(26)], axis=0)
    return counts[-1] > counts[-2]


def _last_is_new(x: Array) -> Array:
    return (x[:, :-1] != x[:, -1:]).all(1)


def _last_pair_is_new(x: Array) -> Array:
    pairs = x[:, :-1] * 16 + x[:, 1:]
    return (pairs[:, :-1] != pairs[:, -1:]).all(1)


def _is_sum(x: Array) -> Array:
    """Two binary numbers with a plus between them."""
    return (x[:, -1] != _PLUS) & (x == _PLUS).any(1)


def _begins_sum(x: Array) -> Array:
    """No number is empty, and none has a 0 before other digits."""
    last, before = x[:, -1], x[:, -2] if x.shape[1] > 1 else np.full(len(x), _PLUS)
    first_digit = x[:, -3] if x.shape[1] > 2 else np.full(len(x), _PLUS)
    pluses = (x == _PLUS).sum(1)
    follows_lone_0 = (before == 0) & (first_digit == _PLUS)
    return (pluses <= 1) & ~((last == _PLUS) & (before == _PLUS)) & ~((last != _PLUS) & follows_lone_0)


def _sums(length: int) -> int:
    numbers = [0, 2, *(2 ** (k - 1) for k in range(2, length + 1))]
    return sum(numbers[k] * numbers[length - 1 - k] for k in range(1, length - 1))


_PLUS = 2
_DISTINCT = Rule(lambda n: math.perm(150, n), begins=_last_is_new)
_BITS = Rule(lambda n: 2**n)

RULES: dict[str, Rule] = {
    "bin_majority": Rule(lambda n: 2**n, is_input=_unbalanced),
    "bin_majority_interleave": Rule(lambda n: 2**n, is_input=_thirds_unbalanced),
    "majority": Rule(lambda n: 26**n, is_input=_one_winner),
    "sort": _DISTINCT,
    "unique_copy": _DISTINCT,
    "unique_reverse": _DISTINCT,
    "count": Rule(
        lambda n: 151 - n,
        begins=lambda x: x[:, 0] <= x[:, -1],
        is_input=lambda x: np.full(len(x), x.shape[1] == 2),
        length=lambda x: x[:, 1] - x[:, 0] + 1,
        longest_x=2,
    ),
    "unique_bigram_copy": Rule(lambda n: 16**n, begins=_last_pair_is_new),
    "repeat_copy": _BITS,
    "parity": _BITS,
    "addition": Rule(_sums, begins=_begins_sum, is_input=_is_sum),
}
"""For drasp's own tasks; what a user's own `draw` can give is not known."""


def _own_rule(task: Task) -> Rule | None:
    own = TASKS.get(task.name)
    return RULES.get(task.name) if own is not None and own.source is task.source else None


def _rule(task: Task, everything: bool) -> Rule:
    own = _own_rule(task)
    if everything:
        ordinary = len(task.vocabulary) - len(task.vocabulary.special)
        return Rule(lambda n: ordinary**n)
    if own is None:
        known = "--all-strings takes every string of its tokens"
        raise DraspError(f"task {task.name}: which inputs its draw can give is not known; {known}")
    return own


def _words(task: Task, language: Language, length: int, everything: bool) -> Words:
    after, allowed, start = language.tables()
    return Words(after, allowed, start, task.vocabulary.ids["BOS"], length, everything)


def framed(task: Task) -> Framed:
    """What draws a task's inputs, where these have the form that can be listed."""
    if isinstance(task.source, Framed):
        return task.source
    known = "inputs BOS x SEP y EOS, BOS x EOS of a language, and those that every= lists"
    raise DraspError(f"task {task.name}: which inputs its draw can give is not known; all are known of {known}")


def how_many(task: Task, length: int, everything: bool = False) -> int:
    """How many inputs a task has up to a length, at most."""
    if (rows := _every(task, everything)) is not None:
        return int((rows.lengths <= length).sum())
    answer = framed(task).answer
    if isinstance(answer, Language):
        return _words(task, answer, length, everything).count()
    rule = _rule(task, everything)
    return sum(rule.count(n) for n in task.lengths if n <= length)


def all_inputs(task: Task, length: int, everything: bool) -> Words | Listed:
    """Every input of the task up to a length; with `everything`, also those that the task never draws."""
    if not min(task.lengths) <= length <= max(task.lengths):
        span = f"{min(task.lengths)} to {max(task.lengths)}"
        raise DraspError(f"--length {length}: inputs of task {task.name} have lengths {span}")
    count, most = how_many(task, length, everything), most_inputs(task)
    if count > most:
        fits = max((n for n in task.lengths if n < length and how_many(task, n, everything) <= most), default=None)
        would = f"; --length {fits} has {how_many(task, fits, everything):,}" if fits else ""
        raise DraspError(f"--length {length}: up to {_number(count)} inputs, and {most:,} can be looked at{would}")
    if (rows := _every(task, everything)) is not None:
        short = rows.rows(rows.lengths <= length)
        return _in_order(task, short, np.full(len(short), short.targets is not None))
    answer = framed(task).answer
    if isinstance(answer, Language):
        return _words(task, answer, length, everything)
    rule = _rule(task, everything)
    return _listed(task, rule, _own_rule(task) or rule, length)


def most_inputs(task: Task) -> int:
    return MOST_WORDS if language_of(task) is not None else MOST_LISTED


def _every(task: Task, everything: bool) -> Rows | None:
    """All inputs of a task that lists them."""
    rows = task.source.every()
    if rows is not None and everything:
        raise DraspError(f"task {task.name}: every= lists all its inputs; leave out --all-strings")
    return rows


def _number(count: int) -> str:
    return f"{count:,}" if count < 10**15 else f"{count / 10 ** (digits := len(str(count)) - 1):.1f}·10^{digits}"


def _listed(task: Task, rule: Rule, own: Rule, length: int) -> Listed:
    """Inputs written out, x by x; where they are not the task's own, their answers are not known to be."""
    x, ordinary = np.zeros((1, 0), int), len(task.vocabulary) - len(task.vocabulary.special)
    parts, known = list[Rows](), list[Array]()
    for _ in range(rule.longest_x or length):
        x = np.concatenate([np.repeat(x, ordinary, 0), np.tile(np.arange(ordinary), len(x))[:, None]], axis=1)
        x = x[rule.begins(x)]
        chosen = x[rule.is_input(x)]
        lengths = rule.length(chosen) if len(chosen) else np.zeros(0, int)
        fits = (lengths <= length) & np.isin(lengths, task.lengths)
        if fits.any():
            chosen = chosen[fits]
            parts.append(framed(task).around(chosen, lengths[fits]))
            begun = np.logical_and.reduce([own.begins(chosen[:, : n + 1]) for n in range(chosen.shape[1])])
            known.append(begun & own.is_input(chosen))
    return _in_order(task, joined(parts, task.vocabulary.padding), np.concatenate(known))


def _in_order(task: Task, rows: Rows, known: Array) -> Listed:
    """Inputs as a tree has them; of which of them targets are `known`."""
    targets = rows.targets
    if targets is None:
        targets = np.zeros((*rows.ids.shape, len(task.vocabulary)) if task.output == "sigmoid" else rows.ids.shape, int)
    inside = np.arange(rows.ids.shape[1]) < rows.sizes[:, None]
    ids = np.where(inside, rows.ids, -1)
    order = np.lexsort(np.concatenate([ids, rows.counted], axis=1).T[::-1])
    if task.output == "sigmoid":  # tokens that a model has beside the task's may never come next
        room = len(task.vocabulary) - targets.shape[-1]
        targets = np.pad(targets.astype(bool), ((0, 0), (0, 0), (0, room)))
    else:
        targets = targets.astype(np.int32)
    listed = Listed(ids.astype(np.int32), rows.lengths.astype(np.int32), rows.counted, targets, known)
    return listed.rows_of(order)
