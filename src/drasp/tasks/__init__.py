"""The tasks that models are trained on: eleven algorithms, 17 finite-state languages, and a user's own."""

from drasp.tasks.automaton import Language
from drasp.tasks.loading import TASKS, load_task, recorded_task, task_of_model
from drasp.tasks.task import BINS, EDITS, MAX_LENGTH, EditKind, Inputs, Task, answer_task, each_row, language_task

__all__ = [
    "BINS",
    "EDITS",
    "MAX_LENGTH",
    "TASKS",
    "EditKind",
    "Inputs",
    "Language",
    "Task",
    "answer_task",
    "each_row",
    "language_task",
    "load_task",
    "recorded_task",
    "task_of_model",
]
