"""Decides whether a regular language is in C-RASP, from its minimal automaton, and writes a program where it is.

What a formula can know before a position is the signs of linear combinations of counts. Inside a strongly connected
component most of these say nothing about the state: only combinations that every cycle leaves as they are do, and these
give each state a *potential*. Formulas may then count positions by letter and potential, which may give finer
potentials, and so on, until no states are told apart that were not before. The language is in C-RASP exactly if states
of a component with the same potentials go to the same state by every letter: docs/theory.md has the proof.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm, prod

from automata.base.exceptions import AutomatonException, RegexException
from automata.fa.dfa import DFA
from automata.fa.nfa import NFA

from drasp.errors import DraspError
from drasp.tasks.automaton import DEAD, Language

MAX_STATES = 500
MAX_SUBSETS = 20_000  # states before the automaton is made minimal
MAX_MEMBERS = 3_000_000  # of all these, which are sets of states
MAX_SYMBOLS = 20_000  # of an expression whose repetitions and intersections are written out
_SIGNS = "|*+?&.{},()"


@dataclass(frozen=True)
class Automaton:
    """A complete deterministic automaton: state 0 is the first, `step[state][letter]` the next one."""

    letters: tuple[str, ...]
    step: tuple[tuple[int, ...], ...]
    final: frozenset[int]

    def accepts(self, word: Iterable[str]) -> bool:
        state = 0
        for letter in word:
            state = self.step[state][self.letters.index(letter)]
        return state in self.final

    @classmethod
    def of(cls, dfa: DFA, letters: Sequence[str]) -> "Automaton":
        """The minimal one, with states numbered as a breadth-first search meets them."""
        smallest = dfa.to_complete().minify() if dfa.input_symbols == set(letters) else _over(dfa, letters).minify()
        smallest = smallest.to_complete()
        number = {smallest.initial_state: 0}
        queue = [smallest.initial_state]
        for state in queue:
            for letter in letters:
                target = smallest.transitions[state][letter]
                if target not in number:
                    number[target] = len(number)
                    queue.append(target)
        step = tuple(tuple(number[smallest.transitions[state][letter]] for letter in letters) for state in queue)
        return cls(tuple(letters), step, frozenset(number[s] for s in smallest.final_states if s in number))

    @classmethod
    def of_expression(cls, expression: str, letters: Sequence[str] | None = None) -> "Automaton":
        """The minimal automaton of a regular expression (`|`, `*`, `+`, `?`, `&`, brackets; one-letter symbols)."""
        found = tuple(dict.fromkeys(letters)) if letters is not None else letters_of(expression)
        shown = f"expression {expression if len(expression) <= 60 else f'{expression[:60]}…'!r}"
        if not found:
            raise DraspError(f"{shown}: it has no letters; name the alphabet with --alphabet")
        unlike = next((letter for letter in found if not letter.isalnum()), None)
        if unlike is not None:
            raise DraspError(f"--alphabet {''.join(found)}: {unlike!r} is no letter; expected letters and digits alone")
        odd = next((letter for letter in letters_of(expression) if letter not in found), None)
        if odd is not None:
            raise DraspError(f"{shown}: letter {odd!r} is not in the alphabet {' '.join(found)}")
        expected = f"expected letters of {' '.join(found)}, | * + ? & . {{m,n}} and ( )"
        sign = next((sign for sign in expression if not sign.isalnum() and sign not in _SIGNS), None)
        if sign is not None:
            raise DraspError(f"{shown}: {sign!r} is not read; {expected}")
        if _written_out(expression) > MAX_SYMBOLS:
            raise DraspError(f"{shown}: more than {MAX_SYMBOLS:,} symbols when it is written out, too many to decide")
        try:
            nfa = NFA.from_regex(expression, input_symbols=set(found))
        except (AutomatonException, RegexException):
            why = "its brackets do not match" if expression.count("(") != expression.count(")") else "cannot be read"
            raise DraspError(f"{shown}: {why}; {expected}") from None
        dfa = _determined(nfa, found)
        if dfa is None:
            most = f"{MAX_SUBSETS:,} sets of {MAX_MEMBERS:,} states together"
            raise DraspError(f"{shown}: its automaton has more than {most}, too many to decide")
        smallest = cls.of(dfa, found)
        if len(smallest.step) > MAX_STATES:
            states = f"{len(smallest.step):,} states in its minimal automaton"
            raise DraspError(f"{shown}: {states}, expected at most {MAX_STATES:,}")
        return smallest


def next_token_automata(language: Language) -> dict[str, Automaton]:
    """The minimal automaton, for each token that may ever come next, of the strings `BOS x` after which it may."""
    after, allowed, start = language.tables()
    first, letters = len(after), (*language.symbols, "BOS")
    transitions = {state: dict(zip(letters, [*row.tolist(), DEAD], strict=True)) for state, row in enumerate(after)}
    transitions[first] = {**dict.fromkeys(language.symbols, DEAD), "BOS": start}
    found: dict[str, Automaton] = {}
    for token, states in zip(language.vocabulary.tokens, allowed.T, strict=True):
        if states.any():
            final = set(states.nonzero()[0].tolist())
            dfa = DFA(
                states=set(transitions),
                input_symbols=set(letters),
                transitions=transitions,
                initial_state=first,
                final_states=final,
            )
            found[token] = Automaton.of(dfa, letters)
    return found


def of_language(language: Language) -> Automaton:
    """The minimal automaton of a task's language."""
    return Automaton.of(language.automaton, language.symbols)


