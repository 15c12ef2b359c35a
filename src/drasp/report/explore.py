"""`drasp explore`: one page over many result folders."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from drasp.errors import DraspError
from drasp.output_folder import MARK, write_file
from drasp.report.html import page
from drasp.report.page import REPORT, read_record
from drasp.training.files import read_metrics
from drasp.training.recipe import OFFSETS
from drasp.zoo import resolve_model

INDEX = "index.html"
_GENERATOR = b'content="drasp explore"'


def write_index(folder: Path) -> tuple[Path, int]:
    """Writes `index.html` over all results below a folder; gives its place and how many there are."""
    if not folder.is_dir():
        raise DraspError(f"{folder}: no such folder")
    file = folder / INDEX
    if file.exists() and _GENERATOR not in file.read_bytes():
        raise DraspError(f"{file}: is not a page of drasp's, and is left as it is; move it away first")
    rows = [row(mark.parent, folder) for mark in sorted(folder.rglob(MARK)) if _is_result(mark.parent)]
    if not rows:
        raise DraspError(f"{folder}: no result below it; `drasp decompile MODEL --out {folder}/NAME` makes one")
    bins = list(dict.fromkeys(name for entry in rows for name in entry["accuracies"] or {}))
    data = {"title": folder.resolve().name, "rows": rows, "bins": bins}
    styles, scripts = ("base.css", "explore.css"), ("dom.js", "chart.js", "explore.js")
    write_file(file, page("explore.html", f"{folder.resolve().name} – drasp", styles, scripts, data))
    return file, len(rows)


def _is_result(folder: Path) -> bool:
    return (folder / "program.drasp").is_file()


def row(result: Path, base: Path) -> dict[str, Any]:
    """What the index says of one result, as far as its record does."""
    record = read_record(result)
    relative = result.relative_to(base)
    model = str(record.get("model") or "")
    counts = list((record.get("primitives") or {}).values())
    total = sum(count["total"] for count in counts)
    return {
        "folder": str(relative),
        "report": quote(str(relative / REPORT)) if (result / REPORT).is_file() else None,
        "task": record.get("task"),
        "model": Path(model).name if model else None,
        "method": record.get("method"),
        "verdict": record.get("verdict"),
        "match": record.get("match_accuracy"),
        "lines": record.get("lines"),
        "seconds": record.get("seconds"),
        "named": sum(count["named"] for count in counts) / total if total else None,
        "accuracies": _accuracies(model),
        "frontier": [
            {"lines": p["lines"], "match": p["match_accuracy"], "interval": p.get("match_interval")}
            for p in record.get("frontier") or []
        ],
    }


def _accuracies(model: str) -> dict[str, float] | None:
    """How often the model is right on its task, by length at offset 0, where it says so itself."""
    try:
        bins = read_metrics(resolve_model(model)).accuracies[OFFSETS[0]] if model else {}
    except (DraspError, KeyError):
        return None
    return {name: share.value for name, share in bins.items()}
