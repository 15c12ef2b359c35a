"""Results in Python: what they print, what their lines give, and how they are read again."""

import subprocess
import sys
from html import escape

import numpy as np
import pytest
import torch

import drasp
from drasp.causal import Evidence
from drasp.decompiler.verify import Disagreement, Verification, verify
from drasp.errors import DraspError
from drasp.language import Interpreter, parse, program_files
from drasp.measure import Share
from drasp.output_folder import write_files
from drasp.records import CertificateRecord, FrontierRecord, Record
from drasp.results.frontier import Frontier
from drasp.results.labelled import Axis, Labelled
from drasp.results.line import Line
from drasp.results.result import Result, load_result
from drasp.tasks import load_task, sequence_task
from drasp.translation import translate
from typed import known

TEXT = """vocab = [a, b, "<x>", "?"]
special = ["?"]
positions = 9

1. s1 = select(q=pos, k=pos, op=(k==q))  # layer 0 head 0
2. a1 = aggregate(s=s1, v=token)  # layer 0 head 0
3. logits1 = project(inp=a1, op=(inp==out))  # layer 0 head 0 -> out
4. prediction = softmax(logits1)  # out
"""
INPUT = ["a", "b", "<x>"]


@pytest.fixture(scope="module")
def program():
    return parse(TEXT)


@pytest.fixture
def result(program):
    points = (FrontierRecord(4, 0.98, (0.97, 0.99), True, "complete"), FrontierRecord(7, 1.0, None, False))
    record = Record(
        task="mine", method="fast", verdict="decompiled", grade="complete", reasons=("<one> reason",),
        match_accuracy=0.98, match_interval=(0.97, 0.99), samples=2000, task_accuracy=0.5, lines=4, pruned_lines=4,
        frontier=points, model_digest="0", settings={}, drasp_version="0", min_match=0.9, max_lines=40,
        certificate=CertificateRecord("proved", "proved for all 3", "<model>: proved for all 3", 2),
    )  # fmt: skip
    return Result(program, record, Frontier(points, {4: program, 7: program}, 4), program)


def test_a_result_prints_its_program_verdict_and_frontier(result, program):
    text = str(result)
    assert str(program) in text
    assert "decompiled (complete): 4 lines, 0.980 [0.970, 0.990] of 2,000 inputs answered alike, 0.500 right" in text
    assert "- <one> reason" in text
    assert "  <model>: proved for all 3\n" in text
    assert "→" in str(result.frontier)
    assert str(result.frontier) in text
    page = result._repr_html_()
    assert "&lt;one&gt; reason" in page
    assert "&lt;model&gt;: proved for all 3" in page
    assert "<one>" not in page
    assert program._repr_html_() == f"<pre>{escape(str(program))}</pre>"


def test_the_frontier_tells_the_pick_from_what_names_made_of_it():
    points = (FrontierRecord(4, 0.98, None, True), FrontierRecord(7, 1.0, None, False))

    def notes(named):
        return [(row[0], row[1], row[3], row[4]) for row in Frontier(points, {}, 4, named).rows()]

    assert notes(None) == [("→", "4", "yes", "the pick"), ("", "7", "no", "")]
    alike = FrontierRecord(4, 0.98, None, True, "complete")
    assert notes(alike) == [("→", "4", "complete", "the pick, with names"), ("", "7", "no", "")]
    shorter = FrontierRecord(3, 0.98, None, True, "complete")
    before, other = ("", "4", "yes", "the pick, before naming"), ("", "7", "no", "")
    assert notes(shorter) == [before, other, ("→", "3", "complete", "the pick, with names")]
    assert str(Frontier(points, {}, 4, alike)).splitlines()[1].endswith("  the pick, with names")


def test_a_result_on_all_inputs_says_so(result):
    from dataclasses import replace

    whole = replace(result, record=replace(result.record, match_interval=None, samples=12769, task_accuracy=None))
    assert "0.980 of all 12,769 inputs answered alike; what is left out" in whole.summary()


def test_lines_by_number_and_name(result):
    assert result[2].name == result["a1"].name == "a1"
    assert [line.number for line in result.lines] == [1, 2, 3, 4]
    assert str(result[1]).startswith("1. s1 = select(")
    with pytest.raises(DraspError, match="no line is called 'a7'; there are s1, a1, logits1, prediction"):
        result["a7"]
    with pytest.raises(DraspError, match="line 5: the program's lines are 1 to 4"):
        result[5]