def of_task(name: str) -> Automaton:
    """The minimal automaton of one of the built-in languages."""
    from drasp.tasks import TASKS
    from drasp.tasks.framed import language_of

    languages = {each: found for each, task in TASKS.items() if (found := language_of(task)) is not None}
    if name not in languages:
        raise DraspError(f"--task {name}: not a language; expected one of: {', '.join(languages)}")
    return of_language(languages[name])


def letters_of(expression: str) -> tuple[str, ...]:
    """The symbols that a regular expression names, in order."""
    return tuple(sorted({c for c in re.sub(r"\{[^}]*\}", "", expression) if c.isalnum()}))


def _written_out(expression: str) -> int:
    """How many symbols an expression has when `{m,n}` is written out and `&` is every symbol beside every other."""
    # The sizes of what stands so far inside each bracket that is open, a list for each side of an `&`.
    opened: list[list[list[int]]] = [[[0]]]
    for part in re.finditer(r"\{(\d*),?(\d*)\}|.", expression):
        sides = opened[-1]
        if part[0] == "(":
            opened.append([[0]])
        elif part[0] == ")" and len(opened) > 1:
            opened.pop()
            opened[-1][-1].append(prod(map(sum, sides)))
        elif part[0] == "&":
            sides.append([0])
        elif part[0][0] == "{":
            sides[-1][-1] *= max(int(times[:9] or 1) for times in part.groups(""))
        elif part[0] == "." or part[0].isalnum():
            sides[-1].append(1)
    return prod(prod(map(sum, sides)) or 1 for sides in opened)


def _determined(nfa: NFA, letters: Sequence[str]) -> DFA | None:
    """The automaton of sets of states; None where there are too many."""

    def closed(states: Iterable[object]) -> frozenset[object]:
        seen, queue = set(states), list(states)
        for state in queue:
            new = set(nfa.transitions.get(state, {}).get("", ())) - seen
            seen |= new
            queue.extend(new)
        return frozenset(seen)

    start = closed([nfa.initial_state])
    number, queue = {start: 0}, [start]
    transitions: dict[int, dict[str, int]] = {}
    members = 0
    for states in queue:
        members += len(states)
        row = transitions[number[states]] = {}
        for letter in letters:
            target = closed({t for state in states for t in nfa.transitions.get(state, {}).get(letter, ())})
            if target not in number:
                number[target] = len(number)
                queue.append(target)
            row[letter] = number[target]
        if len(number) > MAX_SUBSETS or members > MAX_MEMBERS:
            return None
    final = {number[states] for states in queue if states & nfa.final_states}
    return DFA(
        states=set(transitions),
        input_symbols=set(letters),
        transitions=transitions,
        initial_state=0,
        final_states=final,
    )


