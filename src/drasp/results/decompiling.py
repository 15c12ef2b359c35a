"""`drasp.decompile`: a model and a task, however they are given, to a result, with progress on the way."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from drasp.decompiler.pipeline import Accept
from drasp.decompiler.pipeline import decompile as run
from drasp.doubts import doubts
from drasp.errors import DraspError
from drasp.loading import fitted_task
from drasp.model_files import load_model
from drasp.records import PassRecord
from drasp.results.result import Result
from drasp.tasks import Task, load_task, task_of_model
from drasp.transformer import Transformer
from drasp.zoo import resolve_model

Report = Callable[[PassRecord], None]


def decompile(
    model: Any,
    task: Task | str | None = None,
    *,
    seed: int = 0,
    min_match: float = 0.9,
    max_lines: int = 40,
    quick: bool = False,
    method: str = "fast",
    accept: Accept = "causal",
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Result:
    """The shortest program found that does what a model does.

    `model` is a folder, a zoo model's name, or what `load_model` takes or gives; `task` a task, a task's name or
    `file.py:name`, and may be left out for a model that drasp trained. `progress=False` shows nothing on the way.
    """
    folder = resolve_model(str(model)) if isinstance(model, str | Path) else None
    transformer = model if isinstance(model, Transformer) else load_model(folder or model)
    found = load_task(task) if isinstance(task, str) else task
    if found is None and folder is not None:
        found = task_of_model(folder)
    if found is None:
        raise DraspError(f"{folder or 'the model'}: does not say what it was trained on; give a task")
    its_task = fitted_task(found, transformer, str(folder or "the model"))
    if progress:
        for remark in doubts(transformer, its_task):
            print(f"warning: {remark}", file=sys.stderr)
    file = None if checkpoint is None else Path(checkpoint)
    with _one_thread(), _shown() if progress else nullcontext(_silent) as report:
        decompiled = run(
            transformer, its_task, seed, min_match, max_lines, report, quick, file, resume, method, accept=accept
        )
    return Result.of(decompiled, str(folder or ""), its_task, transformer)


def _silent(_record: PassRecord) -> None:
    pass


@contextmanager
def _shown() -> "Iterator[Report]":
    """A line that changes in a terminal; elsewhere, as in a notebook, a line for each pass that has ended."""
    from rich.console import Console

    from drasp.cli.show import pass_progress

    console = Console(stderr=True)
    if console.is_terminal and not console.is_jupyter:
        with pass_progress(console) as live:
            yield live
        return
    ended: list[PassRecord] = []

    def report(record: PassRecord) -> None:
        if ended and ended[-1].name != record.name:
            _print(ended[-1])
        ended[:] = [record]

    yield report
    for record in ended:
        _print(record)


def _print(record: PassRecord) -> None:
    left = f"{record.left:4} {record.unit} left, agreement {record.match_accuracy:.3f}"
    print(f"{record.seconds:7.1f} s  {record.name:20} {left}", file=sys.stderr)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Small tensors gain nothing by more threads, and results would differ with the number of a machine's cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
