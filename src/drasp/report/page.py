"""`report.html`: a program with its figures, in one file that computes every variable in the browser."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from drasp.errors import DraspError
from drasp.input_files import is_folder
from drasp.language import Interpreter, Program, load_program
from drasp.loading import load_model, load_model_and_task
from drasp.output_folder import write_file
from drasp.records import Record, read_record
from drasp.report.data import packed, program_data, rounded, tensor_arrays
from drasp.report.examples import Examples, draw_examples, fitted_to_program, task_on_record
from drasp.report.html import page
from drasp.report.interventions import founded, left_out, lines_data, means, recorded_patterns
from drasp.report.model import page_model
from drasp.tasks import Task, load_task
from drasp.transformer import Transformer

REPORT = "report.html"
MAX_BYTES = 6_000_000
# Programs that are longer are not read line by line, and would be slow to draw.
MAX_LINES = 400
# Nor would the browser bear more numbers: ten times as many as fit on a page, which says nothing of tables of zeros.
MAX_NUMBERS = 20_000_000
# Where a page would be too large, its tensors lose this many of their 24 significant bits.
_ROUNDINGS = (0, 8, 12, 16)

_STYLES = ("base.css", "panels.css", "report.css")
_SCRIPTS = (
    "edits.js",
    "matrices.js",
    "interpreter.js",
    "model.js",
    "forward.js",
    "interventions.js",
    "library.js",
    "dom.js",
    "colours.js",
    "heatmap.js",
    "chart.js",
    "measures.js",
    "evidence.js",
    "listing.js",
    "cards.js",
    "tensors.js",
    "effects.js",
    "head.js",
    "answers.js",
    "intervening.js",
    "editing.js",
    "report.js",
)


def suits_page(program: Program) -> bool:
    """Whether a program is short and small enough to be looked at, so that a page of it is worth making."""
    return program.lines <= MAX_LINES and _numbers(program) <= MAX_NUMBERS


def _numbers(program: Program) -> int:
    return sum(tensor.numel() for tensor in program.tensors.values())


def report_page(program: Program, record: Mapping[str, Any], examples: Examples) -> bytes:
    """The page, as small as it must be; what rounding its tensors changes is measured and said.

    Where that does not make it small enough, it goes without the model's weights.
    """
    made = b""
    for model in _model_data(program, examples):
        for bits in _ROUNDINGS:
            made = _page(program, record, examples, model, bits)
            if len(made) <= MAX_BYTES:
                return made
    return made


def _page(
    program: Program, record: Mapping[str, Any], examples: Examples, model: Mapping[str, Any] | None, bits: int
) -> bytes:
    """The page with so many bits of the program's numbers cleared."""
    arrays = {key: rounded(array, bits) for key, array in tensor_arrays(program).items()}
    lists = {"steps": examples.steps, "draws": examples.draws, "differing": examples.differing}
    # The page asks the model itself where it has it.
    is_recorded = model is None or "tensors" not in model
    data = {
        "record": dict(record),
        "program": program_data(program),
        "model": model,
        "examples": {key: [example.to_json(is_recorded) for example in found] for key, found in lists.items()},
        "about": {"task": examples.about_task, "model": examples.about_model},
        "tensors": packed(arrays),
        "rounding": {"bits": bits, "difference": _difference(program, arrays, examples) if bits else 0.0},
    }
    name = str(record.get("task") or record.get("model") or "program")
    return page("report.html", f"{name} – drasp", _STYLES, _SCRIPTS, data)


def _model_data(program: Program, examples: Examples) -> Iterator[dict[str, Any] | None]:
    """The model as the page shows it: with its weights, unless it is too large; else as recorded on the examples.

    With it comes what the program's lines stand for in it.
    """
    transformer = examples.transformer
    if transformer is None or transformer.n_vocab != len(program.vocabulary):
        yield None
        return
    known: dict[str, Any] = {}
    mechanism = founded(program, transformer)
    if mechanism is not None and examples.pool is not None:
        found = means(program, transformer, examples.pool, program.output)
        known = {
            "lines": lines_data(mechanism, transformer.anatomy),
            "left_out": left_out(mechanism, transformer.anatomy),
            "changes": {"shares": found.changes, "inputs": found.inputs},
            "means": packed(found.arrays()),
        }
    stored = page_model(transformer, lambda other: examples.answered_alike(other, program.output))
    if stored is not None:
        yield stored.to_json() | known
    if mechanism is not None and known:
        known["patterns"] = packed(recorded_patterns(mechanism, transformer, examples.steps))
    yield known


@torch.no_grad()
def _difference(program: Program, arrays: Mapping[str, np.ndarray], examples: Examples) -> float:
    """The largest change of a logit on the example inputs when the tensors are those of the page."""
    tensors = {name: torch.as_tensor(arrays[name].copy()) for name in program.tensors if name in arrays}
    exact = Interpreter(program, torch.float64)
    page = Interpreter(replace(program, tensors={**program.tensors, **tensors}), torch.float64)
    largest = 0.0
    for example in examples.steps:
        ids = torch.tensor([example.ids])
        positions = example.offset + torch.arange(len(example.ids))[None]
        largest = max(largest, float((exact(ids, positions) - page(ids, positions)).abs().max()))
    return largest


@dataclass(frozen=True)
class Written:
    """A report's file, and what it lacks, with what would mend it."""

    file: Path
    remarks: tuple[str, ...] = ()


def write_report(folder: str | Path, model: str | None = None, task_name: str | None = None) -> Written:
    """Makes the report of a result folder anew; the model's answers are in it where the model can be found."""
    folder = Path(folder)
    program = load_program(folder)
    if (numbers := _numbers(program)) > MAX_NUMBERS:
        raise DraspError(f"{folder}: its tensors have {numbers:,} numbers; a report shows at most {MAX_NUMBERS:,}")
    record = read_record(folder)
    transformer, task, remarks = _model_and_task(program, record, folder, model, task_name)
    facts = record.to_json() if record else {}
    facts |= {"model": model or facts.get("model"), "task": task.name if task else facts.get("task")}
    file = (folder if is_folder(folder) else folder.parent) / REPORT
    write_file(file, report_page(program, facts, draw_examples(program, task, transformer)))
    return Written(file, remarks)


def _model_and_task(
    program: Program, record: Record | None, folder: Path, model: str | None, task_name: str | None
) -> tuple[Transformer | None, Task | None, tuple[str, ...]]:
    """Model and task as the user says, else as the record does, as far as they are there; with remarks on the rest."""
    remarks: list[str] = []
    recorded = record.model if record else None
    if model:
        transformer, task = load_model_and_task(model, task_name)
    else:
        task = load_task(task_name) if task_name else None
        transformer, missing = None, "the result does not say where it is: it was in memory"
        if recorded:
            try:
                transformer = load_model(recorded)
            except DraspError as error:
                missing = str(error)
        if transformer is None and record is not None:
            remarks.append(f"without the model's answers ({missing}); name the model with --model")
    if task is not None:
        return transformer, fitted_to_program(task, program, folder), tuple(remarks)
    task, missing = task_on_record(program, record)
    return transformer, task, (*remarks, *([f"examples are random tokens: {missing}"] if missing else []))
