"""Simplification: the same logits from fewer lines, and one text for equal programs."""

import random
from dataclasses import replace

import pytest
import torch

from drasp.fitting.dropping import divided_by_constant
from drasp.language import Interpreter, Program, check, parse, program_files
from drasp.language.syntax import to_text
from drasp.rewriting.canonical import canonical
from drasp.rewriting.provenance import explicit
from drasp.rewriting.simplify import EXACT, simplify
from drasp.rewriting.tidy import renumbered, without_unused
from effort import part
from random_programs import random_program

HEADER = "vocab = [a, b, BOS]\nspecial = [BOS]\npositions = 8\n"


def program(text: str, **tensors: torch.Tensor) -> Program:
    result = parse(HEADER + text, {name: tensor.double() for name, tensor in tensors.items()})
    assert not check(result)
    return result


def logits(a: Program, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(len(a.vocabulary), (5, 5), generator=generator)
    positions = torch.arange(5) + torch.randint(a.n_positions - 4, (5, 1), generator=generator)
    return Interpreter(a, torch.float64)(ids, positions)


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("start", range(0, 500, 100))
def test_logits_stay_the_same_on_random_programs(start: int) -> None:
    shorter = 0
    for seed in range(start, start + 100):
        before = random_program(random.Random(seed))
        after = simplify(before)
        assert not check(after)
        assert after.lines <= before.lines
        shorter += after.lines < before.lines
        torch.testing.assert_close(logits(after, seed), logits(before, seed), rtol=1e-9, atol=1e-5)
    assert shorter > 50


SHORTER = {
    "projects of one variable": (
        "l1 = project(inp=token, op=R)\nl2 = project(inp=token, op=S)\nprediction = softmax(l1+l2)",
        {"R": rand(3, 3), "S": rand(3, 3, seed=1)},
        2,
    ),
    "selects of one query and key": (
        "s1 = select(q=token, k=pos, op=A)\ns2 = select(q=token, k=pos, op=B)\na = aggregate(s=s1+s2, v=token)\n"
        "l = project(inp=a, op=(inp==out)*1)\nprediction = softmax(l)",
        {"A": rand(3, 8), "B": rand(3, 8, seed=1)},
        4,
    ),
    "equal aggregates, and what follows from them": (
        "s1 = select(q=token, k=pos, op=A)\ns2 = select(q=token, k=pos, op=A)\na1 = aggregate(s=s1, v=token)\n"
        "a2 = aggregate(s=s2, v=token)\nm1 = element_wise_op(a1, func=harden)\nm2 = element_wise_op(a2, func=harden)\n"
        "l1 = project(inp=m1, op=R)\nl2 = project(inp=m2, op=R)\nprediction = softmax(l1+l2)",
        {"A": rand(3, 8), "R": rand(3, 3)},
        5,
    ),
    "a function of a one-hot variable": (
        "m = element_wise_op(token, one, func=mlp(F, gelu))\na = aggregate(s=[], v=m)\nl = project(inp=a, op=R)\n"
        "prediction = softmax(l)",
        {
            **{"F.0": rand(3, 4), "F.1": rand(1, 4), "F.hidden": rand(4, 5), "F.hidden_bias": rand(5)},
            **{"F.out": rand(5, 2), "F.out_bias": rand(2), "R": rand(2, 3)},
        },
        3,
    ),
    "a norm of a one-hot variable": (
        "n = norm(token, one, op=N, eps=0.1)\na = aggregate(s=[], v=one/n)\nl = project(inp=a, op=R)\n"
        "l2 = project(inp=token/n, op=S)\nprediction = softmax(l+l2)",
        {"N.0": rand(3, 2), "N.1": rand(1, 2), "R": rand(1, 3), "S": rand(3, 3)},
        4,
    ),
    "a norm of a constant, whatever it divides": (
        "n = norm(one, op=N, eps=0.1)\ns = select(q=pos, k=token, op=A)\na = aggregate(s=s, v=token)\n"
        "s2 = select(q=token/n, k=a/n, op=B)\na2 = aggregate(s=s2, v=a/n)\nl = project(inp=a2, op=R)\n"
        "prediction = softmax(l)",
        {"N.0": rand(1, 4), "A": rand(8, 3), "B": rand(3, 3), "R": rand(3, 3)},
        6,
    ),
    "the same for every key": (
        "s1 = select(q=pos, k=one, op=A)\ns2 = select(q=pos, k=token, op=B)\na = aggregate(s=s1+s2, v=token)\n"
        "l = project(inp=a, op=R)\nprediction = softmax(l)",
        {"A": rand(8, 1), "B": rand(8, 1).expand(8, 3).contiguous(), "R": rand(3, 3)},
        3,
    ),
    "constants": (
        "a = aggregate(s=[], v=one)\nb = aggregate(s=[], v=token)\nl1 = project(inp=a, op=R)\n"
        "l2 = project(inp=b, op=S)\nl3 = project(op=(uniform selection))\nprediction = softmax(l1+l2+l3)",
        {"R": rand(1, 3), "S": rand(3, 3)},
        3,
    ),
}


@pytest.mark.parametrize("name", SHORTER)
def test_each_rule(name: str) -> None:
    text, tensors, lines = SHORTER[name]
    before = program(text, **tensors)
    after = simplify(before)
    assert after.lines == lines, str(after)
    torch.testing.assert_close(logits(after), logits(before), rtol=0, atol=1e-10)


HAND_WRITTEN = [program(text, **tensors) for text, tensors, _ in SHORTER.values()]
FOR_ONE_RULE = {
    "variables once more": [
        program(
            "m = element_wise_op(token, func=no_op)\nl = project(inp=m, op=R)\nprediction = softmax(l)", R=rand(3, 3)
        )
    ],
    "inputs read twice": [
        program(
            "n = norm(token, pos, token, op=N, eps=0.1)\nl = project(inp=token/n, op=R)\nprediction = softmax(l)",
            **{"N.0": rand(3, 2), "N.1": rand(8, 2), "N.2": rand(3, 2, seed=1), "R": rand(3, 3)},
        )
    ],
    "projects without effect": [
        program(
            "l = project(inp=token, op=R)\nm = project(inp=pos, op=S)\nprediction = softmax(l+m)",
            R=rand(3, 3),
            S=torch.zeros(8, 3),
        )
    ],
}


@pytest.mark.parametrize("rule", EXACT, ids=lambda rule: rule.name)
def test_each_exact_pass_alone_leaves_the_logits_as_they_are(rule) -> None:
    """On the programs above and on random ones; and each has something to do on some of them."""
    assert rule.exact
    found = 0
    randoms = [random_program(random.Random(seed)) for seed in range(part(300))]
    for seed, before in enumerate([*FOR_ONE_RULE.get(rule.name, ()), *HAND_WRITTEN, *randoms]):
        before = explicit(renumbered(without_unused(before)))
        after = rule.run(before, None)
        if after is not before:
            found += 1
            assert not check(after)
            torch.testing.assert_close(logits(after, seed), logits(before, seed), rtol=1e-9, atol=1e-5)
    assert found


def test_a_norm_goes_that_a_function_of_the_library_reads() -> None:
    text = (
        "n = norm(token, pos, op=N, eps=0.1)\nh = element_wise_op(token/n, func=harden)\n"
        "l = project(inp=h, op=R)\nl2 = project(inp=token/n, op=S)\nprediction = softmax(l+l2)"
    )
    tensors = {"N.0": rand(3, 2), "N.1": rand(8, 2), "R": rand(3, 3), "S": rand(3, 3)}
    after = divided_by_constant(program(text, **tensors), "n", 0.5)
    assert not check(after)
    without = text.replace("n = norm(token, pos, op=N, eps=0.1)\n", "").replace("/n", "")
    expected = program(without, R=tensors["R"], S=tensors["S"] / 2)
    torch.testing.assert_close(logits(after), logits(expected))


def test_named_selects_stay_apart() -> None:
    text = (
        "s1 = select(q=pos, k=pos, op=(k==q-1))\ns2 = select(q=pos, k=pos, op=(k==q-2))\n"
        "a1 = aggregate(s=s1+s2, v=token)\nlogits1 = project(inp=a1, op=(inp==out))\nprediction = softmax(logits1)"
    )
    assert simplify(program(text)).lines == 5


def test_equal_programs_have_equal_text() -> None:
    """Other names, another order of lines and of sums."""
    tensors = {"A": rand(8, 8), "B": rand(3, 3), "R": rand(3, 3, seed=2), "S": rand(3, 3, seed=3)}
    one = (
        "x = select(q=pos, k=pos, op=A)\ny = select(q=token, k=token, op=B)\nh = aggregate(s=x+y, v=token)\n"
        "g = aggregate(s=[], v=token)\np = project(inp=h, op=R)\nq = project(inp=g, op=S)\nprediction = softmax(p+q)"
    )
    other = (
        "g = aggregate(s=[], v=token)\nu = project(inp=g, op=S)\nb = select(q=token, k=token, op=B)\n"
        "a = select(q=pos, k=pos, op=A)\nh = aggregate(s=b+a, v=token)\nv = project(inp=h, op=R)\n"
        "prediction = softmax(u+v)"
    )
    first, second = canonical(program(one, **tensors)), canonical(program(other, **tensors))
    assert to_text(first) == to_text(second)
    for name, tensor in first.tensors.items():
        assert torch.equal(tensor, second.tensors[name])


def test_numbers_do_not_change_the_order_of_lines() -> None:
    """Two searches of one model end with other constants, and their programs shall be seen to be the same."""
    for seed in range(60):
        one, generator = simplify(random_program(random.Random(seed))), torch.Generator().manual_seed(seed)
        tensors = {k: torch.randn(t.shape, generator=generator, dtype=t.dtype) for k, t in one.tensors.items()}
        assert to_text(canonical(replace(one, tensors=tensors))) == to_text(canonical(one))


def test_simplifying_twice_changes_nothing() -> None:
    for seed in range(40):
        once = simplify(random_program(random.Random(seed)))
        assert to_text(simplify(once)) == to_text(once)


def test_lines_may_share_a_tensor() -> None:
    text = (
        "s1 = select(q=token, k=token, op=A)\na1 = aggregate(s=s1, v=token)\nlogits1 = project(inp=a1, op=A)\n"
        "prediction = softmax(logits1)"
    )
    before = program(text, A=rand(3, 3))
    after = simplify(before)
    torch.testing.assert_close(logits(after), logits(before), rtol=0, atol=1e-10)
    assert program_files(after)["program.safetensors"]
