"""What a decompilation gives: the frontier of programs, the pick, and the files that hold them."""

import resource
from dataclasses import dataclass, replace
from pathlib import Path

from drasp.errors import DraspError
from drasp.language import load_program, program_files
from drasp.language.syntax import Program
from drasp.measure import Share
from drasp.output_folder import MARK, write_files
from drasp.records import FrontierRecord, Identity, NormsRecord, PassRecord, Record, read_record
from drasp.report.examples import Examples, draw_examples
from drasp.report.page import REPORT, report_page
from drasp.rewriting.parts import count_primitives
from drasp.tasks import TASKS


@dataclass(frozen=True)
class Point:
    """A program on the frontier, and how often it answered as the model did on inputs that no pass had seen."""

    program: Program
    match: Share

    @property
    def lines(self) -> int:
        return self.program.lines


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
    seconds: float
    naming_seconds: float
    min_match: float
    max_lines: int

    @property
    def program(self) -> Program:
        return self.final.program

    @property
    def verdict(self) -> str:
        short_and_true = self.final.match.value >= self.min_match and self.final.lines <= self.max_lines
        return "decompiled" if short_and_true else "not_decompilable"

    @property
    def reasons(self) -> list[str]:
        """What stood in the way, where the model was not decompiled."""
        if self.verdict == "decompiled":
            return []
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
        files = program_files(self.program)
        for point in self.frontier:
            stored = program_files(point.program)
            for suffix in ("drasp", "safetensors"):
                files[f"frontier/{point.lines}.{suffix}"] = stored[f"program.{suffix}"]
        record = self.record(model)
        examples = examples or draw_examples(self.program, TASKS.get(self.identity.task))
        page = report_page(self.program, record.to_json(), examples)
        write_files(Path(folder), {**files, REPORT: page, MARK: record.to_text().encode()})

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
            reasons=tuple(self.reasons),
            match_accuracy=self.final.match.value,
            match_interval=self.final.match.interval,
            samples=self.final.match.total,
            task_accuracy=self.task_accuracy.value,
            lines=self.final.lines,
            primitives=count_primitives(self.program),
            pruned_match_accuracy=self.pick.match.value,
            pruned_lines=self.pick.lines,
            seconds=round(self.seconds, 2),
            naming_seconds=round(self.naming_seconds, 2),
            peak_memory_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            frontier=tuple(FrontierRecord(p.lines, p.match.value, p.match.interval) for p in self.frontier),
            passes=self.passes,
            norms=NormsRecord(self.norms_constant, len(self.norms_kept)),
            min_match=self.min_match,
            max_lines=self.max_lines,
        )


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
    match = frontier[lines].match_accuracy
    good = match >= record.min_match and lines <= record.max_lines
    record = replace(
        record,
        verdict="decompiled" if good else "not_decompilable",
        match_accuracy=match,
        match_interval=frontier[lines].match_interval,
        task_accuracy=None,  # only agreement was measured for the whole frontier
        lines=program.lines,
        primitives=count_primitives(program),
        pruned_match_accuracy=match,
        pruned_lines=lines,
    )
    write_files(folder, {**program_files(program), MARK: record.to_text().encode()})
    return program, record