def test_a_tensor_has_named_axes(result):
    tensor = result["logits1"].tensor
    assert [axis.name for axis in tensor.axes] == ["input: a1", "said: token"]
    assert tensor["a", "a"] > 0
    assert tensor["a", "b"] == 0
    assert np.asarray(tensor).shape == (4, 4)
    assert result["s1"].tensor.axes[1].name == "key: pos"
    scores = np.asarray(result["s1"].tensor)
    seen = np.asarray(result["s1"].seen)
    assert np.isnan(seen).sum() == 9 * 8 / 2  # keys behind the query
    assert np.array_equal(seen[np.tri(9, dtype=bool)], scores[np.tri(9, dtype=bool)])
    assert np.array_equal(result["logits1"].seen, tensor)
    for look in (lambda: result["a1"].tensor, result["a1"].plot):
        with pytest.raises(DraspError, match="line 2: a1 has no tensor; .* give an input"):
            look()


def test_a_norm_is_a_form_of_what_it_hears():
    """Its square is the quadratic form of its tensor, and eps, on the one-hot vectors of tokens and positions."""
    generator = torch.Generator().manual_seed(3)
    parts = {f"N1.{i}": torch.randn(n, 5, generator=generator, dtype=torch.float64) for i, n in enumerate((3, 6, 1))}
    text = """vocab = [a, b, c]
    positions = 6
    n1 = norm(token, pos, one, op=N1, eps=0.25)
    logits1 = project(inp=token/n1, op=(inp==out))
    prediction = softmax(logits1)"""
    line = Line(parse(text, parts), 1)
    form = np.asarray(line.tensor)
    assert line.tensor.axes[0].labels == line.tensor.axes[1].labels
    assert line.tensor.axes[0].labels[2:5] == ("token=c", "pos=0", "pos=1")
    vectors = np.concatenate([np.eye(3)[[0, 2, 1]], np.eye(6)[[2, 3, 4]], np.ones((3, 1))], 1)
    squares = np.einsum("pi,ij,pj->p", vectors, form, vectors) + 0.25
    assert np.allclose(np.asarray(line.on("a c b", 2)), np.sqrt(squares), rtol=1e-5)


def test_a_value_on_an_input_is_the_interpreters(result, program):
    ids = program.vocabulary.encode(INPUT)
    trace = Interpreter.of(program).trace(torch.tensor([ids]), torch.arange(2, 5)[None])
    value = result["a1"].on(INPUT, offset=2)
    assert np.allclose(np.asarray(value), trace["a1"][0])
    assert value.axes[0].labels == ("a", "b", "<x>")
    assert np.allclose(np.asarray(result["a1"].on("a b <x>", 2)), np.asarray(result["a1"].on(ids, 2)))
    assert np.isnan(np.asarray(result["s1"].on(INPUT))[0, 1])
    assert result["prediction"].on(INPUT).shape == (3, 4)


def test_attention_is_masked_and_adds_up_to_one(result):
    weights = np.asarray(result["a1"].attention(INPUT))
    assert np.isnan(weights[np.triu_indices(3, 1)]).all()
    assert np.allclose(np.nansum(weights, 1), 1)
    assert np.allclose(weights.diagonal(), 1)  # each position looks at itself
    with pytest.raises(DraspError, match="line 1: s1 is no aggregate"):
        result["s1"].attention(INPUT)


@pytest.mark.parametrize(
    ("tokens", "offset", "expected"),
    [
        ("a c", 0, r"the input: token 1 is 'c', which is not in the vocabulary \(a b .*\)"),
        ([7], 0, "the input: token 0 is id 7, expected 0 to 3"),
        ("", 0, "the input: has no tokens"),
        ("a b", 8, "2 tokens at offset 8 do not fit the program's 9 positions"),
    ],
)
def test_an_input_that_is_wrong_is_named(result, tokens, offset, expected):
    with pytest.raises(DraspError, match=expected):
        result["a1"].on(tokens, offset)


def test_lines_are_drawn(result):
    pytest.importorskip("matplotlib")
    assert result["logits1"].plot().axes
    assert result["a1"].plot(INPUT).axes[0].get_xlabel() == "key: token"
    assert result["prediction"].plot(INPUT).axes


def test_labels_find_numbers():
    array = Labelled("x", np.arange(6.0).reshape(2, 3), (Axis("r", ("a", "b")), Axis("c", ("u", "v", "u"))))
    assert array["b", "v"] == 4
    assert array["b"].axes == (Axis("c", ("u", "v", "u")),)
    assert array[1, -1] == 5
    with pytest.raises(DraspError, match="'u' stands more than once along c; name its place"):
        array["a", "u"]
    with pytest.raises(DraspError, match="no 'z' along r; there are a, b"):
        array["z"]
    with pytest.raises(DraspError, match="place 3 of 3 along c"):
        array[0, 3]
    assert str(array).splitlines()[-1].split() == ["b", "3", "4", "5"]
    assert "0.50" in str(Labelled("x", np.full((1, 1), 0.5), (Axis("r", ("a",)), Axis("c", ("u",)))))
    assert "<td>1</td>" in array._repr_html_()


