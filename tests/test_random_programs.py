"""What must hold for any program."""

import random
import types

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import naive
from drasp.language import Interpreter, Program, ProgramError, check, parse, to_python, to_text
from effort import examples, in_both, part
from random_programs import random_program, randoms


@examples(400)
@given(randoms)
def test_text_reads_back_as_the_same_program(rng):
    program = random_program(rng)
    assert parse(to_text(program), program.tensors) == program


@examples(200)
@given(randoms)
def test_checker_finds_nothing(rng):
    program = random_program(rng)
    assert check(program) == []


def inputs_for(program: Program, seed: int, batch: int) -> tuple[list[list[int]], list[int]]:
    rng = random.Random(seed)
    lengths = [rng.randint(1, program.n_positions) for _ in range(batch)]
    ids = [[rng.randrange(len(program.vocabulary)) for _ in range(length)] for length in lengths]
    offsets = [rng.randint(0, program.n_positions - length) for length in lengths]
    return ids, offsets


@examples(200)
@given(randoms, st.integers(0, 2**32))
def test_interpreter_follows_the_definition_on_padded_batches(rng, seed):
    program = random_program(rng)
    ids, offsets = inputs_for(program, seed, batch=3)
    width = max(map(len, ids))
    padded = torch.tensor([row + [0] * (width - len(row)) for row in ids])
    positions = torch.tensor(offsets)[:, None] + torch.arange(width)
    positions = positions.clamp(max=program.n_positions - 1)
    interpreter = Interpreter(program, torch.float64)
    trace, logits = interpreter.trace(padded, positions), interpreter(padded, positions)
    for row, (tokens, offset) in enumerate(zip(ids, offsets, strict=True)):
        expected = naive.run(program, tokens, offset)
        length = len(tokens)
        np.testing.assert_allclose(logits[row, :length], expected.pop("logits"), rtol=1e-7, atol=1e-7)
        for name, value in ((name, value) for name, value in expected.items() if not name.endswith(" pattern")):
            found = trace[name][row, :length]
            if name.startswith("s"):
                seen = ~np.isnan(value)
                np.testing.assert_allclose(found[:, :length].numpy()[seen], value[seen], rtol=1e-7, atol=1e-7)
            else:
                np.testing.assert_allclose(found, value, rtol=1e-7, atol=1e-7, err_msg=name)


@examples(100)
@given(randoms, st.integers(0, 2**32))
def test_standalone_python_follows_the_definition(rng, seed):
    program = random_program(rng)
    module = types.ModuleType("program")
    exec(to_python(program), module.__dict__)
    [ids], [offset] = inputs_for(program, seed, batch=1)
    expected = naive.run(program, ids, offset)["logits"]
    np.testing.assert_allclose(module.logits(ids, offset), expected, rtol=1e-6, atol=1e-6)


def mutated(text: str, rng: random.Random) -> str:
    """A few characters or words lost, doubled, swapped or made up."""
    made_up = [
        *"()[]+=,/.*#\"'\\ \n\t0",
        "\x00",
        "select(",
        "token",
        "op=",
        "1.",
        "é",
        "(k==q-9)",
        "1e999",
        "eps=",
        "s=",
    ]
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(text) + 1)
        stop = min(len(text), start + rng.choice([0, 1, 1, 2, 5, 20]))
        match rng.randrange(4):
            case 0:
                text = text[:start] + text[stop:]
            case 1:
                text = text[:start] + text[start:stop] * 2 + text[stop:]
            case 2:
                text = text[:start] + rng.choice(made_up) + text[stop:]
            case _:
                other = rng.randrange(len(text) + 1)
                text = text[:start] + text[other : other + stop - start] + text[stop:]
    return text


@in_both
@pytest.mark.parametrize("seed", range(4))
def test_mutated_texts_parse_or_give_an_error_with_a_place(seed):
    """20,000 mutations in four parts; anything but a ProgramError is a failure."""
    rng = random.Random(seed)
    outcomes = {"parsed": 0, "refused": 0}
    for _ in range(part(5000) // 50):
        program = random_program(rng)
        text = to_text(program)
        for _ in range(50):
            try:
                errors = check(parse(mutated(text, rng), program.tensors))
            except ProgramError as error:
                errors = [error]
            assert all(error.place.line >= 1 and error.place.column >= 1 for error in errors)
            assert all("\n" not in str(error) for error in errors)
            outcomes["refused" if errors else "parsed"] += 1
    assert min(outcomes.values()) > part(300), "the mutations should make both kinds"
