"""`drasp translate`, `run` and `check`, as a user types them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cases import CASES
from command import drasp, fails
from drasp.language import load_program, program_files
from drasp.model_files import model_files
from drasp.output_folder import write_files
from drasp.transformer import Shape, initial_weights
from random_models import random_gpt2

COPY = next(case for case in CASES if case.name == "unique copy")
LETTERS = next(case for case in CASES if case.name == "most frequent")


@pytest.fixture
def model(tmp_path) -> Path:
    random_gpt2(3, layers=1, heads=2).float().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def program(tmp_path) -> Path:
    for name, content in program_files(COPY.program).items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_translate_writes_the_program_in_all_forms(model, tmp_path):
    out = tmp_path / "out"
    result = drasp("translate", model, "--out", out)
    assert result.code == 0, result.err
    assert "29 lines (22 by the theorem, 4 for the biases of queries, 3 for exact norms)" in result.out
    assert {path.name for path in out.iterdir()} == {
        "program.drasp",
        "program.safetensors",
        "program.py",
        "result.json",
        "report.html",
        "program.tex",
        "program.json",
    }
    record = json.loads((out / "result.json").read_text())
    assert record["lines"] == load_program(out).lines == 29
    assert record["largest_logit_difference"] < 1e-4
    # What drasp wrote, it may write again.
    assert drasp("translate", model, "--out", out).code == 0


def test_translate_names_the_tokens_of_a_task(tmp_path):
    shape = Shape(n_vocab=6, n_positions=154, d_model=8, n_layers=1, n_heads=1, d_hidden=32)
    write_files(tmp_path / "model", model_files(shape, initial_weights(shape, seed=0)))
    result = drasp("translate", tmp_path / "model", "--task", "bin_majority", "--out", tmp_path / "out")
    assert result.code == 0, result.err
    assert load_program(tmp_path / "out").vocabulary.tokens == ("0", "1", "BOS", "SEP", "EOS", "PAD")


def test_translate_refuses_what_it_cannot_do(model, tmp_path):
    assert "task sort: has 154 tokens (0 1 2 3 4 5 6 7 8 9 10 11 …), but the model has 5" in fails(
        "translate", model, "--task", "sort", "--out", tmp_path / "out"
    )
    assert not (tmp_path / "out").exists()
    assert "unknown task 'srt'" in fails("translate", model, "--task", "srt", "--out", tmp_path / "out")
    assert f"{tmp_path}: holds other files" in fails("translate", model, "--out", tmp_path)
    assert "found a file" in fails("translate", model, "--out", model / "config.json")
    assert "nowhere" in fails("translate", tmp_path / "nowhere", "--out", tmp_path / "out")


def test_run_prints_every_variable(program):
    result = drasp("run", program, "--offset", "3", "BOS", "7", "12", "SEP", "7")
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    headings = [line for line in lines if line[:1].isdigit()]
    assert (
        headings == str(COPY.program).replace("  # layer 0 head 0", "").replace("  # layer 1 head 0", "").splitlines()
    )
    a1 = lines.index("2. a1 = aggregate(s=s1, v=token)")
    assert [line.split() for line in lines[a1 + 1 : a1 + 5]] == [
        ["BOS", "7", "12", "SEP", "7"],
        ["7", "·", "·", "1.00", "·", "·"],
        ["12", "·", "·", "·", "1.00", "·"],
        ["BOS", "1.00", "1.00", "·", "·", "·"],
    ]
    assert lines[-1].split()[-2:] == ["7", "12"]  # what comes after SEP, and after 7


def test_run_prints_sets_where_the_output_is_a_sigmoid(tmp_path):
    case = next(case for case in CASES if case.name == "tomita 2")
    for name, content in program_files(case.program).items():
        (tmp_path / name).write_bytes(content)
    result = drasp("run", tmp_path, "BOS", "1")
    assert result.out.splitlines()[-1].split(maxsplit=1) == ["next", "{1 EOS}      {0}"]


def test_run_shows_all_rows_on_request(program):
    few = drasp("run", program, *["BOS", *map(str, range(30)), "SEP"]).out
    assert "more rows with smaller values (--all shows them)" in few
    assert "more rows" not in drasp("run", program, "--all", *["BOS", *map(str, range(30)), "SEP"]).out


def test_run_rounds_to_bits(tmp_path):
    for name, content in program_files(LETTERS.program).items():
        (tmp_path / name).write_bytes(content)
    exact = drasp("run", tmp_path, "BOS", "a", "b").out
    rounded = drasp("run", tmp_path, "--bits", "1", "BOS", "a", "b").out
    assert "0.33" in exact
    assert "0.33" not in rounded


def test_run_refuses_what_it_cannot_read(program):
    assert "token '200' is not in the vocabulary; expected one of: 0, 1, 2" in fails("run", program, "BOS", "200")
    assert "2 tokens at offset 302 do not fit the program's 303 positions" in fails(
        "run", program, "--offset", "302", "BOS", "1"
    )
    assert "no such file" in fails("run", program / "x.drasp", "BOS")


def test_check_says_what_is_right_and_what_is_wrong(program):
    result = drasp("check", program)
    assert result.out == f"{program}/program.drasp: correct; 7 lines, softmax output, 154 tokens, 303 positions\n"
    file = program / "program.drasp"
    file.write_text(file.read_text().replace("v=token", "v=s1").replace("op=c", "op=d"))
    result = drasp("check", file)
    assert result.code == 1
    errors = result.err.splitlines()
    assert [error.removeprefix(f"{file}:").split(":")[0] for error in errors] == ["12", "16"]
    assert errors[0].endswith(": `s1` is a selector, expected an activation variable")
    assert errors[1].endswith(": tensor `d` is not among the program's tensors")


def test_help_does_not_wait_for_torch():
    script = "import sys, drasp.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_the_public_names_exist():
    import drasp as package

    assert all(getattr(package, name) is not None for name in package.__all__)
    assert package.load_program is load_program
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing
