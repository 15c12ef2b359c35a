"""What the benchmark is made of: for every number of a part, a program, a task, and how its model is disguised.

    a      random programs
    b      families: the same answers by different mechanisms
    c      some of both, under one disguise after the other
    quick  a few of each kind, in two minutes

A spec follows from its part, its number and the seed alone, so that any process can make it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import sha256

import numpy as np
import torch

from drasp.compiler import Compiled, Disguise, compile_program
from drasp.edits import Edit, Replaced
from drasp.errors import DraspError
from drasp.language import Program
from drasp.rewriting.simplify import simplify
from drasp.sites import NormSite
from drasp.tasks import Inputs, Task
from truth.draws import LEAST_EFFECT, RejectedError, draw_program, wishes
from truth.families import Family, families
from truth.graph import units
from truth.score import UNCLEAR, Pairs, Subject, differing, margins, places, ran, random_strings

RANDOM_PROGRAMS = 200
HIDDEN = Disguise(rotate=True, gains=True)  # with noise, all that is done to the models of parts a and b
NOISES = (0.01, 0.001, 0.0001, 0.0)
NORM_SIZES = (4.0, 2.0, 1.0, 0.5)  # of models whose norms are to matter: the first that is small enough
LEAST_NORM_EFFECT = 0.05  # of the answers, that change when all norms are replaced by their means
SAME_ANSWERS = 0.99  # of the program's clear ones, that its model must give
_INPUTS = 300

# Pairs and triples that answer alike, and some of the random programs.
QUICK = {
    "all_the_same": ("last", "mean"),
    "first_is_last": ("last", "first by a pointer", "last and first"),
    "last_is_most_frequent": ("last", "mean"),
    "behind_the_marker": ("by distance", "by the token before"),
    "abab": ("token", "parity", "mean"),
    "a_then_b": ("token", "looked for"),
    "do_the_last_two_differ": ("at the end", "by attention"),
}
QUICK_RANDOM = 4


@dataclass(frozen=True)
class Spec:
    """A program whose model is to be decompiled; `rejected` counts what was drawn before it."""

    part: str
    name: str
    task: Task
    program: Program
    disguise: Disguise
    seed: int
    rejected: Mapping[str, int] = field(default_factory=Counter[str])

    @cached_property
    def compiled(self) -> Compiled:
        return compile_program(self.program, self.disguise, self.seed)

    @property
    def digest(self) -> str:
        said = (self.part, self.name, self.program.digest, self.task.digest(), self.disguise, self.seed)
        return sha256(repr(said).encode()).hexdigest()[:16]


def count(part: str) -> int:
    match part:
        case "a":
            return RANDOM_PROGRAMS
        case "b":
            return len(_members())
        case "quick":
            return sum(map(len, QUICK.values())) + QUICK_RANDOM
        case _:
            raise DraspError(f"--part {part}: no such part; there are {', '.join(PARTS)}")


PARTS = ("a", "b", "quick")


def make(part: str, number: int, seed: int) -> Spec:
    """One of a part's specs."""
    match part:
        case "a":
            return random_spec(part, number, seed)
        case "b":
            family, mechanism = _members()[number]
            return family_spec(part, family, mechanism, seed)
        case _:
            named = [(name, mechanism) for name, chosen in QUICK.items() for mechanism in chosen]
            if number >= len(named):
                return random_spec(part, number - len(named), seed)
            name, mechanism = named[number]
            return family_spec(part, next(f for f, _ in _members() if f.name == name), mechanism, seed)


@lru_cache(maxsize=1)
def _members() -> list[tuple[Family, str]]:
    return [(family, mechanism) for family in families() for mechanism in family.programs]


def family_spec(part: str, family: Family, mechanism: str, seed: int) -> Spec:
    name = f"{family.name}: {mechanism}"
    return hidden(Spec(part, name, family.task, family.programs[mechanism], HIDDEN, seed))


def random_spec(part: str, number: int, seed: int) -> Spec:
    """The first draw, of those that follow from seed and number, that is as wished for and matters in all its parts."""
    wish = wishes(number + 1)[number]
    rng = np.random.default_rng([seed, number])
    rejected = Counter[str]()
    while True:
        try:
            program, task = draw_program(wish, rng, f"random {number}")
            spec = Spec(part, f"random {number}", task, program, HIDDEN, seed, rejected)
            spec = with_norms_that_matter(spec) if wish.norm else hidden(spec)
            if spec.compiled.shape.n_layers != wish.layers:
                raise RejectedError("other layers than wished for")
            check_units(spec)
            return spec
        except RejectedError as error:
            rejected[str(error)] += 1


def hidden(spec: Spec) -> Spec:
    """The spec with as much noise as leaves its model the program's answers: steep functions bear hardly any."""
    for noise in NOISES:
        noisy = replace(spec, disguise=replace(spec.disguise, noise=noise))
        if same_answers(noisy) >= SAME_ANSWERS:
            return noisy
    raise RejectedError("the model differs from its program")


def with_norms_that_matter(spec: Spec) -> Spec:
    inputs = spec.task.pool(_INPUTS, np.random.default_rng(0))
    for size in NORM_SIZES:
        normed = replace(spec, disguise=replace(spec.disguise, norm_size=size))
        if norm_effect(normed.compiled, inputs, spec.task) >= LEAST_NORM_EFFECT:
            return hidden(normed)
    raise RejectedError("norms that hardly matter")


@torch.no_grad()
def same_answers(spec: Spec) -> float:
    """The share of the program's clear answers that its model gives too, on the task's inputs and on random strings."""
    rng, output = np.random.default_rng(0), spec.task.output
    drawn = spec.task.pool(_INPUTS, rng)
    shares: list[float] = []
    for inputs in (drawn, random_strings(drawn, spec.task.vocabulary, rng)):
        said, model = (ran(subject, inputs).logits for subject in (spec.compiled.program, spec.compiled.transformer))
        margin = margins(said, output)
        clear = inputs.counted & (margin > UNCLEAR * margin[inputs.counted].median())
        shares.append(1 - float(differing(said, model, output)[clear].float().mean()))
    return min(shares)


@torch.no_grad()
def norm_effect(compiled: Compiled, inputs: Inputs, task: Task) -> float:
    """The share of answers that change when every norm of the model is its mean instead."""
    model = compiled.transformer
    norms = [NormSite(receiver) for receiver in model.anatomy.receivers]
    before = ran(model, inputs, record=norms)
    edits: dict[NormSite, Edit] = {norm: Replaced(float(before.values[norm].mean())) for norm in norms}
    after = ran(model, inputs, edits).logits
    return float(differing(before.logits, after, task.output)[inputs.counted].float().mean())


@torch.no_grad()
def check_units(spec: Spec) -> None:
    """Raises where the values of a head or an MLP of the model might as well be those of another input."""
    pairs = Pairs.draw(spec.task, _INPUTS, 0)
    model: Subject = spec.compiled.transformer
    before = ran(model, pairs.bases).logits
    for unit in units(simplify(spec.compiled.program)):
        values = ran(model, pairs.sources, record=places(model, unit)).values
        edits: dict[object, Edit] = {place: Replaced(values[place]) for place in places(model, unit)}
        changed = differing(before, ran(model, pairs.bases, edits).logits, spec.task.output)[pairs.bases.counted]
        if float(changed.float().mean()) < LEAST_EFFECT:
            raise RejectedError("a part of the model that hardly matters")
