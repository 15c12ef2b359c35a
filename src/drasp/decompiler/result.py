"""What a decompilation gives: the frontier of programs, the pick, and the files that hold them."""

import json
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drasp.errors import DraspError
from drasp.language import load_program, program_files
from drasp.language.syntax import Program
from drasp.measure import Share
from drasp.output_folder import MARK, SCHEMA_VERSION, write_files
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
class PassRecord:
    """What one step of a pass left: so many edges of the graph, or lines of the program."""

    name: str
    seconds: float
    left: int
    match: float


@dataclass(frozen=True)
class Decompiled:
    """`frontier` goes from the shortest program to the most faithful one; `pick` is the one chosen, as pruning left
    it, and `final` the same with names.
    """

    task: str
    seed: int
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
    method: str = "fast"

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
        examples = examples or draw_examples(self.program, TASKS.get(self.task))
        write_files(
            Path(folder), {**files, REPORT: report_page(self.program, record, examples), MARK: _json_bytes(record)}
        )

    def record(self, model: str) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "model": model,
            "task": self.task,
            "seed": self.seed,
            "method": self.method,
            "verdict": self.verdict,
            "reasons": self.reasons,
            **_pick_record(self.program, self.final.match.value, self.final.match.interval),
            "pruned_match_accuracy": self.pick.match.value,
            "pruned_lines": self.pick.lines,
            "samples": self.final.match.total,
            "task_accuracy": self.task_accuracy.value,
            "seconds": round(self.seconds, 2),
            "naming_seconds": round(self.naming_seconds, 2),
            "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            "frontier": [
                {"lines": point.lines, "match_accuracy": point.match.value, "match_interval": point.match.interval}
                for point in self.frontier
            ],
            "passes": [
                {"name": p.name, "seconds": p.seconds, "left": p.left, "match_accuracy": p.match} for p in self.passes
            ],
            "norms": {"constant": self.norms_constant, "kept": len(self.norms_kept)},
            "min_match": self.min_match,
            "max_lines": self.max_lines,
        }


def repick(folder: Path, lines: int) -> Program:
    """Makes another program of a finished run's frontier the result, as pruning left it, without running again."""
    try:
        record = json.loads((folder / MARK).read_text())
        frontier = {point["lines"]: point for point in record["frontier"]}
    except FileNotFoundError:
        raise DraspError(f"{folder}: no result to pick from; run `drasp decompile` without --pick first") from None
    except (ValueError, KeyError, TypeError):
        raise DraspError(f"{folder / MARK}: not a result of `drasp decompile`") from None
    if lines not in frontier:
        raise DraspError(f"--pick {lines}: no program of that many lines; there are {', '.join(map(str, frontier))}")
    program = load_program(folder / "frontier" / f"{lines}.drasp")
    point = frontier[lines]
    record |= _pick_record(program, point["match_accuracy"], tuple(point["match_interval"]))
    good = point["match_accuracy"] >= record["min_match"] and lines <= record["max_lines"]
    record["verdict"] = "decompiled" if good else "not_decompilable"
    # Only agreement was measured for the whole frontier.
    record |= {"task_accuracy": None, "pruned_match_accuracy": point["match_accuracy"], "pruned_lines": lines}
    write_files(folder, {**program_files(program), MARK: _json_bytes(record)})
    return program


def _pick_record(program: Program, match: float, interval: tuple[float, float]) -> dict[str, Any]:
    return {
        "match_accuracy": match,
        "match_interval": list(interval),
        "lines": program.lines,
        "primitives": count_primitives(program),
    }


def _json_bytes(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, indent=2) + "\n").encode()
