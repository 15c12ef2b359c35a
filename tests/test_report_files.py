"""`drasp report`, `explore` and `figures`, and what they do with damaged or missing files."""

import json
import re
import sys
from pathlib import Path

import pytest

from browser import chromium, open_file
from cases import CASES
from command import drasp, fails
from drasp.causal import Evidence
from drasp.causal.evidence import LineEvidence
from drasp.causal.measures import Measure
from drasp.language import program_files


def program_folder(folder: Path, name: str, record: dict | None = None) -> Path:
    case = next(case for case in CASES if case.name == name)
    folder.mkdir(parents=True)
    for file, content in program_files(case.program).items():
        (folder / file).write_bytes(content)
    if record is not None:
        (folder / "result.json").write_text(json.dumps(record))
    return folder


def record(task: str, match: float, lines: int, **more) -> dict:
    point = {"lines": lines, "match_accuracy": match, "match_interval": [match - 0.01, min(1, match + 0.01)]}
    verdict = "decompiled" if match >= 0.9 else "not_decompilable"
    facts = {"schema_version": 1, "method": "fast", "task": task, "model": task, "verdict": verdict, "samples": 2000}
    return facts | {"frontier": [point], **point} | more


def page_data(file: Path) -> dict:
    return json.loads(file.read_text().split('id="data">')[1].split("</script>")[0])


@pytest.mark.parametrize("is_in_the_page", [True, False])
def test_report_has_the_model_on_record_or_its_answers(tmp_path, monkeypatch, is_in_the_page):
    if not is_in_the_page:
        monkeypatch.setattr("drasp.report.model._SMALL", 0)
        monkeypatch.setattr("drasp.report.model._LARGEST", 1000)
    folder = program_folder(tmp_path / "result", "binary majority", record("bin_majority", 0.99, 3))
    result = drasp("report", folder)
    assert result.code == 0, result.err
    assert result.out.startswith(f"wrote {folder}/report.html (0.")
    data = page_data(folder / "report.html")
    examples = data["examples"]["steps"]
    assert len(examples) == 20
    assert len({len(example["ids"]) for example in examples}) > 10
    assert len({example["offset"] for example in examples}) > 5
    first = examples[0]
    # The zoo's model says the more frequent bit after SEP, which is where it counts.
    tokens = [data["program"]["vocabulary"][i] for i in first["ids"]]
    [(start, end)] = first["counted"]
    assert tokens[start] == "SEP"
    assert ("tensors" in data["model"]) == is_in_the_page
    with chromium() as browser:
        opened = open_file(browser, folder / "report.html")
        said = opened.page.locator("#strip tr").nth(3).locator("td").all_inner_texts()
        assert said[start:end] == [tokens[-1]]
        assert opened.page.inner_text("#agreement") == "Program and model agree at the one position that counts."
        assert opened.problems == []
    assert data["about"] == {"task": "the more frequent bit", "model": "1 layer, 1 head, 16 dimensions"}


@pytest.mark.long
def test_a_page_that_would_be_too_large_goes_without_the_models_weights(tmp_path, monkeypatch):
    folder = program_folder(tmp_path / "result", "sort", record("sort", 0.99, 4))
    assert drasp("report", folder).code == 0
    whole = (folder / "report.html").stat().st_size
    monkeypatch.setattr("drasp.report.page.MAX_BYTES", whole - 500_000)
    assert drasp("report", folder).code == 0
    assert (folder / "report.html").stat().st_size <= whole - 500_000
    data = page_data(folder / "report.html")
    assert "tensors" not in data["model"]
    assert data["examples"]["steps"][0]["model"]


def test_a_program_too_large_to_look_at_has_no_report(tmp_path, monkeypatch):
    """Nobody waits for a page that a browser could not hold."""
    monkeypatch.setattr("drasp.report.page.MAX_NUMBERS", 20_000)
    monkeypatch.setattr("drasp.report.page.report_page", lambda *_: pytest.fail("a page was made"))
    out = tmp_path / "out"
    finished = drasp("translate", "tomita1", "--out", out)
    assert (finished.code, "report.html" in finished.out, (out / "report.html").exists()) == (0, False, False)
    assert re.search(r"out: its tensors have [\d,]+ numbers; a report shows at most 20,000", fails("report", out))


