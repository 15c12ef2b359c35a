"""What a decompilation gives: the frontier of programs, the pick, and the record of both."""

import resource
from dataclasses import dataclass
from typing import Literal

from drasp.causal import Evidence
from drasp.language.syntax import Program
from drasp.measure import Share
from drasp.primitives import count_primitives
from drasp.records import CertificateRecord, FrontierRecord, Identity, NormsRecord, PassRecord, Record, SeedRecord

Verdict = Literal["decompiled", "answers_only", "not_decompilable"]


@dataclass(frozen=True)
class Point:
    """A program on the frontier, and how often it answered as the model did on inputs that no pass had seen.

    `complete` is how many answers the search saw to stay, at least, when what it leaves out comes from another input;
    `evidence` is what was measured in the end. `own` is the model cut down, where the program has tensors that are not
    the model's: parts of MLPs that were trained.
    """

    program: Program
    match: Share
    complete: float = 0.0
    evidence: Evidence | None = None
    own: Program | None = None

    @property
    def cut_down(self) -> Program:
        """What of the model the program was before anything was replaced."""
        return self.own or self.program

    @property
    def lines(self) -> int:
        return self.program.lines

    @property
    def causal(self) -> bool:
        return self.evidence is not None and self.evidence.causal

    @property
    def grade(self) -> str | None:
        return self.evidence.grade if self.evidence is not None else None

    def record(self) -> FrontierRecord:
        return FrontierRecord(self.lines, self.match.value, self.match.interval, self.causal, self.grade)


@dataclass(frozen=True)
class Decompiled:
    """`frontier` goes from the shortest program to the most faithful one; `pick` is the one chosen, as pruning left
    it, and `final` the same with names.
    """

    identity: Identity
    frontier: tuple[Point, ...]
    pick: Point
    final: Point
    task_accuracy: Share
    positions: int
    passes: tuple[PassRecord, ...]
    norms_constant: int
    norms_kept: tuple[str, ...]
    dense: tuple[str, ...]
    constants_out_of_range: tuple[str, ...]
    seconds: float
    naming_seconds: float
    evidence_seconds: float
    min_match: float
    max_lines: int
    seeds: tuple[SeedRecord, ...] | None = None
    certificate: CertificateRecord | None = None

    @property
    def program(self) -> Program:
        return self.final.program

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.final, self.min_match, self.max_lines)

    @property
    def grade(self) -> str | None:
        """Whether the program is complete, or sufficient; none where it was not decompiled."""
        return self.final.grade if self.verdict == "decompiled" else None

    @property
    def reasons(self) -> list[str]:
        """What stood in the way of a better verdict or grade."""
        if self.verdict != "not_decompilable":
            return list(self.final.evidence.reasons) if self.final.evidence else []
        short = [point for point in self.frontier if point.lines <= self.max_lines]
        best = max(short, key=lambda point: point.match.value, default=None)
        reasons = [
            f"the best program of at most {self.max_lines} lines agrees on {best.match}"
            if best
            else f"no program of at most {self.max_lines} lines was found"
        ]
        if self.norms_kept:
            reasons.append(f"layer norms that could not be made constant: {', '.join(self.norms_kept)}")
        if self.dense:
            reasons.append(f"receivers that stay dense (edges kept): {', '.join(self.dense)}")
        return reasons

    def record(self, model: str) -> Record:
        return Record(
            model=model,
            model_digest=self.identity.model_digest,
            task=self.identity.task,
            seed=self.identity.seed,
            settings=self.identity.settings,
            drasp_version=self.identity.drasp_version,
            method=self.identity.settings["method"],
            verdict=self.verdict,
            grade=self.grade,
            reasons=tuple(self.reasons),
            match_accuracy=self.final.match.value,
            match_interval=self.final.match.interval,
            samples=self.final.match.total,
            task_accuracy=self.task_accuracy.value if self.task_accuracy.total else None,
            positions=self.positions,
            lines=self.final.lines,
            primitives=count_primitives(self.program),
            pruned_match_accuracy=self.pick.match.value,
            pruned_lines=self.pick.lines,
            seconds=round(self.seconds, 2),
            naming_seconds=round(self.naming_seconds, 2),
            evidence_seconds=round(self.evidence_seconds, 2),
            peak_memory_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            causal=self.final.evidence.to_json() if self.final.evidence else None,
            fitted_share=self.final.evidence.fitted_share if self.final.evidence else None,
            certificate=self.certificate,
            frontier=tuple(point.record() for point in self.frontier),
            seeds=self.seeds,
            passes=self.passes,
            norms=NormsRecord(self.norms_constant, len(self.norms_kept)),
            constants_out_of_range=self.constants_out_of_range,
            min_match=self.min_match,
            max_lines=self.max_lines,
        )


def verdict_of(point: Point, min_match: float, max_lines: int) -> Verdict:
    """Decompiled: short, true, and by the same means; answers_only where the means are not the model's."""
    if point.match.value < min_match or point.lines > max_lines:
        return "not_decompilable"
    return "decompiled" if point.causal else "answers_only"
