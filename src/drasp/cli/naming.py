"""`drasp name`, `drasp diff`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drasp.cli.decompiling import model_and_task
from drasp.cli.options import (
    MAX_SEED,
    Device,
    ProgramPath,
    TaskName,
    hold,
    model_names,
    on_device,
    one_thread,
)
from drasp.errors import DraspError
from drasp.terminal import SafeConsole, say

if TYPE_CHECKING:
    from drasp.language import Program


def name(
    program: ProgramPath,
    model: Annotated[
        str,
        typer.Argument(
            autocompletion=model_names, metavar="MODEL", help="The model whose answers count.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the named program.", show_default=False)],
    task: TaskName = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of the inputs that are drawn.")] = 0,
    device: Device = "cpu",
) -> None:
    """Simplify a program and give names to what it does, as far as its answers stay the model's.

    Example: drasp name result/frontier/7.drasp my-gpt2 --out named
    """
    from drasp.language import load_program
    from drasp.naming.result import name_and_measure
    from drasp.output_folder import check_output_folder, reserved, write_files
    from drasp.progress import pass_progress
    from drasp.records import PassRecord
    from drasp.report.examples import fitted_to_program

    check_output_folder(out)
    hold(reserved(out))
    one_thread()
    place = on_device(device)
    with place:
        loaded = load_program(program)
        transformer, its_task = model_and_task(model, task, program)
    its_task = fitted_to_program(its_task, loaded, program)
    start = time.perf_counter()
    try:
        with place, pass_progress(SafeConsole(stderr=True)) as progress:

            def report(step: str, now: "Program", match: float) -> None:
                progress(PassRecord(step, time.perf_counter() - start, now.lines, "lines", match))

            named = name_and_measure(loaded, transformer, its_task, seed, report)
    except KeyboardInterrupt:
        raise DraspError("interrupted; nothing was written") from None
    write_files(out, named.files(model))
    say(named.program)
    say(f"\n{named.match} inputs answered as by the model, before {named.pruned_match}; wrote {out}/program.drasp")


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
        say(line)
    if lines:
        raise typer.Exit(1)
