"""The commands as a user runs them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from drasp.model_files import read_folder

ONE_CORE = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
TRAIN = ["train", "bin_majority", "--dropout", "0.1", "--steps", "700", "--patience", "99"]


def drasp(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from drasp.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=ONE_CORE, timeout=120)


def test_tasks_are_listed_with_examples(tmp_path):
    result = drasp("tasks", cwd=tmp_path)
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == 29
    assert "BOS a b a b EOS" in result.stdout


def test_killed_and_resumed_ends_like_an_uninterrupted_run(tmp_path):
    assert drasp(*TRAIN, "--out", "whole", "--quiet", cwd=tmp_path).stdout == ""
    command = [sys.executable, "-c", "from drasp.cli import main; main()", *TRAIN, "--out", "cut"]
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
    assert drasp(*TRAIN, "--out", "cut", "--resume", cwd=tmp_path).returncode == 0
    whole, cut = (read_folder(tmp_path / name)[1] for name in ("whole", "cut"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_the_folder_is_named_after_the_options(tmp_path):
    result = drasp("train", "tomita1", "--steps", "100", cwd=tmp_path)
    assert "wrote tomita1-1l1h16d3lr00drop" in result.stdout
    assert sorted(p.name for p in (tmp_path / "tomita1-1l1h16d3lr00drop").iterdir()) == [
        "config.json",
        "metrics.json",
        "model.safetensors",
        "task.json",
    ]


def test_an_own_task_is_trained_and_remembered(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from drasp.tasks import Language, language_task\nmine = language_task('mine', Language('ab', '(ab)*'))\n"
    )
    assert drasp("train", "mine.py:mine", "--steps", "100", "--out", "m", cwd=tmp_path).returncode == 0
    assert f"{tmp_path / 'mine.py'}:mine" in (tmp_path / "m" / "task.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "parety"], "unknown task 'parety'; the nearest are parity"),
        (["train", "none.py:mine"], "task file none.py: no such file"),
        (["train", "sort", "--heads", "3"], "--dim 16: expected a multiple of --heads 3"),
        (["train", "sort", "--out", "/proc/nowhere/m"], "/proc"),
        (["train", "sort", "--search", "--checkpoints"], "--checkpoints: a search keeps only the best"),
        (["train", "sort", "--resume"], "no interrupted run to resume"),
    ],
)
def test_bad_input_ends_in_one_line(arguments, message, tmp_path):
    result = drasp(*arguments, cwd=tmp_path)
    assert result.returncode != 0
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_the_zoo_is_listed(tmp_path):
    result = drasp("zoo", cwd=tmp_path)
    assert result.returncode == 0
    assert "bin_majority" in result.stdout
