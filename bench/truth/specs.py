"""What the benchmark is made of: for every number of a part, a program, a task, and how its model is disguised.

    a      random programs
    b      families: the same answers by different mechanisms
    c      some of both on a ladder: under more and more disguises, and then under those that change the model
    quick  a few of each kind, in two minutes

A spec follows from its part, its number and the seed alone, so that any process can make it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drasp.causal.complement import complement
from drasp.causal.trials import Amount, Trials
from drasp.compiler import Compiled, Disguise, compile_program
from drasp.edits import Edit, Replaced
from drasp.language import Program
from drasp.language.syntax import ProgramError
from drasp.model_files import digest
from drasp.rewriting.simplify import simplify
from drasp.sites import NormSite
from drasp.tasks import Inputs, Task
from truth.draws import LEAST_EFFECT, RejectedError, Wish, draw_program, wishes
from truth.families import Family, families
from truth.graph import units
from truth.score import UNCLEAR, InputPairs, Subject, differing, margins, places, ran, random_strings

RANDOM_PROGRAMS = 200
HIDDEN = Disguise(rotate=True, gains=True)  # with noise, all that is done to the models of parts a and b
NOISES = (0.01, 0.001, 0.0001, 0.0)
NORM_SIZES = (4.0, 2.0, 1.0, 0.5)  # of models whose norms are to matter: the first that is small enough
LEAST_NORM_EFFECT = 0.05  # of the answers, that change when all norms are replaced by their means
SAME_ANSWERS = 0.99  # of the program's clear ones, that its model must give
SAME_INPUTS = 0.97  # of the task's, on which it must answer alike throughout, as is asked of whatever is found
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

# Programs on the ladder: of each family one with heads, and random ones whose answers a model can be trained on.
LADDER = {
    "all_the_same": "first by a pointer",
    "first_is_last": "last",
    "sorted": "largest",
    "last_is_most_frequent": "mean",
    "last_two_alike": "last but one in two steps",
    "cycle": "after the last",
    "behind_the_marker": "by the token before",
    "is_there_a_d": "looked for",
    "taking_turns": "not the last",
    "abab": "parity",
    "a_then_b": "looked for",
    "copy_of_four": "by the token before",
    "do_the_last_two_differ": "at the end",
}
LADDER_RANDOM = (Wish(1, False, False, True), Wish(1, True, False, True), Wish(2, False, False, True))
LADDER_RANDOM += (Wish(2, True, False, True), Wish(2, False, False, True), Wish(1, True, False, True))
LADDER_RANDOM += (Wish(3, False, False, True),)
# The first of these that leaves the model most of its program's answers: of the room that a stream needs, and steps.
CROWDING = (0.8, 0.9, 0.95, 0.98, 1.0)
TRAINING_STEPS = (100, 30, 10, 3, 0)
MOSTLY_THE_SAME = 0.95


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
        """Of the model and its task: all that a decompiler is given."""
        return sha256(f"{digest(self.compiled.transformer)} {self.task.digest()}".encode()).hexdigest()[:16]


PARTS = ("a", "b", "c", "quick")


def count(part: str) -> int:
    match part:
        case "a":
            return RANDOM_PROGRAMS
        case "b":
            return len(_members())
        case "c":
            return (len(LADDER) + len(LADDER_RANDOM)) * len(RUNGS)
        case _:
            return sum(map(len, QUICK.values())) + QUICK_RANDOM


def make(part: str, number: int, seed: int) -> Spec:
    """One of a part's specs."""
    match part:
        case "a":
            return random_spec(part, number, wishes(number + 1)[number], seed)
        case "b":
            family, mechanism = _members()[number]
            return family_spec(part, family, mechanism, seed)
        case "c":
            which, rung = divmod(number, len(RUNGS))
            return on_ladder(which, list(RUNGS)[rung], seed)
        case _:
            named = [(name, mechanism) for name, chosen in QUICK.items() for mechanism in chosen]
            left = number - len(named)
            if left >= 0:
                return random_spec(part, left, wishes(left + 1)[left], seed)
            name, mechanism = named[number]
            return family_spec(part, _family(name), mechanism, seed)


def _family(name: str) -> Family:
    return next(family for family, _ in _members() if family.name == name)


@lru_cache(maxsize=1)
def _members() -> list[tuple[Family, str]]:
    return [(family, mechanism) for family in families() for mechanism in family.programs]


def family_spec(part: str, family: Family, mechanism: str, seed: int) -> Spec:
    name = f"{family.name}: {mechanism}"
    return hidden(Spec(part, name, family.task, family.programs[mechanism], HIDDEN, seed))


def random_spec(part: str, number: int, wish: Wish, seed: int) -> Spec:
    """The first draw, of those that follow from seed and number, that is as wished for and matters in all its parts."""
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
        except ProgramError:
            rejected["refused by the compiler"] += 1


