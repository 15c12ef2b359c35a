"""The decompiler as a whole, and the commands that a user types."""

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from command import drasp, fails
from drasp.causal import Evidence
from drasp.cli.show import print_result
from drasp.compiler import compile_program
from drasp.decompiler.pipeline import decompile
from drasp.decompiler.result import Point
from drasp.decompiler.verify import verify
from drasp.language import Interpreter, load_program, parse
from drasp.language.syntax import Program
from drasp.loading import resolve_model
from drasp.measure import Share, predict
from drasp.model_files import digest, load_model
from drasp.naming.result import name_and_measure
from drasp.records import CertificateRecord, read_record
from drasp.results.certifying import with_certificate
from drasp.results.files import save_decompiled
from drasp.settings import QUICK
from drasp.sites import OUT, Component
from drasp.tasks import load_task, sequence_task
from drasp.transformer import converted
from drasp.translation import translate
from published import FOLDER, needs_published_models
from random_models import random_gpt2
from typed import known

TASK = load_task("bin_majority")


@pytest.fixture(scope="module")
def majority():
    return load_model(resolve_model("bin_majority"))


@pytest.fixture(scope="module")
def result(majority):
    return decompile(majority, TASK, settings=QUICK)


@pytest.fixture(scope="module")
def folder(result, tmp_path_factory):
    out = tmp_path_factory.mktemp("result") / "majority"
    save_decompiled(result, out, "bin_majority")
    return out


def test_majority_is_a_histogram_and_a_projection(result):
    assert result.verdict == "decompiled"
    assert result.grade in ("sufficient", "complete")
    assert result.pick.match.value >= 0.98
    assert result.pick.match.total == 2000
    kinds = [type(statement).__name__ for statement in result.program.statements]
    assert kinds == ["Aggregate", "Project", "Prediction"]
    [histogram] = [s for s in result.program.statements if s.name == "a1"]
    assert (histogram.selectors, histogram.value.variable) == ((), "token")
    assert "op=(inp==out)" in str(result.program)


def agreement(model, program: Program, task) -> float:
    inputs = task.pool(300, np.random.default_rng(7))
    said, answered = (predict(each, inputs, task.output) for each in (model, Interpreter(program)))
    same = said == answered
    same = same.all(-1) if same.ndim == 3 else same
    return float((same | ~inputs.counted).all(-1).float().mean())


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("tomita2", 2),
        ("aastar", 6),
        ("D2", 11),
        ("tomita1", 11),
        ("ab_d_bc", 6),
    ],
)
def test_small_models_of_the_zoo_become_short_programs(name, lines):
    model, task = load_model(resolve_model(name)), load_task(name)
    result = decompile(model, task, settings=QUICK)
    assert result.verdict == "decompiled"
    assert result.final.lines <= lines
    assert agreement(model, result.program, task) >= 0.9
    evidence = result.final.evidence
    assert evidence is not None
    assert evidence.causal
    assert not evidence.without_sites
    assert evidence.attention.status != "failed"
    assert evidence.edited.status != "failed"
    # What pruning left has the model's own tensors, so that nothing of it was replaced.
    assert result.pick.evidence is not None
    assert not any(line.replaced for line in result.pick.evidence.lines)


def test_a_long_program_comes_with_the_way_to_name_it(result):
    def shown(lines: int) -> str:
        first, *rest = result.program.statements
        more = [replace(first, name=f"more{i}") for i in range(lines - 3)]
        program = replace(result.program, statements=(*more, first, *rest))
        point = replace(result.final, program=program)
        console = Console(file=(text := StringIO()), width=200)
        print_result(console, replace(result, pick=point, final=point), Path("out"))
        return text.getvalue()

    assert "drasp name" not in shown(12)
    assert "- no names, since it has more than 12 lines: `drasp name out MODEL --out NAMED` tries" in shown(13)


