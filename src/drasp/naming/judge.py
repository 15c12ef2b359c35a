"""What decides whether a simpler program stands: how often it still gives the model's answers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from drasp.fitting.descent import fit_tensors
from drasp.fitting.head import refitted
from drasp.fitting.oracle import Oracle, answering
from drasp.language.syntax import Program, Statement
from drasp.rewriting.parts import stored_selects

TOLERANCE = 0.01  # of agreement, that all names together may cost
PATIENCE = 4  # failures in a row that end a pass: what is long and has no names yet will hardly get any
_NEAR = 0.08  # of agreement: what is further off is not worth fitting selects for
_STEPS = 15

Line = TypeVar("Line", bound=Statement)


@dataclass(frozen=True)
class Judge:
    """Tensors are fitted on one pool of inputs, and the other decides; `floor` is the agreement it asks for."""

    fit: Oracle
    check: Oracle
    floor: float

    @classmethod
    def of(cls, match: float, fit: Oracle, check: Oracle, least: float = 0.0) -> "Judge":
        """Asks for what a program reaches, but for the tolerance; never for less than `least` if it reaches that."""
        return cls(fit, check, min(match, max(match - TOLERANCE, least)))

    def raised(self, match: float) -> "Judge":
        """Asks for more where a program has become truer than the first: what was gained is not given away again."""
        return replace(self, floor=max(self.floor, match - TOLERANCE))

    def match(self, program: Program) -> float:
        return self.check.match(answering(program)).value

    def passes(self, program: Program) -> bool:
        return self.check.match_if(answering(program), self.floor) >= self.floor

    def mended(self, program: Program) -> Program | None:
        """The program if it passes: as it is, with its projects fitted anew, or with its selects as well."""
        if self.passes(program):
            return program
        fitted = refitted(program, self.fit)
        if self.passes(fitted):
            return fitted
        if not stored_selects(program) or self.closeness(fitted) < self.floor - _NEAR:
            return None
        settled = self.settled(fitted)
        return settled if self.passes(settled) else None

    def settled(self, program: Program) -> Program:
        """With what has no name fitted to the model: selects first, then projects."""
        return refitted(fit_tensors(program, stored_selects(program), self.fit.part(4), _STEPS), self.fit)

    def closeness(self, program: Program) -> float:
        """Agreement on a small part of the pool, for ranking; ties go to the smaller loss."""
        probe = self.fit.part(max(1, len(self.fit.batches) // 2))
        run = answering(program)
        return probe.match(run).value - 1e-3 * min(probe.mean_loss(run), 100.0)


def in_turn(
    program: Program, kinds: tuple[type[Line], ...], attempt: Callable[[Program, Line], Program | None]
) -> Program:
    """The program after an attempt at each line of these kinds that has no name yet.

    After several failures in a row, no more attempts are made.
    """
    failures = 0
    for name in [s.name for s in program.statements if isinstance(s, kinds) and s.tensor_names]:
        line = program.find(name)
        # What has gone, or got its name, together with another is done.
        better = attempt(program, line) if isinstance(line, kinds) and line.tensor_names else program
        program, failures = (program, failures + 1) if better is None else (better, 0)
        if failures == PATIENCE:
            break
    return program
