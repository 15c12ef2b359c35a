"""`drasp decompile`, `drasp verify`."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drasp.cli.options import (
    MAX_SAMPLES,
    MAX_SEED,
    MODEL_HELP,
    Device,
    Json,
    ModelName,
    NoProgress,
    ProgramPath,
    TaskName,
    among,
    hold,
    model_names,
    on_device,
    one_thread,
)
from drasp.errors import DraspError
from drasp.terminal import SafeConsole, say

if TYPE_CHECKING:
    from drasp.decompiler.result import Decompiled
    from drasp.decompiler.verify import Verification
    from drasp.measure import Share
    from drasp.tasks import Task
    from drasp.transformer import Transformer


def decompile(
    models: Annotated[
        list[str],
        typer.Argument(
            autocompletion=model_names,
            metavar="MODEL...",
            help=f"{MODEL_HELP} Of several, in turn.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for the program; of several models, OUT/MODEL.", show_default=False)
    ],
    task: TaskName = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of the inputs that are drawn.")] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="So many searches, from --seed on; the program that most of them find.")
    ] = 1,
    min_match: Annotated[float, typer.Option(min=0, max=1, help="Share of inputs that must be answered alike.")] = 0.9,
    max_lines: Annotated[int, typer.Option(min=1, help="A program may have so many lines.")] = 40,
    method: Annotated[
        str,
        typer.Option(autocompletion=among("fast", "ugs"), help="fast, or ugs: the paper's own pruning, far slower."),
    ] = "fast",
    accept: Annotated[
        str,
        typer.Option(
            autocompletion=among("causal", "answers"),
            help="causal: what does as the model does; answers: what answers alike, as in the paper.",
        ),
    ] = "causal",
    naming: Annotated[
        str,
        typer.Option(
            autocompletion=among("drasp", "paper"),
            help="drasp, or paper: the paper's primitives, in its order and with its thresholds.",
        ),
    ] = "drasp",
    pick: Annotated[
        int | None,
        typer.Option(
            help="Take the program of so many lines from the frontier in OUT; nothing is run.", show_default=False
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A rough answer: fewer inputs, fewer attempts.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run with this OUT.")] = False,
    device: Device = "cpu",
    quiet: NoProgress = False,
    as_json: Json = False,
) -> None:
    """Find the shortest program that does what a model does.

    Examples:

    drasp decompile bin_majority --out result

    drasp decompile my-gpt2 --task tasks.py:mine --out result

    drasp decompile my-gpt2 --out result --seeds 5

    drasp decompile my-gpt2 --out result --resume

    drasp decompile my-gpt2 --out result --pick 7

    drasp decompile bin_majority tomita2 abcde --out results

    drasp decompile bin_majority --out result --method ugs --accept answers --naming paper
    """
    if pick is not None and len(models) > 1:
        raise DraspError("--pick takes a program from the result of one model")
    if pick is None and not (quiet or as_json) and sys.stderr.isatty():
        # Said before torch is there, which takes seconds.
        say(f"reading {', '.join(models)}", err=True)

    from drasp.cli import show
    from drasp.crasp.export import standing
    from drasp.decompiler.checkpoint import checkpoint_file
    from drasp.decompiler.picking import check_accept, check_naming
    from drasp.decompiler.pipeline import check_method
    from drasp.decompiler.pipeline import decompile as run
    from drasp.decompiler.stability import most_found
    from drasp.doubts import doubts
    from drasp.estimate import estimate
    from drasp.input_files import is_there
    from drasp.output_folder import check_output_folder, reserved
    from drasp.progress import pass_progress
    from drasp.report.examples import draw_examples
    from drasp.report.page import write_report
    from drasp.results.certifying import with_certificate
    from drasp.results.files import repick, save_decompiled
    from drasp.settings import DEFAULT, QUICK

    if pick is not None:
        program, record = repick(out, pick)
        for remark in write_report(out, task_name=task).remarks:
            say(f"drasp: {remark}", err=True)
        if as_json:
            say(record.to_text(), nl=False)
        else:
            show.print_program(SafeConsole(highlight=False), program)
        return
    try:
        check_method(method)
        criterion, library = check_accept(accept), check_naming(naming)
    except DraspError as error:
        raise DraspError(f"--{error}") from None
    folders = _folders(models, out)
    for folder in folders.values():
        check_output_folder(folder)
        hold(reserved(folder))
    one_thread()
    place, progress = on_device(device), SafeConsole(stderr=True, quiet=quiet or as_json, highlight=False)

    def search(model: str, out: Path) -> "tuple[Decompiled, Task]":
        files = {s: checkpoint_file(out, s if seeds > 1 else None) for s in range(seed, seed + seeds)}
        with place:
            transformer, its_task = model_and_task(model, task)
            there = [file for file in files.values() if is_there(file)]
            if there and not resume:
                again = "go on with --resume, or remove the file to begin again"
                raise DraspError(f"{there[0]}: an interrupted run; {again}")
            # How much of a run is left that was interrupted is not known.
            expected = estimate(transformer, its_task) if method == "fast" and not resume else None
            if not resume:
                told = f"{transformer.size}; {expected or 'may take hours'}"
                progress.print(f"decompiling {model}: {told}", soft_wrap=True)
            for remark in doubts(transformer, its_task):
                progress.print(f"warning: {remark}", style="yellow", markup=False, soft_wrap=True)
        try:
            with place, pass_progress(progress, expected) as report:
                results = [
                    run(
                        transformer,
                        its_task,
                        number,
                        min_match,
                        max_lines,
                        report,
                        QUICK if quick else DEFAULT,
                        file,
                        # Of several searches, those that come later may not have been begun.
                        resume and (seeds * len(models) == 1 or file.exists()),
                        method,
                        accept=criterion,
                        naming=library,
                    )
                    for number, file in files.items()
                ]
            result = most_found(results) if seeds > 1 else results[0]
            with progress.status("looking at all inputs, the short ones first"):
                result = with_certificate(result, transformer, its_task)
        except KeyboardInterrupt:
            kept = any(file.exists() for file in files.values())
            hint = "; what is finished is kept: go on with --resume" if kept else ""
            raise DraspError(f"interrupted{hint}") from None
        with place:
            save_decompiled(result, out, model, draw_examples(result.program, its_task, transformer))
        for file in files.values():
            file.unlink(missing_ok=True)
        return result, its_task

    records: list[Any] = []
    for model, folder in folders.items():
        result, its_task = search(model, folder)
        records.append(result.record(model))
        if not as_json:
            found = result.certificate.against_task if result.certificate else None
            told = standing(result.program, its_task, found is not None and found.status == "proved")
            show.print_result(SafeConsole(highlight=False), result, folder, told)
    if as_json:
        one, *more = records
        say(json.dumps([each.to_json() for each in records], indent=2) if more else one.to_text().rstrip())


def _folders(models: list[str], out: Path) -> dict[str, Path]:
    """The folder of each model's result: OUT, or, where there are several, one of its name in OUT."""
    if len(models) == 1:
        return {models[0]: out}
    folders = {model: out / Path(model).resolve().name for model in models}
    if len(set(folders.values())) < len(models):
        raise DraspError(f"{', '.join(models)}: two models of the same name would have one place in {out}")
    return folders


