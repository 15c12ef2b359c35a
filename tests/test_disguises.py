"""Disguises of compiled models: what each leaves as it was, and that it hides something."""

import random
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from cases import case
from drasp.compiler import Disguise, compile_program
from drasp.errors import DraspError
from drasp.language import Interpreter, ProgramError, check, parse, to_text
from drasp.language.syntax import Norm
from drasp.measure import agreeing, predict, share, task_accuracy
from drasp.tasks import load_task
from effort import in_both, part
from random_programs import random_compilable_program

EXACT = {
    "rotate": Disguise(rotate=True),
    "gains": Disguise(gains=True),
    "idle": Disguise(idle_heads=2, idle_mlps=5),
    "twins": Disguise(twin_heads=1),
    "all of them": Disguise(rotate=True, gains=True, idle_heads=1, idle_mlps=3, twin_heads=1),
}
WORDS = case("{a,b}*d{b,c}*")
HARDENED = case("three majorities, interleaved")


@contextmanager
def double_precision():
    """In which weights are as exact as numbers go, so that nothing hides behind rounding."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def inputs(program, seed: int = 0, count: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    length = min(30, program.n_positions)
    ids = torch.randint(len(program.vocabulary), (count, length), generator=generator)
    offsets = torch.randint(program.n_positions - length + 1, (count, 1), generator=generator)
    return ids, offsets + torch.arange(length)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("program", [WORDS, HARDENED], ids=["words", "hardened"])
def test_exact_disguises_leave_every_logit_as_it_was(name, program):
    with double_precision():
        plain, hidden = compile_program(program), compile_program(program, EXACT[name], seed=4)
        there = inputs(program)
        before, after = plain.transformer(*there), hidden.transformer(*there)
    assert (before - after).abs().max() <= 1e-6 * (before.max() - before.min())
    assert [str(s).split("sites")[0] for s in hidden.program.statements] == [
        str(s).split("sites")[0] for s in plain.program.statements
    ]


def dense(weight: torch.Tensor) -> float:
    """The share of entries that are not negligible beside the others of their matrix."""
    return float((weight.abs() > 1e-4 * weight.abs().max()).float().mean())


def test_rotation_leaves_no_matrix_sparse():
    plain, rotated = compile_program(HARDENED), compile_program(HARDENED, Disguise(rotate=True))
    for name in ("wte.weight", "wpe.weight", "h.0.attn.c_proj.weight", "h.0.mlp.c_fc.weight", "h.0.mlp.c_proj.weight"):
        assert dense(plain.weights[f"transformer.{name}"]) < 0.5, name
        assert dense(rotated.weights[f"transformer.{name}"]) > 0.9, name
    # What all coordinates have in common stays, or layer norm would take away something else.
    means = [model.weights["transformer.wte.weight"].mean(1) for model in (plain, rotated)]
    torch.testing.assert_close(*means, atol=1e-3, rtol=0)


def test_gains_and_biases_of_layer_norms_are_spread():
    weights = compile_program(WORDS, Disguise(gains=True)).weights
    for norm in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
        assert weights[f"transformer.{norm}.weight"].log().std() > 0.3
    assert weights["transformer.h.0.ln_1.bias"].std() > 0.3


def test_idle_parts_have_weights_like_others_and_matter_to_nobody():
    model = compile_program(WORDS, Disguise(idle_heads=2, idle_mlps=6))
    assert (model.shape.n_heads, model.shape.d_hidden) == (3, 7)
    output = model.weights["transformer.h.0.attn.c_proj.weight"].view(3, -1, model.shape.d_model)
    assert all(head.abs().max() > 0 for head in output)
    assert {str(site) for s in model.program.statements for site in s.sites if "head" in str(site)} == {
        "layer 0 head 0",
        "layer 0 head 0 -> out",
    }


def test_twins_share_a_line_and_the_output():
    model = compile_program(WORDS, Disguise(twin_heads=1))
    [twins] = {tuple(map(str, s.sites)) for s in model.program.statements if s.name in ("s1", "a1")}
    assert twins == ("layer 0 head 0", "layer 0 head 1")
    first, second = model.weights["transformer.h.0.attn.c_proj.weight"].view(2, -1, model.shape.d_model)
    assert torch.equal(first, second)
    assert first.any()
    with pytest.raises(DraspError, match="--twin-heads 2: expected at most 1"):
        compile_program(WORDS, Disguise(twin_heads=2))


@pytest.mark.parametrize(
    "disguise",
    [
        Disguise(noise=0.01),
        Disguise(noise=0.01, rotate=True, gains=True, idle_heads=1, idle_mlps=2),
        Disguise(training_steps=20, task=load_task("ab_d_bc")),
        Disguise(training_steps=20, task=load_task("ab_d_bc"), rotate=True, gains=True),
    ],
    ids=["noise", "noise and more", "training", "training and more"],
)
def test_noise_and_training_change_weights_and_hardly_any_answer(disguise):
    task = load_task("ab_d_bc")
    plain, changed = compile_program(WORDS), compile_program(WORDS, disguise, seed=2)
    pool = task.pool(200, np.random.default_rng(0))
    said, now = (predict(model.transformer, pool, task.output) for model in (plain, changed))
    assert share(agreeing(said, now, pool.counted)).value >= 0.98
    # To the program all tokens but d are the same.
    rows = [len(model.weights["transformer.wte.weight"].unique(dim=0)) for model in (plain, changed)]
    assert rows[0] == 2
    assert rows[1] > 2


def test_training_takes_slopes_also_where_nobody_else_does():
    disguise = Disguise(training_steps=2, task=load_task("ab_d_bc"))
    with torch.no_grad():
        inside = compile_program(WORDS, disguise)
    assert inside.weights.keys() == (outside := compile_program(WORDS, disguise)).weights.keys()
    assert all(torch.equal(inside.weights[name], outside.weights[name]) for name in inside.weights)


def test_superposition_has_less_room_than_the_blocks():
    program, task = case("most frequent"), load_task("majority")
    plain, crowded = compile_program(program), compile_program(program, Disguise(superposition=0.8))
    assert crowded.shape.d_model == plain.shape.d_model - 10
    pool = task.pool(100, np.random.default_rng(0), longest=20)
    assert task_accuracy(crowded.transformer, pool, task.output).value >= 0.9
    there = inputs(program)
    assert not torch.allclose(crowded.transformer(*there), plain.transformer(*there), rtol=1e-2)


@in_both
@pytest.mark.parametrize("seed", range(4))
def test_where_norms_matter_the_models_own_program_is_exact(seed):
    """100 random programs in four parts: a small constant, and the program of what the model then computes."""
    rng, made, different = random.Random(seed), 0, 0
    while made < part(25):
        source = random_compilable_program(rng)
        try:
            with double_precision():
                model = compile_program(
                    source, Disguise(norm_size=rng.choice([0.3, 1.0, 5.0]), gains=True, rotate=True)
                )
        except ProgramError:
            continue
        program = model.program
        assert check(program) == []
        assert parse(to_text(program), program.tensors) == program
        there = inputs(source, seed)
        with double_precision():
            said = model.transformer(*there)
        logits, sources = (Interpreter(p, torch.float64)(*there) for p in (program, source))
        size = max(1.0, float(logits.abs().max()))
        assert (said - logits).abs().max() <= 1e-6 * size, str(program)
        different += bool((logits - sources).abs().max() > 1e-2 * size)
        made += 1
    assert different, "norms should matter to some"


def test_the_norms_of_a_model_are_lines_of_its_program():
    program = compile_program(WORDS, Disguise(norm_size=2.0)).program
    norms = {s.name: [str(site) for site in s.sites] for s in program.statements if isinstance(s, Norm)}
    assert norms == {"n1": ["layer 0 attention norm"], "n2": ["final norm"]}
    assert "a1 = aggregate(s=s1, v=token/n1)  # layer 0 head 0" in str(program)
    quiet = compile_program(WORDS, Disguise(norm_size=300.0)).program
    assert not any(isinstance(s, Norm) for s in quiet.statements)
