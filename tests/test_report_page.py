"""The report page in a real browser: it opens, computes, and shows everything as text."""

import json

import pytest
import torch

from browser import open_file
from cases import case
from drasp.language import parse
from drasp.language.function_primitives import _REGISTRY as FUNCTIONS
from drasp.language.function_primitives import function_primitive, same_basis
from drasp.report.page import MAX_BYTES
from drasp.vocabulary import Vocabulary
from report_pages import RECORD, answers, type_input, written


@pytest.fixture
def copying(browser, tmp_path):
    opened = open_file(browser, written(tmp_path, case("unique copy"), RECORD))
    yield opened
    opened.page.close()


def canvases(page) -> list[str]:
    return page.evaluate("[...document.querySelectorAll('.card canvas[tabindex]')].map((c) => c.toDataURL())")


def test_the_page_opens_from_disk_and_asks_for_nothing(browser, tmp_path):
    compared = {"status": "proved", "length": 2, "inputs": 22_500, "undecided": 0}
    proof = {"status": "proved", "sentence": "", "line": "<b>proved</b> for all", "length": 2}
    file = written(tmp_path, case("unique copy"), RECORD | {"certificate": proof | {"against_model": compared}})
    opened = open_file(browser, file)
    opened.page.wait_for_timeout(200)
    assert opened.problems == []
    assert opened.requests == [file.as_uri()]
    assert opened.page.inner_text("#title") == "unique_copy"
    # Nothing in this record says by what means the program answers alike.
    assert opened.page.inner_text("#verdict") == "answers alike; by what means was not measured"
    assert "94.0 %" in opened.page.inner_text("#facts")
    assert "proved up to length 2\n<b>proved</b> for all" in opened.page.inner_text("#facts")
    assert opened.page.locator("#frontier .dot").count() == 2
    assert opened.page.locator("#frontier .dot.pick").count() == 1
    rows = opened.page.locator("#passes tbody tr").all_inner_texts()
    assert [row.split("\t")[:3] for row in rows] == [["cut edges", "2", "8 edges"], ["cut lines", "1", "7 lines"]]
    opened.page.close()


@pytest.mark.parametrize(("pruned", "before", "after"), [(7, 0.94, 0.93), (9, 0.96, 0.94)])
def test_a_program_that_naming_changed_has_a_point_of_its_own(browser, tmp_path, pruned, before, after):
    """Also where another of the frontier has its length and agreement, as the one of 7 lines in the second case."""
    point = {"lines": 9, "match_accuracy": 0.96, "match_interval": [0.95, 0.97], "causal": True, "grade": None}
    frontier = [*RECORD["frontier"], point]
    record = RECORD | {"match_accuracy": after, "pruned_lines": pruned, "frontier": frontier}
    opened = open_file(browser, written(tmp_path, case("unique copy"), record))
    titles = opened.page.locator("#frontier .dot.pick title").all_text_contents()
    first = f"{pruned} lines, agreement {before:.3f} (the pick, before naming)"
    assert titles == [first, f"with names: 7 lines, agreement {after:.3f} (the pick)"]
    assert opened.problems == []
    opened.page.close()


