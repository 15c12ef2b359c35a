"""Figures for papers: tensors, variables on an example, the frontier.

Conventions are the paper's: a select's tensor has a row for each direction of the query and a column for each of the
key, a project's a row for each direction of its input; variables have the input's tokens along the x-axis and their
dimensions along the y-axis; selectors have queries as rows, keys as columns, and what is not seen is grey.
"""

import io
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from drasp.errors import DraspError
from drasp.input_files import is_folder
from drasp.language import Interpreter, Program, load_program, variable_types
from drasp.language.bases import labels
from drasp.language.checker import Activation, Selector
from drasp.language.syntax import Norm, Operand, Prediction, Project, Select, Statement
from drasp.output_folder import write_into
from drasp.records import Record, read_record
from drasp.report.examples import draw_examples, fitted_to_program, task_on_record
from drasp.tasks import load_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What an earlier run may have drawn, of lines that the program no longer has.
_FIGURE = re.compile(r"(line-\d+-.+|frontier)\.(pdf|svg|png)")
_MOST_LABELS = 40
_MOST_ROWS = 30
_STYLE: Any = {
    "font.size": 8,
    "font.family": "DejaVu Sans",
    "axes.linewidth": 0.5,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "svg.hashsalt": "drasp",
    "text.parse_math": False,  # a token may be called $x$
}


def write_figures(
    folder: str | Path,
    file_format: str,
    tokens: Sequence[str] | None = None,
    offset: int = 0,
    task_name: str | None = None,
) -> tuple[list[Path], str | None]:
    """Writes a file for each picture to `figures/` in the result folder; the remark is on what they lack.

    Without tokens, variables are drawn on an input of the task, or on random tokens where that is not known.
    """
    folder = Path(folder)
    _matplotlib()
    program, record = load_program(folder), read_record(folder)
    remark = None
    if tokens is None:
        if task_name:
            task = fitted_to_program(load_task(task_name), program, folder)
        else:
            task, missing = task_on_record(program, record)
            remark = missing and f"examples are random tokens: {missing}"
        example = draw_examples(program, task).steps[0]
        ids, offset = example.ids, example.offset
    else:
        ids = program.vocabulary.encode(list(tokens))

    def drawn() -> "dict[str, Figure]":
        return _tensors(program) | _variables(program, ids, offset) | (_frontier(record) if record else {})

    files = figure_files(drawn, (file_format,))
    place = (folder if is_folder(folder) else folder.parent) / "figures"
    write_into(place, files, _FIGURE)
    return [place / name for name in files], remark


def figure_files(draw: "Callable[[], dict[str, Figure]]", formats: Sequence[str]) -> dict[str, bytes]:
    """What `draw` draws, in drasp's style, as files of each of the formats."""
    with _matplotlib().rc_context(_STYLE):
        return {f"{name}.{each}": _saved(figure, each) for name, figure in draw().items() for each in formats}


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise DraspError("figures need matplotlib; install it with: pip install 'drasp[figures]'") from None
    return matplotlib


def _saved(figure: "Figure", file_format: str) -> bytes:
    stream = io.BytesIO()
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}  # the same input gives the same file
    with warnings.catch_warnings():
        # A token may be anything: a letter that the font lacks becomes a box.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(stream, format=file_format, dpi=200, bbox_inches="tight", metadata=dates.get(file_format))
    return stream.getvalue()


# -------------------------------------------------------------------------------------- tensors


def _tensors(program: Program) -> "dict[str, Figure]":
    types = variable_types(program)
    interpreter = Interpreter.of(program)
    vocabulary = program.vocabulary.tokens

    def names(operand: Operand) -> Sequence[str]:
        kind = types[operand.variable]
        assert isinstance(kind, Activation)
        return labels(kind.basis)

    drawn: dict[str, Figure] = {}
    for number, statement in enumerate(program.statements, 1):
        match statement:
            case Select(query=query, key=key):
                axes = names(query), names(key), f"q: {query.variable}", f"k: {key.variable}"
            case Project(input=source):
                axes = names(source), vocabulary, f"inp: {source.variable}", "out: token"
            case _:
                continue
        matrix = interpreter.ops[statement.name].cpu().numpy()
        drawn[f"line-{number:02}-op"] = heatmap(f"Line {number}: op of {statement.name}", matrix, *axes)
    return drawn


# ------------------------------------------------------------------------------------ variables


