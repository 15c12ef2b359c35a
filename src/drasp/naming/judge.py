"""What decides whether a simpler line stands: the model's answers, and what the line does when it is changed.

A name that gives the model's answers may still do so by other means. So a line that took the place of others is taken
from another input, in the program and in the one that it came from, whose tensors are the model's own: both must then
answer alike. Nothing is fitted to answers here.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch

from drasp.causal.attention import attention
from drasp.causal.edited import edited
from drasp.causal.interchange import interchange
from drasp.causal.mechanism import Mechanism
from drasp.causal.origins import origin_of
from drasp.causal.trials import Trials, lowest
from drasp.fitting.descent import fit_tensors
from drasp.fitting.dropping import with_bias
from drasp.fitting.oracle import Oracle, answering
from drasp.language.syntax import Norm, Program, Statement, once
from drasp.rewriting.simplify import simplify
from drasp.rewriting.tidy import bias_of
from drasp.settings import DEFAULT, NamingSettings

Line = TypeVar("Line", bound=Statement)


@dataclass(frozen=True, eq=False)
class Judge:
    """`own` is the program with the model's own tensors; `floor` is the agreement that is asked for, `least` the lowest
    that may ever be.

    Maps are fitted to what functions say on `fit`; `check` and `trials` decide.
    """

    own: Program
    fit: Oracle
    check: Oracle
    trials: Trials
    floor: float
    least: float
    settings: NamingSettings = DEFAULT.naming

    @classmethod
    def of(
        cls,
        own: Program,
        fit: Oracle,
        check: Oracle,
        trials: Trials,
        least: float = 0.0,
        settings: NamingSettings = DEFAULT.naming,
    ) -> "Judge":
        """A judge who asks for what a program reaches, less the tolerance; for `least` if it reaches that much."""
        return cls(own, fit, check, trials, 1.0, least, settings).afresh(own)

    def afresh(self, program: Program) -> "Judge":
        """The same judge, who asks for the agreement of a program that has lost lines by now."""
        match = self.match(program)
        return replace(self, floor=min(match, max(match - self.settings.tolerance, self.least)))

    def match(self, program: Program) -> float:
        return once(program.of_numbers, (self.check, "match"), lambda: self.check.match(answering(program)).value)

    def answers(self, before: Program, after: Program) -> bool:
        """Whether a program still agrees with the model, and nearly as often as the one before."""
        floor = max(self.floor, self.match(before) - self.settings.of_each)
        return self.check.match_if(answering(after), floor) >= floor

    @cached_property
    def edited_floor(self) -> float:
        return min(self.settings.least_edited, self.edited(self.own) - self.settings.lost)

    def edited(self, program: Program) -> float:
        """The share of answers changed by an edit that the program gives too, of the kind where it is lowest."""
        return lowest(edited(program, self.trials).values(), self.settings.fewest, self.settings.many)

    def overlap(self, program: Program) -> float:
        """How far the heads of a program look where the model's do, where that is least."""

        def found() -> float:
            return min((m.value for m in attention(program, self.trials).values() if m.value is not None), default=1.0)

        return once(program.of_numbers, (self.trials, "overlap"), found)

    def passes(self, before: Program, after: Program, least: float | None = None, overlap: float | None = None) -> bool:
        """Whether a program that differs from the one before gives the model's answers, and by the same means.

        One with more lines says nothing more simply. Scores that are the same on every input have no case: then only
        where heads look tells what they do.
        """
        strictly = least is not None
        least = self.settings.least_interchange if least is None else least
        overlap = self.settings.least_overlap if overlap is None else overlap
        return (
            simplify(after).lines <= simplify(before).lines
            and self.answers(before, after)
            and self.edited(after) >= self.edited_floor
            and self._has_effects(before, after, least, strictly)
            and self.overlap(after) >= min(overlap, self.overlap(before))
        )

    def _has_effects(self, before: Program, after: Program, least: float, strictly: bool) -> bool:
        """Whether lines that are not the model's own do what they did: `strictly`, as far as they still did.

        Of a norm that stays as it is, what is simpler beside it may ask less.
        """
        found = self.interchange(after, self._replaced(before, after))
        low = {name: share for name, share in found.items() if share < least}
        if not strictly:
            norms = {name for name in low if isinstance(after.find(name), Norm)}
            return low.keys() == norms and all(share >= self.settings.least_of_norms for share in low.values())
        had = self.interchange(before, [s.name for s in before.statements if s.name in low])
        return all(share >= had.get(name, least) for name, share in low.items())

    def _replaced(self, before: Program, after: Program) -> list[str]:
        """The lines that are not the model's own: what one of them does may depend on the others.

        So may what a norm does: a constant beside what it divides is as fine as the norm. Nothing can be said of
        lines without sites, as those of a program written by hand.
        """
        new, mechanism = changed_lines(before, after), Mechanism.of(after)
        lines = (name for name in mechanism.lines if name not in mechanism.without_sites)
        return [
            name
            for name in lines
            if name in new or isinstance(after.find(name), Norm) or origin_of(after, name, self.own) != "own"
        ]

    def interchange(self, program: Program, lines: list[str]) -> dict[str, float]:
        """How often taking a replaced line from a source has the effect that it had before, for each of the lines."""
        found = interchange(program, self.trials, self.own, lines)
        return {name: float(o.cases.values.mean()) for name, o in found.items() if len(o.cases) >= self.settings.fewest}

    def matters(self, program: Program, line: str) -> bool:
        """Whether a line, taken from a source, ever changes more than a few answers."""
        if line in Mechanism.of(program).without_sites or line not in Mechanism.of(program).lines:
            return False
        found = interchange(program, self.trials, program, [line])[line]
        return len(found.cases) > self.settings.negligible * len(self.trials)

    def settled(self, program: Program) -> Program:
        """The program whose output has another constant, the bias, which is settled as when edges are cut."""
        program = with_bias(program)
        bias = bias_of(program)
        pool = self.fit.part(max(1, round(len(self.fit.batches) / self.settings.settled_by)))
        return fit_tensors(program, bias.tensor_names if bias else (), pool, self.settings.settling_steps)

    def closeness(self, program: Program) -> float:
        """Agreement on a small part of the pool, for ranking; ties go to the smaller loss."""
        probe, chosen = self.fit.part(max(1, len(self.fit.batches) // 2)), self.settings
        run = answering(program)
        return probe.match(run).value - chosen.by_loss * min(probe.mean_loss(run), chosen.most_loss)


def changed_lines(before: Program, after: Program) -> list[str]:
    """The lines that are new, or say something else."""

    def same(line: Statement) -> bool:
        old = before.find(line.name)
        pairs = [(before.tensors.get(name), after.tensors[name]) for name in line.tensor_names]
        return old == line and all(a is b or (a is not None and torch.equal(a, b)) for a, b in pairs)

    return [line.name for line in after.statements if not same(line)]


def in_turn(
    program: Program, kinds: tuple[type[Line], ...], attempt: Callable[[Program, Line], Program | None], patience: int
) -> Program:
    """The program after an attempt at each line of these kinds that has no name yet.

    After `patience` failures in a row, no more attempts are made.
    """
    failures = 0
    for name in [s.name for s in program.statements if isinstance(s, kinds) and s.tensor_names]:
        line = program.find(name)
        # What has gone, or got its name, together with another is done.
        better = attempt(program, line) if isinstance(line, kinds) and line.tensor_names else program
        program, failures = (program, failures + 1) if better is None else (better, 0)
        if failures == patience:
            break
    return program