def test_the_policy_allows_nothing_from_outside(tmp_path):
    text = written(tmp_path, case("unique copy"), RECORD).read_text()
    policy = text.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == "'none'"
    assert rules.pop("script-src").startswith("'sha256-")
    assert rules.pop("style-src").startswith("'sha256-")
    assert rules == {"img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text


def test_typing_changes_the_pictures_and_the_prediction(copying):
    page = copying.page
    type_input(page, "BOS 7 12 SEP 7")
    before = canvases(page)
    assert answers(page)[-2:] == ["7", "12"]
    type_input(page, "BOS 3 12 SEP 3 12")
    assert answers(page)[-3:] == ["3", "12", "EOS"]
    changed = [a != b for a, b in zip(before, canvases(page), strict=True)]
    assert all(changed[:3])  # the first selector, its attention and a1; further down they wait for being seen
    assert copying.problems == []


def test_the_offset_counts(copying):
    page = copying.page
    type_input(page, "BOS 7 SEP")
    assert page.locator("#strip tr").nth(0).locator("td").all_inner_texts() == ["0", "1", "2"]
    type_input(page, "300", "#offset")
    assert page.locator("#strip tr").nth(0).locator("td").all_inner_texts() == ["300", "301", "302"]
    type_input(page, "301", "#offset")
    assert page.inner_text("#message") == "3 tokens at offset 301 do not fit the program's 303 positions."


def test_an_unknown_token_gives_a_message_in_the_page(copying):
    page = copying.page
    type_input(page, "BOS 7 <b>wrong</b>")
    message = page.inner_text("#message")
    assert "<b>wrong</b>" in message
    assert "is not one of the program's tokens" in message
    assert page.get_attribute("#input", "aria-invalid") == "true"
    type_input(page, "BOS 7")
    assert page.text_content("#message") == ""
    assert copying.problems == []


def test_examples_can_be_stepped_through_and_drawn(copying):
    page = copying.page
    assert page.inner_text("#which") == "example 1 of 20"
    first = page.input_value("#input")
    page.click("#next")
    assert page.inner_text("#which") == "example 2 of 20"
    assert page.input_value("#input") != first
    page.click("#previous")
    assert page.input_value("#input") == first
    type_input(page, "BOS 7 SEP 7 EOS")
    assert page.inner_text("#which") == "20 examples"
    page.click("#draw")
    assert page.input_value("#input").startswith("BOS ")
    assert page.text_content("#message") == ""


def test_hovering_a_line_shows_what_it_reads_and_what_reads_it(copying):
    page = copying.page
    page.hover(".listing .line >> nth=3")  # a2 = aggregate(s=s2, v=token)
    assert page.locator(".listing .is-read").all_inner_texts()[0].startswith("s2 = select")
    assert page.locator(".listing .is-reader").all_inner_texts()[0].startswith("logits1 = project")
    assert page.locator(".card.is-read").count() == page.locator(".card.is-reader").count() == 1


def test_clicking_a_line_shows_its_tensor_with_named_axes(copying):
    page = copying.page
    page.click(".listing .line >> nth=2")
    assert page.inner_text("#tensor-title") == "Line 3: s2"
    grid = page.evaluate(
        "(({rowTitle, columnTitle, rowLabels, values}) =>"
        " [rowTitle, columnTitle, rowLabels[150], values[7 * 155], values[150 * 155]])"
        "(drasp.report.tensorPanel.heatmap.grid)"
    )
    assert grid == ["q: token", "k: a1", "BOS", 10000, 10000]
    before = page.evaluate("drasp.report.tensorPanel.heatmap.cellWidth")
    page.locator("#tensor-map .heat-tools button").nth(2).click()
    assert page.evaluate("drasp.report.tensorPanel.heatmap.cellWidth") > before


def test_cells_are_read_by_mouse_and_by_keys(copying):
    page = copying.page
    type_input(page, "BOS 7 12 SEP 7")
    canvas = page.locator("#line-2 canvas[tabindex]").nth(1)
    canvas.focus()
    canvas.press("ArrowDown")
    canvas.press("ArrowRight")
    assert page.inner_text("#tip").replace("\u2068", "").replace("\u2069", "").startswith("a1 [")
    canvas.press("Escape")
    assert page.is_hidden("#tip")
    box = page.evaluate("(({left, top}) => [left, top])(drasp.report.cards[1].figures[1].heatmap)")
    canvas.hover(position={"x": box[0] + 3, "y": box[1] + 3})
    assert "at position 0" in page.inner_text("#tip")


STRANGE = Vocabulary(
    (
        "<script>window.hacked = 1</script>",
        "</script><script>window.hacked = 2</script>",
        '"',
        "'",
        "&amp;",
        " ",
        "a b",
        "🙂",
        "שלום",
        "<img src=x onerror=window.hacked=3>",
        "${alert(1)}",
    )
)


def test_strange_tokens_are_text_everywhere_and_nothing_runs(browser, tmp_path):
    names = ", ".join(json.dumps(token) for token in STRANGE.tokens)
    script = STRANGE.tokens[0]
    program = parse(
        f"""vocab = [{names}]\nspecial = []\npositions = 40
        s1 = select(q=token, k=token, op=(k=={json.dumps(script)}))  # {script}
        a1 = aggregate(s=s1, v=token)
        h1 = element_wise_op(a1, func=mlp(F, relu))
        logits1 = project(inp=h1, op=(inp==out))
        prediction = sigmoid(logits1)""",
        {
            "F.0": torch.eye(11),
            "F.hidden": torch.eye(11),
            "F.hidden_bias": torch.zeros(11),
            "F.out": torch.eye(11),
            "F.out_bias": torch.zeros(11),
        },
    )
    record = {"task": script, "model": STRANGE.tokens[9], "verdict": "not_decompilable", "reasons": [script]}
    opened = open_file(browser, written(tmp_path, program, record))
    page = opened.page
    type_input(page, " ".join(json.dumps(token, ensure_ascii=False) for token in STRANGE.tokens))
    assert page.text_content("#message") == ""
    shown = page.locator("#strip tr").nth(1).locator("td").all_inner_texts()
    assert shown == [token if token != " " else '" "' for token in STRANGE.tokens]
    assert page.inner_text("#title") == script
    assert page.inner_text("#reasons") == script
    assert script in page.inner_text(".listing")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_selector("#effects select option >> nth=0", state="attached")
    assert page.locator("#effects select option").first.inner_text() == script
    page.locator("#line-1 canvas[tabindex]").first.press("ArrowDown")
    assert STRANGE.tokens[1] in page.inner_text("#tip")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert opened.problems == []
    assert len(opened.requests) == 1
    page.close()


def test_a_function_of_the_users_own_is_said_to_be_beyond_the_page(browser, tmp_path):
    @function_primitive(basis=same_basis)
    def tripled(xp, inputs):
        return 3 * inputs[0]

    try:
        program = parse(
            "vocab = [x, y]\nspecial = []\npositions = 4\n"
            "h1 = element_wise_op(token, func=tripled)\nlogits1 = project(inp=h1, op=(inp==out))\n"
            "logits2 = project(inp=token, op=(inp==out))\nprediction = softmax(logits1+logits2)"
        )
        opened = open_file(browser, written(tmp_path, program))
    finally:
        del FUNCTIONS["tripled"]
    assert "the function tripled exists in Python alone" in opened.page.inner_text("#line-1")
    assert "because it reads h1" in opened.page.inner_text("#line-2")
    assert opened.page.locator("#line-3 canvas[tabindex]").is_visible()
    assert opened.problems == []
    opened.page.close()


def test_operations_without_a_name_are_shown_by_their_effects(browser, tmp_path):
    program = parse(
        """vocab = [a, b, c]\nspecial = []\npositions = 40
        a1 = aggregate(s=[], v=token)
        m1 = element_wise_op(a1, one, func=mlp(F, relu))
        s1 = select(q=m1, k=token, op=A)
        a2 = aggregate(s=s1, v=m1)
        logits1 = project(inp=m1, op=R)
        logits2 = project(inp=a2, op=R)
        prediction = sigmoid(logits1+logits2)""",
        {
            "F.0": torch.eye(3),
            "F.1": torch.tensor([[-0.2, -0.4, 0.0]]),
            "F.hidden": torch.eye(3),
            "F.hidden_bias": torch.zeros(3),
            "F.out": torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]]),
            "F.out_bias": torch.zeros(2),
            "A": torch.tensor([[1.0, 0.0, 0.0], [0.0, 5.0, 0.0]]),
            "R": torch.tensor([[1.0, 0.0, -1.0], [0.0, 2.0, 0.0]]),
        },
    )
    opened = open_file(browser, written(tmp_path, program))
    page = opened.page
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_selector("#effects .effect >> nth=1")
    found = page.evaluate("drasp.report.effects.samplesOf(drasp.report.effects.lines[0])")
    assert found["labels"] == ["a", "b", "c"]
    assert len(found["samples"]) > 20
    for sample in found["samples"]:
        hidden = (torch.tensor(sample["input"]) + program.tensors["F.1"][0]).clamp(min=0)
        # Once directly, and once by way of a2, as if it were attended to alone.
        effect = 2 * hidden @ program.tensors["F.out"] @ program.tensors["R"]
        assert sample["logits"] == pytest.approx(effect.tolist(), abs=1e-5)
    page.select_option("#effects .effect >> nth=0 >> select", "1")
    rows = page.evaluate(
        "[...HEATMAPS.values()].filter((h) => h.grid && h.grid.name === 'effects of m1')"
        ".map(({ grid }) => [...grid.values].filter((_, i) => grid.columnLabels[i % grid.columns] === 'b'))[0]"
    )
    assert rows == sorted(rows, reverse=True)
    scores = page.evaluate(
        "[...[...HEATMAPS.values()].find((h) => h.grid && h.grid.name === 'score of s1').grid.values]"
    )
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0 > scores[-1]
    assert opened.problems == []
    page.close()


