"""Training runs as the command line knows them: with an output folder, interrupted and resumed."""

import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from drasp.errors import DraspError
from drasp.input_files import MAX_TENSORS, is_there, read_bytes
from drasp.output_folder import check_output_folder, remove_file, reserved, write_files
from drasp.tasks import Task
from drasp.training.files import is_state_of, load_state, read_metrics, save_state, state_file, write_model
from drasp.training.loop import TrainingProgress, TrainingRun
from drasp.training.recipe import OFFSETS, Metrics, Recipe, grid

SAVE_SECONDS = 10.0
# A checkpoint is written when a bin's accuracy has risen by more than this since the last one.
RISE = 0.25

Watch = Callable[[TrainingProgress], None]


class InterruptedTrainingError(Exception):
    """Training was interrupted by Ctrl-C, with the state saved."""

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
    check_place(out, recipe)
    # Small models gain nothing from a second thread, and sums depend on how they are split among threads.
    torch.set_num_threads(threads)
    file = state_file(out)
    if is_there(file) and not resume:
        raise DraspError(f"{file}: holds an interrupted run; go on with --resume, or remove it to begin again")
    run = TrainingRun(task, recipe, load_state(file, recipe) if resume else None)
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
    remove_file(file)
    return metrics


def check_place(out: Path, recipe: Recipe) -> None:
    """Refuses a place where something is. If that is the model of this recipe, a state beside it has nothing to go on
    with any more: its run was killed when the model was there, and it goes.
    """
    try:
        check_output_folder(out, new=True)
    except DraspError:
        if out.name:  # `.` and `/` are no models, and have no place beside them
            file = state_file(out)
            with suppress(DraspError), reserved(out):
                # A run that was killed last of all has left no state, but the lock on it.
                if read_metrics(out).recipe == recipe and (not is_there(file) or is_state_of(file, recipe)):
                    remove_file(file)
        raise


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
    check_output_folder(out, new=True)
    folder = out.with_name(f"{out.name}.search")
    if is_there(folder) and not resume:
        raise DraspError(f"{folder}: holds an interrupted search; go on with --resume, or remove it to begin again")
    if resume and not is_there(folder):
        raise DraspError(f"{folder}: no interrupted search to resume; leave out --resume to begin one")
    tried: dict[Path, Metrics] = {}
    for recipe in grid(task, given):
        model = folder / recipe.name(task)
        if not is_there(model):
            begun(recipe)
            train(task, recipe, model, resume=is_there(state_file(model)), threads=threads, watch=watch)
            ended(read_metrics(model))
        tried[model] = read_metrics(model)
        if min(map(tried[model].longest, OFFSETS)) >= good:
            break
    best = max(tried, key=lambda model: tried[model].generalisation)
    log = {"chosen": best.name, "tried": {model.name: metrics.to_json() for model, metrics in tried.items()}}
    files = {file.name: read_bytes(file, MAX_TENSORS) for file in best.iterdir()}
    write_files(out, files | {"search.json": (json.dumps(log, indent=2) + "\n").encode()}, new=True)
    shutil.rmtree(folder)
    return tried[best]


def _checkpoint(run: TrainingRun, progress: TrainingProgress, out: Path) -> None:
    now = tuple(share.value for share in progress.accuracies)
    before = run.state.saved or (0.0,) * len(now)
    if any(new - old > RISE for new, old in zip(now, before, strict=True)):
        run.state.saved = now
        folder = out.with_name(f"{out.name}-{progress.step}")
        # A resumed run comes by here again, with the same weights.
        if not is_there(folder):
            _write(run, folder)


def _write(run: TrainingRun, out: Path) -> Metrics:
    metrics = Metrics(run.recipe, run.state.step, run.state.seconds, run.final_accuracies())
    write_model(out, run.shape, run.state.weights, run.task.name, metrics)
    return metrics