def _over(dfa: DFA, letters: Sequence[str]) -> DFA:
    """The same language over a larger alphabet."""
    if not dfa.input_symbols <= set(letters):
        raise DraspError(f"the automaton reads {sorted(dfa.input_symbols)}, expected of {list(letters)}")
    partial = dfa.to_partial()
    return DFA(
        states=partial.states,
        input_symbols=set(letters),
        transitions=partial.transitions,
        initial_state=partial.initial_state,
        final_states=partial.final_states,
        allow_partial=True,
    ).to_complete()


# ------------------------------------------------------------------------------------ potentials

# A transition inside a component is labelled by its letter and by what is known of the state it leaves.
Label = tuple[int, int]


@dataclass(frozen=True)
class Round:
    """What labels of the round before give: `weights[label]` is what a label adds, `potential[state]` what it reaches.

    `parts[state]` is the number of the class of states that have the same potentials in this and all earlier rounds.
    """

    before: Mapping[int, int]
    weights: Mapping[Label, tuple[int, ...]]
    potential: Mapping[int, tuple[int, ...]]
    parts: Mapping[int, int]


@dataclass(frozen=True)
class StronglyConnected:
    """A strongly connected component, and the rounds in which its states were told apart."""

    states: tuple[int, ...]
    rounds: tuple[Round, ...]

    @property
    def parts(self) -> Mapping[int, int]:
        """The class of each state in the end."""
        return self.rounds[-1].parts if self.rounds else dict.fromkeys(self.states, 0)


@dataclass(frozen=True)
class Confused:
    """Two states that counts cannot tell apart, and a letter by which they part."""

    first: int
    second: int
    letter: str


@dataclass(frozen=True)
class Decision:
    automaton: Automaton
    components: tuple[StronglyConnected, ...]
    confused: Confused | None

    @property
    def in_crasp(self) -> bool:
        return self.confused is None

    @property
    def in_crasp_after_end(self) -> bool:
        """Whether a program may also answer one position later, at an end marker, where the last letter is not seen.

        The marker is one more letter by which states of a class must not part; states that no letter parts are one.
        """
        return all(len(set(component.parts.values())) == len(component.states) for component in self.components)

    @cached_property
    def reason(self) -> str:
        """Why, in one sentence."""
        if self.confused is not None:
            first, second, letter = self.confused.first, self.confused.second, self.confused.letter
            step, index = self.automaton.step, self.automaton.letters.index(letter)
            return (
                f"states {first} and {second} lie on common cycles and no combination of counts tells them apart, "
                f"but {letter!r} leads from them to different states, {step[first][index]} and {step[second][index]}"
            )
        several = [component for component in self.components if len(component.states) > 1]
        if not several:
            return "no cycle passes through two states: what has been left never comes again, which counts can tell"
        rounds = max(len(component.rounds) for component in several)
        sizes = ", ".join("{" + ", ".join(map(str, component.states)) + "}" for component in several)
        if not rounds:
            return (
                f"states on common cycles ({sizes}) differ in nothing but whether the word may end, by its last letter"
            )
        how = "counts of letters" if rounds == 1 else f"counts of letters, then {rounds - 1} more rounds of counts,"
        return f"{how} tell apart all states on common cycles ({sizes}) that go on differently"


def decide(automaton: Automaton) -> Decision:
    """Whether the language of a minimal automaton is in C-RASP, and why."""
    found = [_component(automaton, states) for states in strong_components(automaton.step)]
    components = tuple(sorted(found, key=lambda component: component.states))
    confused = next(filter(None, (_confused(automaton, component) for component in components)), None)
    return Decision(automaton, components, confused)


