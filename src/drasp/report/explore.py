"""`drasp explore`: one page over many result folders."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from drasp.causal import Evidence
from drasp.causal.measures import Measure
from drasp.errors import DraspError
from drasp.input_files import MAX_TEXT, is_folder, is_there, read_bytes_if_there
from drasp.loading import resolve_model
from drasp.output_folder import MARK, write_file
from drasp.records import Record, read_record
from drasp.report.html import page
from drasp.report.page import REPORT
from drasp.training.files import read_metrics
from drasp.training.recipe import OFFSETS

INDEX = "index.html"
_GENERATOR = b'content="drasp explore"'
_STYLES = ("base.css", "explore.css")
_SCRIPTS = ("dom.js", "chart.js", "measures.js", "explore.js")


def write_index(folder: str | Path) -> tuple[Path, int, list[str]]:
    """Writes `index.html` over all results below a folder; gives its place, how many there are, and what is wrong
    with those that were left out.
    """
    folder = Path(folder)
    if not is_folder(folder):
        raise DraspError(f"{folder}: no such folder")
    file = folder / INDEX
    if _GENERATOR not in (read_bytes_if_there(file, MAX_TEXT, "a page of drasp's") or _GENERATOR):
        raise DraspError(f"{file}: is not a page of drasp's, and is left as it is; move it away first")
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    for mark in sorted(folder.rglob(MARK)):
        try:
            if not is_there(mark.parent / "program.drasp"):
                raise DraspError(f"{mark}: no program.drasp beside it, as a result has")
            if (record := read_record(mark.parent)) is not None:
                rows.append(row(record, mark.parent, folder))
        except DraspError as error:
            problems.append(str(error))
    if not rows:
        if problems:
            raise DraspError(problems[0])
        raise DraspError(f"{folder}: no result below it; `drasp decompile MODEL --out {folder}/NAME` makes one")
    bins = list(dict.fromkeys(name for entry in rows for name in entry["accuracies"] or {}))
    data = {"title": folder.resolve().name, "rows": rows, "bins": bins}
    write_file(file, page("explore.html", f"{folder.resolve().name} – drasp", _STYLES, _SCRIPTS, data))
    return file, len(rows), problems


def row(record: Record, result: Path, base: Path) -> dict[str, Any]:
    """What the index says of the result in a folder, as far as its record does."""
    relative = result.relative_to(base)
    model = record.model or ""
    counts = list((record.primitives or {}).values())
    total = sum(count.get("total", 0) for count in counts)
    return {
        "folder": str(relative),
        "report": quote(os.fsencode(relative / REPORT)) if is_there(result / REPORT) else None,
        "task": record.task,
        "model": Path(model).name if model else None,
        "method": record.method,
        "verdict": record.verdict,
        "grade": record.grade,
        "evidence": _evidence(record, result),
        "match": record.match_accuracy,
        "lines": record.lines,
        "seconds": record.seconds,
        "named": sum(count.get("named", 0) for count in counts) / total if total else None,
        "accuracies": _accuracies(model),
        "series": {
            "frontier": [asdict(point) for point in record.frontier or ()],
            "lines": record.lines,
            "match_accuracy": record.match_accuracy,
            "match_interval": record.match_interval,
            "pruned_lines": record.pruned_lines,
        },
    }


def _evidence(record: Record, result: Path) -> dict[str, Any] | None:
    """What decides of each line, and what the verdict is made of besides."""
    evidence = Evidence.of_record(record.causal, result / MARK)
    if evidence is None:
        return None
    whole = {"edited": evidence.edited, "complement": evidence.complement}
    deciding = ("interchange", "interchange_cut_down", "attention_cut_down")
    return {
        "lines": [{name: _measure(getattr(line, name)) for name in deciding} for line in evidence.lines],
        **{name: _measure(measure) for name, measure in whole.items()},
    }


def _measure(measure: Measure | None) -> dict[str, Any] | None:
    return {"value": measure.value, "n": measure.n, "status": measure.status} if measure else None


def _accuracies(model: str) -> dict[str, float] | None:
    """How often the model is right on its task, by length at offset 0, where it says so itself."""
    try:
        bins = read_metrics(resolve_model(model)).accuracies[OFFSETS[0]] if model else {}
    except (DraspError, KeyError):
        return None
    return {name: share.value for name, share in bins.items()}
