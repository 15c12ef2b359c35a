"""`drasp translate`, `drasp run`, `drasp check`."""

from pathlib import Path
from typing import Annotated

import typer

from drasp.cli.options import (
    Device,
    ModelName,
    ProgramPath,
    on_device,
    task_names,
)
from drasp.errors import DraspError
from drasp.terminal import SafeConsole, say


def translate(
    model: ModelName,
    out: Annotated[Path, typer.Option(help="Folder for the program.", show_default=False)],
    task: Annotated[
        str | None,
        typer.Option(
            autocompletion=task_names, help="A task's name, or file.py:name; names the tokens.", show_default=False
        ),
    ] = None,
    device: Device = "cpu",
) -> None:
    """Write the exact, unpruned program of a model: the same logits, every bias and layer norm included.

    Example: drasp translate models/my-gpt2 --task sort --out translated
    """
    from drasp.output_folder import check_output_folder, write_files
    from drasp.translation_result import translate_folder

    check_output_folder(out)
    with on_device(device):
        translated = translate_folder(model, task)
        files = translated.files()
    write_files(out, files)
    say(translated.summary())
    say(f"wrote {out}/{', '.join(files)}")


def run(
    program: ProgramPath,
    tokens: Annotated[list[str], typer.Argument(metavar="TOKEN...", help="The input.", show_default=False)],
    offset: Annotated[int, typer.Option(min=0, help="The position of the first token.")] = 0,
    bits: Annotated[
        int | None, typer.Option(min=0, max=40, help="Round downwards to this many bits after each line.")
    ] = None,
    all_rows: Annotated[bool, typer.Option("--all", help="Show every dimension of every variable.")] = False,
) -> None:
    """Run a program on an input, and print the value of every variable.

    Example: drasp run program.drasp BOS 0 1 1 SEP
    """
    import torch

    from drasp.cli.tables import print_trace
    from drasp.language import Interpreter, load_program

    loaded = load_program(program)
    ids = loaded.vocabulary.encode(tokens)
    if offset + len(ids) > loaded.n_positions:
        raise DraspError(
            f"{len(ids)} tokens at offset {offset} do not fit the program's {loaded.n_positions} positions"
        )
    interpreter = Interpreter(loaded, torch.float64, precision=bits)
    positions = torch.arange(offset, offset + len(ids))
    with torch.no_grad():
        trace = interpreter.trace(torch.tensor([ids]), positions[None])
    print_trace(SafeConsole(), loaded, tokens, {name: value[0] for name, value in trace.items()}, all_rows)


def check(program: ProgramPath) -> None:
    """Check a program: names, types, dimensions, tensors, primitives. Prints every mistake with its place.

    Example: drasp check program.drasp
    """
    from drasp.language import check as find_errors
    from drasp.language import program_file, read_program

    loaded = read_program(program)
    errors = find_errors(loaded)
    file = program_file(program)
    for error in errors:
        say(error.in_file(str(file)), err=True)
    if errors:
        raise typer.Exit(1)
    say(
        f"{file}: correct; {loaded.lines:,} lines, {loaded.output} output, {len(loaded.vocabulary)} tokens, "
        f"{loaded.n_positions} positions"
    )
