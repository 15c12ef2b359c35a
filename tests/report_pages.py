"""Report pages of small programs, and what a reader does with them."""

from pathlib import Path

from drasp.language import Program
from drasp.report.examples import draw_examples
from drasp.report.page import report_page
from drasp.tasks import TASKS

RECORD = {
    "task": "unique_copy",
    "model": "models/copy-2l1h64",
    "verdict": "decompiled",
    "match_accuracy": 0.94,
    "match_interval": [0.92, 0.95],
    "samples": 2000,
    "task_accuracy": 0.97,
    "seconds": 12.5,
    "frontier": [
        {"lines": 5, "match_accuracy": 0.4, "match_interval": [0.38, 0.42]},
        {"lines": 7, "match_accuracy": 0.94, "match_interval": [0.92, 0.95]},
    ],
    "passes": [
        {"name": "cut edges", "seconds": 1.0, "left": 9, "unit": "edges", "match_accuracy": 0.99},
        {"name": "cut edges", "seconds": 3.0, "left": 8, "unit": "edges", "match_accuracy": 0.97},
        {"name": "cut lines", "seconds": 3.5, "left": 7, "unit": "lines", "match_accuracy": 0.94},
    ],
    "primitives": {"select": {"named": 2, "total": 2}},
    "min_match": 0.9,
}


def written(folder: Path, program: Program, record: dict | None = None) -> Path:
    task = TASKS.get((record or {}).get("task", ""))
    file = folder / "report.html"
    file.write_bytes(report_page(program, record or {}, draw_examples(program, task)))
    return file


def type_input(page, text: str, field: str = "#input") -> None:
    """Types, and waits for the frame in which the page draws."""
    page.fill(field, text)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def answers(page) -> list[str]:
    return page.locator("#strip tr").nth(2).locator("td").all_inner_texts()
