"""Thresholds of the calibration benchmark, on values that were measured before, and what it says of those in use."""

import json
from pathlib import Path

from calibration import ASKED_FOR, CLEARS, MEASURES, THRESHOLDS, Thresholds, halves, tuned
from drasp.causal import Clear
from drasp.settings import EVIDENCE

ROWS = json.loads((Path(__file__).parent.parent / "bench" / "calibration.json").read_text())


def row(kind: str, **said: list[list[float]]) -> dict:
    by_clear = {"edited": {"0.2": [], "0.02": [[0.5, 90, 0.4]]}, "replaced": {"0.02": []}}
    by_clear |= {name: {"0.2": [], "0.02": []} for name in ("in the model", "complement")}
    return {"kind": kind, "number": 0, "said": {name: [] for name in MEASURES} | by_clear | said}


def test_a_measure_fails_by_its_worst_line_and_not_by_few_cases():
    assert Thresholds().judged(row("true", attention=[[0.95, 90, 0.9], [0.92, 90, 0.86]]), "attention") == "passed"
    assert Thresholds(0.94).judged(row("true", attention=[[0.95, 90, 0.9], [0.92, 90, 0.86]]), "attention") == "failed"
    assert Thresholds().judged(row("true", attention=[[0.95, 90, 0.84]]), "attention") == "failed"  # by its interval
    assert Thresholds().judged(row("true", attention=[[0.1, 49, 0.0]]), "attention") == "silent"


def test_what_counts_as_clear_is_looked_up():
    assert CLEARS[0] == Clear(EVIDENCE.clear, EVIDENCE.clear_in_model)
    assert not Thresholds().refuses(row("true"))
    assert Thresholds(clear=Clear(in_model=0.02)).refuses(row("true"))


def test_those_in_use_do_what_is_asked_for_on_either_half():
    for half in halves(ROWS):
        assert min(Thresholds().shares(half)) >= ASKED_FOR
    assert tuned(halves(ROWS)[0]).passing in THRESHOLDS
