"""What a decompilation gives: the frontier of programs, the pick, and the files that hold them."""

import resource
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from drasp.causal import Evidence
from drasp.errors import DraspError
from drasp.language import PRUNED, load_program, program_files
from drasp.language.syntax import Program
from drasp.measure import Share
from drasp.output_folder import MARK, write_files
from drasp.records import FrontierRecord, Identity, NormsRecord, PassRecord, Record, SeedRecord, read_record
from drasp.report.examples import Examples, draw_examples
from drasp.report.page import REPORT, report_page
from drasp.rewriting.parts import count_primitives
from drasp.tasks import TASKS

Verdict = Literal["decompiled", "answers_only", "not_decompilable"]
_PRUNED = PRUNED.removesuffix(".drasp")


@dataclass(frozen=True)
class Point:
    """A program on the frontier, and how often it answered as the model did on inputs that no pass had seen.

    `complete` is how many answers the search saw to stay, at least, when what it leaves out comes from another input;
    `evidence` is what was measured in the end.
    """

    program: Program
    match: Share
    complete: float = 0.0
    evidence: Evidence | None = None

    @property
    def lines(self) -> int:
        return self.program.lines

    @property
    def causal(self) -> bool:
        return self.evidence is not None and self.evidence.causal

    @property
    def grade(self) -> str | None:
        return self.evidence.grade if self.evidence is not None else None


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

    def save(self, folder: str | Path, model: str = "", examples: Examples | None = None) -> None:
        """Writes the program in all forms, `result.json`, the other programs of the frontier, and the report.

        The report shows the model's answers where the examples hold them.
        """
        frontier = {point.lines: point.program for point in self.frontier}
        examples = examples or draw_examples(self.program, TASKS.get(self.identity.task))
        write_result(Path(folder), self.program, self.pick.program, frontier, self.record(model), examples)

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
            frontier=tuple(_frontier_record(point) for point in self.frontier),
            seeds=self.seeds,
            passes=self.passes,
            norms=NormsRecord(self.norms_constant, len(self.norms_kept)),
            constants_out_of_range=self.constants_out_of_range,
            min_match=self.min_match,
            max_lines=self.max_lines,
        )


def write_result(
    folder: Path,
    program: Program,
    pruned: Program,
    frontier: Mapping[int, Program],
    record: Record,
    examples: Examples,
) -> None:
    """Writes a result's folder: all files or none."""
    files = program_files(program) | _text_and_tensors(_PRUNED, pruned)
    for lines, other in frontier.items():
        files |= _text_and_tensors(f"frontier/{lines}", other)
    page = report_page(program, record.to_json(), examples)
    write_files(folder, {**files, REPORT: page, MARK: record.to_text().encode()})


def verdict_of(point: Point, min_match: float, max_lines: int) -> Verdict:
    """Decompiled: short, true, and by the same means; answers_only where the means are not the model's."""
    if point.match.value < min_match or point.lines > max_lines:
        return "not_decompilable"
    return "decompiled" if point.causal else "answers_only"


def _frontier_record(point: Point) -> FrontierRecord:
    return FrontierRecord(point.lines, point.match.value, point.match.interval, point.causal, point.grade)


def _text_and_tensors(name: str, program: Program) -> dict[str, bytes]:
    stored = program_files(program)
    return {f"{name}.{suffix}": stored[f"program.{suffix}"] for suffix in ("drasp", "safetensors")}


def repick(folder: Path, lines: int) -> tuple[Program, Record]:
    """Makes another program of a finished run's frontier the result, as pruning left it, without running again."""
    record = read_record(folder)
    if record is None:
        raise DraspError(f"{folder}: no result to pick from; run `drasp decompile` without --pick first")
    if record.frontier is None or record.min_match is None or record.max_lines is None:
        raise DraspError(f"{folder / MARK}: has no frontier; expected a result of `drasp decompile`")
    frontier = {point.lines: point for point in record.frontier}
    if lines not in frontier:
        raise DraspError(f"--pick {lines}: no program of that many lines; there are {', '.join(map(str, frontier))}")
    program = load_program(folder / "frontier" / f"{lines}.drasp")
    point = frontier[lines]
    match = point.match_accuracy
    good = match >= record.min_match and lines <= record.max_lines
    record = replace(
        record,
        verdict=("decompiled" if point.causal else "answers_only") if good else "not_decompilable",
        grade=point.grade if good else None,
        causal=None,  # only a look was taken at the whole frontier
        fitted_share=None,
        match_accuracy=match,
        match_interval=frontier[lines].match_interval,
        task_accuracy=None,  # only agreement was measured for the whole frontier
        lines=program.lines,
        primitives=count_primitives(program),
        pruned_match_accuracy=match,
        pruned_lines=lines,
    )
    files = program_files(program) | _text_and_tensors(_PRUNED, program)
    write_files(folder, {**files, MARK: record.to_text().encode()})
    return program, record