def test_report_goes_without_what_is_not_there(tmp_path):
    folder = program_folder(tmp_path / "result", "binary majority", record("lost.py:mine", 0.9, 3, model="lost"))
    assert drasp("report", folder).code == 0
    data = page_data(folder / "report.html")
    assert data["model"] is None
    folder = program_folder(tmp_path / "by hand", "layer norm")
    before = {path.name for path in folder.iterdir()}
    assert drasp("report", folder).code == 0
    assert {path.name for path in folder.iterdir()} == before | {"report.html"}


def test_report_takes_a_model_and_a_task_that_the_user_names(tmp_path):
    folder = program_folder(tmp_path / "result", "binary majority")
    assert drasp("report", folder, "--model", "bin_majority").code == 0
    data = page_data(folder / "report.html")
    assert data["record"] == {"model": "bin_majority", "task": "bin_majority"}
    assert data["model"]["tensors"]


def test_report_refuses_what_it_cannot_read(tmp_path):
    assert "expected a .drasp file, or a folder" in fails("report", tmp_path / "nowhere")
    folder = program_folder(tmp_path / "result", "binary majority", {})
    (folder / "result.json").write_text("{")
    assert f"{folder}/result.json: not readable as JSON" in fails("report", folder)
    (folder / "result.json").unlink()
    assert "lost: no such folder" in fails("report", folder, "--model", "lost")
    assert not (folder / "report.html").exists()


# --------------------------------------------------------------------------------------- explore


@pytest.fixture
def results(tmp_path) -> Path:
    program_folder(tmp_path / "one", "binary majority", record("bin_majority", 0.99, 3))
    program_folder(tmp_path / "deep" / "two", "sort", record("sort", 0.5, 4, seconds=3.5))
    program_folder(tmp_path / "a#b<i>", "tomita 2", record("tomita2", 1.0, 2))
    assert drasp("report", tmp_path / "a#b<i>").code == 0
    return tmp_path


def test_explore_tells_the_evidence_and_shows_the_pick_as_naming_left_it(tmp_path):
    good, bad = Measure(0.97, 80, (0.93, 1.0), "passed"), Measure(0.4, 60, (0.3, 0.5), "failed")
    whole = dict.fromkeys(("model_cut_down", "program", "edited", "attention", "interchange", "splice"), good)
    lines = (
        LineEvidence("a1", "layer 0 head 0", "own", interchange=good),
        LineEvidence("m1", "x", "own", interchange=bad),
    )
    evidence = Evidence(**whole, complement=bad, lines=lines)
    more = {"grade": "sufficient", "causal": evidence.to_json(), "pruned_lines": 3}
    program_folder(tmp_path / "one", "binary majority", record("bin_majority", 0.99, 3, **more) | {"lines": 2})
    program_folder(tmp_path / "two", "sort", record("sort", 0.95, 4))
    damaged = record("tomita2", 1.0, 2, causal={"program": 1})
    program_folder(tmp_path / "damaged", "tomita 2", damaged)
    made = drasp("explore", tmp_path)
    assert "left out" in made.err
    assert "damaged/result.json: causal: " in made.err
    with chromium() as browser:
        opened = open_file(browser, tmp_path / "index.html")
        page = opened.page
        titles = [title.rstrip(" ↑↓") for title in page.locator("#results thead th").all_inner_texts()]
        rows = [row.locator("td").all_inner_texts() for row in page.locator("#results tbody tr").all()]
        told = [{title: row[titles.index(title)] for title in titles} for row in rows]
        assert told[0]["grade"] == "sufficient"
        assert told[0]["lines passed"] == "1 of 2"
        assert told[0]["on changed inputs"] == "✓ 0.97"
        assert told[0]["left out"] == "✗ 0.40"
        assert told[1]["lines passed"] == told[1]["left out"] == "–"
        picks = page.locator("#chart .series .dot.pick title").all_text_contents()
        assert "bin_majority with names: 2 lines, agreement 0.990 (the pick)" in picks
        page.click("#results thead button:has-text('left out')")
        assert opened.problems == []


