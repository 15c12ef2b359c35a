"""`drasp certify`, `drasp check-certificate`."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drasp.cli.options import (
    MODEL_HELP,
    Json,
    NoProgress,
    ProgramPath,
    TaskName,
    model_names,
    task_names,
)
from drasp.errors import DraspError
from drasp.terminal import SafeConsole, say

if TYPE_CHECKING:
    from drasp.certificates import Certificate
    from drasp.tasks import Task
    from drasp.transformer import Transformer

_EXITS = {"proved": 0, "refuted": 1, "undecided": 3}  # 2 is that of a wrong command line
_OFFSETS = ("0", "all")


def certify(
    program: ProgramPath,
    length: Annotated[int, typer.Option(min=1, help="The greatest length of inputs.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="File for the certificate; its checker goes beside it.", show_default=False)
    ],
    model: Annotated[
        str | None,
        typer.Argument(autocompletion=model_names, metavar="[MODEL]", help=MODEL_HELP, show_default=False),
    ] = None,
    task: TaskName = None,
    all_strings: Annotated[
        bool, typer.Option("--all-strings", help="Every string of ordinary tokens, not the task's inputs alone.")
    ] = False,
    offsets: Annotated[str, typer.Option(help="0, or all: wherever the task's inputs can begin.")] = "0",
    quiet: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Prove or refute that a program answers as a model and a task do, on all inputs up to a length.

    Ends with 0 where all is proved, with 1 where something is refuted, and with 3 where margins are smaller than the
    error bounds of what was computed.

    Examples:

    drasp certify result tomita2 --length 150 --out certificate.json

    drasp certify program.drasp --task bin_majority --length 12 --out certificate.json
    """
    from drasp.certificates import certify as run
    from drasp.input_files import is_folder
    from drasp.language import load_program

    if offsets not in _OFFSETS:
        raise DraspError(f"--offsets {offsets}: expected {' or '.join(_OFFSETS)}")
    if is_folder(out):
        raise DraspError(f"{out}: expected a file for the certificate, found a folder")
    loaded = load_program(program)
    transformer, its_task = _model_and_task(program, model, task)
    with _progress(quiet or as_json) as report:
        made = run(loaded, transformer, its_task, length, all_strings, offsets == "all", report)
    made.save(out)
    _print(made, as_json)
    if not as_json:
        say(f"wrote {out} and {out.parent / 'check_certificate.py'}")
    raise typer.Exit(_EXITS[made.status])


def check_certificate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `drasp certify` wrote.", show_default=False)],
    task: Annotated[
        str | None,
        typer.Option(
            autocompletion=task_names,
            help="The certificate's task, where it is your own: file.py:name.",
            show_default=False,
        ),
    ] = None,
    quiet: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Recompute a certificate, and say whether it holds: ends with 1 where it does not.

    Example: drasp check-certificate certificate.json
    """
    from drasp.certificates import check_certificate as run
    from drasp.tasks import load_task

    with _progress(quiet or as_json) as report:
        found = run(file, load_task(task) if task else None, report)
    if not as_json:
        say(f"{file}: holds")
    _print(found, as_json)


def _print(certificate: "Certificate", as_json: bool) -> None:
    if as_json:
        say(json.dumps(asdict(certificate.record), indent=2, ensure_ascii=False))
    else:
        say(certificate.lines)


def _model_and_task(program: Path, model: str | None, task: str | None) -> "tuple[Transformer | None, Task]":
    """The task is the one named, the model's, or that of the result which holds the program."""
    from drasp.loading import load_model_and_task
    from drasp.records import read_record
    from drasp.tasks import load_task, recorded_task

    record = None if task else read_record(program)
    transformer, found = load_model_and_task(model, task) if model else (None, load_task(task) if task else None)
    if found is None and record is not None and record.task:
        found = recorded_task(record.task, program)
        # Again, since the task must fit the model.
        transformer = load_model_and_task(model, found.name)[0] if model else None
    if found is None:
        raise DraspError(f"{program}: does not say which task it is for; name one with --task")
    return transformer, found


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int], None]]:
    """How many inputs have been looked at, a few times a second, on a terminal; every ten seconds elsewhere."""
    console, begun = SafeConsole(stderr=True, quiet=quiet), time.perf_counter()
    last, pause = begun, 0.2 if console.is_terminal else 10.0

    def report(count: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last >= pause:
            last = now
            show(f"{now - begun:7.1f} s  {count:,} inputs")

    try:
        if console.is_terminal:
            with console.status("reading") as status:
                show = status.update
                yield report
        else:
            show = console.print
            yield report
    except KeyboardInterrupt:
        raise DraspError("interrupted; nothing was written") from None
