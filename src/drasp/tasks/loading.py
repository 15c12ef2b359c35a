"""Finds a task by its name, in a file that a user names, or in the folder of a model trained on it."""

import difflib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from drasp.errors import DraspError
from drasp.input_files import read_json_if_there, read_text
from drasp.tasks.algorithmic import ALGORITHMIC
from drasp.tasks.languages import LANGUAGES
from drasp.tasks.task import Task

TASKS: dict[str, Task] = {task.name: task for task in (*ALGORITHMIC, *LANGUAGES)}
TASK_FILE = "task.json"


def load_task(task: str | Path | Task) -> Task:
    """The task of a name, or for `file.py:name` the one that the file calls `name`; a task is given back as it is."""
    if isinstance(task, Task):
        return task
    if not isinstance(task, str | Path):
        found = f"the {type(task).__name__} {getattr(task, '__name__', repr(task))}"
        raise DraspError(f"expected a task, a task's name or file.py:name, found {found}")
    spec = str(task)
    if spec in TASKS:
        return TASKS[spec]
    file, colon, name = spec.rpartition(":")
    if colon and file.endswith(".py"):
        return _from_file(Path(file), name)
    if spec.endswith(".py"):
        raise DraspError(f"task {spec}: expected file.py:name, found no name")
    near = difflib.get_close_matches(spec, TASKS, n=3, cutoff=0.4)
    hint = f"the nearest are {', '.join(near)}" if near else "`drasp tasks` lists them"
    raise DraspError(f"unknown task {spec!r}; {hint} (your own is given as file.py:name)")


def task_of_model(folder: Path) -> Task | None:
    """The built-in task that the model in `folder` was trained on, where it says so."""
    file = folder / TASK_FILE
    expected = 'a JSON object such as {"task": "bin_majority"}'
    content = read_json_if_there(file, expected)
    if content is None:
        return None
    if "task" not in content:
        raise DraspError(f"{file}: task is missing; expected {expected}")
    return recorded_task(content["task"], file)


def recorded_task(name: object, file: Path) -> Task:
    """The built-in task that a file names. Files may come from anybody: what they name is never run."""
    if not isinstance(name, str) or name not in TASKS:
        raise DraspError(f"{file}: {name!r} is not a task of drasp's own; name the task with --task file.py:name")
    return TASKS[name]


def _from_file(file: Path, name: str) -> Task:
    module = _run(file)
    found = getattr(module, name, None)
    if isinstance(found, Task):
        if TASKS.get(found.name, found) is not found:
            raise DraspError(f"task file {file}: {found.name!r} is one of drasp's own tasks; call yours otherwise")
        return found
    tasks = [key for key, value in vars(module).items() if isinstance(value, Task)]
    has = f"it defines {', '.join(tasks)}" if tasks else "it defines no task"
    if found is None:
        raise DraspError(f"task file {file}: nothing is called {name!r}; {has}")
    raise DraspError(f"task file {file}: expected {name!r} to be a Task, found {type(found).__name__}; {has}")


def _run(file: Path) -> ModuleType:
    text = read_text(file, "a task file")
    module = ModuleType(f"drasp_user_task_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look there
    try:
        exec(compile(text, str(file), "exec"), vars(module))
    except KeyboardInterrupt:
        raise
    except SyntaxError as error:
        raise DraspError(f"task file {file}, line {error.lineno}: {error.msg}") from None
    except BaseException as error:  # `sys.exit` among them: a task file ends nothing but itself
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        where = f", line {lines[-1]}" if lines else ""
        raise DraspError(f"task file {file}{where}: {type(error).__name__}: {error}") from None
    return module