def test_the_program_stays_in_view_beside_the_variables_and_covers_nothing_below(copying):
    page = copying.page
    sides = "(name) => (({ top, bottom }) => [top, bottom])(document.querySelector(name).getBoundingClientRect())"
    page.evaluate("document.querySelector('#line-4').scrollIntoView()")
    assert 0 <= page.evaluate(sides, ".program-side")[0] < 100
    # Where there is little room, a tensor is brought into view beside its variable.
    page.set_viewport_size({"width": 1300, "height": 420})
    page.click(".line[data-name=s2]")
    tensor, side = page.evaluate(sides, "#tensor-map"), page.evaluate(sides, ".program-side")
    assert 0 <= side[0] < side[1] <= 420
    assert side[0] <= tensor[0] < side[1] - 100
    page.set_viewport_size({"width": 1300, "height": 900})
    page.evaluate("document.querySelector('#search').scrollIntoView()")
    assert page.evaluate(sides, ".program-side")[1] <= page.evaluate(sides, "#search")[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_does_not_scroll_sideways(browser, tmp_path, scheme):
    file = written(tmp_path, case("unique copy"), RECORD)
    opened = open_file(browser, file, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert opened.problems == []
    opened.page.close()


def test_a_page_that_would_be_too_large_rounds_its_tensors_and_says_so(tmp_path):
    generator = torch.Generator().manual_seed(0)
    names = tuple(str(i) for i in range(700))
    program = parse(
        f"vocab = [{', '.join(names)}]\nspecial = []\npositions = 700\n"
        "s1 = select(q=pos, k=pos, op=A)\ns2 = select(q=pos, k=token, op=C)\na1 = aggregate(s=s1+s2, v=token)\n"
        "logits1 = project(inp=a1, op=B)\nlogits2 = project(inp=token, op=D)\n"
        "prediction = softmax(logits1+logits2)",
        {name: torch.randn(700, 700, generator=generator) for name in ("A", "B", "C", "D")},
    )
    file = written(tmp_path, program)
    assert file.stat().st_size <= MAX_BYTES
    text = file.read_text()
    rounding = json.loads(text.split('"rounding":')[1].split("}")[0] + "}")
    assert rounding["bits"] > 0
    assert 0 < rounding["difference"] < 1
