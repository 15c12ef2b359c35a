"""`drasp explain`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drasp.cli.options import (
    ProgramPath,
    task_names,
)
from drasp.errors import DraspError
from drasp.terminal import SafeConsole, say

if TYPE_CHECKING:
    from drasp.causal import LineEvidence
    from drasp.language import Program
    from drasp.records import Record
    from drasp.tasks import Task

_MOST_TOLD = 100  # lines: nobody reads a longer paragraph, and telling it takes minutes
_ORIGINS = {
    "own": "its numbers are the model's own",
    "approximated": "its numbers approximate the model's",
    "named": "it was named",
    "unknown": "whose its numbers are is not known",
}
_MEASURES = {
    "attention": "looks where the model does",
    "interchange_cut_down": "taken from another input, does as what it replaced",
    "interchange": "taken from another input, does as the model's part",
    "splice": "does its part's work in the model",
}


def explain(
    program: ProgramPath,
    line: Annotated[
        int | None, typer.Argument(metavar="[LINE]", help="A line's number; else all.", show_default=False)
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            autocompletion=task_names,
            help="Whose inputs to look at; a result of drasp knows its own.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON.")] = False,
) -> None:
    """Say in words what a line does, show its tensor, its evidence, and what changes without it; or tell all lines.

    Examples:

    drasp explain result

    drasp explain result 3
    """
    from drasp.language import load_program
    from drasp.records import read_record
    from drasp.rewriting.positions import within
    from drasp.words import names_told, paragraph, sentences

    loaded, record = load_program(program), read_record(program)
    if line is not None and not 1 <= line <= loaded.lines:
        raise DraspError(f"line {line}: the program has lines 1 to {loaded.lines}")
    if line is None and loaded.lines > _MOST_TOLD:
        raise DraspError(
            f"{program}: {loaded.lines:,} lines, and at most {_MOST_TOLD} are told as a whole; "
            f"`drasp explain {program} LINE` tells one of them"
        )
    its_task, missing = _task_of(program, task, loaded, record)
    reached = within(loaded, its_task.reach if its_task else record and record.positions)
    if line is not None:
        _explain_line(program, loaded, reached, line, its_task, record, as_json)
        if its_task is None:
            say(f"drasp: what changes without it is seen on inputs: {missing or 'name a task with --task'}", err=True)
    elif as_json:
        names = [statement.name for statement in loaded.statements]
        said = dict(zip(names, sentences(reached), strict=True))
        say(json.dumps({"words": paragraph(reached), "lines": said}, indent=2, ensure_ascii=False))
    else:
        say(loaded)
        console = SafeConsole(highlight=False)
        console.print(f"\n{paragraph(reached)}", soft_wrap=not console.is_terminal)  # a terminal breaks words in two
        if record is not None and record.verdict is not None:
            grade = f" ({record.grade})" if record.grade else ""
            names = f", {names_told(record.primitives)}" if record.primitives else ""
            say(f"\n{record.verdict}{grade}: {loaded.lines} lines{names}")


def _explain_line(
    place: Path,
    program: "Program",
    reached: "Program",
    line: int,
    task: "Task | None",
    record: "Record | None",
    as_json: bool,
) -> None:
    from drasp.absence import absence
    from drasp.causal import Evidence
    from drasp.language import program_file
    from drasp.language.syntax import ElementWise, Norm, Project, Select
    from drasp.naming import explain as explaining
    from drasp.naming.inputs import inputs_for
    from drasp.results.line import Line
    from drasp.words import whole_sentence

    measured = None
    if record is not None and program_file(place).name == "program.drasp":
        measured = Evidence.of_record(record.causal, place)
    statement = program.statements[line - 1]
    evidence = next((each for each in measured.lines if each.line == statement.name), None) if measured else None
    shown = Line(program, line, evidence, reached)
    without = absence(program, statement, task) if task else None
    tensor = shown.tensor if isinstance(statement, Select | Project | Norm) else None
    found = None
    if task and isinstance(statement, ElementWise):
        found = explaining.explain(program, line, *inputs_for(program, task))
    if as_json:
        content: dict[str, Any] = {"line": line, "statement": shown.text, "words": shown.words}
        content["tensor"] = tensor and {
            "axes": [asdict(axis) for axis in tensor.axes],
            "values": tensor.values.tolist(),
        }
        content["evidence"], content["without"] = evidence and asdict(evidence), without and asdict(without)
        say(json.dumps(content | (asdict(found) if found else {}), indent=2, ensure_ascii=False))
        return
    say(f"{shown}\n\nIn words: {whole_sentence(reached, statement)}")
    if tensor is not None:
        say(f"\n{shown.seen}")
    if evidence is not None:
        say(f"\nEvidence: {_evidence_words(evidence)}")
    elif measured is not None:
        say("\nEvidence: none was measured for this line.")
    else:
        say(f"\nEvidence: none is stored; `drasp verify {place} MODEL --causal` measures it.")
    if without is not None:
        say(f"\nWithout it: {without}")
    if found is not None:
        say(explaining.text(found).partition("\n")[2])


def _evidence_words(evidence: "LineEvidence") -> str:
    measures = {words: getattr(evidence, name) for name, words in _MEASURES.items()}
    told = [f"{words} {measure}" for words, measure in measures.items() if measure and measure.n]
    stands_for = [f"stands for {evidence.stands_for}"] if evidence.stands_for else []
    return "; ".join([*stands_for, _ORIGINS.get(evidence.origin, evidence.origin), *told])


def _task_of(
    program: Path, task: str | None, loaded: "Program", record: "Record | None"
) -> "tuple[Task | None, str | None]":
    """The task that was named, or the one in the result beside the program; or why there is none."""
    from drasp.report.examples import fitted_to_program, task_on_record
    from drasp.tasks import load_task

    if task is not None:
        return fitted_to_program(load_task(task), loaded, program), None
    return task_on_record(loaded, record)