MINORITY = """vocab = [0, 1, BOS, SEP, EOS, PAD]
special = [BOS, SEP, EOS, PAD]
positions = 154
a1 = aggregate(s=[], v=token)
logits1 = project(inp=a1, op=(0->1; 1->0; EOS->EOS))
prediction = softmax(logits1)
"""
LANGUAGE = load_task("abcde")


@pytest.fixture(scope="module")
def speller():
    return load_model(resolve_model("abcde"))


@pytest.fixture(scope="module")
def language(speller):
    return decompile(speller, LANGUAGE, settings=QUICK)


@pytest.mark.long
def test_the_same_seed_gives_the_same_result(speller, language):
    again = decompile(speller, LANGUAGE, settings=QUICK)
    assert again.program == language.program
    assert all(torch.equal(again.program.tensors[k], v) for k, v in language.program.tensors.items())
    assert again.pick.match == language.pick.match
    assert again.final.evidence == language.final.evidence


@pytest.mark.long
def test_a_language_by_its_last_token(language):
    assert [type(s).__name__ for s in language.program.statements] == ["Project", "Prediction"]
    assert language.pick.match.value >= 0.99
    assert (language.verdict, language.grade, language.reasons) == ("decompiled", "complete", [])
    assert Component("mlp", 0) in {site.sender for site in language.program.statements[0].sites if site != OUT}


def test_a_model_in_double_precision_is_searched_in_single():
    program = parse(
        "vocab = [a, b, c]\npositions = 8\na1 = aggregate(s=[], v=token)\n"
        "logits1 = project(inp=a1, op=(inp==out))\nprediction = softmax(logits1)\n"
    )
    model = converted(compile_program(program).transformer, lambda weight: weight.double())
    task = sequence_task(
        "most", "abc", lambda rng, n: [(rng.integers(0, 3, rng.integers(2, 7)), None) for _ in range(n)]
    )
    result = decompile(model, task, settings=QUICK)
    assert (result.verdict, result.grade) == ("decompiled", "complete")
    assert result.identity.model_digest == digest(model)
    assert {tensor.dtype for tensor in result.program.tensors.values()} <= {torch.float32}
    named = name_and_measure(translate(model, task.vocabulary), model, task, 0, lambda step, program, match: None)
    assert named.match.value >= 0.9
    assert named.model_digest == digest(model)


def test_the_program_as_pruned_has_the_models_own_numbers(majority, result):
    """Pruning fits constants alone: each tensor is that of the whole model's program, but for biases."""
    own = translate(majority, TASK.vocabulary)
    assert result.pick.evidence is not None
    assert {line.origin for line in result.pick.evidence.lines} == {"own"}
    assert {line.origin for line in result.final.evidence.lines} <= {"own", "named", "approximated"}
    sites = {site for s in own.statements for site in s.sites if isinstance(site, Component)}
    assert {site for s in result.pick.program.statements for site in s.sites if isinstance(site, Component)} <= sites


@pytest.mark.long
def test_what_is_accepted_is_told(speller, language):
    by_answers = decompile(speller, LANGUAGE, settings=QUICK, accept="answers")
    assert by_answers.identity.settings["accept"] == "answers"
    assert by_answers.final.lines <= language.final.lines
    assert by_answers.verdict == ("decompiled" if by_answers.final.causal else "answers_only")


@pytest.mark.long
@needs_published_models
def test_a_published_model_whose_layer_norm_is_not_linear():
    """The program of three lines that answers alike is no longer found: it does not do what the model does."""
    task = load_task("D3")
    found = decompile(load_model(FOLDER / "D3-1l1h16d4lr00drop"), task)
    assert found.verdict == "decompiled"
    assert found.pick.match.value >= 0.95
    assert found.pick.lines <= 12
    assert found.final.match.value >= found.pick.match.value - 0.02


def test_why_a_model_was_not_decompiled_is_said(result):
    strict = replace(result, min_match=1.1, norms_kept=("out", "q0.1"), dense=("mlp0 (3 of 3)",))
    assert strict.verdict == "not_decompilable"
    best, norms, dense = strict.reasons
    assert dense == "receivers that stay dense (edges kept): mlp0 (3 of 3)"
    assert best.startswith("the best program of at most 40 lines agrees on")
    assert norms == "layer norms that could not be made constant: out, q0.1"
    assert result.reasons == list(result.final.evidence.reasons)


