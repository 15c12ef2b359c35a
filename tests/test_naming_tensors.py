"""Names for tensors and functions: found again when hidden, refused where they do not hold."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from drasp.causal.trials import Amount, Trials
from drasp.compiler import compile_program
from drasp.fitting.oracle import Oracle, answering
from drasp.language import Program, tensor_primitive
from drasp.language.bases import Positions, Tokens
from drasp.language.syntax import PrimitiveTensor, Select, TensorName
from drasp.language.tensor_primitives import _REGISTRY, indices
from drasp.naming.elementwise import nearest_map
from drasp.naming.families import candidates, library
from drasp.naming.judge import Judge
from drasp.naming.pipeline import name_lines, name_program
from drasp.rewriting.rewrite import dense_ops
from drasp.tasks import answer_task, each_row, load_task
from truth.families import program_for

# The last letter: few tokens and positions, so that models are small.
TASK = answer_task(
    "last", "abcd", each_row(lambda x: [x[-1]]), lengths=range(4, 9), longest_input=12, room=12, ends=False
)
LANGUAGE = load_task("D3")


def program(text: str, task=TASK, **tensors: torch.Tensor) -> Program:
    """A program whose lines say what they stand for in the model that it is compiled to."""
    return compile_program(program_for(task, text, tensors)).program


def pools(truth: Program, task=TASK, count: int = 48) -> tuple[Oracle, Oracle, Trials]:
    """Of the model that a program is compiled to."""
    model, rng = compile_program(truth).transformer, np.random.default_rng(0)
    fit, check = (Oracle.draw(model, task, count, rng, batch_size=12) for _ in range(2))
    return fit, check, Trials.draw(model, task, Amount(64, 48), rng)


def hidden(truth: Program, line: str, scale: float = 20.0, noise: float = 0.05) -> Program:
    """The primitive of a line as a tensor of another scale, with noise, and raised by rows."""
    generator = torch.Generator().manual_seed(1)
    op = dense_ops(truth)[line] / 10_000
    tensor = op + noise * torch.randn(op.shape, generator=generator) + torch.randn(len(op), 1, generator=generator)
    statements = tuple(
        replace(s, op=TensorName("H"), special_op=None) if s.name == line else s for s in truth.statements
    )
    return replace(truth, statements=statements, tensors={**truth.tensors, "H": scale * tensor})


PREVIOUS = (
    "s1 = select(q=pos, k=pos, op=(k==q-1))\na1 = aggregate(s=s1, v=token)\n"
    "logits1 = project(inp=a1, op=(inp==out))\nprediction = softmax(logits1)"
)


def test_a_hidden_select_is_found_again() -> None:
    truth = program(PREVIOUS)
    named = name_program(hidden(truth, "s1"), *pools(truth))
    assert "op=(k==q-1)" in str(named)
    assert named.lines == 4


def test_a_hidden_project_is_found_again() -> None:
    truth = program(
        "a1 = aggregate(s=[], v=token)\nlogits1 = project(inp=a1, op=(inp==out))\nprediction = softmax(logits1)"
    )
    named = name_program(hidden(truth, "logits1", noise=0.003), *pools(truth))
    assert str(named).splitlines()[1].startswith("2. logits1 = project(inp=a1, op=(inp==out)")


def test_a_name_that_does_not_hold_is_refused() -> None:
    truth = program(PREVIOUS)
    judge = Judge.of(truth, *pools(truth))
    assert judge.floor == pytest.approx(0.99)
    assert judge.passes(truth, truth)
    other = program(PREVIOUS.replace("k==q-1", "k==q-2"))
    assert not judge.passes(truth, other)
    assert judge.closeness(truth) > judge.closeness(other)


def test_random_tensors_keep_their_answers() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = 3 * torch.randn(TASK.n_positions, TASK.n_positions, generator=generator)
    wild = program(PREVIOUS.replace("(k==q-1)", "H"), H=noise)
    fit, check, trials = pools(wild, count=96)
    named = name_program(wild, fit, check, trials)
    assert check.match(answering(named)).value >= 0.99
    assert not any(isinstance(s, Select) and isinstance(s.op, PrimitiveTensor) for s in named.statements)


def test_naming_gives_up_after_some_failures_in_a_row(monkeypatch) -> None:
    """Of eight selects the third has a name: it takes four failures after it to leave the last one alone."""
    tried: list[str] = []

    def name_select(before: Program, select: Select, _judge: Judge) -> Program | None:
        tried.append(select.name)
        return before if select.name == "s3" else None

    monkeypatch.setattr("drasp.naming.pipeline.name_select", name_select)
    names = [f"s{i}" for i in range(1, 9)]
    selects = "".join(f"{name} = select(q=pos, k=token, op={name.upper()})\n" for name in names)
    text = f"a1 = aggregate(s={'+'.join(names)}, v=token)\nlogits1 = project(inp=a1, op=(inp==out))\n"
    tensors = {name.upper(): torch.randn(TASK.n_positions, len(TASK.vocabulary)) for name in names}
    long = program(f"{selects}{text}prediction = softmax(logits1)", TASK, **tensors)
    assert name_lines(long, Judge.of(long, *pools(long, count=12))) == long
    assert tried == names[:7]


def test_comparisons_of_counts_become_a_table() -> None:
    """D3 as a linear map of counts at odd scales: whole numbers are found, and the program says which."""
    table = torch.zeros(6, 6)
    table[:3, [0, 1, 4]] = torch.tensor([[-7.1, 20.3, -31.0], [7.1, -20.3, 31.0], [17.9, -9.9, 15.2]])
    table[:3, [2, 3, 5]] = -4.4
    text = "a1 = aggregate(s=[], v=token)\nlogits1 = project(inp=a1, op=R)\nprediction = sigmoid(logits1)"
    truth = program(text, LANGUAGE, R=table)
    fit, check, trials = pools(truth, LANGUAGE)
    named = name_program(truth, fit, check, trials)
    assert "a: a=-2 b=2 EOS=-2; b: a=2 b=-2 EOS=2; BOS: a=5 b=-1 EOS=1" in str(named)
    assert check.match(answering(named)).all


def test_an_mlp_that_answers_do_not_need_goes() -> None:
    """It grows with the counts, so that the largest stays the largest; a rotation hides that."""
    generator = torch.Generator().manual_seed(3)
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=generator)).Q
    text = (
        "a1 = aggregate(s=[], v=token)\nm1 = element_wise_op(a1, one, func=mlp(F, gelu_new))\n"
        "logits1 = project(inp=m1, op=R)\nprediction = softmax(logits1)"
    )
    tensors = {
        "F.0": torch.eye(6),
        "F.1": torch.ones(1, 6),
        "F.hidden": torch.eye(6),
        "F.hidden_bias": torch.zeros(6),
        "F.out": rotation,
        "F.out_bias": torch.zeros(6),
        "R": 10 * rotation.T,
    }
    majority = load_task("bin_majority")
    truth = program(text, majority, **tensors)
    named = name_program(truth, *pools(truth, majority, count=240))
    assert named.lines == 3
    assert "op=(inp==out)" in str(named)


def test_least_squares_sees_through_a_rotation() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(200, 4, generator=generator), torch.rand(200, 4, generator=generator)
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=generator)).Q
    matrix, residual = nearest_map(x, x @ rotation)
    torch.testing.assert_close(matrix, rotation, rtol=1e-3, atol=1e-3)
    assert residual < 1e-6
    assert nearest_map(x, y)[1] > 0.5


def test_a_users_own_tensor_takes_part_also_after_the_first_use() -> None:
    positions, usage = Positions(30), np.tril(np.ones((30, 30)))
    before = library(positions, positions, "select")

    @tensor_primitive(select="k is {m:int} or {n:int} before q")
    def one_of_two_before(rows, columns, m, n):
        i, j = indices(rows, columns)
        return 1.0 * ((j == i - m) | (j == i - n))

    try:
        tensor = one_of_two_before(positions, positions, 2, 5) * 3.0 + 1
        best = max(candidates(tensor, usage, positions, positions, "select", shift=True), key=lambda c: c.score)
        assert (best.op.primitive, best.op.arguments) == ("one_of_two_before", (2, 5))
        assert best.op.scale == pytest.approx(3)
        assert best.score == pytest.approx(1)
    finally:
        del _REGISTRY["one_of_two_before"]
    assert library(positions, positions, "select") is before


def test_special_tokens_may_have_a_tensor_of_their_own() -> None:
    basis = Tokens(LANGUAGE.vocabulary)
    tensor = 4.0 * np.eye(6)
    tensor[2:] = 0
    tensor[2:, 2] = 7.0
    best = max(candidates(tensor, np.ones((6, 6)), basis, basis, "select", shift=True), key=lambda c: c.score)
    assert (best.op.primitive, best.special and best.special.arguments) == ("diagonal", ("BOS",))
    assert best.hard().op.scale == 10_000