def verify(
    program: ProgramPath,
    model: ModelName,
    task: TaskName = None,
    samples: Annotated[int, typer.Option(min=1, max=MAX_SAMPLES, help="How many inputs are drawn.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of the inputs that are drawn.")] = 1,
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
            print_evidence(SafeConsole(highlight=False), loaded, evidence)
            return
    with place:
        found = run(loaded, transformer, its_task, samples, seed)
    if as_json:
        content = _verification_json(found) | ({"causal": evidence.to_json()} if evidence else {})
        say(json.dumps(content, indent=2))
        return
    say(str(found))


def _verification_json(found: "Verification") -> dict[str, Any]:
    def share(one: "Share") -> dict[str, Any]:
        return {"match_accuracy": one.value, "match_interval": one.interval, "samples": one.total}

    by_length = {name: share(one) for name, one in found.bins if one.total}
    return share(found.overall) | {"by_length": by_length, "disagreements": [asdict(d) for d in found.disagreements]}


def model_and_task(model: str, task_name: str | None, program: Path | None = None) -> "tuple[Transformer, Task]":
    """A model and its task. Of a task that nobody names, the message says which it was, where a result does."""
    from drasp.loading import load_model_and_task
    from drasp.records import read_record

    transformer, task = load_model_and_task(model, task_name)
    if task is None:
        record = read_record(program) if program else None
        which = f"; {program} is a result of task {record.task}" if record and record.task else ""
        raise DraspError(f"{model}: does not say what it was trained on{which}; name the task with --task")
    return transformer, task
