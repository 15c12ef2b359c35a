"""Programs and frontiers in a terminal: in colour where there is one, plain text where not."""

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drasp.input_files import is_there
from drasp.language import EXPORTS, Program, statement_text
from drasp.language.remarks import remark
from drasp.language.syntax import CALLS, STATEMENTS
from drasp.primitives import count_primitives
from drasp.words import names_told

if TYPE_CHECKING:
    from drasp.decompiler.result import Decompiled
    from drasp.language.syntax import Statement
    from drasp.results.frontier import Frontier

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


def print_frontier(console: Console, frontier: "Frontier") -> None:
    """Lines against agreement as pruning left them, with an arrow at the program handed out."""
    from drasp.results.frontier import HEADER

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in HEADER[:-1]:
        table.add_column(column, justify="right")
    table.add_column(HEADER[-1], style="dim")
    for row in frontier.rows():
        table.add_row(*row, style="bold" if row[0] else "")
    console.print(table)


def print_result(console: Console, result: "Decompiled", out: Path, standing: str | None = None) -> None:
    """The program, the frontier, what was found out; `standing` is what is decided of the task's language."""
    from drasp.decompiler.picking import too_large_to_name
    from drasp.report.page import REPORT
    from drasp.results.frontier import Frontier
    from drasp.settings import DEFAULT

    print_program(console, result.program)
    console.print()
    print_frontier(console, Frontier.of(result))
    console.print()
    for reason in result.reasons:
        console.print(f"- {reason}", markup=False, soft_wrap=True)
    if result.seeds:
        same = Counter(seed.program for seed in result.seeds)
        found = ", ".join(f"{count} of {len(result.seeds)}" for _, count in same.most_common())
        console.print(f"- programs by how many searches found them: {found}", markup=False, soft_wrap=True)
    too_much = too_large_to_name(result.pick.program, DEFAULT)
    if result.verdict == "decompiled" and too_much:
        hint = f"no names, since it has {too_much}: `drasp name {out} MODEL --out NAMED` tries"
        console.print(f"- {hint}", markup=False, soft_wrap=True)
    files = f"program.{{{','.join(EXPORTS)}}}, pruned.{{drasp,safetensors}}, result.json, frontier/"
    console.print(f"wrote {out}/{files}", markup=False, soft_wrap=True)
    if is_there(out / REPORT):
        console.print(f"look at it: {out / REPORT}", markup=False, soft_wrap=True)
    if standing is not None:
        console.print(standing, markup=False, soft_wrap=True)
    if result.certificate is not None:
        console.print(result.certificate.line, markup=False, soft_wrap=True)
    console.print(_verdict_line(result), soft_wrap=True)


def _verdict_line(result: "Decompiled") -> Text:
    """Verdict, grade, agreement, and how much has names: the last line, which is seen first."""
    grade = f" ({result.grade})" if result.grade else ""
    verdict = Text(result.verdict + grade, "bold green" if result.verdict == "decompiled" else "bold yellow")
    figures = (
        f": {result.final.lines} lines, {names_told(count_primitives(result.program))}, "
        f"{result.final.match} inputs answered alike"
        + (f", {result.task_accuracy.value:.3f} right" if result.task_accuracy.total else "")
        + f"; {result.seconds:.1f} s"
    )
    return Text.assemble(verdict, figures)
