"""`drasp name`, `drasp diff`, `drasp explain`."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from drasp.cli.decompiling import model_and_task
from drasp.cli.options import Device, on_device
from drasp.cli.programs import ProgramPath
from drasp.errors import DraspError

if TYPE_CHECKING:
    from drasp.language import Program
    from drasp.tasks import Task


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command()(name)
    app.command()(diff)
    app.command()(explain)


def name(
    program: ProgramPath,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model whose answers count.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the named program.", show_default=False)],
    task: Annotated[str | None, typer.Option(help="A task's name, or file.py:name.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the inputs that are drawn.")] = 0,
    device: Device = "cpu",
) -> None:
    """Simplify a program and give names to what it does, as far as its answers stay the model's.

    Example: drasp name result/frontier/7.drasp my-gpt2 --out named
    """
    from drasp.cli import show
    from drasp.cli.threads import one_thread
    from drasp.language import load_program
    from drasp.naming.result import name_and_measure
    from drasp.output_folder import check_output_folder, write_files
    from drasp.records import PassRecord
    from drasp.report.examples import fitted_to_program

    check_output_folder(out)
    one_thread()
    place = on_device(device)
    with place:
        loaded = load_program(program)
        transformer, its_task = model_and_task(model, task, program)
    its_task = fitted_to_program(its_task, loaded, program)
    start = time.perf_counter()
    try:
        with place, show.pass_progress(Console(stderr=True)) as progress:

            def report(step: str, now: "Program", match: float) -> None:
                progress(PassRecord(step, time.perf_counter() - start, now.lines, "lines", match))

            named = name_and_measure(loaded, transformer, its_task, seed, report)
    except KeyboardInterrupt:
        raise DraspError("interrupted; nothing was written") from None
    write_files(out, named.files(model))
    typer.echo(named.program)
    typer.echo(
        f"\n{named.match} inputs answered as by the model, before {named.pruned_match}; wrote {out}/program.drasp"
    )


def diff(
    program: ProgramPath,
    other: Annotated[Path, typer.Argument(metavar="OTHER", help="Another program.", show_default=False)],
) -> None:
    """Show how two programs differ, once both are simplified: nothing where they are equal.

    Example: drasp diff result-a result-b
    """
    from drasp.language import load_program
    from drasp.naming.difference import difference

    lines = difference(load_program(program), load_program(other), str(program), str(other))
    for line in lines:
        typer.echo(line)
    if lines:
        raise typer.Exit(1)


def explain(
    program: ProgramPath,
    line: Annotated[int, typer.Argument(metavar="LINE", help="The number of an element_wise_op.", show_default=False)],
    task: Annotated[
        str | None,
        typer.Option(help="Whose inputs to look at; a result of drasp knows its own.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON.")] = False,
) -> None:
    """Show what an element-wise operation does: typical inputs, and what they promote downstream.

    Example: drasp explain result 3
    """
    from drasp.language import load_program
    from drasp.naming import explain as explaining
    from drasp.naming.inputs import inputs_for

    loaded = load_program(program)
    ids, positions = inputs_for(loaded, _task_of(program, task, loaded))
    found = explaining.explain(loaded, line, ids, positions)
    typer.echo(json.dumps(asdict(found), indent=2, ensure_ascii=False) if as_json else explaining.text(found))


def _task_of(program: Path, task: str | None, loaded: "Program") -> "Task":
    """The task that was named, or the one in the result beside the program."""
    from drasp.records import read_record
    from drasp.report.examples import fitted_to_program
    from drasp.tasks import load_task, recorded_task

    if task is not None:
        found = load_task(task)
    elif (record := read_record(program)) and record.task:
        found = recorded_task(record.task, program)
    else:
        raise DraspError(f"{program}: does not say which task it is for; name one with --task")
    return fitted_to_program(found, loaded, program)
