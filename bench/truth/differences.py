"""By how much the programs of a family differ, though they answer alike, under the intervention that shows it best."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from drasp.compiler import compile_program
from drasp.edits import Replaced
from drasp.language import Program
from drasp.running import run
from drasp.sequences import Sequences
from drasp.sites import Component
from drasp.tasks import Task
from truth.families import Family
from truth.graph import units
from truth.score import InputPairs, differing, pattern_places, places, ran, random_strings, with_ids

LEAST_DIFFERENCE = 0.2  # of the answers, that some intervention must show between any two of a family
_INPUTS = 300


@torch.no_grad()
def least_difference(family: Family) -> tuple[float, str]:
    """The share of answers in which the two most alike of a family differ under the best intervention, and who that is.

    Interventions are random strings, any tokens whatever (special ones too), other positions, and for each head or MLP
    its values or its attention from another input.
    """
    compiled = {name: compile_program(program).program for name, program in family.programs.items()}
    parts = sorted({c for program in compiled.values() for unit in units(program) for c in unit}, key=str)
    pairs = InputPairs.draw(family.task, _INPUTS, 0)
    answers = {name: list(_answers(program, parts, pairs, family.task)) for name, program in compiled.items()}

    def difference(first: str, second: str) -> float:
        both = zip(answers[first], answers[second], strict=True)
        counted = pairs.bases.counted
        return max(float(differing(a, b, family.task.output)[counted].float().mean()) for a, b in both)

    return min((difference(a, b), f"{a} / {b}") for a, b in combinations(answers, 2))


def _answers(program: Program, parts: list[Component], pairs: InputPairs, task: Task) -> Iterator[Tensor]:
    """Logits under one intervention after the other; where a program has nothing in a place, nothing is changed."""
    rng, bases = np.random.default_rng(1), pairs.bases
    strings = random_strings(bases, task.vocabulary, rng)
    anything = torch.as_tensor(rng.integers(0, len(task.vocabulary), tuple(bases.ids.shape)))
    yield ran(program, strings).logits
    yield ran(program, with_ids(bases, anything)).logits
    elsewhere = Sequences(bases.ids, (bases.positions + 1) % task.n_positions)
    yield run(program, elsewhere).logits
    for part in parts:
        for inputs in (bases, strings):
            for names in (places(program, frozenset({part})), pattern_places(program, frozenset({part}))):
                values = ran(program, pairs.sources, record=names).values
                yield ran(program, inputs, {name: Replaced(values[name]) for name in names}).logits
