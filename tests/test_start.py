"""What the command says at once: version, help, lists and what is about to be done, without waiting for torch."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command import drasp, fails
from drasp import demo
from drasp.cli.catalogue import catalogue, made
from drasp.estimate import Estimate, duration, estimate
from drasp.loading import load_model
from drasp.progress import time_left
from drasp.tasks import TASKS
from start import COMMANDS, DRASP, save_large, seconds, until_told

ZOO = Path(__file__).parents[1] / "src/drasp/zoo_models"
RUN = "import sys; from drasp.cli import main; main({!r}); assert 'torch' not in sys.modules"


@pytest.mark.parametrize("command", ["--help", "--version", "tasks", "zoo", "decompile --help"])
def test_torch_is_not_loaded(command: str):
    code = RUN.format(command.split())
    if "help" in command or command == "--version":  # these end by themselves
        code = code.replace("main(", "\ntry: main(").replace("; assert", "\nexcept SystemExit: pass\nassert")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_lists_are_those_of_the_tasks_and_models():
    assert catalogue() == json.loads(json.dumps(made())), "write it anew: python -m drasp.cli.catalogue"


def test_version_and_completion(monkeypatch):
    assert drasp("--version").out.startswith("drasp ")
    module = subprocess.run([sys.executable, "-m", "drasp", "--version"], capture_output=True, text=True, timeout=60)
    assert module.stdout == drasp("--version").out
    monkeypatch.setenv("_DRASP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "drasp exp")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert drasp().out.split() == ["explain", "explore", "export"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("decompile tomita", ["tomita1", "tomita2", "tomita4", "tomita7"]),
        ("decompile x --task tomita", [f"tomita{i}" for i in range(1, 8)]),
        ("train D", ["D12", "D2", "D3", "D4"]),
        ("verify result my", ["my-model"]),
        ("decompile x --method ", ["fast", "ugs"]),
        ("decompile x --accept c", ["causal"]),
    ],
)
def test_models_tasks_and_choices_are_completed(words: str, found: list[str], monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").mkdir()
    (tmp_path / "my-file").touch()
    monkeypatch.setenv("_DRASP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"drasp {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
    assert sorted(drasp().out.split()) == found


def test_without_a_command_there_is_the_help_and_nothing_else():
    done = drasp()
    assert "Commands" in done.out
    assert done.err == ""


def test_several_models_in_one_call(tmp_path):
    done = drasp("decompile", "bin_majority", ZOO / "tomita2", "--quick", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.is_dir()) == ["bin_majority", "tomita2"]
    assert "decompiling bin_majority: 1 layer, 1 head, 16 dimensions; may take " in done.err
    assert " operations named, " in done.out.splitlines()[-1]
    said = fails("decompile", "tomita1", ZOO / "tomita1", "--out", tmp_path / "other")
    assert "two models of the same name" in said
    assert "--pick takes" in fails("decompile", "tomita1", "tomita2", "--pick", "2", "--out", tmp_path / "out")


def test_an_estimate_grows_with_the_model():
    task = TASKS["bin_majority"]
    small, large = (estimate(load_model(ZOO / name), task) for name in ("bin_majority", "bin_majority_interleave"))
    assert small.least < small.usual < small.longest
    assert small.usual < large.usual


def test_estimates_in_words():
    assert [duration(x) for x in (0.2, 89.0, 91.0, 5300.0, 5401.0, 2e5)] == [
        "1 s",
        "89 s",
        "2 min",
        "88 min",
        "2 h",
        "2 days",
    ]
    expected = Estimate(10.0, 60.0, 300.0)
    assert time_left(expected, 20.0) == "; usually about 40 s left"
    assert time_left(expected, 60.0) == "; at most about 4 min left"
    assert time_left(expected, 301.0) == ""


@pytest.mark.long
def test_commands_that_need_no_model_do_not_take_long():
    """Of the processor, which other work on the machine does not slow."""
    torch_alone = seconds(COMMANDS['python -c "import torch"'])[1]
    for command in ("--version", "--help", "tasks", "zoo"):
        assert seconds([*DRASP, command])[1] < min(0.5, torch_alone), command


@pytest.mark.long
def test_a_large_model_is_told_of_at_once(tmp_path):
    save_large(tmp_path / "large")
    _, worked, said = until_told(tmp_path / "large")
    assert worked < 5
    assert said.startswith(f"decompiling {tmp_path}/large: 12 layers, 12 heads each, 768 dimensions; may take ")


@pytest.mark.long
def test_the_demo_ends_with_the_program_in_words(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = time.process_time()
    demo.main()
    assert time.process_time() - before < 30
    out = capsys.readouterr().out
    *_, page, command = [line for line in out.splitlines() if line.strip()]
    # The paragraph is wrapped between words, for the terminal.
    words = "`a1` attends to all positions so far alike, and averages the token. `logits1` says "
    assert words in " ".join(out.split())
    assert page == f"open in a browser: {(tmp_path / 'out/demo/report.html').as_uri()}"
    assert (tmp_path / "out/demo/report.html").exists()
    assert command == "on the command line: .venv/bin/drasp run out/demo BOS 0 1 0 SEP"
