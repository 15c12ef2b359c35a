"""What the report page shows beside the program: evidence, editing, links; in a real browser."""

from itertools import product

import pytest
import torch

from browser import open_file
from cases import case
from drasp.language import parse
from drasp.language.bases import One, Positions, Tokens, size
from drasp.language.syntax import PrimitiveTensor
from drasp.language.tensor_primitives import build, parse_primitive, tensor_primitives
from drasp.loading import ZOO_FOLDER
from drasp.model_files import load_model
from drasp.report.data import program_data
from drasp.report.examples import draw_examples
from drasp.report.page import report_page
from drasp.running import run
from drasp.sequences import Sequences
from drasp.sites import Component, Pattern
from drasp.tasks import TASKS
from drasp.translation import translate
from report_pages import RECORD, answers, type_input, written


@pytest.fixture(scope="module")
def copying(browser, tmp_path_factory):
    opened = open_file(browser, written(tmp_path_factory.mktemp("report"), case("unique copy"), RECORD))
    yield opened
    opened.page.close()


def measured(value: float | None, status: str, n: int = 80) -> dict:
    interval = None if value is None else [value - 0.03, min(1, value + 0.02)]
    return {"value": value, "n": n, "interval": interval, "status": status}


def evidence_record(verdict: str, grade: str | None) -> dict:
    """Of three lines one passes, one fails in the model, and one has nothing to say."""
    good, bad = measured(0.97, "passed"), measured(0.4, "failed")
    lines = [
        {"line": "s1", "stands_for": "pos * pos -> layer 0 head 0 pattern", "origin": "named", "interchange": good},
        {"line": "a1", "stands_for": "layer 0 head 0", "origin": "own", "interchange": bad, "attention": good},
        {"line": "s2", "stands_for": "x", "origin": "own", "interchange": measured(None, "not_applicable", 0)},
    ]
    whole = ("program", "model_cut_down", "edited", "attention", "interchange", "splice", "complement", "mean_ablated")
    causal = dict.fromkeys(whole, good) | {"interchange": bad, "lines": lines}
    return RECORD | {"verdict": verdict, "grade": grade, "causal": causal, "reasons": ["a1 is not all there is"]}


@pytest.mark.parametrize(
    ("verdict", "grade", "headline"),
    [
        ("decompiled", "complete", "does what the model does: complete"),
        ("decompiled", "sufficient", "enough to give the model's answers: sufficient"),
        ("answers_only", None, "answers alike, by other means"),
    ],
)
def test_the_headline_says_what_was_measured(browser, tmp_path, verdict, grade, headline):
    opened = open_file(browser, written(tmp_path, case("unique copy"), evidence_record(verdict, grade)))
    page = opened.page
    assert page.inner_text("#verdict") == headline
    assert "1 of 3 lines passed" in page.inner_text("#facts")
    lines = page.locator(".line").all()
    marks = {line.get_attribute("data-name"): line.locator(".mark").all_inner_texts() for line in lines}
    assert marks["s1"] == ["✓ 0.97"]
    assert marks["a1"] == ["✗ 0.40"]
    assert marks["s2"] == ["–"]
    assert marks["logits1"] == []
    title = page.get_attribute(".line[data-name=a1] .mark", "title")
    assert "from another input, as in the model: 0.40 [0.37, 0.42] of 80 cases" in title
    assert "looks where the model's heads do: 0.97" in title
    assert page.locator("#by-line tbody tr").count() == 3
    assert "layer 0 head 0" in page.inner_text("#by-line")
    assert opened.problems == []
    page.close()


def test_the_introduction_is_folded_away_after_the_first_visit(browser, tmp_path):
    opened = open_file(browser, written(tmp_path, case("unique copy"), RECORD))
    assert opened.page.get_attribute("#intro", "open") is not None
    assert opened.page.inner_text("#intro p").replace("\n", " ").count(". ") == 4
    opened.page.reload()
    assert opened.page.get_attribute("#intro", "open") is None
    opened.page.close()


