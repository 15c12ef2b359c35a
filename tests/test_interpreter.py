"""What the interpreter does beyond the definition: rounding, gradients, one-hot look-ups."""

import pytest
import torch

from drasp.language import Interpreter, parse
from drasp.language.values import MANY_ROWS, Dense, OneHot

MAJORITY = """vocab = [a, b]
positions = 400
a1 = aggregate(s=[], v=token)
h1 = element_wise_op(a1, func=sharpen(1))
logits1 = project(inp=h1, op=R)
prediction = sigmoid(logits1)"""


def shares(length: int, precision: int | None, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The share of b, at the end of each prefix of ab, abb, abbb, …"""
    program = parse(MAJORITY, {"R": torch.eye(2)})
    ids = torch.tensor([[0] + [1] * (length - 1)])
    trace = Interpreter(program, dtype, precision).trace(ids, torch.arange(length)[None])
    return trace["a1"][0]


@pytest.mark.parametrize("precision", [0, 1, 3, 8])
def test_rounding_goes_down_to_the_given_number_of_bits(precision):
    for position, (a, b) in enumerate(shares(300, precision).tolist()):
        n = position + 1
        # Whole-number arithmetic: floor(2^p * count / n) / 2^p.
        assert a == (2**precision * 1 // n) / 2**precision
        assert b == (2**precision * (n - 1) // n) / 2**precision


def test_rounding_takes_negative_numbers_further_down():
    program = parse(
        """vocab = [a, b]
positions = 4
m1 = element_wise_op(token, func=mlp(F, relu))
logits1 = project(inp=token, op=(inp==out))
prediction = softmax(logits1)""",
        {
            "F.0": torch.tensor([[1.0], [2.0]]),
            "F.hidden": torch.tensor([[1.0]]),
            "F.hidden_bias": torch.tensor([0.0]),
            "F.out": torch.tensor([[-0.3]]),
            "F.out_bias": torch.zeros(1),
        },
    )
    trace = Interpreter(program, torch.float64, precision=2).trace(torch.tensor([[0, 1]]), torch.arange(2)[None])
    assert trace["m1"][0].tolist() == [[-0.5], [-0.75]]


@pytest.mark.parametrize("eps", [None, 1e-5])
def test_a_network_of_few_dimensions_says_what_it_says_step_by_step(eps):
    """Also where a gradient is asked for, which must reach its tensors: then it is computed step by step."""
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "0": (3, 8),
        "1": (3, 8),
        "2": (1, 8),
        "hidden": (8, 5),
        "hidden_bias": (5,),
        "out": (5, 3),
        "out_bias": (3,),
    }
    tensors = {f"F.{n}": torch.randn(s, generator=generator, dtype=torch.float64) for n, s in shapes.items()}
    text = f"""vocab = [a, b, c]
positions = 9
a1 = aggregate(s=[], v=token)
m1 = element_wise_op(token, a1, one, func=mlp(F, relu{"" if eps is None else f", eps={eps}"}))
logits1 = project(inp=m1, op=(inp==out)*1)
prediction = softmax(logits1)"""
    ids = torch.randint(3, (4, 9), generator=generator)
    token = torch.nn.functional.one_hot(ids, 3).double()
    mean = token.cumsum(1) / torch.arange(1, 10)[:, None]
    space = token @ tensors["F.0"] + mean @ tensors["F.1"] + tensors["F.2"]
    if eps is not None:
        space = space / (space.square().mean(-1, keepdim=True) + eps).sqrt()
    hidden = (space @ tensors["F.hidden"] + tensors["F.hidden_bias"]).relu()
    expected = hidden @ tensors["F.out"] + tensors["F.out_bias"]
    for learnt in (False, True):
        program = parse(text, {name: tensor.clone().requires_grad_(learnt) for name, tensor in tensors.items()})
        found = Interpreter(program, torch.float64)(ids, torch.arange(9).expand(4, -1))
        assert torch.allclose(found, expected, atol=1e-12)
        if learnt:
            slopes = torch.autograd.grad(found.square().sum(), list(program.tensors.values()))
            assert all(bool(slope.any()) for slope in slopes)


def test_rounded_semantics_tells_equal_counts_from_unequal_ones_where_the_bits_suffice():
    """A comparison of counts, as C-RASP makes it: the mean of +1 and -1 is rounded below 0 when b leads."""
    program = parse(
        """vocab = [a, b]
positions = 64
m1 = element_wise_op(token, func=mlp(F, relu))
a1 = aggregate(s=[], v=m1)
logits1 = project(inp=a1, op=R)
prediction = sigmoid(logits1)""",
        {
            "F.0": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
            "F.hidden": torch.eye(2),
            "F.hidden_bias": torch.zeros(2),
            "F.out": torch.tensor([[1.0], [-1.0]]),
            "F.out_bias": torch.zeros(1),
            "R": torch.tensor([[1.0, 0.0]]),
        },
    )
    ids = torch.randint(2, (50, 60), generator=torch.Generator().manual_seed(3))
    trace = Interpreter(program, torch.float32, precision=7).trace(ids, torch.arange(60).expand(50, 60))
    balance = (1 - 2 * ids).cumsum(1)
    assert torch.equal(trace["a1"][..., 0] < 0, balance < 0)


def test_gradients_reach_the_tensors():
    R = torch.eye(2, requires_grad=True)
    interpreter = Interpreter(parse(MAJORITY, {"R": R}))
    interpreter(torch.tensor([[0, 1, 1]]), torch.arange(3)[None]).square().sum().backward()
    assert R.grad is not None
    assert R.grad.abs().sum() > 0


def test_a_position_that_does_not_exist_is_not_read_silently():
    program = parse(MAJORITY.replace("v=token", "v=pos").replace("sharpen(1)", "no_op"), {"R": torch.ones(400, 2)})
    with pytest.raises(RuntimeError):
        Interpreter(program)(torch.tensor([[0, 1]]), torch.tensor([[399, 400]]))


@pytest.mark.parametrize("length", [0, 1, 30, MANY_ROWS])
def test_of_a_table_of_many_tokens_only_the_rows_are_read_that_an_input_has(length):
    """The product is the same as with all of them, and so are its gradients."""
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(MANY_ROWS, (3, length), generator=generator)
    weights = torch.rand(3, 4, length, generator=generator, dtype=torch.float64)
    value = OneHot(index, MANY_ROWS).mixed(weights)
    value[0] = 0  # and an input may read none
    op = torch.randn(MANY_ROWS, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    found = Dense(value).times(op)
    torch.testing.assert_close(found, value @ op)
    one, other = (torch.autograd.grad(x.square().sum(), op)[0] for x in (found, value @ op))
    torch.testing.assert_close(one, other)
