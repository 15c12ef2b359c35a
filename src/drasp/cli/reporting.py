"""`drasp report`, `drasp figures`, `drasp explore`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from drasp.cli.options import (
    TaskName,
    model_names,
)
from drasp.terminal import say

ResultFolder = Annotated[
    Path, typer.Argument(metavar="DIR", help="A folder that decompile or translate wrote.", show_default=False)
]


class Format(StrEnum):
    PDF = "pdf"
    SVG = "svg"
    PNG = "png"


def report(
    folder: ResultFolder,
    model: Annotated[
        str | None,
        typer.Option(
            autocompletion=model_names,
            help="The model, whose answers are shown beside the program's; else as recorded.",
        ),
    ] = None,
    task: TaskName = None,
) -> None:
    """Make the report of a result anew: one file to look at, which computes the program as you type.

    Example: drasp report result
    """
    from drasp.report.page import write_report

    written = write_report(folder, model, task)
    file = written.file
    for remark in written.remarks:
        say(f"drasp: {remark}", err=True)
    say(f"wrote {file} ({file.stat().st_size / 1e6:.1f} MB)")


def figures(
    folder: ResultFolder,
    file_format: Annotated[Format, typer.Option("--format", help="Of the files.")] = Format.PDF,
    tokens: Annotated[
        str | None,
        typer.Option(
            "--input", help="Tokens with spaces between them, or a JSON list; else an example.", show_default=False
        ),
    ] = None,
    offset: Annotated[int, typer.Option(min=0, help="The position of the first token.")] = 0,
    task: TaskName = None,
) -> None:
    """Draw a program's tensors, its variables on an input, and the frontier, for a paper.

    Examples:

    drasp figures result --format svg --input "BOS 0 1 1 SEP"

    drasp figures result --input '["a token", "with spaces"]'
    """
    from drasp.report.figures import write_figures

    files, remark = write_figures(folder, file_format.value, _tokens(tokens) if tokens else None, offset, task)
    if remark:
        say(f"drasp: {remark}", err=True)
    say(f"wrote {len(files)} files to {folder}/figures: {', '.join(file.name for file in files)}")


def _tokens(text: str) -> list[str]:
    """The tokens of an input: a JSON list of them, which may hold spaces, or a text to be split at spaces."""
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        listed = None
    if isinstance(listed, list) and all(isinstance(token, str) for token in listed):
        return listed
    return text.split()


def explore(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder with result folders below it.", show_default=False)
    ],
) -> None:
    """Make an index page over many results: a table to sort and filter, and all frontiers in one chart.

    Example: drasp explore results
    """
    from drasp.report.explore import write_index

    file, count, problems = write_index(folder)
    for problem in problems:
        say(f"drasp: left out {problem}", err=True)
    say(f"wrote {file}, an index of {count} results")
