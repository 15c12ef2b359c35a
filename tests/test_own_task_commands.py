"""Commands on models and results of a task that is not one of drasp's own: what they take, and what they say."""

import json
import re

import pytest
import torch

from command import drasp, fails
from drasp.causal import QUICK_LOOK, evaluate
from drasp.compiler import compile_program
from drasp.doubts import doubts
from drasp.errors import DraspError
from drasp.language import parse, program_files
from drasp.loading import fitted_task
from drasp.results.result import load_result
from drasp.tasks import load_task

TASKS = """
import numpy as np
from drasp.tasks import sequence_task

def draw(rng, count):
    for _ in range(count):
        size = int(rng.integers(2, 7))
        yield rng.integers(0, 3, size), None, [i % 3 for i in range(size)]

place = sequence_task("place", ["a", "b", "c"], draw)
anywhere = sequence_task("anywhere", ["a", "b", "c"], draw, offsets=range(3))
untold = sequence_task("untold", ["a", "b", "c"], lambda rng, n: [(t, c) for t, c, _ in draw(rng, n)])
larger = sequence_task("larger", ["a", "b", "c", "d", "e"], draw)
listed = sequence_task("listed", ["a", "b", "c"], every=[([a, b], [1]) for a in range(3) for b in range(3)])
chance = sequence_task("chance", ["a", "b", "c"], lambda rng, n: draw(np.random.default_rng(), n))
far = sequence_task("far", ["a", "b", "c"], draw, offsets=range(50))
"""
# Says its position modulo 3, whatever the tokens are; `x` is never drawn.
TEXT = """vocab = [a, b, c, spare3]
special = [spare3]
positions = 12

1. logits1 = project(inp=pos, op=places)
2. prediction = softmax(logits1)
"""


@pytest.fixture(scope="module")
def program():
    return parse(TEXT, {"places": 5 * torch.eye(4)[torch.arange(12) % 3]})


