"""The folder of a result: written whole, and another program of its frontier picked."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from drasp.decompiler.result import Decompiled
from drasp.errors import DraspError
from drasp.language import EXPORTS, PRUNED, load_program, program_files
from drasp.language.syntax import Program
from drasp.output_folder import MARK, write_files
from drasp.primitives import count_primitives
from drasp.records import Record, read_record
from drasp.report.examples import Examples, draw_examples
from drasp.tasks import TASKS

_PRUNED = PRUNED.removesuffix(".drasp")


def save_decompiled(found: Decompiled, folder: str | Path, model: str = "", examples: Examples | None = None) -> None:
    """Writes the program in all forms, `result.json`, the other programs of the frontier, and the report.

    The report shows the model's answers where the examples hold them.
    """
    frontier = {point.lines: point.program for point in found.frontier}
    examples = examples or draw_examples(found.program, TASKS.get(found.identity.task))
    write_result(Path(folder), found.program, found.pick.cut_down, frontier, found.record(model), examples)


def write_result(
    folder: Path, program: Program, pruned: Program, frontier: Mapping[int, Program], record: Record, examples: Examples
) -> None:
    """Writes a result's folder: all files or none, with a report where the program is small enough to be looked at."""
    files = program_files(program) | _text_and_tensors(_PRUNED, pruned)
    for lines, other in frontier.items():
        files |= _text_and_tensors(f"frontier/{lines}", other)
    from drasp.report.page import REPORT, report_page, suits_page

    if suits_page(program):
        files[REPORT] = report_page(program, record.to_json(), examples)
    write_files(folder, {**files, MARK: record.to_text().encode()})


def _text_and_tensors(name: str, program: Program) -> dict[str, bytes]:
    return {f"{name}.{suffix}": EXPORTS[suffix](program) for suffix in ("drasp", "safetensors")}


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
        certificate=None,  # it was that of the other program
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
