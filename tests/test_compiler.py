"""Programs as GPT-2 weights: what Hugging Face computes with them, against the interpreter and the tasks."""

import random

import numpy as np
import pytest
import torch
from transformers import GPT2LMHeadModel

from cases import CASES, case
from drasp.compiler import Compiled, Disguise, compile_program
from drasp.edits import Replaced
from drasp.errors import DraspError
from drasp.language import Interpreter, Program, ProgramError
from drasp.language.syntax import Aggregate, ElementWise, PrimitiveFunction, Select
from drasp.measure import task_accuracy
from drasp.rewriting.tidy import without_unused
from drasp.running import run
from drasp.sequences import Sequences
from drasp.sites import Component, parse_site
from drasp.tasks import load_task
from effort import in_both, part
from random_models import logits_of
from random_programs import random_compilable_program

TOLERANCE = 1e-3  # of the range of the logits, and of what is near a discontinuity


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory):
    """A compiled model as Hugging Face reads it from its folder."""
    folders = (tmp_path_factory.mktemp("models") / str(i) for i in range(10**9))

    def load(compiled: Compiled) -> GPT2LMHeadModel:
        folder = next(folders)
        compiled.save(folder)
        return GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()

    return load


def far_from_discontinuities(program: Program, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Which inputs bring no argmax and no threshold into a dead heat.

    Equal values are no danger: the first of them wins in a program and in a model alike.
    """
    interpreter = Interpreter(program, torch.float64)
    trace = interpreter.trace(ids, positions)
    far = torch.ones(len(ids), dtype=torch.bool)

    def differ_clearly(values: torch.Tensor, unit: float = 1.0) -> None:
        differences = (values / unit).flatten(1).abs()
        far.logical_and_(~((differences > 1e-9) & (differences < TOLERANCE)).any(1))

    seen = torch.ones(ids.shape[1], ids.shape[1]).tril().bool()
    selects = {s.name: s for s in program.statements if isinstance(s, Select)}
    for statement in program.statements:
        match statement:
            case Aggregate(selectors=selectors) if selectors:
                scores = torch.stack([trace[reference.variable] for reference in selectors]).sum(0)
                sizes = [float(interpreter.ops[selects[r.variable].name].abs().max()) for r in selectors]
                if max(sizes) > 100:  # nearly an argmax
                    best = scores.masked_fill(~seen, -torch.inf).max(-1, keepdim=True).values
                    differ_clearly((best - scores) * seen, max(sizes))
            case ElementWise(inputs=inputs, function=PrimitiveFunction("harden" | "compare")):
                value = trace[inputs[0].variable]
                differ_clearly(value[..., None] - value[..., None, :])
            case ElementWise(inputs=inputs, function=PrimitiveFunction("is_pure", (tau,))):
                differ_clearly(trace[inputs[0].variable] - tau)
            case _:
                pass
    return far


@in_both
@pytest.mark.parametrize("seed", range(4))
def test_random_programs_have_the_interpreters_logits(seed, hugging_face):
    """300 programs in four parts, in 32-bit numbers, on inputs at random offsets."""
    rng = random.Random(seed)
    compiled, refused = 0, 0
    while compiled < part(75):
        program = random_compilable_program(rng)
        try:
            model = hugging_face(compile_program(program))
        except ProgramError:
            refused += 1
            continue
        length = rng.randint(2, program.n_positions)
        generator = torch.Generator().manual_seed(rng.getrandbits(32))
        ids = torch.randint(len(program.vocabulary), (12, length), generator=generator)
        offsets = torch.randint(program.n_positions - length + 1, (12, 1), generator=generator)
        positions = offsets + torch.arange(length)
        wanted = Interpreter(program, torch.float64)(ids, positions)
        far = far_from_discontinuities(without_unused(program), ids, positions)
        if not far.any():
            continue
        difference = (logits_of(model, ids, positions) - wanted)[far].abs().max()
        assert difference <= TOLERANCE * max(1e-3, float(wanted.max() - wanted.min())), str(program)
        compiled += 1
    assert refused < compiled / 4, "most programs should be such that a model holds them"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_hand_written_programs_have_the_interpreters_logits(case, hugging_face):
    ids = torch.tensor([case.ids])
    positions = torch.arange(case.offset, case.offset + len(case.ids))[None]
    wanted = Interpreter(case.program, torch.float64)(ids, positions)
    difference = (logits_of(hugging_face(compile_program(case.program)), ids, positions) - wanted).abs().max()
    assert difference <= TOLERANCE * float(wanted.max() - wanted.min())


@in_both
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.long if len(case.vocabulary) > 100 else ()) for case in CASES if case.task],
    ids=lambda case: case.name,
)
def test_models_solve_the_tasks_of_their_programs(case, hugging_face):
    """1,000 random inputs of lengths up to 150, at random offsets, run by Hugging Face: all of them right."""
    task = load_task(case.task)
    model = hugging_face(compile_program(case.program))
    inputs = task.pool(part(1000), np.random.default_rng(5))
    accuracy = task_accuracy(lambda ids, positions: logits_of(model, ids, positions), inputs, task.output)
    assert accuracy.hits == accuracy.total == part(1000)


def test_lines_say_what_of_the_model_they_are():
    program = compile_program(case("unique copy")).program
    sites = {s.name: [str(site) for site in s.sites] for s in program.statements}
    assert sites == {
        "s1": ["layer 0 head 0"],
        "a1": ["layer 0 head 0"],
        "s2": ["layer 1 head 0"],
        "a2": ["layer 1 head 0"],
        "logits1": ["layer 1 head 0 -> out"],
        "logits2": ["out"],
        "prediction": ["out"],
    }
    assert all(parse_site(text) for texts in sites.values() for text in texts)


def test_a_function_of_two_mlps_is_sent_by_the_second():
    program = compile_program(case("three majorities, interleaved")).program
    sites = {s.name: [str(site) for site in s.sites] for s in program.statements}
    assert sites["h1"] == ["layer 0 mlp", "layer 1 mlp"]
    assert sites["logits1"] == ["layer 1 mlp -> out"]


def parts(program: Program) -> list[tuple[set[Component], set[str]]]:
    """Components of the model with the lines that stand for them; lines that share a component are together."""
    found: list[tuple[set[Component], set[str]]] = []
    for statement in program.statements:
        if isinstance(statement, Aggregate | ElementWise):
            components, names = {site for site in statement.sites if isinstance(site, Component)}, {statement.name}
            for other in [other for other in found if other[0] & components]:
                components, names = components | other[0], names | other[1]
                found.remove(other)
            found.append((components, names))
    return found


@in_both
@pytest.mark.parametrize("seed", range(2))
def test_a_line_is_what_its_sites_say(seed):
    """Interchange: a component with what it says on another input, and its lines with theirs, give the same logits."""
    rng, tried, alike, seen = random.Random(seed), 0, 0, 0
    while tried < part(100):
        program = random_compilable_program(rng)
        try:
            compiled = compile_program(program, Disguise(rotate=True, twin_heads=rng.randint(0, 1)), seed)
        except DraspError:
            continue
        generator = torch.Generator().manual_seed(rng.getrandbits(32))
        ids = torch.randint(len(program.vocabulary), (2, 12, program.n_positions), generator=generator)
        positions = torch.arange(program.n_positions).expand(12, -1)
        base, source = (Sequences(row, positions) for row in ids)
        truth = compiled.program
        far = far_from_discontinuities(truth, base.ids, positions) & far_from_discontinuities(
            truth, source.ids, positions
        )
        for components, names in parts(truth):
            theirs = run(compiled.transformer, source, record=components).values
            ours = run(truth, source, record=names).values
            model = run(compiled.transformer, base, {site: Replaced(value) for site, value in theirs.items()}).logits
            wanted = run(truth, base, {name: Replaced(value) for name, value in ours.items()}).logits
            differences = (model - wanted).abs().flatten(1).max(1).values
            alike += (differences <= 5 * TOLERANCE * max(1e-3, float(wanted.max() - wanted.min())))[far].sum().item()
            seen += far.sum().item()
            tried += 1
    assert alike == seen
