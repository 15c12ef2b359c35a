"""A training run on disk: its state while it lasts, the model's folder when it ends. Nothing half-written."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drasp.errors import DraspError
from drasp.input_files import read_json, read_tensors_and_facts
from drasp.model_files import model_files
from drasp.output_folder import write_files, write_tensors_and_facts
from drasp.records import WrongFieldError, typed
from drasp.tasks.loading import TASK_FILE
from drasp.training.loop import TrainingState
from drasp.training.recipe import Metrics, Recipe
from drasp.transformer import Shape

METRICS_FILE = "metrics.json"
_WEIGHT, _MOMENT, _DROPOUT = "weight/", "moment/", "dropout"


def state_file(out: Path) -> Path:
    """The file of the state of a run that will end in `out`: beside it, until it ends."""
    return out.with_name(f"{out.name}.training")


def save_state(file: Path, recipe: Recipe, state: TrainingState) -> None:
    """Writes the state of a run to one file, so that there is always a whole one: the old or the new."""
    tensors = {_WEIGHT + name: w for name, w in state.weights.items()}
    tensors |= {f"{_MOMENT}{key}/{name}": m for name, ms in state.moments.items() for key, m in ms.items()}
    if state.dropout is not None:
        tensors[_DROPOUT] = state.dropout
    facts = {
        "recipe": asdict(recipe),
        "step": state.step,
        "draws": state.draws,
        "seconds": state.seconds,
        "saved": state.saved,
        "faultless_tests": state.faultless_tests,
        "done": state.done,
        "threads": torch.get_num_threads(),
    }
    write_tensors_and_facts(file, tensors, "state", facts)


def load_state(file: Path, recipe: Recipe) -> TrainingState:
    """The state in `file`, which must be one of the same recipe and number of threads: it is to end the same."""
    found = read_tensors_and_facts(file, "state")
    if found is None:
        raise DraspError(f"{file}: no interrupted run to resume; leave out --resume to begin one")
    tensors, content = found
    try:
        facts = typed(_Facts, content)
        return _state(tensors, facts, recipe, file)
    except (WrongFieldError, ValueError) as error:
        raise DraspError(f"{file}: not the state of a training run ({error}); remove it to begin again") from None


def is_state_of(file: Path, recipe: Recipe) -> bool:
    """Whether a file holds the state of a run of this recipe."""
    found = read_tensors_and_facts(file, "state")
    return found is not None and found[1].get("recipe") == asdict(recipe)


@dataclass(frozen=True)
class _Facts:
    """What a state's file holds beside tensors."""

    recipe: dict[str, Any]
    step: int
    draws: dict[str, Any] | None
    seconds: float
    saved: tuple[float, ...]
    faultless_tests: int
    done: bool
    threads: int


def _state(tensors: Mapping[str, Tensor], facts: _Facts, recipe: Recipe, file: Path) -> TrainingState:
    begun = facts.recipe | {"threads": facts.threads}
    for name, value in (asdict(recipe) | {"threads": torch.get_num_threads()}).items():
        if begun.get(name) != value:
            raise DraspError(f"{file}: was begun with --{name} {begun.get(name)}, found {value}; use the same options")
    weights, moments = {}, {}
    for name, tensor in tensors.items():
        if name.startswith(_WEIGHT):
            weights[name.removeprefix(_WEIGHT)] = tensor
        elif name.startswith(_MOMENT):
            key, weight = name.removeprefix(_MOMENT).split("/")
            moments.setdefault(weight, {})[key] = tensor
    return TrainingState(
        weights=weights,
        step=facts.step,
        moments=moments,
        draws=facts.draws,
        dropout=tensors[_DROPOUT].cpu() if _DROPOUT in tensors else None,
        seconds=facts.seconds,
        saved=facts.saved,
        faultless_tests=facts.faultless_tests,
        done=facts.done,
    )


def write_model(out: Path, shape: Shape, weights: Mapping[str, Tensor], task: str, metrics: Metrics) -> None:
    """Writes a GPT-2 folder that knows its task by name, and its accuracies."""
    more = {TASK_FILE: task_json(task), METRICS_FILE: _json(metrics.to_json())}
    write_files(out, model_files(shape, weights) | more, new=True)


def task_json(task: str) -> bytes:
    """What a model's folder says of the task that it is for."""
    return _json({"schema_version": 1, "task": task})


def read_metrics(folder: Path) -> Metrics:
    file = folder / METRICS_FILE
    content = read_json(file, "the metrics that `drasp train` writes")
    try:
        return Metrics.from_json(content)
    except (WrongFieldError, DraspError) as error:
        raise DraspError(f"{file}: {error}; expected the metrics that `drasp train` writes") from None


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()
