"""The decompiler as a whole, and the commands that a user types."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from command import drasp, fails
from drasp.cli.show import print_result
from drasp.decompiler.pipeline import choose, decompile
from drasp.decompiler.result import Point
from drasp.decompiler.verify import verify
from drasp.language import Interpreter, load_program
from drasp.language.syntax import Program
from drasp.measure import Share, predict
from drasp.model_files import load_model
from drasp.tasks import load_task
from drasp.translation import translate
from drasp.zoo import resolve_model
from published import FOLDER, needs_published_models
from random_models import random_gpt2

TASK = load_task("bin_majority")


@pytest.fixture(scope="module")
def majority():
    return load_model(resolve_model("bin_majority"))


@pytest.fixture(scope="module")
def result(majority):
    return decompile(majority, TASK)


@pytest.fixture(scope="module")
def folder(result, tmp_path_factory):
    out = tmp_path_factory.mktemp("result") / "majority"
    result.save(out, "bin_majority")
    return out


def test_majority_is_a_histogram_and_a_projection(result):
    assert result.verdict == "decompiled"
    assert result.pick.match.value >= 0.98
    assert result.pick.match.total == 2000
    kinds = [type(statement).__name__ for statement in result.program.statements]
    assert kinds == ["Aggregate", "Project", "Prediction"]
    [histogram] = [s for s in result.program.statements if s.name == "a1"]
    assert (histogram.selectors, histogram.value.variable) == ((), "token")
    assert "op=(inp==out)" in str(result.program)


@pytest.mark.parametrize(
    ("name", "lines"),
    [("tomita1", 2), ("abcde", 2), ("ab_d_bc", 3), ("D2", 3), ("D4", 3), ("tomita7", 6)],
)
def test_small_models_of_the_zoo_become_short_programs(name, lines):
    model, task = load_model(resolve_model(name)), load_task(name)
    result = decompile(model, task, quick=True)
    assert result.verdict == "decompiled"
    assert result.final.lines <= lines
    inputs = task.pool(300, np.random.default_rng(7))
    said, answered = (predict(each, inputs, task.output) for each in (model, Interpreter(result.program)))
    same = ((said == answered).all(-1) | ~inputs.counted).all(-1)
    assert float(same.float().mean()) >= 0.9


def test_a_long_program_comes_with_the_way_to_name_it(result):
    def shown(lines: int) -> str:
        first, *rest = result.program.statements
        more = [replace(first, name=f"more{i}") for i in range(lines - 3)]
        point = Point(replace(result.program, statements=(*more, first, *rest)), result.pick.match)
        console = Console(file=StringIO(), width=200)
        print_result(console, replace(result, pick=point, final=point), Path("out"))
        return console.file.getvalue()

    assert "drasp name" not in shown(20)
    assert "- no names, since it has more than 20 lines: `drasp name out MODEL --out NAMED` tries" in shown(21)


def test_the_same_seed_gives_the_same_result(majority, result):
    again = decompile(majority, TASK)
    assert again.program == result.program
    assert all(torch.equal(again.program.tensors[k], v) for k, v in result.program.tensors.items())
    assert again.pick.match == result.pick.match


def test_a_language_by_its_last_token():
    transformer = load_model(resolve_model("abcde"))
    found = decompile(transformer, load_task("abcde"))
    assert [type(s).__name__ for s in found.program.statements] == ["Project", "Prediction"]
    assert found.pick.match.value >= 0.99


@needs_published_models
def test_a_published_model_whose_layer_norm_is_not_linear():
    task = load_task("D3")
    found = decompile(load_model(FOLDER / "D3-1l1h16d4lr00drop"), task)
    assert found.pick.match.value >= 0.95
    assert found.pick.lines <= 4, "no norm is needed, and no MLP"
    assert found.final.match.value >= found.pick.match.value - 0.02


def test_the_pick_is_the_shortest_that_agrees_well_enough(result):
    def point(lines: int, hits: int) -> Point:
        program = replace(result.program, statements=result.program.statements[:1] * lines)
        return Point(program, Share(hits, 100))

    points = [point(2, 50), point(3, 91), point(7, 99), point(50, 100)]
    assert choose(points, 0.9, 40) is points[1]
    assert choose(points, 0.95, 40) is points[2]
    assert choose(points, 0.995, 40) is points[2], "none is good enough: the truest of the short ones"
    assert choose(points, 0.9, 1) is points[3]


def test_why_a_model_was_not_decompiled_is_said(result):
    strict = replace(result, min_match=1.1, norms_kept=("out", "q0.1"), dense=("mlp0 (3 of 3)",))
    assert strict.verdict == "not_decompilable"
    best, norms, dense = strict.reasons
    assert dense == "receivers that stay dense (edges kept): mlp0 (3 of 3)"
    assert best.startswith("the best program of at most 40 lines agrees on")
    assert norms == "layer norms that could not be made constant: out, q0.1"
    assert result.reasons == []


def test_the_files_hold_the_result(result, folder):
    record = json.loads((folder / "result.json").read_text())
    assert load_program(folder) == result.program
    assert record["schema_version"] == 2
    assert (record["model"], record["task"], record["verdict"]) == ("bin_majority", "bin_majority", "decompiled")
    assert (record["lines"], record["samples"]) == (3, 2000)
    assert record["match_interval"][0] <= record["match_accuracy"] <= record["match_interval"][1]
    assert record["primitives"]["project"] == {"named": 1, "tables": 0, "total": 1}
    assert record["pruned_match_accuracy"] == result.pick.match.value
    assert [point["lines"] for point in record["frontier"]] == [point.lines for point in result.frontier]
    assert record["passes"]


def test_another_program_can_be_picked_without_running_again(result, folder, tmp_path):
    other = tmp_path / "other"
    longer = Point(translate(load_model(resolve_model("bin_majority")), TASK.vocabulary), Share(2000, 2000))
    replace(result, frontier=(result.pick, longer)).save(other, "bin_majority")
    assert load_program(other).lines == 3
    assert drasp("decompile", "bin_majority", "--out", other, "--pick", "19").code == 0
    assert load_program(other).lines == json.loads((other / "result.json").read_text())["lines"] == 19
    assert "no program of that many lines; there are 3, 19" in fails("decompile", "x", "--out", other, "--pick", "5")
    assert "no result to pick from" in fails("decompile", "x", "--out", tmp_path, "--pick", "5")


def test_decompile_command(tmp_path):
    finished = drasp("decompile", "abcde", "--out", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert finished.out.splitlines()[0].split("  # ")[0] == (
        "1. logits1 = project(inp=token, op=(a->a b; b->b c; c->c d; d->d e; e->e EOS; BOS->a))"
    )
    assert "decompiled: 2 lines" in finished.out
    assert "try a sketch" in finished.err
    printed = drasp("decompile", "abcde", "--out", tmp_path / "out", "--json")
    assert json.loads(printed.out)["lines"] == 2
    assert printed.err == ""


def steps(result) -> list:
    return [(p.name, p.left, p.unit, p.match_accuracy) for p in result.passes]


class StoppedError(Exception):
    pass


def stop_after(passes: int):
    """A report that stops the run after so many lines of progress."""
    heard: list[str] = []

    def report(record):
        heard.append(record.name)
        if len(heard) > passes:
            raise StoppedError

    return report


def test_an_interrupted_run_goes_on_where_it_stopped_and_ends_alike(tmp_path):
    task = load_task("aastar")
    transformer = load_model(resolve_model("aastar"))
    checkpoint = tmp_path / "aastar.decompiling"
    whole = decompile(transformer, task, quick=True)
    with pytest.raises(StoppedError):
        decompile(transformer, task, quick=True, checkpoint=checkpoint, report=stop_after(3))
    heard = []
    again = decompile(transformer, task, quick=True, checkpoint=checkpoint, resume=True, report=heard.append)
    assert again.program == whole.program
    assert all(torch.equal(again.program.tensors[k], v) for k, v in whole.program.tensors.items())
    assert steps(again) == steps(whole)
    assert len(heard) < len(whole.passes), "what was finished was not done again"


def test_a_resume_file_that_does_not_fit_ends_in_one_line(tmp_path, majority):
    out = tmp_path / "out"
    assert "no interrupted run to resume" in fails("decompile", "abcde", "--out", out, "--resume")
    file = tmp_path / "out.decompiling"
    file.write_bytes(b"damaged")
    assert "go on with --resume, or remove" in fails("decompile", "abcde", "--out", out)
    assert "not the state of a decompilation" in fails("decompile", "abcde", "--out", out, "--resume")
    file.unlink()
    decompile(majority, TASK, quick=True, checkpoint=file)
    message = fails("decompile", "bin_majority", "--out", out, "--resume")
    assert "was begun with quick True, found False" in message


def test_bad_input_ends_in_one_line(tmp_path):
    random_gpt2(0, layers=1, heads=1).float().save_pretrained(tmp_path / "model")
    out = tmp_path / "out"
    assert "name the task with --task" in fails("decompile", tmp_path / "model", "--out", out)
    assert "has 6 tokens, but" in fails("decompile", tmp_path / "model", "--task", "bin_majority", "--out", out)
    assert "holds other files" in fails("decompile", "abcde", "--out", tmp_path)
    (tmp_path / "result.json").write_text("[]")
    assert "expected a JSON object, as drasp writes it" in fails("decompile", "abcde", "--out", tmp_path, "--pick", "3")
    assert not out.exists()


def test_a_model_that_fails_on_its_task_is_decompiled_with_a_warning(tmp_path):
    finished = drasp("decompile", "tomita2", "--task", "tomita1", "--out", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert "warning: the model is right on only" in finished.err


def negated(program: Program) -> Program:
    return replace(program, tensors={name: -tensor for name, tensor in program.tensors.items()})


def test_verify_finds_the_inputs_that_differ(majority, result):
    same = verify(translate(majority, TASK.vocabulary), majority, TASK, samples=300)
    assert same.overall == Share(300, 300)
    assert same.disagreements == ()
    found = verify(negated(result.pick.program), majority, TASK, samples=300)
    assert found.overall.value < 0.1
    assert sum(share.total for _, share in found.bins) == 300
    first = found.disagreements[0]
    assert first.tokens[first.position] == "SEP"
    assert first.model in ("0", "1")
    assert first.program != first.model
    assert first.model_margin > 0
    assert first.program_margin > 0


def test_verify_command(folder):
    finished = drasp("verify", folder, "bin_majority", "--samples", "200")
    assert finished.code == 0, finished.err
    assert [line.split(":")[0].strip() for line in finished.out.splitlines()[:4]] == [
        *("1-50", "51-100", "101-150", "all lengths")
    ]
    found = json.loads(drasp("verify", folder, "bin_majority", "--samples", "200", "--json").out)
    assert found["samples"] == sum(one["samples"] for one in found["by_length"].values()) == 200
    assert f"{found['match_accuracy']:.3f}" in finished.out
    assert "its tokens are not those of task abcde" in fails("verify", folder, "abcde")