def test_explore_lists_sorts_filters_and_links(results):
    made = drasp("explore", results)
    assert made.out == f"wrote {results}/index.html, an index of 3 results\n"
    with chromium() as browser:
        opened = open_file(browser, results / "index.html")
        page = opened.page
        tasks = page.locator("#results tbody tr td:first-child")
        assert tasks.all_inner_texts() == ["bin_majority", "sort", "tomita2"]
        assert page.locator("#chart .series").count() == 3
        page.click("#results thead button:has-text('agreement')")
        assert tasks.all_inner_texts() == ["tomita2", "bin_majority", "sort"]
        page.click("#results thead button:has-text('agreement')")
        assert tasks.all_inner_texts() == ["sort", "bin_majority", "tomita2"]
        page.fill("#filter", "DEEP")
        assert tasks.all_inner_texts() == ["sort"]
        assert page.inner_text("#count") == "1 of 3 results"
        assert page.locator("#chart .series").count() == 1
        page.fill("#filter", "")
        page.select_option("#verdict", "decompiled")
        assert set(tasks.all_inner_texts()) == {"bin_majority", "tomita2"}
        assert opened.problems == []
        assert len(opened.requests) == 1
        # The zoo's model says how good it is.
        row = page.locator("#results tbody tr", has_text="bin_majority").inner_text()
        assert row.count("100.0 %") >= 2
        page.click("#results a:has-text('tomita2')")
        page.wait_for_selector("body.ready")
        assert page.inner_text("#title") == "tomita2"


def test_explore_refuses_what_it_cannot_do(results, tmp_path):
    assert "no such folder" in fails("explore", tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no result below it" in fails("explore", empty)
    (results / "index.html").write_text("<p>mine")
    assert "is not a page of drasp's" in fails("explore", results)
    assert (results / "index.html").read_text() == "<p>mine"


# --------------------------------------------------------------------------------------- figures


@pytest.mark.parametrize(("kind", "begins"), [("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_figures_of_tensors_variables_and_frontier(tmp_path, kind, begins):
    pytest.importorskip("matplotlib")
    folder = program_folder(tmp_path / "result", "binary majority", record("bin_majority", 0.99, 3))
    result = drasp("figures", folder, "--format", kind, "--input", "BOS 0 1 1 SEP")
    assert result.code == 0, result.err
    files = sorted(path.name for path in (folder / "figures").iterdir())
    assert files == [
        f"frontier.{kind}",
        f"line-01-a1.{kind}",
        f"line-02-logits1.{kind}",
        f"line-02-op.{kind}",
        f"line-03-prediction.{kind}",
    ]
    assert all((folder / "figures" / file).read_bytes().startswith(begins) for file in files)
    if kind == "svg":
        text = (folder / "figures" / "line-02-op.svg").read_text()
        assert all(f">{label}<" in text for label in ("inp: a1", "out: token", "BOS", "Line 2: op of logits1"))


def test_figures_take_any_token(tmp_path):
    pytest.importorskip("matplotlib")
    folder = program_folder(tmp_path / "odd", "variables with the names of keywords and of Python's own words")
    file = folder / "program.drasp"
    file.write_text(file.read_text().replace('"<b>"', '"🙂 שלום$x"'))
    assert drasp("figures", folder, "--format", "svg", "--input", '["🙂 שלום$x"]').code == 0


def test_figures_refuse_what_they_cannot_do(tmp_path, monkeypatch):
    folder = program_folder(tmp_path / "result", "binary majority")
    assert "token 'x' is not in the vocabulary" in fails("figures", folder, "--input", "BOS x")
    assert "do not fit the program's 154 positions" in fails("figures", folder, "--input", "BOS", "--offset", "154")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'drasp[figures]'" in fails("figures", folder)
    assert not (folder / "figures").exists()
