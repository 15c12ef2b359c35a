"""The paper's names: its order and thresholds, on programs whose answers are their own."""

from dataclasses import replace

import numpy as np
import torch

from drasp.fitting.oracle import Oracle, answering
from drasp.language import Interpreter, Program
from drasp.language.syntax import ElementWise, PrimitiveFunction, PrimitiveTensor, Project, Select
from drasp.naming.paper import name_as_paper, name_functions, name_tensors, options, with_simple_numbers
from drasp.settings import PaperNaming
from drasp.tasks import load_task
from truth.families import program_for
from typed import of_kind

TASK = load_task("bin_majority")  # tokens: 0, 1, BOS, SEP, EOS, PAD
SMALL = PaperNaming(inputs_for_functions=60, inputs_for_tensors=60, steps=30, rate=0.02, batch=20, batches=4)
HISTOGRAM = "a1 = aggregate(s=[], v=token)\n"
TO_LOGITS = "logits1 = project(inp=a1, op=R1)\nprediction = softmax(logits1)"


def drawing(model: Program):
    """Pools with the answers of a program, in the place of a model's."""

    def draw(stream: str, count: int, batch_size: int) -> Oracle:
        rng = np.random.default_rng(list(stream.encode()))
        return Oracle.draw(Interpreter(model), TASK, count, rng, batch_size)

    return draw


def counting(noise: float = 0.0) -> Program:
    """What there is most of is said, and special tokens say nothing."""
    op = torch.zeros(6, 6)
    op[0, 0] = op[1, 1] = 20.0
    generator = torch.Generator().manual_seed(0)
    return program_for(TASK, HISTOGRAM + TO_LOGITS, {"R1": op + noise * torch.randn(6, 6, generator=generator)})


def test_tensors_are_tried_in_the_papers_order():
    pairs = program_for(
        TASK,
        "s1 = select(q=token, k=token, op=A1)\ns2 = select(q=pos, k=pos, op=A2)\ns3 = select(k=token, op=A3)\n"
        "a1 = aggregate(s=s1+s2+s3, v=token)\n" + TO_LOGITS,
        {"A1": torch.zeros(6, 6), "A2": torch.zeros(154, 154), "A3": torch.zeros(1, 6), "R1": torch.zeros(6, 6)},
    )

    def told(name: str) -> list[tuple[str, str | None]]:
        line = pairs.find(name)
        assert isinstance(line, Select | Project)
        return [(_name(op), special and _name(special)) for op, special in options(pairs, line)]

    of_tokens = told("s1")
    assert len(of_tokens) == 10 * 10
    assert of_tokens[:4] == [("zeros", None), ("BOS", "zeros"), ("SEP", "zeros"), ("diagonal", "zeros")]
    assert of_tokens[10:12] == [("zeros", "BOS"), ("BOS", None)]
    assert [op for op, _ in told("s2")] == ["zeros", "diagonal", "-1", "-2", "2", "3", "decreasing", "increasing"]
    assert [op for op, _ in told("s3")] == ["zeros", "BOS", "EOS", "SEP", "decreasing", "increasing"]
    assert told("logits1")[:3] == [("zeros", None), ("EOS", "zeros"), ("diagonal", "zeros")]


def _name(op: PrimitiveTensor) -> str:
    return str(op.arguments[0]) if op.arguments else op.primitive


def test_the_majority_is_named_as_in_the_paper():
    model = counting(noise=0.05)
    heard: list[tuple[str, int, float]] = []
    named = name_as_paper(model, drawing(model), lambda name, p, match: heard.append((name, p.lines, match)), SMALL)
    assert str(named).splitlines()[1] == "2. logits1 = project(inp=a1, op=(inp==out), special_op=(uniform selection))"
    assert [name.removeprefix("paper's names: ") for name, _, _ in heard] == [
        "none yet",
        "functions",
        "tensors",
        "sparse and whole numbers",
    ]
    assert heard[0][1:] == (3, 1.0)
    assert all(match >= 0.95 for *_, match in heard)


def test_a_tensor_stays_where_none_of_the_list_keeps_enough():
    """The rarer of two tokens is said by no tensor of the list."""
    op = torch.zeros(6, 6)
    op[0, 1] = op[1, 0] = 20.0
    model = program_for(TASK, HISTOGRAM + TO_LOGITS, {"R1": op})
    pool = drawing(model)("pool", 60, 60)
    assert name_tensors(model, pool, 0.95).tensors.keys() == {"R1"}
    assert name_tensors(model, pool, 0.0).tensors.keys() == set()  # the first will do, whatever it says


def test_numbers_become_sparse_and_whole_as_far_as_answers_stay():
    model = counting(noise=0.2)
    draw = drawing(model)
    pool, batches = draw("pool", 60, 60), [draw(f"{i}", 20, 20) for i in range(4)]
    few = replace(SMALL, penalties=(0.1,))
    simple = with_simple_numbers(model, batches, pool, 0.9, few)
    [op] = [simple.tensors["R1"]]
    assert torch.equal(op, op.round())
    assert int((op != 0).sum()) < 36
    assert pool.match(answering(simple)).value >= 0.9
    # Where agreement can never hold, nothing is changed.
    assert torch.equal(with_simple_numbers(model, batches, pool, 1.1, few).tensors["R1"], model.tensors["R1"])


def network(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """An MLP that is a linear map: its units say x and -x."""
    eye = torch.eye(6)
    both = torch.cat([eye, -eye], 1)
    return {
        "F1.0": eye,
        "F1.hidden": both,
        "F1.hidden_bias": torch.zeros(12),
        "F1.out": both.T @ weight,
        "F1.out_bias": torch.zeros(6),
    }


def test_a_linear_mlp_is_no_function_of_its_own():
    text = HISTOGRAM + "m1 = element_wise_op(a1, func=mlp(F1, relu))\nlogits1 = project(inp=m1, op=R1)\n"
    turn = torch.randn(6, 6, generator=torch.Generator().manual_seed(3))
    back = torch.linalg.inv(turn) @ counting().tensors["R1"]
    model = program_for(TASK, text + "prediction = softmax(logits1)", {**network(turn), "R1": back})
    pool = drawing(model)("pool", 60, 60)
    named = name_functions(model, pool, SMALL)
    assert [s.function for s in named.statements if isinstance(s, ElementWise)] == [PrimitiveFunction("no_op")]
    assert pool.match(answering(named)).value >= 0.92


def test_an_mlp_without_a_name_says_logits():
    """It is told apart by what it does, not by directions that nobody knows: its project is the identity."""
    generator = torch.Generator().manual_seed(5)
    text = HISTOGRAM + "m1 = element_wise_op(a1, func=mlp(F1, relu))\nlogits1 = project(inp=m1, op=R1)\n"
    tensors = {name: 9 * torch.randn(t.shape, generator=generator) for name, t in network(torch.eye(6)).items()}
    tensors["R1"] = torch.randn(6, 6, generator=generator)
    model = program_for(TASK, text + "prediction = softmax(logits1)", tensors)
    pool = drawing(model)("pool", 60, 60)
    named = name_functions(model, pool, PaperNaming(least_linear=1.1, least_function=1.1))
    assert of_kind(Project, named.find("logits1")).op == PrimitiveTensor("diagonal", scale=1.0)
    assert pool.match(answering(named)).value == 1.0
