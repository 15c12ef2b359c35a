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
    try:
        return transformer, task and task.fitted(transformer.n_vocab, transformer.n_positions)
    except DraspError as error:
        raise DraspError(f"{model}: {error}") from None
