"""Training runs as the command line knows them: with an output folder, interrupted and resumed."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from drasp.errors import DraspError
from drasp.tasks import Task
from drasp.training.files import (
    check_out,
    load_state,
    read_metrics,
    save_state,
    state_file,
    whole_folder,
    write_model,
)
from drasp.training.loop import Progress, Run
from drasp.training.recipe import OFFSETS, Metrics, Recipe, grid

SAVE_SECONDS = 10.0
# A checkpoint is written when a bin's accuracy has risen by more than this since the last one.
RISE = 0.25

Watch = Callable[[Progress], None]


class InterruptedTrainingError(Exception):
    """By Ctrl-C, with the state saved."""

    def __init__(self, step: int) -> None:
        self.step = step


def train(
    task: Task,
    recipe: Recipe,
    out: Path,
    *,
    resume: bool = False,
    checkpoints: bool = False,
    threads: int = 1,
    watch: Watch = lambda _: None,
) -> Metrics:
    """Trains a model and writes it to `out`; with `checkpoints`, also to `out-STEP` on the way."""
    check_out(out)
    # Small models gain nothing from a second thread, and sums depend on how they are split among threads.
    torch.set_num_threads(threads)
    file = state_file(out)
    if file.exists() and not resume:
        raise DraspError(f"{file}: holds an interrupted run; go on with --resume, or remove it to begin again")
    run = Run(task, recipe, load_state(file, recipe) if resume else None)
    try:
        save_state(file, recipe, run.state)
        saved = time.monotonic()
        while not run.state.done:
            progress = run.advance(thorough=checkpoints)
            if checkpoints:
                _checkpoint(run, progress, out)
            watch(progress)
            if time.monotonic() - saved > SAVE_SECONDS:
                save_state(file, recipe, run.state)
                saved = time.monotonic()
        metrics = _write(run, out)
    except KeyboardInterrupt:
        save_state(file, recipe, run.state)
        raise InterruptedTrainingError(run.state.step) from None
    file.unlink()
    return metrics


def search(
    task: Task,
    given: dict[str, Any],
    out: Path,
    *,
    good: float,
    resume: bool = False,
    threads: int = 1,
    watch: Watch = lambda _: None,
    begun: Callable[[Recipe], None] = lambda _: None,
    ended: Callable[[Metrics], None] = lambda _: None,
) -> Metrics:
    """Trains the grid, small models first, until one is `good` at the longest lengths; writes the best."""
    check_out(out)
    folder = out.with_name(f"{out.name}.search")
    if folder.exists() and not resume:
        raise DraspError(f"{folder}: holds an interrupted search; go on with --resume, or remove it to begin again")
    if resume and not folder.exists():
        raise DraspError(f"{folder}: no interrupted search to resume; leave out --resume to begin one")
    tried: dict[Path, Metrics] = {}
    for recipe in grid(task, given):
        model = folder / recipe.name(task)
        if not model.exists():
            begun(recipe)
            train(task, recipe, model, resume=state_file(model).exists(), threads=threads, watch=watch)
            ended(read_metrics(model))
        tried[model] = read_metrics(model)
        if min(map(tried[model].longest, OFFSETS)) >= good:
            break
    best = max(tried, key=lambda model: tried[model].generalisation)
    with whole_folder(out) as whole:
        shutil.copytree(best, whole, dirs_exist_ok=True)
        log = {"chosen": best.name, "tried": {model.name: metrics.to_json() for model, metrics in tried.items()}}
        (whole / "search.json").write_text(json.dumps(log, indent=2) + "\n")
    shutil.rmtree(folder)
    return tried[best]


def _checkpoint(run: Run, progress: Progress, out: Path) -> None:
    now = tuple(share.value for share in progress.accuracies)
    before = run.state.saved or (0.0,) * len(now)
    if any(new - old > RISE for new, old in zip(now, before, strict=True)):
        run.state.saved = now
        folder = out.with_name(f"{out.name}-{progress.step}")
        # A resumed run comes by here again, with the same weights.
        if not folder.exists():
            _write(run, folder)


def _write(run: Run, out: Path) -> Metrics:
    metrics = Metrics(run.recipe, run.state.step, run.state.seconds, run.final_accuracies())
    write_model(out, run.shape, run.state.weights, run.task.name, metrics)
    return metrics
