"""`drasp.decompile`: a model and a task, however they are given, to a result, with progress on the way."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from drasp.decompiler.picking import Accept, Naming, check_accept, check_naming
from drasp.decompiler.pipeline import decompile as run
from drasp.doubts import doubts
from drasp.errors import DraspError
from drasp.progress import pass_line, pass_progress
from drasp.records import PassRecord
from drasp.results.certifying import with_certificate
from drasp.results.given import model_and_task
from drasp.results.result import Result
from drasp.settings import DEFAULT, QUICK
from drasp.tasks import TASKS, Task
from drasp.terminal import SafeConsole

Report = Callable[[PassRecord], None]


def decompile(
    model: Any,
    task: Task | str | Path | None = None,
    *,
    seed: int = 0,
    min_match: float = 0.9,
    max_lines: int = 40,
    quick: bool = False,
    method: str = "fast",
    accept: Accept = "causal",
    naming: Naming = "drasp",
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Result:
    """The shortest program found that does what a model does.

    `model` is a folder, a zoo model's name, or what `load_model` takes or gives; `task` a task, a task's name or
    `file.py:name`, and may be left out for a model that drasp trained. `progress=False` shows nothing on the way.
    """
    if not 0 <= min_match <= 1:
        raise DraspError(f"min_match={min_match}: expected a share of the inputs, from 0 to 1")
    if max_lines < 1:
        raise DraspError(f"max_lines={max_lines}: expected at least 1")
    criterion, library = check_accept(accept), check_naming(naming)
    transformer, its_task, folder = model_and_task(model, task)
    if its_task.name in TASKS and TASKS[its_task.name].source is not its_task.source:
        # By its name alone a result's folder would be taken for one of that task.
        raise DraspError(f"task {its_task.name}: is one of drasp's own tasks; call yours otherwise")
    if progress:
        for remark in doubts(transformer, its_task):
            print(f"warning: {remark}", file=sys.stderr)
    file, chosen = None if checkpoint is None else Path(checkpoint), QUICK if quick else DEFAULT
    with _one_thread(), _shown() if progress else nullcontext(_silent) as report:
        decompiled = run(
            transformer,
            its_task,
            seed,
            min_match,
            max_lines,
            report,
            chosen,
            file,
            resume,
            method,
            accept=criterion,
            naming=library,
        )
        decompiled = with_certificate(decompiled, transformer, its_task)
    return Result.of(decompiled, folder, its_task, transformer)


def _silent(_record: PassRecord) -> None:
    pass


@contextmanager
def _shown() -> Iterator[Report]:
    """A line that changes in a terminal; elsewhere, as in a notebook, a line for each pass that has ended."""
    console = SafeConsole(stderr=True)
    if console.is_terminal and not console.is_jupyter:
        with pass_progress(console) as live:
            yield live
        return
    ended: list[PassRecord] = []

    def report(record: PassRecord) -> None:
        if ended and ended[-1].name != record.name:
            print(pass_line(ended[-1]), file=sys.stderr)
        ended[:] = [record]

    yield report
    for record in ended:
        print(pass_line(record), file=sys.stderr)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keeps torch to one thread: small tensors gain nothing by more, and results would differ between machines."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