def test_small_numbers_are_shown_by_their_first_digits():
    def shown(*values: float) -> list[str]:
        array = Labelled("x", np.array([values]), (Axis("r", ("a",)), Axis("c", tuple("uvwx"[: len(values)]))))
        return str(array).splitlines()[-1].split()[1:]

    assert shown(0.5, 0.004, -0.002, 0.0) == ["0.50", "·", "·", "·"]
    assert shown(0.0341, 0.004, -0.0002, 0.0) == ["0.034", "0.004", "·", "·"]
    assert shown(3.2e-7, -1.4e-6) == ["0.0000003", "-0.0000014"]
    assert shown(np.inf, 12.0, np.nan) == ["inf", "12"]
    assert shown(0.0, 0.0) == ["·", "·"]


def test_a_result_is_saved_and_read_again(result, tmp_path):
    folder = str(tmp_path / "result")
    result.save(folder)
    again = load_result(folder)
    assert again.program.digest == result.program.digest
    assert again.record == result.record
    assert again.frontier[7].digest == result.program.digest
    assert again.task is None
    again.save(tmp_path / "copy")
    assert load_result(tmp_path / "copy").summary() == result.summary()
    task = sequence_task("mine", ["a", "b", "<x>", "?"], lambda rng, n: [([0, 1], None)] * n, special=["?"])
    assert known(load_result(folder, task).task).name == "mine"
    other = sequence_task("other", ["a", "c"], lambda rng, n: [([0, 1], None)] * n)
    with pytest.raises(DraspError, match="not those of task other: token 1 is b, the task's is c"):
        load_result(folder, other)
    with pytest.raises(DraspError, match=r"no result.json; expected a folder"):
        load_result(tmp_path)


def test_all_public_names_are_offered_before_torch_is_there():
    code = (
        "import sys, drasp; names = dir(drasp); assert 'torch' not in sys.modules; "
        "assert {'decompile', 'load_result', 'sequence_task', 'load_model'} <= set(names); "
        "from pathlib import Path; assert (Path(drasp.__file__).parent / 'py.typed').exists()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_evidence_of_a_loaded_result_is_typed(result):
    assert result.evidence is None
    assert drasp.Evidence is Evidence
    assert str(Share(3, 4, every=True)) == "0.750 of all 4"


def test_paths_and_names_are_taken_for_what_they_hold(tmp_path):
    """What is found is the same as of a program, a model and a task themselves."""
    translated = drasp.translate("tomita1")
    model, task = drasp.load_model("tomita1"), load_task("tomita1")
    assert translated.output == "sigmoid"
    assert translated.digest == translate(model, task.vocabulary, "sigmoid").digest
    write_files(tmp_path / "result", program_files(translated))
    themselves = verify(translated, model, task, samples=20)
    for folder in (tmp_path / "result", str(tmp_path / "result"), tmp_path / "result/program.drasp"):
        assert drasp.verify(folder, "tomita1", samples=20) == themselves
    with pytest.raises(DraspError, match="the model: does not say what it was trained on; give a task"):
        drasp.evaluate(str(tmp_path / "result"), model)
    with pytest.raises(DraspError, match=f"{tmp_path}/result: its tokens are not those of task sort"):
        drasp.verify(tmp_path / "result", "sort")


@pytest.mark.long
def test_decompile_from_python_shows_progress_and_can_be_silent(capfd, tmp_path):
    found = drasp.decompile("bin_majority", quick=True)
    assert found.verdict == "decompiled"
    assert "agreement 1.000" in capfd.readouterr().err
    assert "interchange" in found._repr_html_()
    found.save(tmp_path / "out")
    assert load_result(tmp_path / "out").evidence == found.evidence
    assert drasp.decompile("bin_majority", load_task("bin_majority"), quick=True, progress=False).lines
    assert capfd.readouterr().err == ""


def test_what_python_hands_out_prints_as_a_line_or_a_table():
    model, task = drasp.load_model("bin_majority"), load_task("bin_majority")
    assert repr(model) == "<Transformer: 1 layer, 1 head, 16 dimensions, 6 tokens, 154 positions>"
    assert repr(task) == "<Task bin_majority: the more frequent bit; 6 tokens, softmax>"
    assert repr(drasp.zoo_models()[0]) == "<ZooModel bin_majority: 1 × 1 × 16>"
    said = Disagreement(("BOS", "1", "0"), 2, 1, "1", "0", 0.5, 0.25)
    found = Verification((("5", Share(9, 10)),), Share(9, 10), (said,))
    assert repr(found).splitlines() == [
        "           5: 0.900 [0.596, 0.982] of 10 inputs answered alike",
        " all lengths: 0.900 [0.596, 0.982] of 10 inputs answered alike",
        "",
        "1. BOS 1 0   (offset 2)",
        "   after position 1 (1) the model says 1 (by 0.50), the program 0 (by 0.25)",
    ]
