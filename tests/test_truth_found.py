"""Models whose program is known are decompiled and scored: a change that brings a false program back fails here.

Pairs and triples of them give the same answers by different means, so that answers alone cannot tell which is which.
What is found is told in the same words as the truth.
"""

import numpy as np
import pytest
import torch

from drasp.decompiler.pipeline import decompile
from drasp.language import Program
from drasp.language.bases import Tokens
from drasp.language.checker import op_bases
from drasp.language.syntax import Project
from drasp.rewriting.canonical import canonical
from drasp.rewriting.rewrite import dense_ops
from drasp.rewriting.simplify import simplify
from drasp.rewriting.tidy import fold_constants
from drasp.tasks import Task
from drasp.words import sentences
from truth.families import families
from truth.score import score
from truth.specs import QUICK, family_spec
from unnamed import without_names

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
    assert words(spec.compiled.program, spec.task) == words(found.program, spec.task)


def test_programs_that_answer_alike_are_told_apart():
    """Else equal words would say nothing: by each family's means, the sentences are others."""
    told: dict[str, list[list[str]]] = {}
    for name, mechanism in KNOWN:
        family = next(each for each in families() if each.name == name)
        spec = family_spec("quick", family, mechanism, SEED)
        told.setdefault(name, []).append(words(spec.compiled.program, spec.task))
    for name, each in told.items():
        assert len(set(map(tuple, each))) == len(each), name


def words(program: Program, task: Task) -> list[str]:
    """What a program's sentences are in its shortest form, without names: there biases are part of other lines.

    Tokens that no input has say nothing: what is found is not about them.
    """
    short = canonical(fold_constants(simplify(without_names(program))))
    inputs = task.pool(500, np.random.default_rng(0))
    drawn = {int(i) for ids, size in zip(inputs.ids, inputs.sizes, strict=True) for i in ids[:size]}
    seen = torch.tensor([i in drawn for i in range(len(program.vocabulary))])
    projects = [s for s in short.statements if isinstance(s, Project) and isinstance(op_bases(short, s)[0], Tokens)]
    rows = {s.tensor_names[0]: torch.where(seen[:, None], dense_ops(short)[s.name], 0.0) for s in projects}
    return sentences(short.with_tensors(rows))
