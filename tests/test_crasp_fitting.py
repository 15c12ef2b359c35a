"""Lines outside C-RASP as inequalities: equal on all strings that they were found on, by other readers too."""

import json
import random
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from command import drasp, fails
from crasp_programs import BITS, FEW, PROGRAMS, written
from crasp_reader import TABLES, accepted
from drasp.crasp import fitting
from drasp.crasp.builder import Builder
from drasp.crasp.checking import Comparison, answers_to_all, compare
from drasp.crasp.exact import Form
from drasp.crasp.export import export_fitted
from drasp.crasp.interpreter import answers
from drasp.crasp.regions import region
from drasp.crasp.syntax import CraspError, Token, Truth
from drasp.errors import DraspError
from drasp.language import program_files
from drasp.loading import load_model_and_task
from drasp.translation import translate
from effort import examples


@examples(100)
@given(st.integers(0, 2**32))
def test_regions_hold_at_the_points_that_are_inside(seed):
    """Points are counts of three tokens behind BOS; their formula is run on a string that has them."""
    rng = np.random.default_rng(seed)
    counts = np.unique(rng.integers(0, 6, (rng.integers(1, 25), 3)), axis=0)
    points = np.column_stack([np.ones(len(counts), int), counts])
    inside = points @ rng.integers(-3, 4, 4) > 0 if rng.random() < 0.5 else rng.random(len(points)) < 0.5
    names = ("BOS", "a", "b", "c")
    builder = Builder(names)
    terms = [builder.count(frozenset({(token, True)})) for token in map(Token, names)]
    formula = region(
        points, inside, lambda weights: builder.positive(Form.total(zip(map(Fraction, weights), terms, strict=True)))
    )
    program = builder.program("said", formula)
    for point, expected in zip(points, inside, strict=True):
        word = np.repeat(np.arange(4), point)[None]
        assert answers(program, word, names)[0, -1] == expected


def test_the_same_counts_cannot_be_inside_and_outside():
    points = np.array([[1, 2], [2, 4]])
    with pytest.raises(CraspError, match="the same counts go with different answers"):
        region(points, np.array([True, False]), lambda weights: pytest.fail(f"asked for {weights}"))


def check_fitted(program, length: int, token: str):
    """What is exported is equal, by certificates' error bounds too, and other readers read it so."""
    found = export_fitted(program, length)
    assert found.fitted is not None
    assert isinstance(found.agreement, Comparison)
    assert found.agreement.proved
    assert found.agreement.short_length == 0
    files = {name: content.decode() for name, content in found.files().items()}
    names, rng = program.vocabulary.tokens, random.Random(0)
    ids, said, _ = answers_to_all(program, length)
    for row in rng.sample(range(len(ids)), 5):
        word = [names[i] for i in ids[row]]
        for table in TABLES.values():
            assert accepted(files[f"{token}.cr"], word, table) == said[row, -1, names.index(token)]
    return found


@pytest.mark.parametrize(("name", "token"), [("D2", "a"), ("tomita1", "1")])
def test_a_whole_model_up_to_a_length(name, token):
    """Its exact translation has norms that read `pos`, and MLPs of several shares."""
    transformer, task = load_model_and_task(name, name)
    assert task is not None
    check_fitted(translate(transformer, task.vocabulary, task.output), 6, token)


SHARES = """
a1 = aggregate(s=[], v=token)
s1 = select(q=a1, k=a1, op=(1: 1=4)*1.0)
a2 = aggregate(s=s1, v=a1)
logits1 = project(inp=a2, op=(0: 0=23 1=-11; 1: 0=-7 1=13 EOS=17; BOS: 0=-3 1=1 EOS=-9))
prediction = sigmoid(logits1)
"""


def test_a_share_that_is_looked_at():
    found = check_fitted(written(BITS, SHARES), 6, "0")
    assert found.fitted is not None
    assert found.fitted.refusal == (
        "`s1 = select(q=a1, k=a1, op=(1: 1=4)*1)` is outside C-RASP: its query `a1` is a share, which takes "
        "unboundedly many values"
    )
    assert "shares that lines look at, rounded" in str(found.fitted.detail)


def test_a_position_that_is_used_absolutely():
    """The token at position 2, if there is one."""
    text = "s1 = select(k=pos, op=P)\na1 = aggregate(s=s1, v=token)\n"
    text += "logits1 = project(inp=a1, op=(a: a=10; b: b=9; BOS: BOS=8))\n"
    table = torch.zeros(1, 152)
    table[0, 2] = 100.0
    found = check_fitted(written(FEW, f"{text}prediction = softmax(logits1)", {"P": table}), 6, "a")
    assert "positions" in str(found.fitted and found.fitted.detail)


def test_what_is_plainly_above_0():
    builder = Builder(("a", "b"))
    total = builder.count(frozenset({(Token("a"), True)})) + builder.count(frozenset({(Token("b"), True)}))
    assert builder.positive(total) == Truth(True)
    assert builder.positive(total - Form.of({}, 1)) != Truth(True)
    assert builder.positive(total * 2 - Form.of({}, 1)) == Truth(True)


def test_lines_of_c_rasp_stay_what_they_are():
    assert export_fitted(PROGRAMS["D4"]).fitted is None


def test_what_no_inequalities_tell_is_refused(monkeypatch):
    monkeypatch.setattr(fitting, "MAX_KINDS", 2)
    with pytest.raises(
        DraspError, match=r"`s1 = .* is a share.*; and no inequalities tell what it says up to length 7: it takes"
    ):
        export_fitted(written(BITS, SHARES), 7)


def test_a_wrong_inequality_is_found_out():
    program = written(BITS, SHARES)
    said, _ = fitting.fitted(program, *answers_to_all(program, 4))
    assert compare(program, said, 4, any_tokens=False).disagreement is None
    said["EOS"] = said["0"]
    assert compare(program, said, 4, any_tokens=False).disagreement is not None


def test_the_command(tmp_path):
    source = tmp_path / "result"
    source.mkdir()
    for name in ("program.drasp", "program.safetensors"):
        (source / name).write_bytes(program_files(written(BITS, SHARES))[name])
    assert "--fit puts what it says up to a length as inequalities" in fails(
        "export", source, "--out", tmp_path / "out"
    )
    assert "two ways" in fails("export", source, "--fit", "--task", "D2", "--out", tmp_path / "out")
    done = drasp("export", source, "--fit", "--length", "6", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "not line by line (`s1 = select(" in done.out
    assert "equal on all 127 strings of up to 6 ordinary tokens; proved" in done.out
    manifest = json.loads((tmp_path / "out" / "export.json").read_text())
    assert manifest["checked"]["proved"]
    assert manifest["fitted"]["refusal"].startswith("`s1 = select")
    file = next((tmp_path / "out").glob("*.cr"))
    assert "found on all strings of up to\n// 6 ordinary tokens" in file.read_text()