def test_a_case_that_speaks_against_a_line_can_be_seen(browser, tmp_path):
    task, transformer = TASKS["bin_majority"], load_model(ZOO_FOLDER / "bin_majority")
    program = translate(transformer, task.vocabulary, task.output)
    found = {"tokens": ["BOS", "0", "1", "SEP"], "offset": 3, "source": ["BOS", "1", "1", "SEP"], "source_offset": 5}
    record = evidence_record("decompiled", "sufficient")
    record["causal"]["lines"][1]["case"] = found | {"position": 3}
    file = tmp_path / "report.html"
    file.write_bytes(report_page(program, record, draw_examples(program, task, transformer)))
    opened = open_file(browser, file)
    page = opened.page
    page.click("#by-line a:text-is('see a case, at position 6')")
    page.wait_for_selector("#lines-from [aria-pressed=true]")
    assert page.locator("#intervene [aria-pressed=true]").all_inner_texts() == ["a1"]
    assert page.evaluate("[drasp.report.input, drasp.report.interventions.source]") == [
        {"ids": [task.vocabulary.ids[t] for t in found["tokens"]], "offset": 3},
        {"ids": [task.vocabulary.ids[t] for t in found["source"]], "offset": 5},
    ]
    assert opened.problems == []
    page.close()


# ---------------------------------------------------------------------------------------------------- editing


def test_a_lines_op_can_be_edited_by_name_and_by_cell_and_undone(browser, tmp_path):
    program, transformer = case("binary majority"), load_model(ZOO_FOLDER / "bin_majority")
    file = tmp_path / "report.html"
    file.write_bytes(report_page(program, {}, draw_examples(program, TASKS["bin_majority"], transformer)))
    opened = open_file(browser, file)
    page = opened.page
    type_input(page, "BOS 1 1 0 SEP")
    page.click(".listing .line:has-text('project')")
    before = answers(page)
    page.fill("#op-name", "(out==inp+1)*50")
    page.press("#op-name", "Enter")
    assert "100.0 % before, 0.0 % now" in page.inner_text("#op-message")
    assert answers(page) != before
    assert "edited: (out==inp+1)*50" in page.inner_text(".listing")
    page.click("#undo")
    assert "0.0 % before, 100.0 % now" in page.inner_text("#op-message")
    assert answers(page) == before
    page.select_option("#cell-row", label="1")
    page.select_option("#cell-column", label="EOS")
    page.fill("#cell-value", "1e6")
    page.click("#set-cell")
    assert answers(page)[-1] == "EOS"
    page.click("#undo")
    assert page.is_hidden("#undo")
    assert "edited" not in page.inner_text(".listing")
    page.fill("#op-name", "nonsense")
    page.press("#op-name", "Enter")
    assert "Not in the library" in page.inner_text("#op-message")
    assert opened.problems == []
    page.close()


NAMED = """([kind, text, rows, columns, byToken]) => {
    const library = drasp.report.editor.libraries[kind];
    return [...library.tensor(text, { rows, columns, byToken }).data];
}"""


TRY_SAMPLES = """([kind, rows, byToken]) => {
    const library = drasp.report.editor.libraries[kind];
    const shape = { rows, columns: 6, byToken };
    return library.samples(shape).map((text) => [text, library.tensor(text, shape).data.length]);
}"""


def test_names_that_are_offered_can_be_taken(copying):
    shapes = product(("select", "project"), (1, 6), (True, False))
    found = [sample for shape in shapes for sample in copying.page.evaluate(TRY_SAMPLES, list(shape))]
    assert {size for _, size in found} == {6, 36}
    assert {"(k==q-1)", "((q-k)%2==1)", "(out==0)"} <= {text for text, _ in found}


