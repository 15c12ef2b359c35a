"""The tasks that models are trained on: eleven algorithms, 17 finite-state languages, and a user's own."""

from drasp.tasks.automaton import Language
from drasp.tasks.framed import BINS, MAX_LENGTH, answer_task, each_row, language_task
from drasp.tasks.loading import TASKS, load_task, recorded_task, task_of_model
from drasp.tasks.sequence import sequence_task
from drasp.tasks.task import EDITS, EditKind, Inputs, Task, bin_name

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
    "bin_name",
    "each_row",
    "language_task",
    "load_task",
    "recorded_task",
    "sequence_task",
    "task_of_model",
]
