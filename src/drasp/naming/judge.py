"""What decides whether a simpler program stands: how often it still gives the model's answers."""

from dataclasses import dataclass

from drasp.decompiler.oracle import Oracle, answering
from drasp.language.syntax import Program
from drasp.naming.head import refitted

TOLERANCE = 0.01  # of agreement, that all names together may cost


@dataclass(frozen=True)
class Judge:
    """Tensors are fitted on one pool of inputs, and the other decides; `floor` is the agreement it asks for."""

    fit: Oracle
    check: Oracle
    floor: float

    @classmethod
    def of(cls, program: Program, fit: Oracle, check: Oracle, least: float = 0.0) -> "Judge":
        """Asks for what the program reaches, but for the tolerance; never for less than `least` if it reaches that."""
        match = check.match(answering(program)).value
        return cls(fit, check, min(match, max(match - TOLERANCE, least)))

    def passes(self, program: Program) -> bool:
        return self.check.match_if(answering(program), self.floor) >= self.floor

    def mended(self, program: Program) -> Program | None:
        """The program if it passes, as it is or with its projects fitted anew."""
        if self.passes(program):
            return program
        fitted = refitted(program, self.fit)
        return fitted if self.passes(fitted) else None

    def closeness(self, program: Program) -> float:
        """Agreement on a small part of the pool, for ranking; ties go to the smaller loss."""
        probe = self.fit.part(max(1, len(self.fit.batches) // 2))
        run = answering(program)
        return probe.match(run).value - 1e-3 * min(probe.mean_loss(run), 100.0)