def _variables(program: Program, ids: list[int], offset: int) -> "dict[str, Figure]":
    if offset + len(ids) > program.n_positions:
        positions = program.n_positions
        raise DraspError(
            f"--input: {len(ids)} tokens at offset {offset} do not fit the program's {positions} positions"
        )
    words = [program.vocabulary.tokens[i] for i in ids]
    with torch.no_grad():
        trace = Interpreter.of(program, torch.float64).trace(
            torch.tensor([ids]), torch.arange(offset, offset + len(ids))[None]
        )
    types = variable_types(program)
    return {
        f"line-{number:02}-{statement.name}": _variable(
            number, statement, types.get(statement.name), trace[statement.name][0].cpu().numpy(), words, program
        )
        for number, statement in enumerate(program.statements, 1)
    }


def _variable(
    number: int, statement: Statement, kind: Any, value: np.ndarray, words: Sequence[str], program: Program
) -> "Figure":
    title = f"Line {number}: {statement.name}"
    match statement, kind:
        case Select(), Selector():
            seen = np.tri(len(words), dtype=bool)
            return heatmap(title, np.where(seen, value, np.nan), words, words, "query", "key")
        case Norm(), _:
            return heatmap(title, value[None], [statement.name], words, "", "input")
        case _, Activation(basis):
            names = labels(basis)
        case _:
            names = program.vocabulary.tokens
    rows = _largest(value.T)
    title = "prediction" if isinstance(statement, Prediction) else title
    return heatmap(title, value.T[rows], [names[i] for i in rows], words, "", "input")


def _largest(value: np.ndarray) -> np.ndarray:
    """The rows that matter on this input, in their own order."""
    sizes = np.abs(value).max(1)
    if len(sizes) <= 12:
        return np.arange(len(sizes))
    order = np.argsort(-sizes, kind="stable")[:_MOST_ROWS]
    return np.sort(order[sizes[order] > 1e-3 * sizes.max()])


# -------------------------------------------------------------------------------------- drawing


def heatmap(
    title: str, matrix: np.ndarray, rows: Sequence[str], columns: Sequence[str], row_title: str, column_title: str
) -> "Figure":
    """A matrix in colour, with labels along both sides; what is NaN is grey."""
    _matplotlib()
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    signed = bool(np.nanmin(matrix, initial=0) < 0)
    largest = float(np.nanmax(np.abs(matrix), initial=0)) or 1.0
    positive = ["#ffffff", "#92bfe0", "#1a5c97", "#0a325c"]
    stops = ["#6e2c02", "#e7852f", "#fde3c8", *positive] if signed else positive
    colours = LinearSegmentedColormap.from_list("drasp", stops).with_extremes(bad="#d5d9df")
    cell = min(0.22, 4.5 / max(matrix.shape))
    size = (max(1.2, cell * matrix.shape[1]) + 0.9, max(0.5, cell * matrix.shape[0]) + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(
        matrix, cmap=colours, vmin=-largest if signed else 0, vmax=largest, aspect="equal", interpolation="nearest"
    )
    axes.set_title(title, fontsize=8)
    _label(axes, rows, columns, row_title, column_title)
    figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02).outline.set_linewidth(0.4)  # pyright: ignore
    return figure


def _label(axes: "Axes", rows: Sequence[str], columns: Sequence[str], row_title: str, column_title: str) -> None:
    def some(names: Sequence[str]) -> range:
        return range(0, len(names), -(-len(names) // _MOST_LABELS))

    upright = max(map(len, columns), default=0) <= 2 and len(columns) <= 20
    axes.set_xticks(some(columns), [columns[i] for i in some(columns)], rotation=0 if upright else 90, fontsize=6)
    axes.set_yticks(some(rows), [rows[i] if len(rows) > 1 else "" for i in some(rows)], fontsize=6)
    axes.tick_params(length=1.5, pad=1.5)
    axes.set_xlabel(column_title, fontsize=7)
    axes.set_ylabel(row_title if len(rows) > 1 else "", fontsize=7)


def _frontier(record: Record) -> "dict[str, Figure]":
    from matplotlib.figure import Figure

    points = record.frontier or ()
    if not points:
        return {}
    figure = Figure(figsize=(3.2, 2.2), layout="constrained")
    axes = figure.add_subplot()
    lines = [point.lines for point in points]
    match = [point.match_accuracy for point in points]
    axes.plot(lines, match, "-", color="#1a5c97", linewidth=1)
    axes.plot(lines, match, "o", color="#1a5c97", markerfacecolor="white", markersize=4)
    picked = [point for point in points if point.lines == (record.pruned_lines or record.lines)]
    axes.plot([p.lines for p in picked], [p.match_accuracy for p in picked], "o", color="#1a5c97", markersize=6)
    axes.set_xscale("log")
    axes.set_xticks(lines, [str(count) for count in lines])
    axes.minorticks_off()
    axes.set_ylim(min(0.85, min(match) - 0.05), 1.01)
    axes.set_xlabel("lines of code")
    axes.set_ylabel("match accuracy")
    axes.set_title(record.task or "", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return {"frontier": figure}
