"""`drasp compile`, as a user types it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cases import case
from command import drasp, fails
from drasp.language import load_program, parse, program_files, to_text

MAJORITY = case("binary majority")


@pytest.fixture
def program(tmp_path) -> Path:
    return written(tmp_path / "majority.drasp", to_text(MAJORITY))


def written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def test_a_compiled_folder_agrees_with_its_program(program, tmp_path):
    done = drasp("compile", program, "--task", "bin_majority", "--out", tmp_path / "model")
    assert done.code == 0, done.err
    assert "1. a1 = aggregate(s=[], v=token)  # layer 0 head 0\n" in done.out
    assert "1 layer of 1 head and 1 hidden unit (relu), d_model 7, 1,450 weights" in done.out
    found = drasp("verify", program, tmp_path / "model", "--samples", "300", "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["match_accuracy"] == 1
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {"config.json", "model.safetensors", "program.drasp", "program.safetensors", "task.json"}
    assert load_program(tmp_path / "model").statements[0].sites


def test_a_stored_program_compiles_from_its_folder(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name, content in program_files(case("{a,b}*d{b,c}*")).items():
        (source / name).write_bytes(content)
    assert drasp("compile", source, "--out", tmp_path / "model", "--quiet").out == ""
    said = drasp("verify", source, tmp_path / "model", "--task", "ab_d_bc", "--samples", "300", "--json")
    assert json.loads(said.out)["match_accuracy"] == 1
    assert not (tmp_path / "model" / "task.json").exists()


def test_every_disguise_is_an_option_and_the_seed_decides(program, tmp_path):
    options = ["--rotate", "--gains", "--noise", "0.01", "--idle-heads", "1", "--idle-mlps", "3", "--twin-heads", "1"]
    options += ["--superposition", "0.9", "--norm-size", "500", "--training-steps", "2", "--task", "bin_majority"]
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        done = drasp("compile", program, *options, "--seed", seed, "--out", tmp_path / name)
        assert done.code == 0, done.err
    assert "1 layer of 3 heads and 4 hidden units" in done.out
    a, b, c = (load_file(tmp_path / name / "model.safetensors") for name in "abc")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["transformer.wte.weight"], c["transformer.wte.weight"])


BROKEN = {
    "no such variable": ("logits1 = project(inp=a7, op=(inp==out))", "variable `a7` is not defined"),
    "a norm": (
        "a0 = aggregate(s=[], v=token)\n"
        "n1 = norm(a0, op=N, eps=0.5)\n"
        "a1 = aggregate(s=[], v=token/n1)\n"
        "logits1 = project(inp=a1, op=(inp==out))",
        "`n1` cannot be compiled: a compiled model has layer norms of its own",
    ),
    "a function of mixtures": (
        "a1 = aggregate(s=[], v=token)\n"
        "m1 = element_wise_op(a1, func=sharpen(2))\n"
        "logits1 = project(inp=m1, op=(inp==out))",
        "5:1: `m1` cannot be compiled: sharpen needs inputs that are one-hot, and here they may be mixtures",
    ),
    "two mixtures": (
        "a1 = aggregate(s=[], v=token)\n"
        "m1 = element_wise_op(a1, a1, func=cartesian)\n"
        "logits1 = project(inp=m1, op=(inp==out))",
        "cartesian needs inputs that are one-hot but for one",
    ),
    "a table without end": (
        "m1 = element_wise_op(token, pos, pos, func=cartesian)\nlogits1 = project(inp=m1, op=(inp==out))",
        "`m1` cannot be compiled: its function takes 8,450 hidden units, expected at most 8,192",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_compiled_is_refused_with_its_line(name, tmp_path):
    lines, message = BROKEN[name]
    text = f"vocab = [0, 1]\nspecial = []\npositions = 65\n{lines}\nprediction = softmax(logits1)\n"
    program = parse(text, {"N.0": torch.eye(2)})
    (tmp_path / "program").mkdir()
    for file, content in program_files_of(text, program).items():
        (tmp_path / "program" / file).write_bytes(content)
    said = fails("compile", tmp_path / "program", "--out", tmp_path / "model")
    assert message in said
    assert str(tmp_path / "program" / "program.drasp") in said
    assert not (tmp_path / "model").exists()


def program_files_of(text: str, program) -> dict[str, bytes]:
    from safetensors.torch import save

    return {"program.drasp": text.encode(), "program.safetensors": save(dict(program.tensors))}


def test_a_model_too_large_is_refused_with_its_size(program, tmp_path, monkeypatch):
    long = written(tmp_path / "long.drasp", to_text(MAJORITY).replace("positions = 154", "positions = 5000"))
    said = fails("compile", long, "--out", tmp_path / "model")
    assert "5,000 positions: a model with a dimension for each would have 300,000,000 weights a layer" in said
    monkeypatch.setattr("drasp.compiler.compile.MAX_WEIGHTS", 1000)
    said = fails("compile", program, "--out", tmp_path / "model")
    assert (
        "majority.drasp: the model would have 1 layer of 1 head and 1 hidden unit (relu), d_model 7, 1,450 wei" in said
    )
    assert not (tmp_path / "model").exists()


def test_bad_options_are_one_line(program, tmp_path):
    out = tmp_path / "model"
    for options, message in (
        (["--noise", "-1"], "--noise -1.0: expected 0 or more"),
        (["--idle-heads", "-2"], "--idle-heads -2: expected 0 or more"),
        (["--twin-heads", "3"], "--twin-heads 3: expected at most 1, the heads of the program"),
        (["--superposition", "1.5"], "--superposition 1.5: expected a share of the room"),
        (["--norm-size", "0"], "--norm-size 0: expected a number above 0"),
        (["--training-steps", "5"], "--training-steps 5: name the task to train on with --task"),
        (["--task", "sort"], "--task sort: its tokens are not those of"),
    ):
        assert message in fails("compile", program, "--out", out, *options)
        assert not out.exists()
    out.mkdir()
    assert "exists already; choose another --out" in fails("compile", program, "--out", out)
    assert "no such file" in fails("compile", tmp_path / "nothing.drasp", "--out", tmp_path / "new")