def strong_components(step: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """The sets of states that can reach each other."""
    reached: list[set[int]] = []
    for state in range(len(step)):
        seen, queue = {state}, [state]
        for near in queue:
            new = set(step[near]) - seen
            seen |= new
            queue.extend(new)
        reached.append(seen)
    components = {tuple(sorted(q for q in seen if state in reached[q])) for state, seen in enumerate(reached)}
    return sorted(components)


def _confused(automaton: Automaton, component: StronglyConnected) -> Confused | None:
    first: dict[int, int] = {}
    for state in component.states:
        other = first.setdefault(component.parts[state], state)
        for letter, targets in enumerate(zip(automaton.step[other], automaton.step[state], strict=True)):
            if targets[0] != targets[1]:
                return Confused(other, state, automaton.letters[letter])
    return None


def _component(automaton: Automaton, states: tuple[int, ...]) -> StronglyConnected:
    rounds: list[Round] = []
    parts: dict[int, int] = dict.fromkeys(states, 0)
    while True:
        found = _round(automaton, states, parts)
        if len(set(found.parts.values())) == len(set(parts.values())):
            return StronglyConnected(states, tuple(rounds))
        rounds.append(found)
        parts = dict(found.parts)


def _round(automaton: Automaton, states: tuple[int, ...], parts: Mapping[int, int]) -> Round:
    """Potentials from labels (letter, class of the state that is left).

    Weights of labels are such that every cycle adds up to nothing. The differences between a transition and the two
    paths of a spanning tree span the same space as the cycles of a strongly connected graph, and are few.
    """
    inside = set(states)
    edges = [
        (state, (letter, parts[state]), target)
        for state in states
        for letter, target in enumerate(automaton.step[state])
        if target in inside
    ]
    labels = sorted({label for _, label, _ in edges})
    column = {label: index for index, label in enumerate(labels)}
    path: dict[int, list[int]] = {states[0]: [0] * len(labels)}
    queue = [states[0]]
    for state in queue:
        for source, label, target in edges:
            if source == state and target not in path:
                path[target] = _plus(path[state], column[label])
                queue.append(target)
    cycles = [
        [x - y for x, y in zip(_plus(path[source], column[label]), path[target], strict=True)]
        for source, label, target in edges
    ]
    basis = null_space(cycles, len(labels))
    weights = {label: tuple(vector[column[label]] for vector in basis) for label in labels}
    potential = {
        state: tuple(sum(x * y for x, y in zip(vector, path[state], strict=True)) for vector in basis)
        for state in states
    }
    number: dict[tuple[int, tuple[int, ...]], int] = {}
    refined = {state: number.setdefault((parts[state], potential[state]), len(number)) for state in states}
    return Round(parts, weights, potential, refined)


def _plus(counts: Sequence[int], index: int) -> list[int]:
    return [count + (i == index) for i, count in enumerate(counts)]


def null_space(rows: Sequence[Sequence[int]], width: int) -> list[list[int]]:
    """A basis, in whole numbers, of the vectors that are orthogonal to all rows."""
    reduced: list[list[Fraction]] = []
    pivots: list[int] = []
    for row in rows:
        rest = [Fraction(x) for x in row]
        for pivot, done in zip(pivots, reduced, strict=True):
            if rest[pivot]:
                rest = [x - rest[pivot] * y for x, y in zip(rest, done, strict=True)]
        lead = next((i for i, x in enumerate(rest) if x), None)
        if lead is None:
            continue
        rest = [x / rest[lead] for x in rest]
        reduced = [[x - done[lead] * y for x, y in zip(done, rest, strict=True)] for done in reduced]
        reduced.append(rest)
        pivots.append(lead)
    basis: list[list[int]] = []
    for free in (i for i in range(width) if i not in pivots):
        vector = [Fraction(0)] * width
        vector[free] = Fraction(1)
        for pivot, done in zip(pivots, reduced, strict=True):
            vector[pivot] = -done[free]
        scale = lcm(*(x.denominator for x in vector))
        basis.append([int(x * scale) for x in vector])
    return basis
