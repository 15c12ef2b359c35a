"""Writes the C-RASP program of a regular language that is in C-RASP: the other half of the decision's proof.

For each component of the automaton and each state by which it may be entered, the program counts labels from the
position after that on. Round by round this gives the class of the state before each position, up to the first position
at which the component is left; what the counts say after that is never asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from drasp.crasp.automaton import Decision, StronglyConnected
from drasp.crasp.syntax import (
    Compare,
    Constant,
    Count,
    CountName,
    CraspError,
    CraspProgram,
    Definition,
    Expression,
    Formula,
    FormulaName,
    Not,
    Number,
    Sum,
    Times,
    Token,
    Truth,
    conjunction,
    disjunction,
)


def witness(decision: Decision) -> CraspProgram:
    """A program whose answer holds at the end of exactly the words of the language, the empty word aside."""
    if not decision.in_crasp:
        raise CraspError("the language is not in C-RASP, so no program accepts it")
    return _WitnessWriter(decision).program()


@dataclass
class _WitnessWriter:
    decision: Decision
    definitions: dict[str, Expression] = field(default_factory=dict)

    def define(self, name: str, formula: Formula) -> Formula:
        """A name for a formula, where it needs one."""
        if isinstance(formula, Token | Truth | FormulaName):
            return formula
        self.definitions[name] = formula
        return FormulaName(name)

    def count(self, name: str, formula: Formula) -> Number:
        self.definitions[name] = Count(formula)
        return CountName(name)

    def program(self) -> CraspProgram:
        automaton = self.decision.automaton
        entered: dict[int, list[Formula]] = {}
        accepted: list[Formula] = []
        for number, component in enumerate(_in_order(self.decision)):
            inside = set(component.states)
            doors = [state for state in component.states if state in entered or state == 0]
            moves: dict[tuple[int, int], list[Formula]] = {}
            for door in doors:
                if door == 0:
                    begun: Formula = Truth(True)
                else:
                    here = self.define(f"enters_{door}", disjunction(entered[door]))
                    since = self.count(f"entered_{door}", here)
                    begun = self.define(f"after_{door}", conjunction([Compare(since, ">=", Constant(1)), Not(here)]))
                for key, formula in self.classes(component, door, begun).items():
                    moves.setdefault(key, []).append(formula)
            # (class, letter) to whether the state before a position has that class and its token is that letter.
            before = {key: self.define(f"c{number}_{key[0]}_{key[1]}", disjunction(moves[key])) for key in moves}
            target = {
                (part, letter): automaton.step[state][letter]
                for state, part in component.parts.items()
                for letter in range(len(automaton.letters))
            }
            leaving = [formula for key, formula in before.items() if target[key] not in inside]
            still: Formula = Truth(True)
            if leaving:
                leaves = self.define(f"leaves_{number}", disjunction(leaving))
                left = self.count(f"left_{number}", leaves)
                now = conjunction([leaves, Compare(left, "==", Constant(1))])
                still = self.define(f"still_{number}", disjunction([Compare(left, "==", Constant(0)), now]))
            for key, formula in before.items():
                happens = conjunction([formula, still])
                if target[key] not in inside:
                    entered.setdefault(target[key], []).append(happens)
                if target[key] in automaton.final:
                    accepted.append(happens)
        self.definitions["accepted"] = disjunction(accepted)
        definitions = (Definition(name, expression) for name, expression in self.definitions.items())
        return CraspProgram(tuple(definitions)).needed

    def classes(self, component: StronglyConnected, door: int, begun: Formula) -> dict[tuple[int, int], Formula]:
        """The formula for each class and letter: entered by this door before, now that letter, before it the class.

        What is said of the class holds as long as the component has not been left.
        """
        letters = self.decision.automaton.letters
        found = {
            (0, x): self.define(f"d{door}_{x}", conjunction([begun, Token(letter)])) for x, letter in enumerate(letters)
        }
        for depth, step in enumerate(component.rounds, 1):
            counts = {
                label: self.count(f"n{depth}_{door}_{label[0]}_{label[1]}", found[label[1], label[0]])
                for label in step.weights
            }
            finer: dict[tuple[int, int], Formula] = {}
            for state in component.states:
                for x in range(len(letters)):
                    key, old = (step.parts[state], x), (step.before[state], x)
                    if key not in finer and old in found:
                        # Counts up to here hold this position's own label, which is taken off again.
                        own = step.weights.get((x, old[0]), (0,) * len(step.potential[door]))
                        equal = [
                            _sums_to(
                                [(step.weights[other][i], counts[other]) for other in counts],
                                step.potential[state][i] - step.potential[door][i] + own[i],
                            )
                            for i in range(len(own))
                        ]
                        name = f"s{depth}_{door}_{key[0]}_{key[1]}"
                        finer[key] = self.define(name, conjunction([found[old], *equal]))
            found = finer
        return found


def _in_order(decision: Decision) -> list[StronglyConnected]:
    """Components, each after all from which it can be entered."""
    of = {state: component for component in decision.components for state in component.states}
    done: list[StronglyConnected] = []

    def visit(component: StronglyConnected) -> None:
        if component in done:
            return
        for state in component.states:
            for target in decision.automaton.step[state]:
                if of[target] is not component:
                    visit(of[target])
        done.append(component)

    for component in decision.components:
        visit(component)
    return done[::-1]


def _sums_to(terms: Sequence[tuple[int, Number]], total: int) -> Formula:
    """Σ weight · count == total, with what is negative on the other side."""
    left = [_times(weight, number) for weight, number in terms if weight > 0]
    right = [_times(-weight, number) for weight, number in terms if weight < 0]
    (left if total < 0 else right).append(Constant(abs(total)))
    return Compare(_sum(left), "==", _sum(right))


def _times(weight: int, number: Number) -> Number:
    return number if weight == 1 else Times(weight, number)


def _sum(parts: list[Number]) -> Number:
    kept = [part for part in parts if part != Constant(0)]
    return kept[0] if len(kept) == 1 else Sum(tuple(kept)) if kept else Constant(0)
