"""A model and the task that it was trained on, from what a user typed."""

from dataclasses import replace

from drasp.errors import DraspError
from drasp.model_files import load_model
from drasp.tasks import Task, load_task, task_of_model
from drasp.transformer import Transformer
from drasp.zoo import resolve_model


def load_model_and_task(model: str, task_name: str | None) -> tuple[Transformer, Task | None]:
    """The task is the one named, or the one that the model's folder names; it must fit the model."""
    folder = resolve_model(model)
    transformer = load_model(folder)
    task = load_task(task_name) if task_name else task_of_model(folder)
    return transformer, None if task is None else fitted_task(task, transformer, f"the model {model}")


def fitted_task(task: Task, transformer: Transformer, model: str) -> Task:
    """The task with names for all tokens of a model: a model may have more than the task needs, and more positions."""
    if len(task.vocabulary) > transformer.n_vocab:
        needed, there = len(task.vocabulary), transformer.n_vocab
        raise DraspError(f"--task {task.name}: has {needed} tokens, but {model} has {there}")
    if task.n_positions > transformer.n_positions:
        needed, there = task.n_positions, transformer.n_positions
        raise DraspError(f"--task {task.name}: needs {needed} positions, but {model} has {there}")
    if len(task.vocabulary) == transformer.n_vocab:
        return task
    return replace(task, vocabulary=task.vocabulary.widened(transformer.n_vocab))
