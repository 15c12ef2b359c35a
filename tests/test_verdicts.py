"""Which program is picked, and what is said of it: on points with made-up figures."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from cases import case
from drasp.causal import Evidence
from drasp.causal.evidence import LineEvidence, causal_reasons
from drasp.causal.measures import NOT_APPLICABLE, Measure
from drasp.decompiler import picking
from drasp.decompiler.checkpoint import Found
from drasp.decompiler.picking import (
    End,
    _promising,
    candidates,
    check_accept,
    choose,
    most_lines,
    too_large_to_name,
)
from drasp.decompiler.result import Point, verdict_of
from drasp.errors import DraspError
from drasp.language.syntax import Program
from drasp.measure import Share
from drasp.settings import DEFAULT
from typed import known


def program(lines: int) -> Program:
    whole = case("binary majority")
    return replace(whole, statements=(whole.statements[0],) * lines)


def point(lines: int, hits: int = 100, grade: str | None = None, complete: float = 0.0) -> Point:
    """`grade` is that of its evidence: none where it is not causal."""
    none = NOT_APPLICABLE
    evidence = Evidence(none, none, none, none, none, none, none, causal=grade is not None, grade=grade)
    return Point(program(lines), Share(hits, 100), complete, evidence)


def end(lines: int, grade: str | None = None) -> End:
    return End(point(lines), point(lines, grade=grade))


SUFFICIENT, COMPLETE = "sufficient", "complete"


@pytest.mark.parametrize(
    ("ends", "causal", "answers"),
    [
        pytest.param([(3, None)], 0, 0, id="nothing else"),
        pytest.param([(3, None), (7, SUFFICIENT)], 1, 0, id="a longer one does what the model does"),
        pytest.param([(3, None), (9, SUFFICIENT), (7, SUFFICIENT)], 2, 0, id="the shorter of two"),
        pytest.param([(3, SUFFICIENT), (5, COMPLETE)], 1, 0, id="two lines for completeness"),
        pytest.param([(3, SUFFICIENT), (6, COMPLETE)], 0, 0, id="three are too many"),
        pytest.param([(20, SUFFICIENT), (25, COMPLETE)], 1, 0, id="a quarter for completeness"),
        pytest.param([(20, SUFFICIENT), (26, COMPLETE)], 0, 0, id="more than a quarter"),
        pytest.param([(5, COMPLETE), (3, SUFFICIENT)], 0, 0, id="in any order"),
        pytest.param([(3, None), (5, COMPLETE), (4, COMPLETE)], 2, 0, id="the shorter of two complete ones"),
        pytest.param([(3, None), (5, None)], 0, 0, id="neither does it by the model's means"),
    ],
)
def test_the_pick_is_the_shortest_causal_program_or_a_complete_one_that_is_little_longer(ends, causal, answers):
    found = [end(*each) for each in ends]
    assert choose(found, DEFAULT, "causal") is found[causal]
    assert choose(found, DEFAULT, "answers") is found[answers]


def test_how_much_longer_a_complete_program_may_be():
    assert [most_lines(n, DEFAULT) for n in (2, 3, 8, 9, 20)] == [4, 5, 10, 11.25, 25]


@pytest.mark.parametrize(
    ("hits", "lines", "grade", "verdict"),
    [
        (90, 40, SUFFICIENT, "decompiled"),
        (100, 3, COMPLETE, "decompiled"),
        (90, 40, None, "answers_only"),
        (89, 40, COMPLETE, "not_decompilable"),
        (100, 41, COMPLETE, "not_decompilable"),
        (89, 41, None, "not_decompilable"),
    ],
)
def test_the_verdict_asks_for_agreement_and_length_and_means(hits, lines, grade, verdict):
    assert verdict_of(point(lines, hits, grade), min_match=0.9, max_lines=40) == verdict


def test_without_evidence_there_are_only_answers():
    bare = replace(point(3), evidence=None)
    assert (bare.causal, bare.grade) == (False, None)
    assert verdict_of(bare, 0.9, 40) == "answers_only"


def found(lines: int, match: float, complete: float = 0.0) -> Found:
    return Found(match, program(lines), lines, complete)


def test_the_frontier_gets_truer_as_it_gets_longer_and_has_a_complete_program():
    every = [found(9, 1.0), found(7, 0.95), found(5, 0.96), found(3, 0.9), found(8, 0.9, 0.91), found(12, 0.9, 0.91)]
    assert [each.lines for each in candidates(every, DEFAULT, max_lines=40)] == [3, 5, 8, 9]
    assert [each.lines for each in candidates(every, DEFAULT, max_lines=6)] == [3, 5]
    assert [each.lines for each in candidates(every, DEFAULT, max_lines=2)] == [9], "the truest, where all are too long"
    same = [found(4, 0.99), found(4, 0.97, 0.91), found(5, 0.9, 0.98), found(6, 0.9, 0.98)]
    assert [(each.lines, each.complete) for each in candidates(same, DEFAULT, 40)] == [(4, 0.91), (5, 0.98)]


def seen(lines: int, hits: int, complete: float = 0.0) -> Point:
    """Before there is evidence."""
    return Point(program(lines), Share(hits, 100), complete)


def test_the_shortest_that_agrees_is_looked_at_and_a_complete_one_that_is_not_far():
    points = [seen(2, 50), seen(3, 91), seen(7, 99), seen(8, 99, complete=0.91), seen(50, 100, complete=0.91)]
    assert _promising(points, DEFAULT, 0.9, 40) == [points[1], points[3]]
    assert _promising(points[:3], DEFAULT, 0.95, 40) == [points[2]]
    assert _promising(points, DEFAULT, 0.995, 40) == [points[2]], "none is good enough: the truest of the short ones"
    assert _promising(points, DEFAULT, 0.9, 1) == [points[4]]
    whole = [seen(3, 95, complete=0.91), seen(5, 99, complete=0.91)]
    assert _promising(whole, DEFAULT, 0.9, 40) == whole[:1]
    more = [seen(3, 95, complete=0.85), seen(4, 99, complete=0.91), seen(6, 99, complete=0.98)]
    assert _promising(more, DEFAULT, 0.9, 40) == more
    assert _promising([seen(3, 95), *more[1:]], DEFAULT, 0.9, 40) == more[1:], "too little for what it has lost"
    far = [seen(3, 95), seen(9, 99, complete=0.91)]
    assert _promising(far, DEFAULT, 0.9, 40) == far[:1]


def test_what_is_too_large_gets_no_names():
    large = {"A": torch.zeros(1).expand(6000, 5001)}
    assert too_large_to_name(program(12), DEFAULT) is None
    assert too_large_to_name(program(13), DEFAULT) == "more than 12 lines"
    said = "more than 30,000,000 numbers in its tables"
    assert too_large_to_name(replace(program(12), tensors=large), DEFAULT) == said


def test_an_unknown_criterion_is_one_line():
    assert (check_accept("causal"), check_accept("answers")) == ("causal", "answers")
    with pytest.raises(DraspError, match="^accept both: no such criterion; there are causal, answers$"):
        check_accept("both")


@pytest.mark.parametrize(
    ("overlap", "origin", "refused"), [(0.0, "named", True), (0.6, "named", False), (0.0, "own", False)]
)
def test_a_name_that_looks_elsewhere_is_refused_even_where_interchange_passes(overlap, origin, refused):
    """Where the values at both places are alike, interchange does not tell a pattern from another."""
    passed = Measure(1.0, 100, (0.96, 1.0), "passed")
    looks = Measure(overlap, 100, (overlap, overlap), "failed")
    line = LineEvidence("a1", "layer 0 head 0", origin, passed, looks, interchange_cut_down=passed, interchange=passed)
    evidence = Evidence(passed, passed, passed, passed, passed, passed, passed, lines=(line,), has_cut_down=True)
    assert any("looks elsewhere" in reason for reason in causal_reasons(evidence)) is refused


@pytest.mark.parametrize(
    ("kind", "overlap", "refused"), [("select", 0.95, False), ("select", 0.8, True), ("aggregate", 0.95, True)]
)
def test_few_cases_do_not_speak_against_a_select_whose_heads_look_right(kind, overlap, refused):
    """All that a select does is where its heads look; what an aggregate says is more than that."""
    passed, few = Measure(1.0, 100, (0.96, 1.0), "passed"), Measure(0.5, 40, (0.35, 0.65), "untested")
    looks = Measure(overlap, 300, (overlap, overlap), "passed" if overlap >= 0.9 else "failed")
    line = LineEvidence("s1", "", "named", attention=looks, interchange_cut_down=few, kind=kind)
    evidence = Evidence(passed, passed, passed, passed, passed, passed, passed, lines=(line,), has_cut_down=True)
    assert any("speak against it" in reason for reason in causal_reasons(evidence)) is refused


@pytest.mark.parametrize(("again", "names"), [("passed", "fewer"), ("failed", "none")])
def test_where_a_name_is_not_true_fewer_are_tried(monkeypatch, again, names):
    """One wrong name shall not cost all the others."""
    pick, many, fewer = point(7), point(6), point(5)
    asked: list[float] = []

    def named(_search, _pick, _fresh, _least, chosen):
        asked.append(chosen.least_interchange)
        return [many, fewer][len(asked) - 1]

    def with_evidence(_search, given, _pick, _effort=None):
        status = {many.lines: "failed", fewer.lines: again}.get(given.lines, "passed")
        line = LineEvidence("a1", "", "named", interchange_cut_down=Measure(0.8, 100, (0.7, 0.9), status))
        grade = SUFFICIENT if status == "passed" else None
        return replace(given, evidence=replace(known(given.evidence), lines=(line,), causal=bool(grade), grade=grade))

    monkeypatch.setattr(picking, "_named", named)
    monkeypatch.setattr(picking, "_with_evidence", with_evidence)
    search = SimpleNamespace(settings=DEFAULT, note=lambda *_: None)
    ended = picking._end(search, pick, None, 0.9)  # pyright: ignore[reportArgumentType]
    assert asked == [DEFAULT.naming.least_interchange, DEFAULT.naming.least_again]
    assert ended.final.lines == {"fewer": fewer.lines, "none": pick.lines}[names]
