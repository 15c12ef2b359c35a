"""`drasp export`, `drasp language`."""

from pathlib import Path
from typing import Annotated

import typer

from drasp.cli.programs import ProgramPath
from drasp.errors import DraspError


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command()(export)
    app.command()(language)


def export(
    program: ProgramPath,
    out: Annotated[Path, typer.Option(help="Folder for the files.", show_default=False)],
    format_: Annotated[str, typer.Option("--format", help="What to write: crasp.")] = "crasp",
    length: Annotated[
        int | None,
        typer.Option(min=1, help="Compare on all strings up to this length; by default as far as takes seconds."),
    ] = None,
) -> None:
    """Write a program in another language: C-RASP, one NAME.cr for each token that it ever says.

    Both are run on all strings up to a length; where they differ nothing is written.

    Example: drasp export result --format crasp --out counted
    """
    from drasp.crasp.export import export as to_files
    from drasp.language import ProgramError, load_program
    from drasp.output_folder import write_files

    if format_ != "crasp":
        raise DraspError(f"--format {format_}: not known; expected crasp")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DraspError(
            f"--out {out}: expected a new or an empty folder, so that no older file is taken for a new one"
        )
    file = program / "program.drasp" if program.is_dir() else program
    loaded = load_program(program)
    try:
        exported = to_files(loaded, length)
    except ProgramError as error:
        raise error.in_file(str(file)) from None
    files = exported.files()
    write_files(out, files)
    depth = max((p.depth for p in exported.programs.values()), default=0)
    typer.echo(f"{len(exported.programs)} tokens are said; counts are nested {depth} deep")
    typer.echo(f"equal on {exported.comparison}")
    typer.echo(f"wrote {out}/{', '.join(files)}")


def language(
    expression: Annotated[
        str | None,
        typer.Argument(metavar="REGEX", help="One-letter symbols, | * + ? & and brackets.", show_default=False),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="A language of drasp's own, by its task's name.", show_default=False)
    ] = None,
    alphabet: Annotated[
        str | None, typer.Option(help="The letters; by default those of the expression.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A .cr file for a program that accepts the language.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Decide whether a regular language is in C-RASP, for models without positions, and say why.

    Example: drasp language '(a(ab)*b)*'
    """
    import json

    from drasp.crasp.automaton import Automaton, decide, of_task
    from drasp.crasp.text import to_text
    from drasp.crasp.witness import witness
    from drasp.output_folder import write_file

    if (expression is None) == (task is None):
        raise DraspError("expected an expression, or --task with the name of a language, and not both")
    if task is not None:
        if alphabet is not None:
            raise DraspError(f"--alphabet: the language {task} has its own")
        automaton = of_task(task)
    else:
        automaton = Automaton.of_expression(expression or "", None if alphabet is None else tuple(alphabet))
    decision = decide(automaton)
    program = witness(decision) if decision.in_crasp else None
    if out is not None:
        if program is None:
            raise DraspError(f"--out {out}: the language is not in C-RASP: {decision.reason}")
        header = ["The answer at the last position: whether the word is in the language (the empty word aside)."]
        write_file(out, to_text(program, header).encode())
    if as_json:
        found = {
            "states": len(automaton.step),
            "alphabet": automaton.letters,
            "step": automaton.step,
            "final": sorted(automaton.final),
            "in_crasp": decision.in_crasp,
            "reason": decision.reason,
            "program": None if program is None else to_text(program),
        }
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    typer.echo(f"minimal automaton: {len(automaton.step)} states over {' '.join(automaton.letters)}; 0 is the first")
    for state, row in enumerate(automaton.step):
        steps = ", ".join(f"{letter} to {target}" for letter, target in zip(automaton.letters, row, strict=True))
        typer.echo(f"  {state}{' (accepts)' if state in automaton.final else ''}: {steps}")
    typer.echo(f"{'in' if decision.in_crasp else 'not in'} C-RASP (for models without positions): {decision.reason}")
    if program is not None:
        typer.echo(
            f"a program of {len(program.definitions)} definitions accepts it; counts are nested {program.depth} deep"
        )
    if out is not None:
        typer.echo(f"wrote {out}")
