"""The commands as a user runs them."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
import torch

from drasp.cli import main
from drasp.model_files import read_folder

ONE_CORE = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
TRAIN = ["train", "bin_majority", "--dropout", "0.1", "--steps", "700", "--patience", "99"]


@dataclass
class CommandResult:
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def drasp(monkeypatch, capsys, tmp_path):
    """Runs the command in an empty folder, in this process."""

    def run(*arguments: str) -> CommandResult:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["drasp", *arguments])
        try:
            main()
            code: int | str | None = 0
        except SystemExit as end:
            code = end.code
        out, err = capsys.readouterr()
        # Python prints a message given to sys.exit, and ends with 1.
        return CommandResult(1, out, f"{err}{code}\n") if isinstance(code, str) else CommandResult(code or 0, out, err)

    return run


def test_tasks_are_listed_with_examples(drasp):
    result = drasp("tasks")
    assert result.code == 0
    assert len(result.stdout.splitlines()) == 29
    assert "BOS a b a b EOS" in result.stdout


@pytest.mark.long
def test_killed_and_resumed_ends_like_an_uninterrupted_run(drasp, tmp_path):
    """Of so many steps that a run does not end before it is stopped, even where other work comes between."""
    train = [*TRAIN, "--steps", "6000"]
    assert drasp(*train, "--out", "whole", "--quiet").stdout == ""
    command = [sys.executable, "-c", "from drasp.cli import main; main()", *train, "--out", "cut"]
    for how in (signal.SIGINT, signal.SIGKILL):
        more = ["--resume"] if how == signal.SIGKILL else []
        process = subprocess.Popen(
            [*command, *more], cwd=tmp_path, env=ONE_CORE, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(how)
        _, errors = process.communicate(timeout=60)
        assert not (tmp_path / "cut").exists()
        if how == signal.SIGINT:
            assert process.returncode == 130
            assert errors.count("\n") == 1
            assert "interrupted at step" in errors
            assert errors.rstrip().endswith("--out cut --resume")
    assert drasp(*train, "--out", "cut", "--resume").code == 0
    whole, cut = (read_folder(tmp_path / name)[1] for name in ("whole", "cut"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_the_folder_is_named_after_the_options(drasp, tmp_path):
    result = drasp("train", "tomita1", "--steps", "20")
    assert "wrote tomita1-1l1h16d3lr00drop" in result.stdout
    assert sorted(p.name for p in (tmp_path / "tomita1-1l1h16d3lr00drop").iterdir()) == [
        "config.json",
        "metrics.json",
        "model.safetensors",
        "task.json",
    ]


def test_an_own_task_is_trained_and_remembered_by_name(drasp, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from drasp.tasks import Language, language_task\nmine = language_task('mine', Language('ab', '(ab)*'))\n"
    )
    assert drasp("train", "mine.py:mine", "--steps", "20", "--out", "m").code == 0
    assert json.loads((tmp_path / "m" / "task.json").read_text())["task"] == "mine"
    refused = drasp("translate", "m", "--out", "out").stderr
    assert "task.json: 'mine' is not a task of drasp's own; name the task with --task file.py:name" in refused
    assert drasp("translate", "m", "--task", "mine.py:mine", "--out", "out").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "parety"], "unknown task 'parety'; the nearest are parity"),
        (["train", "none.py:mine"], "none.py: no such file; expected a task file"),
        (["train", "sort", "--heads", "3"], "--dim 16: expected a multiple of --heads 3"),
        (["train", "sort", "--out", "/proc/nowhere/m"], "/proc"),
        (["train", "sort", "--search", "--checkpoints"], "--checkpoints: a search keeps only the best"),
        (["train", "sort", "--resume"], "no interrupted run to resume"),
    ],
)
def test_bad_input_ends_in_one_line(arguments, message, drasp, tmp_path):
    result = drasp(*arguments)
    assert result.code != 0
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_the_zoo_is_listed(drasp):
    result = drasp("zoo")
    assert result.code == 0
    assert "bin_majority" in result.stdout
