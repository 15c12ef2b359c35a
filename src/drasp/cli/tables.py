"""The values of a program's variables, as tables that a person can read in a terminal."""

from collections.abc import Mapping, Sequence
from itertools import chain

from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from drasp.cli.show import statement_line
from drasp.language import Program, variable_types
from drasp.language.bases import labels
from drasp.language.checker import Activation, Divisor, Logits, Selector
from drasp.language.syntax import Prediction
from drasp.measure import answer_text
from drasp.terminal import plain

MAX_ROWS = 12
_NOTHING = 0.005  # rounds to 0.00


def print_trace(console: Console, program: Program, tokens: Sequence[str], trace: Mapping[str, Tensor], all_rows: bool):
    """Each line of the program, and under it the value that it computed on one input."""
    types = variable_types(program)
    for number, statement in enumerate(program.statements, 1):
        console.print(statement_line(number, statement, comment=False), soft_wrap=True)
        value = trace[statement.name]
        match types.get(statement.name):
            case Activation(basis):
                _print_rows(console, tokens, labels(basis), value.T, all_rows)
            case Logits():
                _print_rows(console, tokens, program.vocabulary.tokens, value.T, all_rows)
            case Divisor():
                _print_rows(console, tokens, ["norm"], value[None], all_rows)
            case Selector():
                _print_selector(console, tokens, value)
            case None:
                assert isinstance(statement, Prediction)
                _print_rows(console, tokens, program.vocabulary.tokens, value.T, all_rows)
                _print_answer(console, program, tokens, value)


def _print_rows(console: Console, tokens: Sequence[str], names: Sequence[str], rows: Tensor, all_rows: bool) -> None:
    """One row for each direction of the basis, one column for each position."""
    largest = rows.abs().amax(1)
    order = [i for i in largest.argsort(descending=True, stable=True).tolist() if largest[i] >= _NOTHING]
    shown = range(len(names)) if all_rows else sorted(order[:MAX_ROWS])
    cells = [[number(x) for x in rows[i].tolist()] for i in shown]
    _print_grid(console, tokens, [names[i] for i in shown], cells)
    hidden = 0 if all_rows else len(order) - len(shown)
    if hidden or not cells:
        note = f"{hidden} more rows with smaller values (--all shows them)" if hidden else "zero everywhere"
        console.print(Text(f"   {note}", style="dim"))
    console.print()


def _print_selector(console: Console, tokens: Sequence[str], scores: Tensor) -> None:
    """Queries are rows, keys are columns; keys after the query are not seen."""
    cells = [[number(x) if k <= q else "" for k, x in enumerate(row)] for q, row in enumerate(scores.tolist())]
    _print_grid(console, tokens, tokens, cells)
    console.print()


def _print_answer(console: Console, program: Program, tokens: Sequence[str], prediction: Tensor) -> None:
    """What comes next at each position: the likeliest token, or the set of those that may."""
    vocabulary = program.vocabulary.tokens
    said = prediction.argmax(-1) if program.output == "softmax" else prediction > 0.5
    _print_grid(console, tokens, ["next"], [[answer_text(answer, vocabulary) for answer in said]])


def _print_grid(console: Console, header: Sequence[str], names: Sequence[str], cells: list[list[str]]) -> None:
    """Prints a grid, in blocks of as many columns as the terminal is wide."""
    if not cells:
        return
    # As they will be shown, so that they have the room that they need.
    header, names, cells = list(map(plain, header)), list(map(plain, names)), [list(map(plain, row)) for row in cells]
    label = max(len(name) for name in names)
    width = max(len(text) for text in chain(header, *cells)) + 1
    # Into a file or a pipe, a table is as wide as it must be.
    room = max(1, (console.width - label - 4) // (width + 1)) if console.is_terminal else len(header)
    for start in range(0, len(header), room):
        columns = slice(start, start + room)
        table = Table(box=None, padding=(0, 0, 0, 1), pad_edge=False, show_header=True, header_style="cyan")
        table.add_column("", min_width=label + 3, justify="right", style="cyan", no_wrap=True)
        for name in header[columns]:
            table.add_column(Text(name), min_width=width, justify="right", no_wrap=True)
        for name, row in zip(names, cells, strict=True):
            table.add_row(Text(name), *(Text(text, style=_style(text)) for text in row[columns]))
        console.print(table, width=None if console.is_terminal else label + 4 + (width + 1) * len(header) + 8)


def number(x: float) -> str:
    """A number with at most two decimals, and a dot for nothing."""
    if abs(x) < _NOTHING:
        return "·"
    return f"{x:.2f}" if abs(x) < 1000 else f"{x:.0f}"


def _style(text: str) -> str:
    return "dim" if text == "·" else "red" if text.startswith("-") else ""