def test_the_library_in_the_page_is_pythons(copying):
    vocabulary, positions = Tokens(case("unique copy").vocabulary), Positions(23)
    square = ["k==q", "k==q-2", "k==q+1", "(q-k)%3==2", "q-4<=k<=q-1", "k is next above q", "k>q", "k<q"]
    vectors = ["uniform selection", "k is first", "k is last", "k%3==2"]
    cases = [("select", text, positions, positions) for text in (*square, *vectors)]
    cases += [("select", text, One(), positions) for text in vectors]
    cases += [("select", "k==SEP", One(), vocabulary), ("project", "inp==out", vocabulary, vocabulary)]
    cases += [("project", "out==inp+1", vocabulary, vocabulary), ("project", "out==EOS", One(), vocabulary)]
    named = set()
    for kind, text, rows, columns in cases:
        primitive, arguments = parse_primitive(text, kind) or ("", ())
        named.add(primitive)
        expected = build(PrimitiveTensor(primitive, arguments, 2.5), None, rows, columns)
        wanted = [kind, f"({text})*2.5", size(rows), size(columns), isinstance(columns, Tokens)]
        assert copying.page.evaluate(NAMED, wanted) == pytest.approx(expected.flatten().tolist())
    # Tables are edited cell by cell.
    assert named == set(tensor_primitives()) - {"table", "followers"}


# ------------------------------------------------------------------------------------- links, pictures, widths


@pytest.mark.long
def test_a_link_opens_the_page_with_the_same_input_and_interventions(browser, tmp_path):
    task, transformer = TASKS["bin_majority"], load_model(ZOO_FOLDER / "bin_majority")
    program = translate(transformer, task.vocabulary, task.output)
    file = tmp_path / "report.html"
    file.write_bytes(report_page(program, {}, draw_examples(program, task, transformer)))
    opened = open_file(browser, file)
    page = opened.page
    type_input(page, "BOS 1 1 0 SEP")
    type_input(page, "7", "#offset")
    before = page.inner_text("#strip")
    page.click("#intervene summary")
    page.fill("#source", "BOS 0 0 0 SEP")
    page.click("#switches button >> nth=1")
    page.click("#lines-from button:text-is('a1')")
    after = page.inner_text("#strip")
    assert "model, before" in after
    assert page.locator("#intervene [aria-pressed=true]").count() == 2
    again = open_file(browser, file)
    again.page.goto(file.as_uri() + page.get_attribute("#link", "href"))
    again.page.reload()
    again.page.wait_for_selector("body.ready")
    assert again.page.inner_text("#strip") == after
    assert again.page.input_value("#source") == "BOS 0 0 0 SEP"
    assert again.page.locator("#intervene [aria-pressed=true]").count() == 2
    page.click("#clear")
    assert page.inner_text("#strip") == before
    page.fill("#source", "BOS 0 SEP")
    assert "as many tokens as the input: 5, and it has 3" in page.inner_text("#source-message")
    assert opened.problems == again.problems == []
    for one in (opened, again):
        assert all(address.startswith(file.as_uri()) for address in one.requests)
        one.page.close()


def test_a_whole_picture_has_the_whole_program(browser, tmp_path):
    """At the top of the page, where such pictures are taken, nothing is cut off, however low the window."""
    file = written(tmp_path, case("unique copy"), RECORD)
    opened = open_file(browser, file, viewport={"width": 1300, "height": 300})
    side = "(({ scrollHeight, clientHeight }) => [scrollHeight, clientHeight])(document.querySelector('.program-side'))"
    whole, seen = opened.page.evaluate(side)
    assert whole == seen > 300
    opened.page.close()


# ------------------------------------------------------------------------------------------ what is said of answers


def test_answers_at_the_end_of_a_typed_input_do_not_count(browser, tmp_path):
    """As in the tasks: a prediction after EOS is measured nowhere, be it of an example or not."""
    task, transformer = TASKS["aastar"], load_model(ZOO_FOLDER / "aastar")
    program = translate(transformer, task.vocabulary, task.output)
    file = tmp_path / "report.html"
    file.write_bytes(report_page(program, {"task": "aastar"}, draw_examples(program, task, transformer)))
    opened = open_file(browser, file)
    page = opened.page
    for text, counted in (("BOS a a a EOS", 4), ("BOS a a a", 4), ("BOS a EOS PAD PAD", 2)):
        type_input(page, text)
        assert page.inner_text("#agreement") == f"Program and model agree at all of the {counted} positions that count."
    type_input(page, "BOS a a a EOS")
    page.click("#intervene summary")
    page.click("#patterns button >> nth=0")
    assert page.inner_text("#agreement").endswith("The interventions change no answer.")
    page.click("#switches button:text-is('layer 0 head 1')")
    assert page.locator("#strip .changed").count() == 4
    assert page.inner_text("#agreement").endswith("change (underlined) 2 answers of the program and 2 of the model.")
    page.close()


