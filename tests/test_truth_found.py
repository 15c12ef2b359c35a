"""Models whose program is known are decompiled and scored: a change that brings a false program back fails here.

Pairs and triples of them give the same answers by different means, so that answers alone cannot tell which is which.
"""

import pytest

from drasp.decompiler.pipeline import decompile
from truth.families import families
from truth.score import score
from truth.specs import QUICK, family_spec

SEED = 5
KNOWN = [
    ("all_the_same", "last"),
    ("all_the_same", "mean"),
    ("first_is_last", "last"),
    ("first_is_last", "first by a pointer"),
    ("last_is_most_frequent", "last"),
    ("last_is_most_frequent", "mean"),
    ("behind_the_marker", "by distance"),
    ("behind_the_marker", "by the token before"),
    ("abab", "token"),
    ("abab", "parity"),
    ("abab", "mean"),
    ("a_then_b", "looked for"),
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "mechanism"), KNOWN)
def test_of_several_programs_with_the_same_answers_the_models_own_is_found(name: str, mechanism: str):
    assert mechanism in QUICK[name]
    family = next(each for each in families() if each.name == name)
    spec = family_spec("quick", family, mechanism, SEED)
    found = decompile(spec.compiled.transformer, spec.task)
    assert found.verdict == "decompiled"
    assert score(spec.compiled.program, found.program, spec.compiled.transformer, spec.task).right, str(found.program)
