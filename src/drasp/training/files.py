"""A training run on disk: its state while it lasts, the model's folder when it ends. Nothing half-written."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from drasp.errors import DraspError
from drasp.model_files import write_folder
from drasp.tasks.loading import TASK_FILE
from drasp.training.loop import State
from drasp.training.recipe import Metrics, Recipe
from drasp.transformer import Shape

METRICS_FILE = "metrics.json"
_WEIGHT, _MOMENT, _DROPOUT = "weight/", "moment/", "dropout"


def state_file(out: Path) -> Path:
    """Where the state of a run that will end in `out` is kept: beside it, until it ends."""
    return out.with_name(f"{out.name}.training")


def save_state(file: Path, recipe: Recipe, state: State) -> None:
    """One file, so that there is always a whole one: the old or the new."""
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
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        _save_tensors(temporary, tensors, {"state": json.dumps(facts)})
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def load_state(file: Path, recipe: Recipe) -> State:
    """The state in `file`, which must be one of the same recipe and number of threads: it is to end the same."""
    try:
        with safe_open(file, "pt", str(torch.get_default_device())) as stored:
            facts = json.loads(stored.metadata()["state"])
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise DraspError(f"{file}: no interrupted run to resume; leave out --resume to begin one") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        raise DraspError(f"{file}: not the state of a training run; remove it to begin again") from None
    begun = facts["recipe"] | {"threads": facts["threads"]}
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
    return State(
        weights=weights,
        step=facts["step"],
        moments=moments,
        draws=facts["draws"],
        dropout=tensors[_DROPOUT].cpu() if _DROPOUT in tensors else None,
        seconds=facts["seconds"],
        saved=tuple(facts["saved"]),
        faultless_tests=facts["faultless_tests"],
        done=facts["done"],
    )


def write_model(out: Path, shape: Shape, weights: Mapping[str, Tensor], task: str, metrics: Metrics) -> None:
    """A GPT-2 folder that knows its task by name, and its accuracies."""
    with whole_folder(out) as folder:
        write_folder(folder, shape, weights)
        _write_json(folder / TASK_FILE, {"schema_version": 1, "task": task})
        _write_json(folder / METRICS_FILE, metrics.to_json())


def read_metrics(folder: Path) -> Metrics:
    file = folder / METRICS_FILE
    try:
        return Metrics.from_json(json.loads(file.read_text()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise DraspError(f"{file}: expected the metrics that `drasp train` writes") from None


def check_out(out: Path) -> None:
    """Before hours of work: is the place free, and can it be written?"""
    if out.exists() or out.is_symlink():
        raise DraspError(f"{out}: exists already; choose another --out, or remove it")
    parent = out.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise DraspError(f"{out}: {parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise DraspError(f"{out}: cannot write to {parent}; choose another --out")


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A temporary folder that becomes `out` when all is written, and vanishes when something fails."""
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    temporary.mkdir()
    try:
        yield temporary
        temporary.rename(out)
    except SafetensorError as error:
        raise DraspError(f"{out}: could not be written ({error})") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _save_tensors(file: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    try:
        save_file(tensors, file, metadata)
    except SafetensorError as error:
        raise DraspError(f"{file.parent}: could not be written ({error})") from None


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n")
