"""Programs, frontiers and progress in a terminal: in colour where there is one, plain text where not."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drasp.language import Program, statement_text
from drasp.language.remarks import remark
from drasp.language.syntax import CALLS, STATEMENTS

if TYPE_CHECKING:
    from drasp.decompiler.result import Decompiled, Point
    from drasp.language.syntax import Statement
    from drasp.records import PassRecord

_OPERATION = re.compile(rf"\b({'|'.join(CALLS)})(?=\()")
_ARGUMENT = re.compile(rf"\b({'|'.join({a.keyword for kind in STATEMENTS for a in kind.arguments} - {''})})(?==[^=])")
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d.]*(?:e[+-]?\d+)?")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


def statement_line(number: int, statement: "Statement", comment: bool = True) -> Text:
    """A numbered line in colour."""
    text = Text(statement_text(statement))
    text.highlight_regex(_NUMBER, "yellow")
    text.highlight_regex(_ARGUMENT, "dim")
    text.highlight_regex(_OPERATION, "bold magenta")
    text.highlight_regex(_QUOTED, "green")
    text.stylize("bold cyan", 0, len(statement.name))
    line = Text.assemble((f"{number}. ", "dim"), text)
    if comment and (behind := remark(statement)):
        line.append(f"  # {behind}", "dim italic")
    return line


def print_program(console: Console, program: Program) -> None:
    for number, statement in enumerate(program.statements, 1):
        console.print(statement_line(number, statement), soft_wrap=True)


def print_frontier(console: Console, points: "Sequence[Point]", pick: "Point", final: "Point") -> None:
    """Lines against agreement as pruning left them, with an arrow at the program handed out.

    Where naming has changed the pick's length or agreement, what it has become is a row of its own.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("", "lines", "answered alike", "by the model's means"):
        table.add_column(column, justify="right")
    table.add_column("", style="dim")

    def add(point: "Point", arrow: bool, note: str) -> None:
        means = (point.grade or "yes") if point.causal else "no"
        row = ("→" if arrow else "", str(point.lines), str(point.match), means, note)
        table.add_row(*row, style="bold" if arrow else "")

    renamed = (final.lines, final.match) != (pick.lines, pick.match)
    for point in points:
        if point is not pick:
            add(point, arrow=False, note="")
        elif renamed:
            add(point, arrow=False, note="the pick, before naming")
        else:
            add(final, arrow=True, note="")
    if renamed:
        add(final, arrow=True, note="the pick, with names")
    console.print(table)


def print_result(console: Console, result: "Decompiled", out: Path) -> None:
    from drasp.decompiler.pipeline import MOST_NAMED

    print_program(console, result.program)
    console.print()
    print_frontier(console, result.frontier, result.pick, result.final)
    grade = f" ({result.grade})" if result.grade else ""
    verdict = Text(result.verdict + grade, "bold green" if result.verdict == "decompiled" else "bold yellow")
    figures = (
        f": {result.final.lines} lines, {result.final.match} inputs answered alike"
        + (f", {result.task_accuracy.value:.3f} right" if result.task_accuracy.total else "")
        + f"; {result.seconds:.1f} s"
    )
    console.print()
    console.print(Text.assemble(verdict, figures), soft_wrap=True)
    for reason in result.reasons:
        console.print(f"- {reason}", markup=False, soft_wrap=True)
    if result.seeds:
        same = Counter(seed.program for seed in result.seeds)
        found = ", ".join(f"{count} of {len(result.seeds)}" for _, count in same.most_common())
        console.print(f"- programs by how many searches found them: {found}", markup=False, soft_wrap=True)
    if result.verdict == "decompiled" and result.pick.lines > MOST_NAMED:
        hint = f"no names, since it has more than {MOST_NAMED} lines: `drasp name {out} MODEL --out NAMED` tries"
        console.print(f"- {hint}", markup=False, soft_wrap=True)
    files = "program.{drasp,safetensors,py,json,tex}, pruned.{drasp,safetensors}, result.json, frontier/"
    console.print(f"wrote {out}/{files}", markup=False, soft_wrap=True)
    console.print(f"look at it: {out}/report.html", markup=False, soft_wrap=True)


@contextmanager
def pass_progress(console: Console) -> "Iterator[Callable[[PassRecord], None]]":
    """What the decompiler does. On a terminal the running pass has one line that changes; else every step has one."""
    if not console.is_terminal:
        yield lambda record: console.print(_record_line(record), highlight=False)
        return
    last: PassRecord | None = None

    def close_pass() -> None:
        if last is not None:
            console.print(Text.assemble(("✓", "green"), _record_line(last)[1:]), highlight=False)

    def report(record: "PassRecord") -> None:
        nonlocal last
        if last is not None and last.name != record.name:
            close_pass()
        last = record
        status.update(_record_line(record))

    with console.status("reading the model's answers") as status:
        yield report
        close_pass()


def _record_line(record: "PassRecord") -> str:
    left = f"{record.left:4} {record.unit} left, agreement {record.match_accuracy:.3f}"
    return f"{record.seconds:7.1f} s  {record.name:20} {left}"
