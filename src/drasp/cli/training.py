"""`drasp tasks`, `drasp train`, `drasp zoo`."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drasp.cli.catalogue import catalogue
from drasp.cli.options import (
    MAX_SEED,
    Device,
    Quiet,
    hold,
    on_device,
    task_names,
)
from drasp.terminal import SafeConsole, say

if TYPE_CHECKING:
    from drasp.tasks import Task
    from drasp.training.loop import TrainingProgress
    from drasp.training.recipe import Metrics


def tasks() -> None:
    """List the tasks, with an example of each.

    A task of your own is given as file.py:name wherever a task's name is expected.
    """
    _print_table(("task", "what the model learns", "lengths", "example"), catalogue()["tasks"])


def train(
    task: Annotated[
        str,
        typer.Argument(
            autocompletion=task_names, help="A task's name, or file.py:name for your own.", show_default=False
        ),
    ],
    layers: Annotated[int | None, typer.Option(help="Layers [default: 1]", show_default=False)] = None,
    heads: Annotated[int | None, typer.Option(help="Heads in each layer [default: 1]", show_default=False)] = None,
    dim: Annotated[int | None, typer.Option(help="Model dimension [default: 16]", show_default=False)] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate [default: 0.001]", show_default=False)] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout rate [default: 0]", show_default=False)] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of weights, inputs and dropout.")] = 0,
    steps: Annotated[int, typer.Option(help="At most; ends earlier once no test input up to 50 is wrong.")] = 30_000,
    patience: Annotated[
        int, typer.Option(help="Tests (every 100 steps) without an error, in a row, that end it earlier.")
    ] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the model [default: named after the options]", show_default=False)
    ] = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Keep the model, as OUT-STEP, whenever it got much better.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Try all sizes and rates that are not given, small models first.")
    ] = False,
    good: Annotated[float, typer.Option(help="End a search at this accuracy at lengths 101-150.", min=0, max=1)] = 0.99,
    threads: Annotated[int, typer.Option(min=1, help="More than one pays off from about --dim 256 on.")] = 1,
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Train a model on a task, and write it as a Hugging Face GPT-2 folder.

    Trains on lengths up to 50 and tests on 1-50, 51-100 and 101-150.

    Example: drasp train bin_majority --dropout 0.1 --out my-majority

    Example: drasp train unique_copy --search --out my-copy
    """
    from drasp.errors import DraspError
    from drasp.output_folder import reserved
    from drasp.tasks import load_task
    from drasp.training import session
    from drasp.training.recipe import Recipe

    loaded = load_task(task)
    options = {"layers": layers, "heads": heads, "dim": dim, "lr": lr, "dropout": dropout}
    given: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    given |= {"task": task, "seed": seed, "steps": steps, "patience": patience}
    if search and checkpoints:
        raise DraspError("--checkpoints: a search keeps only the best model; train that one again with --checkpoints")
    recipe = Recipe(**given)
    folder = out or Path(f"{loaded.name}-search" if search else recipe.name(loaded))
    session.check_place(folder, recipe)
    hold(reserved(folder))
    try:
        with on_device(device), _display(loaded, steps, quiet) as display:
            if search:
                metrics = session.search(
                    loaded, given, folder, good=good, resume=resume, threads=threads, watch=display.watch,
                    begun=lambda r: display.say(f"training {r.name(loaded)}"),
                    ended=lambda m: display.say(_summary(m)),
                )  # fmt: skip
            else:
                metrics = session.train(
                    loaded, recipe, folder, resume=resume, checkpoints=checkpoints, threads=threads,
                    watch=display.watch,
                )  # fmt: skip
    except session.InterruptedTrainingError as interrupted:
        again = shlex.join(["drasp", *sys.argv[1:], *([] if resume else ["--resume"])])
        say(f"drasp: interrupted at step {interrupted.step:,}; go on with: {again}", err=True)
        raise typer.Exit(130) from None
    if not quiet:
        _print_metrics(metrics)
        say(f"{metrics.steps:,} steps in {metrics.seconds:.0f} s; wrote {folder}")


def zoo(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table, with the commands.")] = False,
) -> None:
    """List the trained models that come with drasp; their names serve as MODEL in every command.

    Example: drasp translate bin_majority --out translated
    """
    if markdown:
        from drasp.zoo import markdown_table

        say(markdown_table(), nl=False)
        return
    header = ("model", "layers × heads × dim", "weights", "% at offset 0", "% at random offsets", "generalises")
    _print_table(header, catalogue()["zoo"])
    say("Accuracy at lengths 1-50, 51-100, 101-150. A model generalises from 90 % at 101-150, offset 0.")


class _Display:
    """Shows how training goes: a live line in a terminal, now and then a plain line elsewhere."""

    def __init__(self, task: "Task", steps: int, quiet: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from drasp.tasks import bin_name

        self._bins = [bin_name(low, high) for low, high in task.training_bins]
        self._quiet = quiet
        self._console = SafeConsole(highlight=False)
        self._spoken = 0.0
        self.live: Progress | None = None
        if self._console.is_terminal and not quiet:
            self.live = Progress(
                TextColumn("{task.description}", markup=False), BarColumn(20),
                MofNCompleteColumn(), TimeRemainingColumn(),
                console=self._console, transient=True,
            )  # fmt: skip
            self._bar = self.live.add_task("training", total=steps)

    def watch(self, progress: "TrainingProgress") -> None:
        import time

        shares = " ".join(
            f"{name} {100 * share.value:5.1f}%" for name, share in zip(self._bins, progress.accuracies, strict=True)
        )
        text = f"loss {progress.loss:.4f}  {shares}  {progress.steps_per_second:.0f} steps/s"
        if self.live is not None:
            self.live.update(self._bar, completed=progress.step, description=text)
        elif time.monotonic() - self._spoken > 10:
            self._spoken = time.monotonic()
            self.say(f"step {progress.step:,}  {text}")

    def say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, soft_wrap=True)


@contextmanager
def _display(task: "Task", steps: int, quiet: bool) -> Iterator[_Display]:
    display = _Display(task, steps, quiet)
    if display.live is None:
        yield display
    else:
        with display.live:
            yield display


def _summary(metrics: "Metrics") -> str:
    from drasp.training.recipe import OFFSETS

    longest = " and ".join(f"{100 * metrics.longest(offsets):.1f} % at {offsets}" for offsets in OFFSETS)
    return f"  {longest} at the longest lengths, {metrics.steps:,} steps"


def _print_metrics(metrics: "Metrics") -> None:
    columns = list(metrics.accuracies.items())
    rows = [
        (lengths, *(f"{100 * bins[lengths].value:.1f} %" for _, bins in columns))
        for lengths in next(iter(metrics.accuracies.values()))
    ]
    _print_table(("lengths", *(f"right at {offsets}" for offsets, _ in columns)), rows)


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table as wide as the terminal; into a file or a pipe, as wide as it must be."""
    from rich.table import Table
    from rich.text import Text

    console = SafeConsole(highlight=False, width=None if sys.stdout.isatty() else 400)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(header):
        table.add_column(name, overflow="fold", no_wrap=i == 0)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
