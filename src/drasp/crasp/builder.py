"""Makes the formulas and counts of an export: each is defined once, and what is plainly true or false goes.

Cases are told apart by guards, conjunctions of literals; that a position has one token, and that what is above 0 is not
below it, is known here, so that most guards that can never hold are never written.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import TypeAlias

from drasp.crasp.exact import Form
from drasp.crasp.syntax import (
    And,
    Compare,
    Constant,
    Count,
    CountName,
    CraspProgram,
    Definition,
    Expression,
    Formula,
    FormulaName,
    Not,
    Number,
    Or,
    Relation,
    Sum,
    Times,
    Token,
    Truth,
    conjunction,
    disjunction,
    negation,
)

Atom: TypeAlias = Token | FormulaName
Literal: TypeAlias = tuple[Atom, bool]
Guard: TypeAlias = frozenset[Literal]
ALWAYS: Guard = frozenset()


class Builder:
    """Definitions so far. `count` and `positive` give out what has been defined before where they can."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tuple(tokens)
        self.definitions: dict[str, Expression] = {}
        self.names: dict[Expression, str] = {}
        self.numbers: Counter[str] = Counter()
        self.opposite: dict[FormulaName, FormulaName] = {}
        self.forms: dict[Form, FormulaName] = {}
        self.token_counts: dict[str, str] = {}

    def name_of(self, expression: Expression, prefix: str) -> str:
        if expression not in self.names:
            self.numbers[prefix] += 1
            self.names[expression] = f"{prefix}{self.numbers[prefix]}"
            self.definitions[self.names[expression]] = expression
        return self.names[expression]

    # ----------------------------------------------------------------------------------- guards

    def both(self, *guards: Guard) -> Guard | None:
        """The guard that all of these hold; None where they plainly cannot."""
        literals = frozenset().union(*guards)
        present = {atom for atom, holds in literals if holds}
        tokens = [atom for atom in present if isinstance(atom, Token)]
        if len(tokens) > 1 or any((atom, False) in literals for atom in present):
            return None
        if any(isinstance(atom, FormulaName) and self.opposite.get(atom) in present for atom in present):
            return None
        if tokens:
            return frozenset(x for x in literals if x[1] or not isinstance(x[0], Token))
        return literals

    def formula(self, guard: Guard) -> Formula:
        parts = sorted(guard, key=lambda literal: (isinstance(literal[0], FormulaName), str(literal)))
        return conjunction(atom if holds else Not(atom) for atom, holds in parts)

    def guard(self, formula: Formula) -> Guard | None:
        """A formula as a guard of one literal; None where it is false."""
        match formula:
            case Truth(value):
                return ALWAYS if value else None
            case Token() | FormulaName():
                return frozenset({(formula, True)})
            case Not(Token() | FormulaName() as atom):
                return frozenset({(atom, False)})
            case _:
                return frozenset({(FormulaName(self.name_of(formula, "g")), True)})

    # --------------------------------------------------------------------------------- formulas

    def cases(self, cases: Iterable[tuple[Guard, Formula]]) -> Formula:
        """The formula that in one of these cases what belongs to it holds."""
        groups: dict[Formula, list[Guard]] = {}
        for guard, formula in cases:
            groups.setdefault(formula, []).append(guard)
        return disjunction(
            conjunction([self.formula(guard), self.defined(formula)])
            for formula, guards in groups.items()
            if formula != Truth(False)
            for guard in self.merged(guards)
        )

    def defined(self, formula: Formula) -> Formula:
        """The formula, or a name for it where it is long."""
        return FormulaName(self.name_of(formula, "g")) if isinstance(formula, And | Or) else formula

    def merged(self, guards: Sequence[Guard]) -> list[Guard]:
        """Fewer guards that together hold where one of these does."""
        found = set(guards)
        while True:
            for guard in found:
                for atom, holds in guard:
                    rest = guard - {(atom, holds)}
                    if isinstance(atom, Token):
                        family = [rest | {(Token(token), True)} for token in self.tokens]
                    else:
                        family = [guard, rest | {(atom, not holds)}]
                    if holds and all(other in found for other in family):
                        break
                else:
                    continue
                found = (found - set(family)) | {rest}
                break
            else:
                return sorted(found, key=lambda g: sorted(map(str, g)))

    # ----------------------------------------------------------------------------------- counts

    def count(self, guard: Guard, relation: Relation | None = None) -> Form:
        """How many positions, or how many in a relation to this one, a guard holds at."""
        expression = Count(self.formula(guard), relation)
        match expression.body:
            case Token(symbol) if relation is None and expression not in self.names:
                plain = symbol.isascii() and symbol.isalnum() and f"n_{symbol}" not in self.definitions
                name = f"n_{symbol}" if plain else self.name_of(expression, "n")
                self.names[expression] = self.token_counts[symbol] = name
                self.definitions[name] = expression
            case _:
                name = self.name_of(expression, "n")
        return Form.of({self.names[expression]: Fraction(1)})

    def positive(self, form: Form) -> Formula:
        """The formula that a form is above 0: a comparison of sums of counts, or plainly true or false."""
        whole = form.whole
        numbers = [x for _, x in whole.terms]
        if all(x <= 0 for x in numbers) and whole.constant <= 0:
            return Truth(False)
        least = whole.constant + (min(numbers) if self.counts_all(whole) else 0)
        if all(x >= 0 for x in numbers) and least > 0:
            return Truth(True)
        if whole not in self.forms:
            sides: tuple[list[Number], list[Number]] = ([], [])
            for name, x in whole.terms:
                factor, number = abs(int(x)), CountName(name)
                sides[x < 0].append(number if factor == 1 else Times(factor, number))
            if whole.constant:
                sides[whole.constant < 0].append(Constant(abs(int(whole.constant))))
            left, right = (side[0] if len(side) == 1 else Sum(tuple(side)) for side in sides)
            left, right = (Constant(0) if side == Sum(()) else side for side in (left, right))
            self.forms[whole] = FormulaName(self.name_of(Compare(left, ">", right), "c"))
            if other := self.forms.get(whole * -1):
                self.opposite |= {self.forms[whole]: other, other: self.forms[whole]}
        return self.forms[whole]

    def counts_all(self, form: Form) -> bool:
        """Whether every token is counted, so that at least this position is."""
        return all(form.coefficients.get(self.token_counts.get(token, ""), 0) > 0 for token in self.tokens)

    def not_negative(self, form: Form) -> Formula:
        return negation(self.positive(form * -1))

    def program(self, name: str, answer: Formula) -> CraspProgram:
        """The program whose answer is a formula, with what it needs of the definitions so far."""
        definitions = [Definition(n, expression) for n, expression in self.definitions.items()]
        if isinstance(answer, FormulaName):
            answer = self.definitions[answer.name]  # pyright: ignore[reportAssignmentType]
        return CraspProgram((*definitions, Definition(name, answer))).needed
