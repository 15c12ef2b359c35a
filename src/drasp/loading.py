"""A model and the task that it was trained on, from what a user typed."""

import difflib
from pathlib import Path

import torch

from drasp import model_files
from drasp.errors import DraspError
from drasp.input_files import found_at, is_folder, is_there
from drasp.model_files import ModelSource
from drasp.tasks import Task, load_task, task_of_model
from drasp.transformer import Transformer

# What helps where a file is given for a folder.
_CHECKPOINTS = (".pt", ".pth", ".safetensors")
_OF_CHECKPOINTS = "; give its folder, or make one of a TransformerLens or nanoGPT checkpoint with `drasp import`"
ZOO_FOLDER = Path(__file__).parent / "zoo_models"


def resolve_model(name: str | Path) -> Path:
    """The folder that a user means: a folder of their own, or a model of the zoo by its name."""
    folder = Path(name)
    if is_folder(folder):
        return folder
    names = [path.name for path in ZOO_FOLDER.iterdir() if path.is_dir()] if ZOO_FOLDER.is_dir() else []
    if str(name) in names:
        return ZOO_FOLDER / name
    if is_there(folder):
        hint = _OF_CHECKPOINTS if folder.suffix in _CHECKPOINTS else ""
        raise DraspError(
            f"{folder}: expected a GPT-2 folder or the name of a zoo model, found {found_at(folder)}{hint}"
        )
    if not names:
        raise DraspError(f"{name}: no such folder, and the zoo is not installed (pip install 'drasp[zoo]')")
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    hint = f"the zoo has {', '.join(near)}" if near else "`drasp zoo` lists the zoo's models"
    raise DraspError(f"{name}: no such folder, and no zoo model of that name; {hint}")


def load_model(source: ModelSource, device: torch.device | str | None = None) -> Transformer:
    """The transformer in a folder, of a zoo model's name, or in a model of transformers or TransformerLens in memory.

    Its tensors are on torch's default device, or on another. What is a `Transformer` already is given back as it is.
    """
    return model_files.load_model(resolve_model(source) if isinstance(source, str | Path) else source, device)


def load_model_and_task(model: ModelSource, task: Task | str | Path | None = None) -> tuple[Transformer, Task | None]:
    """A model and the task that is given, or else the one that the model's folder names; it must fit the model."""
    folder = resolve_model(model) if isinstance(model, str | Path) else None
    transformer = model_files.load_model(model if folder is None else folder)
    if task is not None:
        found = load_task(task)
    else:
        found = None if folder is None else task_of_model(folder)
    name = "the model" if folder is None else str(model)
    return transformer, None if found is None else fitted_task(found, transformer, name)


def fitted_task(task: Task, transformer: Transformer, model: str) -> Task:
    """The task with names for all tokens of a model: a model may have more than the task needs, and more positions."""
    try:
        return task.fitted(transformer.n_vocab, transformer.n_positions)
    except DraspError as error:
        raise DraspError(f"{model}: {error}") from None
