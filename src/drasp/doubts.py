"""What a user should know before a model is decompiled: spare tokens, inputs it was not trained on, draws by chance."""

import numpy as np
import torch

from drasp.measure import Share, task_accuracy
from drasp.tasks import Task
from drasp.transformer import Transformer

_INPUTS = 200
_TRAINED = 0.5  # accuracy: below it, a model has no algorithm for the task to show
_BETTER = 0.3  # by so much more often right on some inputs than on all, which tells what the others are


def doubts(transformer: Transformer, task: Task) -> list[str]:
    """Remarks on a model and a task that it may not be for; none where nothing is amiss."""
    found: list[str] = []
    spare = task.vocabulary.tokens[len(task.source.vocabulary) :]
    if spare:
        names = spare[0] if len(spare) == 1 else f"{spare[0]} … {spare[-1]}"
        found.append(f"the model has {len(spare)} more tokens than task {task.name}; they are called {names}")
    inputs, again = (task.pool(_INPUTS, np.random.default_rng(0)) for _ in range(2))
    if not torch.equal(inputs.ids, again.ids):
        found.append(
            f"task {task.name} draws other inputs each time from the same rng: a run can be neither repeated nor "
            "resumed; draw with the rng that draw is given, and nothing else"
        )
    if inputs.targets is None:
        return found
    whole = task_accuracy(transformer, inputs, task.output)
    if whole.value >= _TRAINED:
        return found
    text = f"the model is right on only {whole} inputs of task {task.name}"
    at_zero = task_accuracy(
        transformer, task.pool(_INPUTS, np.random.default_rng(0), random_offsets=False), task.output
    )
    if bool(inputs.offsets.any()) and at_zero.value >= whole.value + _BETTER:
        text += (
            f"; where positions begin at 0 it is right on {at_zero}: the task draws offsets up to "
            f"{int(inputs.offsets.max())}, which it may never have seen (a sequence_task begins at 0)"
        )
    found.append(text + _by_length(transformer, task, whole))
    return found


def _by_length(transformer: Transformer, task: Task, whole: Share) -> str:
    """Whether it is the length of inputs that makes the difference."""
    for low, high in task.bins[:1] if len(task.bins) > 1 else ():
        short = task_accuracy(transformer, task.pool(_INPUTS, np.random.default_rng(0), low, high, False), task.output)
        if short.value >= whole.value + _BETTER:
            return f"; at lengths {low} to {high} it is right on {short}: others may be longer than it was trained on"
    return ""