def test_why_a_program_only_answers_is_said(result):
    reason = "edited inputs: 0.20 of 90"
    evidence = replace(result.final.evidence, causal=False, grade=None, reasons=(reason,))
    only = replace(result, final=replace(result.final, evidence=evidence))
    assert (only.verdict, only.grade, only.reasons) == ("answers_only", None, [reason])
    console = Console(file=(text := StringIO()), width=200)
    print_result(console, only, Path("out"))
    assert reason in text.getvalue()
    assert "decompiled:" not in text.getvalue()


def test_what_is_proved_or_refuted_of_a_result_stands_before_its_verdict(result, majority):
    def shown(found) -> str:
        console = Console(file=(text := StringIO()), width=60)
        print_result(console, with_certificate(found, majority, TASK), Path("out"))
        return text.getvalue().splitlines()[-2]

    last = shown(result)
    assert re.fullmatch(
        r"program against the model, at offset 0: proved for all [\d,]+ inputs up to length \d+, "
        r"smallest margin [\d.]+; against task bin_majority: the same",
        last,
    )
    # Which digit is the rarer: wrong for the shortest inputs.
    program = parse(MINORITY)
    wrong = shown(replace(result, final=replace(result.final, program=program)))
    assert "the model, at offset 0: refuted: after BOS 0 SEP the program says 1, the model 0;" in wrong
    mine = sequence_task("mine", TASK.vocabulary.tokens, lambda rng, n: [([0, 1], None)] * n)
    assert with_certificate(result, majority, mine).certificate is None  # nobody knows what else it can draw


def test_the_files_hold_the_result(result, folder):
    record = json.loads((folder / "result.json").read_text())
    assert load_program(folder) == result.program
    assert load_program(folder / "pruned.drasp") == result.pick.program
    assert record["schema_version"] == 3
    assert record["grade"] == result.grade
    assert Evidence.from_json(record["causal"]) == result.final.evidence
    assert record["fitted_share"] == result.final.evidence.fitted_share
    assert [point["causal"] for point in record["frontier"]] == [point.causal for point in result.frontier]
    assert (record["model"], record["task"], record["verdict"]) == ("bin_majority", "bin_majority", "decompiled")
    assert (record["lines"], record["samples"]) == (3, 2000)
    assert record["match_interval"][0] <= record["match_accuracy"] <= record["match_interval"][1]
    assert record["primitives"]["project"] == {"named": 1, "tables": 0, "total": 1}
    # The MLP is a linear map, in the project's tensor.
    assert record["primitives"]["elementwise"] == {"named": 1, "tables": 1, "total": 1}
    assert record["pruned_match_accuracy"] == result.pick.match.value
    assert [point["lines"] for point in record["frontier"]] == [point.lines for point in result.frontier]
    assert record["passes"]