# ------------------------------------------------------------------------------------- the ladder


def on_ladder(which: int, rung: str, seed: int) -> Spec:
    """One of the ladder's programs under the disguise of a rung."""
    if which < len(LADDER):
        name, mechanism = list(LADDER.items())[which]
        spec = family_spec("c", _family(name), mechanism, seed)
    else:
        number = which - len(LADDER)
        spec = random_spec("c", number, LADDER_RANDOM[number], seed)
    made = RUNGS[rung](spec)
    return replace(made, name=f"{spec.name} / {rung}")


def _with(**disguises: Any) -> Callable[[Spec], Spec]:
    """A rung that adds to what the spec has."""
    return lambda spec: replace(spec, disguise=replace(spec.disguise, **disguises))


def _crowded(spec: Spec) -> Spec:
    return _first_like_its_program(spec, [replace(HIDDEN, superposition=share) for share in CROWDING])


def _normed(spec: Spec) -> Spec:
    try:
        return with_norms_that_matter(replace(spec, disguise=HIDDEN))
    except RejectedError:
        return replace(spec, disguise=replace(HIDDEN, norm_size=NORM_SIZES[-1]))


def _trained(spec: Spec) -> Spec:
    after = [replace(spec.disguise, training_steps=steps, task=spec.task) for steps in TRAINING_STEPS]
    return _first_like_its_program(spec, after)


def _first_like_its_program(spec: Spec, disguises: Sequence[Disguise]) -> Spec:
    """The last one changes nothing."""
    specs = [replace(spec, disguise=disguise) for disguise in disguises]
    return next((s for s in specs if same_answers(s) >= MOSTLY_THE_SAME and is_all_there_is(s)), specs[-1])


# Each of the first six has what those before it have.
RUNGS: Mapping[str, Callable[[Spec], Spec]] = {
    "plain": lambda spec: replace(spec, disguise=Disguise()),
    "rotated": lambda spec: replace(spec, disguise=Disguise(rotate=True)),
    "gains": lambda spec: replace(spec, disguise=HIDDEN),
    "noise": _with(),
    "idle parts": _with(idle_heads=1, idle_mlps=8),
    "twin heads": _with(idle_heads=1, idle_mlps=8, twin_heads=1),
    "crowded": _crowded,
    "norms": _normed,
    "trained": _trained,
}


def hidden(spec: Spec) -> Spec:
    """The spec with as much noise as leaves its model the program's answers: steep functions bear hardly any."""
    for noise in NOISES:
        noisy = replace(spec, disguise=replace(spec.disguise, noise=noise))
        if same_answers(noisy) >= SAME_ANSWERS and same_inputs(noisy) >= SAME_INPUTS:
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
        said, model = _both(spec, inputs)
        margin = margins(said, output)
        clear = inputs.counted & (margin > UNCLEAR * margin[inputs.counted].median())
        shares.append(1 - float(differing(said, model, output)[clear].float().mean()))
    return min(shares)


def is_all_there_is(spec: Spec) -> bool:
    """Whether the model answers as before when all that its program does not read comes from another input.

    Where directions share the room of a few, or training has found another way, a model may do more than its program.
    """
    trials = Trials.draw(spec.compiled.transformer, spec.task, Amount(_INPUTS, 0), np.random.default_rng(0))
    return not complement(spec.compiled.program, trials).cases.measure(spec.task.bins).failed


@torch.no_grad()
def same_inputs(spec: Spec) -> float:
    """The share of the task's inputs on which the model gives all of the program's answers, clear or not.

    Of a model that noise often leads to other answers, its program is not what is to be found.
    """
    inputs = spec.task.pool(_INPUTS, np.random.default_rng(0))
    differs = differing(*_both(spec, inputs), spec.task.output) & inputs.counted
    return 1 - float(differs.any(1).float().mean())


def _both(spec: Spec, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """The logits of the program and of its model, which may take training."""
    said, model = (ran(subject, inputs).logits for subject in (spec.compiled.program, spec.compiled.transformer))
    return said, model


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
    pairs = InputPairs.draw(spec.task, _INPUTS, 0)
    model: Subject = spec.compiled.transformer
    before = ran(model, pairs.bases).logits
    for unit in units(simplify(spec.compiled.program)):
        values = ran(model, pairs.sources, record=places(model, unit)).values
        edits: dict[object, Edit] = {place: Replaced(values[place]) for place in places(model, unit)}
        changed = differing(before, ran(model, pairs.bases, edits).logits, spec.task.output)[pairs.bases.counted]
        if float(changed.float().mean()) < LEAST_EFFECT:
            raise RejectedError("a part of the model that hardly matters")
