"""The 17 finite-state languages: each an expression or automaton, and how its words are drawn."""

import numpy as np
from automata.fa.dfa import DFA

from drasp.tasks.automaton import DEAD, Language
from drasp.tasks.framed import MAX_LENGTH, Draw, language_task
from drasp.tasks.rows import HOLE, scatter, within
from drasp.tasks.task import Task

Array = np.ndarray


def _fixed_runs(symbols: list[int], shortest: int) -> Draw:
    """One run for each of `symbols`: lengths by repeated uniform draws from what is left, then shuffled."""

    def draw(rng: np.random.Generator, lengths: Array) -> Array:
        left = lengths - shortest * len(symbols)
        runs = np.zeros((len(lengths), len(symbols)), int)
        for i in range(len(symbols) - 1):
            runs[:, i] = rng.integers(0, left + 1)
            left = left - runs[:, i]
        runs[:, -1] = left
        ends = (rng.permuted(runs, axis=1) + shortest).cumsum(1)
        inside = within(lengths)
        run = (np.arange(inside.shape[1])[None, :, None] >= ends[:, None, :]).sum(2)
        return np.where(inside, np.array([*symbols, HOLE])[run], HOLE)

    return draw


def _zeros(first: int, step: int) -> Draw:
    """The number of 0s uniform over `first * length mod step`, then every `step`; shuffled."""

    def draw(rng: np.random.Generator, lengths: Array) -> Array:
        least = first * lengths % step
        zeros = least + step * rng.integers(0, (lengths - least) // step + 1)
        inside = within(lengths)
        return np.where(inside, np.where(scatter(rng, inside, zeros), 0, 1), HOLE)

    return draw


def _nested(depth: int) -> Draw:
    """Runs of a's of uniform length up to the room left, runs of b's of uniform length up to the depth reached."""

    def draw(rng: np.random.Generator, lengths: Array) -> Array:
        words = np.full((len(lengths), int(lengths.max(initial=0))), HOLE)
        open_now = np.zeros_like(lengths)
        symbol = np.ones_like(lengths)  # as if b's had just ended
        run = np.zeros_like(lengths)
        for column in range(words.shape[1]):
            left = lengths - column
            room = np.minimum(depth - open_now, (left - open_now) // 2)
            turn = run == 0
            opens = (symbol == 1) & (room > 0)
            symbol = np.where(turn, np.where(opens, 0, 1), symbol)
            longest = np.where(symbol == 0, room, open_now)
            run = np.where(turn, rng.integers(1, np.maximum(longest, 1) + 1), run) - 1
            words[:, column] = np.where(left > 0, symbol, HOLE)
            open_now = open_now + np.where(left > 0, 1 - 2 * symbol, 0)
        return words

    return draw


def _d_among(rng: np.random.Generator, lengths: Array) -> Array:
    """The place of d uniform; the number of a's before it and of b's after it uniform, shuffled."""
    inside = within(lengths)
    columns = np.arange(inside.shape[1])
    place = rng.integers(0, lengths)
    before, after = columns < place[:, None], inside & (columns > place[:, None])
    a = scatter(rng, before, rng.integers(0, place + 1))
    b = scatter(rng, after, rng.integers(0, lengths - place))
    words = np.where(before, np.where(a, 0, 1), np.where(b, 1, 2))
    words[np.arange(len(words)), place] = 3
    return np.where(inside, words, HOLE)


def _last_zero(rng: np.random.Generator, lengths: Array) -> Array:
    """The place of the last 0 uniform; before it uniform symbols, after it 2s."""
    inside = within(lengths)
    place = rng.integers(0, lengths)
    words = np.where(np.arange(inside.shape[1]) < place[:, None], rng.integers(0, 3, inside.shape), 2)
    words[np.arange(len(words)), place] = 0
    return np.where(inside, words, HOLE)


def _falling_runs(language: Language) -> Draw:
    """Runs whose length's probability falls linearly over the room left; a run goes on where it may not end."""

    def draw(rng: np.random.Generator, lengths: Array) -> Array:
        words = np.full((len(lengths), int(lengths.max(initial=0))), HOLE)
        state = language.starts(len(lengths))
        symbol = rng.integers(0, 2, len(lengths))
        run = np.zeros_like(lengths)
        for column in range(words.shape[1]):
            left = np.maximum(lengths - column, 1)
            turn = (run == 0) & (language.step(state, 1 - symbol) != DEAD)
            symbol = np.where(turn, 1 - symbol, symbol)
            # The lesser of two uniform draws: its probability falls linearly.
            drawn = np.minimum(rng.integers(0, left), rng.integers(0, left))
            run = np.where(turn, drawn, np.maximum(run - 1, 0))
            words[:, column] = np.where(lengths > column, symbol, HOLE)
            state = language.step(state, symbol)
        return words

    return draw


def _dyck(depth: int) -> str:
    return f"(a{_dyck(depth - 1)}b)*" if depth else ""


def _dyck_task(depth: int) -> Task:
    about = f"balanced brackets a, b with at most {depth} open"
    return language_task(f"D{depth}", Language("ab", _dyck(depth), about), draw=_nested(depth))


_TOMITA3 = Language.excluding("01", "01(11)*0(00)*1", "no 0, odd run of 1s, odd run of 0s, 1 in a row")
_TOMITA4 = Language.excluding("01", "000", "no 000")
_TOMITA5 = Language("01", "((0|1)(0|1))*&(0*10*1)*0*", "even length, even number of 1s")
_TOMITA6 = Language(
    "01",
    DFA(
        states={0, 1, 2},
        input_symbols={"0", "1"},
        transitions={n: {"0": (n + 1) % 3, "1": (n - 1) % 3} for n in range(3)},
        initial_state=0,
        final_states={0},
    ),
    "as many 0s as 1s, modulo 3",
)

LANGUAGES = (
    language_task("tomita1", Language("01", "1*")),
    language_task("tomita2", Language("01", "(10)*")),
    language_task("tomita3", _TOMITA3, draw=_falling_runs(_TOMITA3)),
    language_task("tomita4", _TOMITA4, draw=_TOMITA4.fair_walk),
    language_task("tomita5", _TOMITA5, draw=_zeros(0, 2)),
    language_task("tomita6", _TOMITA6, draw=_zeros(2, 3), lengths=range(1, MAX_LENGTH + 1, 2)),
    language_task("tomita7", Language("01", "0*1*0*1*"), draw=_fixed_runs([0, 1, 0, 1], 0)),
    *(_dyck_task(depth) for depth in (2, 3, 4, 12)),
    language_task("aastar", Language("a", "(aa)*")),
    language_task("aaaastar", Language("a", "(aaaa)*")),
    language_task("ababstar", Language("ab", "(abab)*")),
    language_task("abcde", Language("abcde", "aa*bb*cc*dd*ee*"), draw=_fixed_runs([0, 1, 2, 3, 4], 1)),
    language_task("ab_d_bc", Language("abcd", "(a|b)*d(b|c)*"), draw=_d_among),
    language_task("012_0_2", Language("012", "(0|1|2)*02*"), draw=_last_zero),
)
