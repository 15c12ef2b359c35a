"""A model and the task that it was trained on, from what a user typed."""

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
    return transformer, None if task is None else fitted_task(task, transformer, model)


def fitted_task(task: Task, transformer: Transformer, model: str) -> Task:
    """The task with names for all tokens of a model: a model may have more than the task needs, and more positions."""
    try:
        return task.fitted(transformer.n_vocab, transformer.n_positions)
    except DraspError as error:
        raise DraspError(f"{model}: {error}") from None
