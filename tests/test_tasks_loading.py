"""Tasks by name, from a user's file, and from a model's folder."""

import json
from pathlib import Path

import numpy as np
import pytest

from drasp.errors import DraspError
from drasp.tasks import TASKS, load_task, task_of_model

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "own_task.py"


def test_by_name():
    assert load_task("bin_majority") is TASKS["bin_majority"]


def test_unknown_names_give_the_nearest():
    with pytest.raises(DraspError, match="unknown task 'bin_majorty'; the nearest are bin_majority"):
        load_task("bin_majorty")
    with pytest.raises(DraspError, match="`drasp tasks` lists them"):
        load_task("zzzzzz")


def test_the_documented_example_works():
    last = load_task(f"{EXAMPLE}:last_letter")
    inputs = last.pool(50, np.random.default_rng(0))
    for row, size in zip(inputs.ids.tolist(), inputs.sizes.tolist(), strict=True):
        tokens = [last.vocabulary.tokens[i] for i in row[:size]]
        assert tokens[-3] == "SEP" or tokens[-1] == "EOS"
        assert tokens[-2] == tokens[-4]
    no_bb = load_task(f"{EXAMPLE}:no_bb")
    assert no_bb.output == "sigmoid"
    words = no_bb.pool(50, np.random.default_rng(0))
    assert not any(" 1 1" in " ".join(map(str, row)) for row in words.ids.tolist())
    assert EXAMPLE.read_text() in (EXAMPLE.parents[1] / "tasks.md").read_text()


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("x = = 1", "x", r"task.py, line 1: invalid syntax"),
        ("\nimport nothing_of_that_name", "x", "task.py, line 2: ModuleNotFoundError"),
        (
            "from dataclasses import replace\nfrom drasp.tasks import TASKS\nx = replace(TASKS['sort'], about='')",
            "x",
            "'sort' is one of drasp's own tasks; call yours otherwise",
        ),
        ("x = 1", "x", "expected 'x' to be a Task, found int; it defines no task"),
        ("from drasp.tasks import TASKS\nmine = TASKS['sort']", "x", "nothing is called 'x'; it defines mine"),
    ],
)
def test_files_with_errors(tmp_path, content, name, message):
    (tmp_path / "task.py").write_text(content)
    with pytest.raises(DraspError, match=message) as error:
        load_task(f"{tmp_path / 'task.py'}:{name}")
    assert "\n" not in str(error.value)


def test_missing_file_or_name(tmp_path):
    with pytest.raises(DraspError, match="no such file"):
        load_task(f"{tmp_path}/none.py:task")
    with pytest.raises(DraspError, match=r"expected file.py:name"):
        load_task(str(EXAMPLE))


def test_the_task_of_a_model(tmp_path):
    assert task_of_model(tmp_path) is None
    (tmp_path / "task.json").write_text(json.dumps({"task": "sort"}))
    assert task_of_model(tmp_path) is TASKS["sort"]
    for name in ("moved.py:mine", "srt", 3, None):
        (tmp_path / "task.json").write_text(json.dumps({"task": name}))
        with pytest.raises(DraspError, match=r"task.json: .* is not a task of drasp's own; name the task with --task"):
            task_of_model(tmp_path)
    (tmp_path / "task.json").write_text("[]")
    with pytest.raises(DraspError, match="expected a JSON object"):
        task_of_model(tmp_path)