def test_a_model_that_is_too_large_is_shown_as_recorded(browser, tmp_path, monkeypatch):
    task, transformer = TASKS["bin_majority"], load_model(ZOO_FOLDER / "bin_majority")
    program = translate(transformer, task.vocabulary, task.output)
    examples = draw_examples(program, task, transformer)
    monkeypatch.setattr("drasp.report.model._SMALL", 0)
    monkeypatch.setattr("drasp.report.model._LARGEST", 0)
    file = tmp_path / "report.html"
    file.write_bytes(report_page(program, {"task": "bin_majority"}, examples))
    opened = open_file(browser, file)
    page = opened.page
    assert page.evaluate("drasp.report.model") is None
    assert page.is_hidden("#intervene")
    assert "Program and model agree" in page.inner_text("#agreement")
    shown = "drasp.report.cards.find((card) => card.line.kind === 'aggregate').figures[1].heatmap.grid.values"
    head, example = Component("head", 0, 0), examples.steps[0]
    inputs = Sequences(torch.tensor([example.ids]), example.offset + torch.arange(len(example.ids))[None])
    pattern = run(transformer, inputs, record=[Pattern(head)]).values[Pattern(head)]
    assert page.evaluate(f"[...{shown}]") == pytest.approx(pattern.flatten().tolist(), abs=1e-3)
    type_input(page, "BOS 1 1 0 SEP")
    assert "its answers are known for the examples" in page.inner_text("#agreement")
    assert "is known for the shorter examples" in page.inner_text(".card:has-text('aggregate') >> nth=0")
    assert opened.problems == []
    page.close()


BLANK = """[...document.querySelectorAll(".card canvas[tabindex]")].filter((canvas) => {
    const empty = document.createElement("canvas");
    [empty.width, empty.height] = [canvas.width, canvas.height];
    return canvas.toDataURL() === empty.toDataURL();
}).length"""


def test_what_is_out_of_view_is_drawn_too(copying):
    copying.page.wait_for_function("[...HEATMAPS.values()].every((heatmap) => !heatmap.dirty && heatmap.viewWidth)")
    assert copying.page.evaluate(BLANK) == 0


@pytest.mark.long
def test_a_long_program_is_no_wider_than_the_window(browser, tmp_path):
    task = TASKS["tomita4"]
    program = translate(load_model(ZOO_FOLDER / "tomita4"), task.vocabulary, task.output)
    file = tmp_path / "report.html"
    file.write_bytes(report_page(program, {}, draw_examples(program, task)))
    for width in (360, 1000):
        opened = open_file(browser, file, viewport={"width": width, "height": 900})
        opened.page.wait_for_selector("#effects .effect")
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
        opened.page.close()


def test_directions_that_a_project_takes_for_tokens_are_called_so():
    tensors = {"F.0": torch.eye(2), "F.hidden": torch.eye(2), "F.hidden_bias": torch.zeros(2)}
    tensors |= {"F.out": torch.eye(2), "F.out_bias": torch.zeros(2), "R": torch.eye(2)}
    text = "vocab = [x, y]\nspecial = []\npositions = 4\nm1 = element_wise_op(token, func=mlp(F, relu))\n"
    end = "prediction = softmax(logits1)"
    named = parse(f"{text}logits1 = project(inp=m1, op=(inp==out))\n{end}", tensors)
    other = parse(f"{text}logits1 = project(inp=m1, op=R)\n{end}", tensors)
    assert program_data(named)["bases"]["m1"] == {"kind": "token"}
    assert program_data(other)["bases"]["m1"] == {"kind": "space", "size": 2}
