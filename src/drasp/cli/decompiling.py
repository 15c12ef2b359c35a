"""`drasp decompile`, `drasp verify`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from drasp.cli.options import Device, on_device
from drasp.cli.programs import ProgramPath
from drasp.errors import DraspError

if TYPE_CHECKING:
    from drasp.decompiler.verify import Verification
    from drasp.measure import Share
    from drasp.tasks import Task
    from drasp.transformer import Transformer

_MODEL_HELP = "A GPT-2 folder, or the name of a zoo model."
_TASK_HELP = "A task's name, or file.py:name; a model that drasp trained knows its own."
ModelName = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL_HELP, show_default=False)]
TaskName = Annotated[str | None, typer.Option(help=_TASK_HELP, show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command()(decompile)
    app.command()(verify)


def decompile(
    model: ModelName,
    out: Annotated[Path, typer.Option(help="Folder for the program.", show_default=False)],
    task: TaskName = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the inputs that are drawn.")] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="So many searches, from --seed on; the program that most of them find.")
    ] = 1,
    min_match: Annotated[float, typer.Option(min=0, max=1, help="Share of inputs that must be answered alike.")] = 0.9,
    max_lines: Annotated[int, typer.Option(min=1, help="A program may have so many lines.")] = 40,
    method: Annotated[str, typer.Option(help="fast, or ugs: the paper's own pruning, far slower.")] = "fast",
    accept: Annotated[
        str, typer.Option(help="causal: what does as the model does; answers: what answers alike, as in the paper.")
    ] = "causal",
    pick: Annotated[
        int | None,
        typer.Option(
            help="Take the program of so many lines from the frontier in OUT; nothing is run.", show_default=False
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A rough answer: fewer inputs, fewer attempts.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run with this OUT.")] = False,
    device: Device = "cpu",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: Json = False,
) -> None:
    """Find the shortest program that does what a model does.

    Examples:

    drasp decompile bin_majority --out result

    drasp decompile my-gpt2 --task tasks.py:mine --out result

    drasp decompile my-gpt2 --out result --seeds 5

    drasp decompile my-gpt2 --out result --resume

    drasp decompile my-gpt2 --out result --pick 7
    """
    from drasp.cli import show
    from drasp.cli.threads import one_thread
    from drasp.decompiler.checkpoint import checkpoint_file
    from drasp.decompiler.pipeline import check_accept, check_method
    from drasp.decompiler.pipeline import decompile as run
    from drasp.decompiler.result import repick
    from drasp.decompiler.stability import most_found
    from drasp.doubts import doubts
    from drasp.output_folder import check_output_folder
    from drasp.report.examples import draw_examples
    from drasp.report.page import write_report

    if pick is not None:
        program, record = repick(out, pick)
        for remark in write_report(out, task_name=task).remarks:
            typer.echo(f"drasp: {remark}", err=True)
        if as_json:
            typer.echo(record.to_text(), nl=False)
        else:
            show.print_program(Console(highlight=False), program)
        return
    check_method(method)
    criterion = check_accept(accept)
    check_output_folder(out)
    one_thread()
    place, progress = on_device(device), Console(stderr=True, quiet=quiet or as_json)
    with place:
        transformer, its_task = model_and_task(model, task)
        for remark in doubts(transformer, its_task):
            progress.print(f"warning: {remark}", style="yellow", markup=False, soft_wrap=True)

    files = {s: checkpoint_file(out, s if seeds > 1 else None) for s in range(seed, seed + seeds)}
    there = [file for file in files.values() if file.exists()]
    if there and not resume:
        raise DraspError(f"{there[0]}: an interrupted run; go on with --resume, or remove the file to begin again")
    try:
        with place, show.pass_progress(progress) as report:
            results = [
                run(
                    transformer,
                    its_task,
                    number,
                    min_match,
                    max_lines,
                    report,
                    quick,
                    file,
                    # Of several searches, those that come later may not have been begun.
                    resume and (seeds == 1 or file.exists()),
                    method,
                    accept=criterion,
                )
                for number, file in files.items()
            ]
    except KeyboardInterrupt:
        kept = any(file.exists() for file in files.values())
        hint = "; what is finished is kept: go on with --resume" if kept else ""
        raise DraspError(f"interrupted{hint}") from None
    result = most_found(results) if seeds > 1 else results[0]
    with place:
        result.save(out, model, draw_examples(result.program, its_task, transformer))
    for file in files.values():
        file.unlink(missing_ok=True)
    if as_json:
        typer.echo(result.record(model).to_text(), nl=False)
    else:
        show.print_result(Console(highlight=False), result, out)


def verify(
    program: ProgramPath,
    model: ModelName,
    task: TaskName = None,
    samples: Annotated[int, typer.Option(min=1, help="How many inputs are drawn.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of the inputs that are drawn.")] = 1,
    causal: Annotated[bool, typer.Option("--causal", help="Intervene: is each line what the model does?")] = False,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Measure how often a program answers as a model does, and show the first inputs on which they differ.

    With --causal, take each line from other inputs, in the program and in the model, and compare.

    Examples:

    drasp verify result bin_majority

    drasp verify result bin_majority --causal
    """
    from drasp.causal import evaluate
    from drasp.cli.evidence import print_evidence
    from drasp.cli.threads import one_thread
    from drasp.decompiler.verify import verify as run
    from drasp.language import load_program, load_pruned
    from drasp.report.examples import fitted_to_program

    place = on_device(device)
    with place:
        loaded = load_program(program)
        transformer, its_task = model_and_task(model, task, program)
    its_task = fitted_to_program(its_task, loaded, program)
    evidence = None
    if causal:
        one_thread()
        with place:
            evidence = evaluate(loaded, transformer, its_task, load_pruned(program), seed=seed)
        if not as_json:
            print_evidence(Console(highlight=False), loaded, evidence)
            return
    with place:
        found = run(loaded, transformer, its_task, samples, seed)
    if as_json:
        content = _verification_json(found) | ({"causal": evidence.to_json()} if evidence else {})
        typer.echo(json.dumps(content, indent=2))
        return
    for name, share in (*found.bins, ("all lengths", found.overall)):
        typer.echo(f"{name:>12}: {share} inputs answered alike")
    for number, case in enumerate(found.disagreements, 1):
        typer.echo(f"\n{number}. {' '.join(case.tokens)}   (offset {case.offset})")
        typer.echo(
            f"   after position {case.position} ({case.tokens[case.position]}) the model says {case.model} "
            f"(by {case.model_margin:.2f}), the program {case.program} (by {case.program_margin:.2f})"
        )


def _verification_json(found: "Verification") -> dict[str, Any]:
    def share(one: "Share") -> dict[str, Any]:
        return {"match_accuracy": one.value, "match_interval": one.interval, "samples": one.total}

    by_length = {name: share(one) for name, one in found.bins if one.total}
    return share(found.overall) | {"by_length": by_length, "disagreements": [asdict(d) for d in found.disagreements]}


def model_and_task(model: str, task_name: str | None, program: Path | None = None) -> "tuple[Transformer, Task]":
    """Of a task that nobody names, the message says which it was, where a result beside the program does."""
    from drasp.loading import load_model_and_task
    from drasp.records import read_record

    transformer, task = load_model_and_task(model, task_name)
    if task is None:
        record = read_record(program) if program else None
        which = f"; {program} is a result of task {record.task}" if record and record.task else ""
        raise DraspError(f"{model}: does not say what it was trained on{which}; name the task with --task")
    return transformer, task
