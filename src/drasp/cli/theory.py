"""`drasp export`, `drasp language`."""

from pathlib import Path
from typing import Annotated

import typer

from drasp.cli.options import (
    ProgramPath,
    task_names,
)
from drasp.errors import DraspError
from drasp.terminal import say


def export(
    program: ProgramPath,
    out: Annotated[Path, typer.Option(help="Folder for the files.", show_default=False)],
    format_: Annotated[str, typer.Option("--format", help="What to write: crasp.")] = "crasp",
    length: Annotated[
        int | None,
        typer.Option(min=1, help="Compare on all strings up to this length; by default as far as takes seconds."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            autocompletion=task_names,
            help="Not the program's lines: the C-RASP program of this task's language, with a certificate that the "
            "program says the same on its strings.",
            show_default=False,
        ),
    ] = None,
    fit: Annotated[
        bool,
        typer.Option(
            "--fit",
            help="Where lines are outside C-RASP: inequalities found on all strings of ordinary tokens up to --length.",
        ),
    ] = False,
) -> None:
    """Write a program in another language: C-RASP, one NAME.cr for each token that it ever says.

    Both are run on all strings up to a length; where they differ nothing is written. Lines outside C-RASP are refused.
    What such a program says up to a length may be said by inequalities of counts still, which --fit finds; and that it
    is the program of its task's language, which --task proves up to a length.

    Examples:

    drasp export result --format crasp --out counted

    drasp export result --format crasp --fit --length 12 --out counted

    drasp export result --format crasp --task tomita7 --length 20 --out counted
    """
    from drasp.crasp.export import export as to_files
    from drasp.crasp.export import export_fitted, export_language
    from drasp.language import ProgramError, load_program, program_file
    from drasp.output_folder import check_output_folder, write_files
    from drasp.tasks import load_task

    if format_ != "crasp":
        raise DraspError(f"--format {format_}: not known; expected crasp")
    if fit and task:
        raise DraspError("--fit and --task are two ways to write what lines outside C-RASP say; choose one")
    check_output_folder(out, new=True)  # no older file is taken for a new one
    file = program_file(program)
    loaded = load_program(program)
    try:
        if task:
            exported = export_language(loaded, load_task(task), length)
        else:
            exported = (export_fitted if fit else to_files)(loaded, length)
    except ProgramError as error:
        raise DraspError(f"{error.in_file(str(file))}{_other_way(program)}") from None
    files = exported.files()
    write_files(out, files, new=True)
    depth = max((p.depth for p in exported.programs.values()), default=0)
    say(f"{len(exported.programs)} tokens are said; counts are nested {depth} deep")
    if exported.fitted is not None:
        say(f"not line by line ({exported.fitted.refusal}): inequalities of {exported.fitted.detail}")
    say(f"{'the language of the task: ' if task else 'equal on '}{exported.agreement}")
    say(f"wrote {out}/{', '.join(files)}")


def _other_way(program: Path) -> str:
    """What can be done for a program whose lines are outside C-RASP."""
    from drasp.crasp.automaton import decide, of_language
    from drasp.records import read_record
    from drasp.tasks import TASKS
    from drasp.tasks.framed import language_of

    way = "; --fit puts what it says up to a length as inequalities"
    record = read_record(program)
    task = TASKS.get(record.task or "") if record else None
    found = language_of(task) if task else None
    if task is None or found is None or not decide(of_language(found)).in_crasp:
        return way
    return f"{way}, --task {task.name} proves how far it is the program of its task's language"


def language(
    expression: Annotated[
        str | None,
        typer.Argument(metavar="REGEX", help="One-letter symbols, | * + ? & and brackets.", show_default=False),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            autocompletion=task_names, help="A language of drasp's own, by its task's name.", show_default=False
        ),
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
            "in_crasp_after_end": decision.in_crasp_after_end,
            "reason": decision.reason,
            "program": None if program is None else to_text(program),
        }
        say(json.dumps(found, ensure_ascii=False))
        return
    say(f"minimal automaton: {len(automaton.step)} states over {' '.join(automaton.letters)}; 0 is the first")
    for state, row in enumerate(automaton.step):
        steps = ", ".join(f"{letter} to {target}" for letter, target in zip(automaton.letters, row, strict=True))
        say(f"  {state}{' (accepts)' if state in automaton.final else ''}: {steps}")
    say(f"{'in' if decision.in_crasp else 'not in'} C-RASP (for models without positions): {decision.reason}")
    if decision.in_crasp and not decision.in_crasp_after_end:
        say("it takes the last letter: a program that answers after it, at an end marker, there is none")
    if program is not None:
        say(f"a program of {len(program.definitions)} definitions accepts it; counts are nested {program.depth} deep")
    if out is not None:
        say(f"wrote {out}")