@pytest.fixture(scope="module")
def files(tmp_path_factory, program):
    """A file of tasks, a model, and a result of task `place` that a folder holds."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(TASKS)
    compile_program(program).save(str(folder / "model"))
    result = folder / "result"
    result.mkdir()
    for name, content in program_files(program).items():
        (result / name).write_bytes(content)
    record = {"schema_version": 1, "method": "fast", "task": "place", "model": str(folder / "model"), "lines": 2}
    (result / "result.json").write_text(json.dumps(record))
    return folder


def examples(folder) -> list[dict]:
    page = (folder / "result" / "report.html").read_text()
    return json.loads(page.split('id="data">')[1].split("</script>")[0])["examples"]["steps"]


def test_a_report_says_that_it_lacks_the_task(files):
    without = drasp("report", files / "result")
    assert without.code == 0
    assert "drasp: examples are random tokens: task place is not one of drasp's own" in without.err
    assert "name it with --task file.py:name" in without.err
    with_task = drasp("report", files / "result", "--task", f"{files}/mine.py:place")
    assert (with_task.code, with_task.err) == (0, "")
    assert max(max(example["ids"]) for example in examples(files)) <= 2  # the spare token is never drawn
    assert all(
        "model" not in example or example["counted"] == [[0, len(example["ids"])]] for example in examples(files)
    )


def test_a_report_says_that_it_lacks_the_model(files, tmp_path):
    record = json.loads((files / "result" / "result.json").read_text())
    (tmp_path / "result").mkdir()
    for file in (files / "result").glob("program.*"):
        (tmp_path / "result" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "result" / "result.json").write_text(json.dumps(record | {"model": "lost", "task": None}))
    done = drasp("report", tmp_path / "result")
    assert done.code == 0
    assert re.search(r"without the model's answers \(lost: no such folder.*; name the model with --model", done.err)


def test_a_report_of_a_model_in_memory_says_that_it_lacks_it(files, tmp_path):
    folder = tmp_path / "result"
    folder.mkdir()
    for file in (files / "result").glob("program.*"):
        (folder / file.name).write_bytes(file.read_bytes())
    record = json.loads((files / "result" / "result.json").read_text()) | {"model": ""}
    (folder / "result.json").write_text(json.dumps(record))
    done = drasp("report", folder, "--task", f"{files}/mine.py:place")
    said = "drasp: without the model's answers (the result does not say where it is: it was in memory); name the model"
    assert done.err.startswith(said)


def test_figures_of_ones_own_task_are_of_its_inputs(files):
    without = drasp("figures", files / "result", "--format", "svg")
    assert "drasp: examples are random tokens: task place is not one of drasp's own" in without.err
    with_task = drasp("figures", files / "result", "--format", "svg", "--task", f"{files}/mine.py:place")
    assert (with_task.code, with_task.err) == (0, "")
    said = fails("figures", files / "result", "--task", f"{files}/mine.py:larger")
    assert f"{files}/result: its tokens are not those of task larger: token 3 is spare3, the task's is d" in said


def test_tokens_may_begin_with_a_dash(tmp_path):
    text = TEXT.replace("a, b, c", '"-1", "->", "--c"')
    (tmp_path / "dashes.drasp").write_text(text.replace("op=places", 'op=(0->"-1"; 1->"->")'))
    done = drasp("run", tmp_path / "dashes.drasp", "-1", "->", "--c", "--offset", "0")
    assert done.code == 0, done.err
    assert "token '--ofset' is not in the vocabulary" in fails("run", tmp_path / "dashes.drasp", "-1", "--ofset")


def test_words_are_about_the_positions_that_inputs_reach(files, tmp_path):
    """Inputs of task `place` have at most 6 tokens and the model 12 positions, of which it never learnt the others."""
    places = 9.0 * torch.eye(4)[torch.arange(12) // 6]
    for name, content in program_files(parse(TEXT, {"places": places})).items():
        (tmp_path / name).write_bytes(content)
    record = {"schema_version": 1, "method": "fast", "task": "place", "lines": 2}
    reached = "`logits1` speaks for a where the position is 0, 1, 2, 3, 4 or 5"

    def told(positions: int | None, *arguments: str) -> str:
        (tmp_path / "result.json").write_text(json.dumps(record | {"positions": positions}))
        done = drasp("explain", tmp_path, *arguments)
        assert done.code == 0, done.err
        return done.out

    everywhere = f"{reached}; speaks for b where the position is 6, 7, 8, 9, 10 or 11. The answer"
    for unknown in (None, 0, -1, 12, 10**9):
        assert everywhere in told(unknown)
    for found in (told(6), told(None, "--task", f"{files}/mine.py:place")):
        assert f"{reached}. The answer" in found
    assert f"{reached}.\n" in told(6, "1")
    assert f"`logits1` {load_result(tmp_path)[1].words}. The answer" in load_result(tmp_path).words
    assert load_result(tmp_path)[1].words == reached.removeprefix("`logits1` ")


def test_verify_and_name_ask_for_the_task_and_explain_says_what_it_lacks(files, tmp_path):
    expected = "does not say what it was trained on; {} is a result of task place; name the task with --task"
    result, model = files / "result", files / "model"
    assert expected.format(result) in fails("verify", result, model)
    assert expected.format(result) in fails("name", result, model, "--out", tmp_path / "out")
    line = drasp("explain", result, "1")
    assert (line.code, line.out.startswith("1. logits1 = project(inp=pos")) == (0, True)
    expected = "what changes without it is seen on inputs: task place is not one of drasp's own, and no file is run"
    assert expected in line.err
    told = drasp("explain", result, "1", "--task", f"{files}/mine.py:place")
    assert (told.code, told.err, "Without it: if it says nothing" in told.out) == (0, "", True)
    whole = drasp("explain", result)  # needs no inputs
    assert (whole.code, whole.err) == (0, "")
    done = drasp("verify", result, model, "--task", f"{files}/mine.py:place", "--samples", "100")
    assert done.code == 0, done.err
    assert re.search(r"all lengths: 1.000 \[0.963, 1.000\] of 100 inputs answered alike", done.out)


def test_a_task_whose_tokens_are_not_the_programs_is_refused(files):
    said = fails("verify", files / "result", files / "model", "--task", f"{files}/mine.py:larger")
    assert "task larger: has 5 tokens (a b c d e), but the model has 4" in said
    said = fails("report", files / "result", "--task", f"{files}/mine.py:larger")
    assert "its tokens are not those of task larger: token 3 is spare3, the task's is d" in said
    said = fails("verify", files / "result", files / "model", "--task", f"{files}/mine.py:far")
    expected = (
        r"task far: needs 55 positions \(its longest input \(.*\) has 6, and the .*\), but the model has 12; draw"
    )
    assert re.search(expected, said)


def test_agreement_on_all_inputs_has_no_interval(files, program):
    done = drasp("verify", files / "result", files / "model", "--task", f"{files}/mine.py:listed")
    assert "all lengths: 1.000 of all 9 inputs answered alike" in done.out
    model = compile_program(program).transformer
    task = fitted_task(load_task(f"{files}/mine.py:listed"), model, "the model")
    agreement = evaluate(program, model, task, effort=QUICK_LOOK).program
    assert (agreement.value, agreement.n, agreement.interval, agreement.status) == (1.0, 9, None, "passed")


def test_doubts_say_why(files, program):
    model = compile_program(program).transformer

    def said(name: str) -> list[str]:
        return doubts(model, fitted_task(load_task(f"{files}/mine.py:{name}"), model, "the model"))

    spare = "the model has 1 more tokens than task {}; they are called spare3"
    assert said("place") == [spare.format("place")]
    assert said("untold") == [spare.format("untold")]
    assert said("anywhere")[0] == spare.format("anywhere")
    assert said("chance")[1].startswith("task chance draws other inputs each time from the same rng: a run can be nei")
    assert re.match(
        r"the model is right on only 0\.3.* of 200 inputs of task anywhere; where positions begin at 0 it is right on "
        r"1\.000 .*: the task draws offsets up to 2, which it may never have seen",
        said("anywhere")[1],
    )


def test_a_model_is_not_trained_on_a_task_without_targets(files, tmp_path):
    assert "task untold: gives no targets" in fails("train", f"{files}/mine.py:untold", "--out", tmp_path / "x")


@pytest.mark.long
def test_a_model_is_trained_on_a_sequence_task(files, tmp_path):
    out = tmp_path / "trained"
    done = drasp("train", f"{files}/mine.py:place", "--out", out, "--steps", "100", "--quiet")
    assert done.code == 0, done.err
    with pytest.raises(DraspError, match="task far: needs 55 positions"):
        fitted_task(
            load_task(f"{files}/mine.py:far"),
            compile_program(parse(TEXT, {"places": torch.eye(12, 4)})).transformer,
            "x",
        )
    assert list(json.loads((out / "metrics.json").read_text())["accuracy"]["offset 0"]) == ["2-6"]