def test_a_result_too_large_for_a_page_goes_without_and_says_nothing_of_it(result, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("drasp.report.page.MAX_LINES", 2)
    save_decompiled(result, tmp_path / "out", "bin_majority")

    def shown(out: Path) -> str:
        console = Console(file=(text := StringIO()), width=200)
        print_result(console, result, out)
        return text.getvalue()

    assert {file.name for file in folder.iterdir()} - {file.name for file in (tmp_path / "out").iterdir()} == {
        "report.html"
    }
    assert "look at it" in shown(folder)
    assert "look at it" not in shown(tmp_path / "out")


def test_another_program_can_be_picked_without_running_again(result, folder, tmp_path):
    other = tmp_path / "other"
    longer = Point(translate(load_model(resolve_model("bin_majority")), TASK.vocabulary), Share(2000, 2000))
    proof = CertificateRecord("proved", "proved for all", "the model: proved for all", 3)
    save_decompiled(replace(result, frontier=(result.pick, longer), certificate=proof), other, "bin_majority")
    assert known(read_record(other)).certificate == proof
    assert load_program(other).lines == 3
    assert drasp("decompile", "bin_majority", "--out", other, "--pick", "19").code == 0
    assert load_program(other).lines == json.loads((other / "result.json").read_text())["lines"] == 19
    assert load_program(other / "pruned.drasp").lines == 19
    assert known(read_record(other)).certificate is None  # nobody has looked at this program
    there = f"no program of that many lines; there are {result.pick.lines}, 19"
    assert there in fails("decompile", "x", "--out", other, "--pick", "7")
    assert "no result to pick from" in fails("decompile", "x", "--out", tmp_path, "--pick", "5")


def test_decompile_command(tmp_path):
    finished = drasp("decompile", "abcde", "--quick", "--out", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert finished.out.splitlines()[0].split("  # ")[0] == (
        "1. logits1 = project(inp=token, op=(a->a b; b->b c; c->c d; d->d e; e->e EOS; BOS->a))"
    )
    assert "decompiled (complete): 2 lines" in finished.out
    assert "cut components: what does not matter" in finished.err
    assert "; against task abcde: the same" in finished.out.splitlines()[-2]


@pytest.mark.long
def test_decompile_command_for_other_programs(tmp_path):
    printed = drasp("decompile", "tomita2", "--quick", "--out", tmp_path / "other", "--json")
    said = json.loads(printed.out)
    assert (said["lines"], said["certificate"]["status"]) == (2, "proved")
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


@pytest.mark.long
def test_an_interrupted_run_goes_on_where_it_stopped_and_ends_alike(tmp_path, speller, language):
    transformer, task, whole = speller, LANGUAGE, language
    checkpoint = tmp_path / "abcde.decompiling"
    with pytest.raises(StoppedError):
        decompile(transformer, task, settings=QUICK, checkpoint=checkpoint, report=stop_after(6))
    heard = []
    again = decompile(transformer, task, settings=QUICK, checkpoint=checkpoint, resume=True, report=heard.append)
    assert again.program == whole.program
    assert all(torch.equal(again.program.tensors[k], v) for k, v in whole.program.tensors.items())
    assert steps(again) == steps(whole)
    assert len(heard) < len(whole.passes), "what was finished was not done again"


@pytest.mark.long
def test_a_resume_file_that_does_not_fit_ends_in_one_line(tmp_path, speller):
    out = tmp_path / "out"
    assert "no interrupted run to resume" in fails("decompile", "abcde", "--out", out, "--resume")
    file = tmp_path / "out.decompiling"
    file.write_bytes(b"damaged")
    assert "go on with --resume, or remove" in fails("decompile", "abcde", "--out", out)
    assert "not what drasp has written there, or damaged" in fails("decompile", "abcde", "--out", out, "--resume")
    file.unlink()
    decompile(speller, LANGUAGE, settings=QUICK, checkpoint=file)
    message = fails("decompile", "abcde", "--out", out, "--resume")
    assert "was begun with quick True, found False" in message


def test_bad_input_ends_in_one_line(tmp_path):
    random_gpt2(0, layers=1, heads=1).float().save_pretrained(tmp_path / "model")
    out = tmp_path / "out"
    assert "name the task with --task" in fails("decompile", tmp_path / "model", "--out", out)
    assert "has 6 tokens (0 1 BOS SEP EOS PAD), but the model has 5" in fails(
        "decompile", tmp_path / "model", "--task", "bin_majority", "--out", out
    )
    assert "holds other files" in fails("decompile", "abcde", "--out", tmp_path)
    (tmp_path / "result.json").write_text("[]")
    assert "expected a JSON object, as drasp writes it" in fails("decompile", "abcde", "--out", tmp_path, "--pick", "3")
    assert not out.exists()


@pytest.mark.long
def test_a_model_that_fails_on_its_task_is_decompiled_with_a_warning(tmp_path):
    finished = drasp("decompile", "tomita2", "--task", "tomita1", "--quick", "--out", tmp_path / "out")
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
