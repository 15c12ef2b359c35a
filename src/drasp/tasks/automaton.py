"""A regular language as tables: all that a task needs to know of it follows from its automaton."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from automata.base.exceptions import AutomatonException, RegexException
from automata.fa.dfa import DFA
from automata.fa.nfa import NFA
from jaxtyping import Bool, Float, Int

from drasp.errors import DraspError
from drasp.vocabulary import Vocabulary

Array = np.ndarray
DEAD = 0  # the state after which no word of the language can follow


class Language:
    """A regular language over `symbols`, given by an expression or an automaton.

    Expressions are those of automata-lib: `|`, `*`, `+`, `?`, `&` and brackets over one-letter symbols.
    """

    def __init__(self, symbols: Sequence[str], form: str | DFA, about: str = "") -> None:
        self.vocabulary = Vocabulary.with_specials(tuple(symbols))
        self.about = about or (form if isinstance(form, str) else "")
        self.symbols = tuple(symbols)
        self.automaton = self._automaton(self.symbols, form)
        dfa = self.automaton.to_partial()
        self._start = 1
        number = {dfa.initial_state: self._start}
        for state in dfa.states:
            number.setdefault(state, len(number) + 1)
        self._next: Int[Array, "state symbol"] = np.full((len(number) + 1, len(symbols)), DEAD)
        self._final: Bool[Array, " state"] = np.zeros(len(number) + 1, bool)
        for state, arcs in dfa.transitions.items():
            for symbol, target in arcs.items():
                self._next[number[state], symbols.index(symbol)] = number[target]
        self._final[[number[state] for state in dfa.final_states]] = True

    @staticmethod
    def excluding(symbols: Sequence[str], factor: str, about: str = "") -> "Language":
        """The strings without any substring that matches `factor`."""
        anything = f"({'|'.join(symbols)})*"
        having = Language._automaton(tuple(symbols), f"{anything}{factor}{anything}")
        return Language(symbols, having.complement(), about)

    @staticmethod
    def _automaton(symbols: tuple[str, ...], form: str | DFA) -> DFA:
        if isinstance(form, DFA):
            if not form.input_symbols <= set(symbols):
                raise DraspError(f"the automaton reads {sorted(form.input_symbols)}, expected of {list(symbols)}")
            return form
        try:
            return DFA.from_nfa(NFA.from_regex(form, input_symbols=set(symbols)))
        except (AutomatonException, RegexException) as error:
            raise DraspError(f"expression {form!r} over {', '.join(symbols)}: {error}") from None

    def accepts(self, word: Sequence[int]) -> bool:
        state = self._start
        for symbol in word:
            state = self._next[state, symbol]
        return bool(self._final[state])

    def has_length(self, length: int) -> bool:
        return bool(self._words(length)[length, self._start] > 0)

    def allowed_after(
        self, rows: Int[Array, "n width"], counted: Bool[Array, "n width"]
    ) -> Bool[Array, "n width n_vocab"]:
        """Which tokens may come next in rows `BOS x EOS`, at the positions that count (nothing elsewhere)."""
        # EOS and PAD are no symbols; what stands there is not counted.
        symbols = np.minimum(rows.T, self._next.shape[1] - 1).copy()
        states = np.full(symbols.shape, self._start)
        for column in range(1, len(symbols)):
            states[column] = self._next[states[column - 1], symbols[column]]
        return self._allowed.take(np.where(counted, states.T, DEAD), axis=0)

    @cached_property
    def _allowed(self) -> Bool[Array, "state n_vocab"]:
        allowed = np.zeros((len(self._next), len(self.vocabulary)), bool)
        allowed[:, : self._next.shape[1]] = self._next != DEAD
        allowed[:, self.vocabulary.ids["EOS"]] = self._final
        return allowed

    def tables(self) -> tuple[Int[Array, "state symbol"], Bool[Array, "state n_vocab"], int]:
        """The next state after each symbol, which tokens may come next in each state, and the first state."""
        return self._next, self._allowed, self._start

    def uniform_words(self, rng: np.random.Generator, lengths: Int[Array, " n"]) -> Int[Array, "n width"]:
        """Words of these lengths, all of a length equally likely."""
        return self._walk(rng, lengths, self._words(int(lengths.max(initial=0))))

    def fair_walk(self, rng: np.random.Generator, lengths: Int[Array, " n"]) -> Int[Array, "n width"]:
        """Words drawn symbol by symbol, each uniform over those after which the word can still be completed."""
        return self._walk(rng, lengths, (self._words(int(lengths.max(initial=0))) > 0).astype(float))

    def step(self, state: Int[Array, " n"], symbol: Int[Array, " n"]) -> Int[Array, " n"]:
        return self._next[state, symbol]

    def starts(self, count: int) -> Int[Array, " n"]:
        return np.full(count, self._start)

    def _walk(self, rng: np.random.Generator, lengths: Array, weight: Array) -> Array:
        """Draws each symbol with odds `weight[symbols still to come, next state]`; -1 past a row's end."""
        width = int(lengths.max(initial=0))
        words = np.full((len(lengths), width), -1)
        state = self.starts(len(lengths))
        for column in range(width):
            left = lengths - column - 1
            odds = weight[np.maximum(left, 0)[:, None], self._next[state]]
            sums = odds.cumsum(1)
            symbol = (rng.random(len(lengths))[:, None] * sums[:, -1:] >= sums).sum(1)
            symbol = np.minimum(symbol, self._next.shape[1] - 1)
            words[:, column] = np.where(left >= 0, symbol, -1)
            state = self.step(state, symbol)
        return words

    def _words(self, longest: int) -> Float[Array, "length state"]:
        """How many words of each length lead from each state to the end, up to a factor for each length."""
        while len(self._counted) <= longest:
            last = self._counted[-1]
            count = last[self._next].sum(1)
            count[DEAD] = 0
            # Counts grow exponentially; only their ratios at one length matter.
            self._counted.append(count / max(count.max(), 1e-300))
        return np.array(self._counted)

    @cached_property
    def _counted(self) -> list[Float[Array, " state"]]:
        return [self._final.astype(float)]
