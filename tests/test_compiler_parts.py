"""The compiler's parts: scores that are lowered, distances in few dimensions, functions in hidden layers, layers."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drasp.compiler import compile_program
from drasp.compiler.positions import in_few_dimensions
from drasp.compiler.scores import LEAK, ScoreTerm, hard_gap, lowered, picks_one
from drasp.compiler.values import Values
from drasp.language import Interpreter, Program, parse
from drasp.language.bases import Positions, Tokens, size
from drasp.language.syntax import PrimitiveTensor
from drasp.language.tensor_primitives import build
from drasp.vocabulary import Vocabulary
from effort import examples
from random_programs import randoms
from typed import known

# ----------------------------------------------------------------------------------------- scores

VOCABULARY = Vocabulary.with_specials(("a", "b", "c"))
BASES = {"token": Tokens(VOCABULARY), "pos": Positions(9)}


def random_scores(rng: random.Random) -> list[ScoreTerm]:
    """What one to three selects of the library, or stored ones, add up to."""
    scores = []
    for _ in range(rng.randint(1, 3)):
        query, key = rng.choice(["token", "pos"]), rng.choice(["token", "pos"])
        rows, columns = BASES[query], BASES[key]
        if rng.random() < 0.3:
            generator = torch.Generator().manual_seed(rng.getrandbits(32))
            tensor = torch.randn(size(rows), size(columns), generator=generator, dtype=torch.float64)
            tensor = tensor * rng.choice([0.1, 3.0, 1e4])
        else:
            primitives = [("diagonal", ()), ("kth_diagonal", (-1,)), ("every_kth", (3, 1)), ("increasing", ())]
            name, arguments = rng.choice(primitives)
            op = PrimitiveTensor(name, arguments, rng.choice([1.0, 12.5, 10_000.0, -20_000.0]))
            tensor = torch.tensor(build(op, None, rows, columns))
        scores.append(ScoreTerm("s", query, key, tensor))
    return scores


@examples(400)
@given(randoms)
def test_lowered_scores_attend_alike(rng):
    """On all pairs of positions of some inputs, the whole ones and what is left of them when they begin later."""
    scores = random_scores(rng)
    low = lowered(scores, dict.fromkeys(BASES, Values.ONE_HOT), 9)
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    values = {
        "token": torch.randint(len(VOCABULARY), (30, 9), generator=generator),
        "pos": torch.arange(9).expand(30, 9),
    }

    def weights(parts, start: int):
        scores = [p.tensor[values[p.query][:, start:, None], values[p.key][:, None, start:]] for p in parts]
        seen = torch.ones(9 - start, 9 - start).tril().bool()
        return torch.stack(scores).sum(0).masked_fill(~seen, -torch.inf).softmax(-1)

    for start in (0, 3, 7):
        assert (weights(low, start) - weights(scores, start)).abs().max() < 3 * LEAK
    for before, after in zip(scores, low, strict=True):
        assert after.tensor.abs().max() <= before.tensor.abs().max() * (1 + 1e-9)


def test_scores_of_mixtures_keep_their_size():
    tensor = torch.eye(7, dtype=torch.float64) * 10_000
    values = {"token": Values.ONE_HOT, "one-hot": Values.ONE_HOT, "mixture": Values.SHARES, "any": Values.ANY}
    [low] = lowered([ScoreTerm("s", "token", "mixture", tensor)], values, 9)
    assert torch.equal(low.tensor, tensor)
    [low] = lowered([ScoreTerm("s", "token", "one-hot", tensor)], values, 9)
    assert low.tensor.max() == pytest.approx(hard_gap(9))
    # Beside small scores of a mixture it must outweigh these, and beside anything it stays what it was.
    low, small = lowered(
        [ScoreTerm("s", "token", "one-hot", tensor), ScoreTerm("s", "token", "mixture", tensor / 1e4)], values, 9
    )
    assert low.tensor.max() == pytest.approx(1 + hard_gap(9))
    assert small.tensor.max() == 1
    low, _ = lowered(
        [ScoreTerm("s", "token", "one-hot", tensor), ScoreTerm("s", "token", "any", tensor / 1e4)], values, 9
    )
    assert torch.equal(low.tensor, tensor)


@pytest.mark.parametrize(
    ("primitive", "arguments", "picks"),
    [
        ("kth_diagonal", (-1,), True),
        ("diagonal", (), True),
        ("increasing", (), True),
        ("decreasing", (), True),
        ("kth_diagonal", (-2,), False),  # at the second position of an input both keys score alike
        ("every_kth", (2, 1), False),
    ],
)
def test_a_head_that_always_picks_one_position_is_known(primitive, arguments, picks):
    tensor = torch.tensor(build(PrimitiveTensor(primitive, arguments), None, BASES["pos"], BASES["pos"]))
    assert picks_one([ScoreTerm("s", "pos", "pos", tensor)], 9) == picks
    assert not picks_one([ScoreTerm("s", "pos", "pos", tensor / 10_000)], 9), "a soft choice is none"
    assert not picks_one([ScoreTerm("s", "token", "pos", tensor)], 9)


# -------------------------------------------------------------------------------------- distances


def distances(count: int, wanted: list[int]) -> torch.Tensor:
    distance = torch.arange(count)[:, None] - torch.arange(count)
    return torch.isin(distance, torch.tensor(wanted)).double() * 10_000


@pytest.mark.parametrize("wanted", [[0], [1], [2], [5], [1, 2, 3], [2, 4]])
@pytest.mark.parametrize("count", [70, 152])
def test_distances_in_few_dimensions_attend_alike_wherever_an_input_begins(wanted, count):
    tensor = distances(count, wanted)
    narrow = known(in_few_dimensions(tensor))
    assert torch.linalg.matrix_rank(narrow, rtol=1e-9) <= 48
    assert narrow.abs().max() <= 5 + 1e-9
    seen = torch.ones(count, count).tril().bool()
    for start in (0, 1, 2, 3, 40, count - 3, count - 1):
        both = [
            t.masked_fill(~seen, -torch.inf)[start:, start:].softmax(-1) for t in (tensor, hard_gap(count) * narrow)
        ]
        assert (both[0] - both[1]).abs().max() < 3 * LEAK


def test_other_tensors_are_not_made_narrow():
    assert in_few_dimensions(torch.randn(70, 70, dtype=torch.float64)) is None
    assert in_few_dimensions(distances(70, [1]) + distances(70, [2]) * 2) is None
    assert in_few_dimensions(distances(70, list(range(1, 60)))) is None


# -------------------------------------------------------------------------------------- functions

HEADER = "vocab = [0, 1, 2]\nspecial = []\npositions = 24\n"
FUNCTIONS = {
    "no_op of a mixture": "m1 = element_wise_op(a1, func=no_op)",
    "keep": "m1 = element_wise_op(token, a1, func=keep(2))",
    "harden of a mixture": "m1 = element_wise_op(a1, func=harden)",
    "harden of a position": "m1 = element_wise_op(pos, func=harden)",
    "sharpen of a token": "m1 = element_wise_op(token, func=sharpen(2))",
    "balance": "m1 = element_wise_op(a1, func=balance_01(0.5))",
    "balance, linear": "m1 = element_wise_op(a1, func=balance_01(1))",
    "balance, nearly a step": "m1 = element_wise_op(a1, func=balance_01(0.05))",
    "is_pure": "m1 = element_wise_op(a1, func=is_pure(0.5))",
    "is_pure of a lower share": "m1 = element_wise_op(a1, func=is_pure(0.25))",
    "compare": "m1 = element_wise_op(a1, func=compare)",
    "maximum": "m1 = element_wise_op(a1, token, func=maximum)",
    "cartesian of two tokens": "m1 = element_wise_op(token, p1, func=cartesian)",
    "cartesian with a mixture": "m1 = element_wise_op(a1, token, func=cartesian)",
    "difference_mod": "m1 = element_wise_op(pos, b1, func=difference_mod(3))",
    "difference_mod of a mixture": "m1 = element_wise_op(c1, pos, func=difference_mod(2))",
}


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_new"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_library_in_hidden_layers(name, activation):
    lines = f"""
        s1 = select(q=pos, k=pos, op=(k==q-1))
        s2 = select(k=pos, op=(k is first))
        a1 = aggregate(s=[], v=token)
        p1 = aggregate(s=s1, v=token)
        b1 = aggregate(s=s2, v=pos)
        c1 = aggregate(s=[], v=pos)
        {FUNCTIONS[name]}
        g1 = element_wise_op(token, func=mlp(G, {activation}))
        logits1 = project(inp=m1, op=R)
        logits2 = project(inp=g1, op=S)
        prediction = softmax(logits1+logits2)
    """
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    dims = {"is_pure": 4, "compare": 3, "cartesian": 9, "balance": 3, "difference_mod": 3}
    rows = next(
        (count for word, count in dims.items() if word in FUNCTIONS[name]), 24 if "pos," in FUNCTIONS[name] else 3
    )
    rows = 2 if "difference_mod(2)" in FUNCTIONS[name] else rows
    tensors = {"R": normal(rows, 3), "S": 0.1 * normal(2, 3), "G.0": normal(3, 4), "G.hidden": normal(4, 5)}
    tensors |= {"G.hidden_bias": normal(5), "G.out": normal(5, 2), "G.out_bias": normal(2)}
    program = parse(HEADER + lines, tensors)
    compiled = compile_program(program)
    assert compiled.shape.activation == activation
    ids = torch.randint(3, (40, 20), generator=generator)
    positions = torch.arange(20) + torch.randint(5, (40, 1), generator=generator)
    wanted = Interpreter(program, torch.float64)(ids, positions)
    difference = (compiled.transformer(ids, positions) - wanted).abs().max()
    assert difference <= 1e-3 * (wanted.max() - wanted.min())


@given(st.integers(2, 6), st.integers(0, 2**32))
@examples(40)
def test_a_network_with_a_layer_norm_is_a_table_of_one_hot_variables(tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    names = ", ".join(f"t{i}" for i in range(tokens))
    lines = """
        m1 = element_wise_op(token, pos, one, func=mlp(F, gelu, eps=0.01))
        logits1 = project(inp=m1, op=R)
        prediction = softmax(logits1)
    """
    shapes = {"F.0": (tokens, 4), "F.1": (5, 4), "F.2": (1, 4), "F.hidden": (4, 6), "F.hidden_bias": (6,)}
    shapes |= {"F.out": (6, 3), "F.out_bias": (3,), "R": (3, tokens)}
    tensors = {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}
    program = parse(f"vocab = [{names}]\nspecial = []\npositions = 5\n{lines}", tensors)
    ids, positions = torch.randint(tokens, (20, 5), generator=generator), torch.arange(5).expand(20, 5)
    wanted = Interpreter(program, torch.float64)(ids, positions)
    difference = (compile_program(program).transformer(ids, positions) - wanted).abs().max()
    assert difference <= 1e-4 * max(1.0, float(wanted.abs().max()))


# ----------------------------------------------------------------------------------------- layers


def form(lines: str) -> tuple[int, int]:
    program: Program = parse(f"{HEADER}{lines}\nprediction = softmax(l)", {})
    shape = compile_program(program).shape
    return shape.n_layers, shape.n_heads


def test_there_are_no_more_layers_and_heads_than_the_reads_need():
    mean, again = "a = aggregate(s=[], v=token)\n", "b = aggregate(s=[], v=a)\n"
    assert form("l = project(inp=token, op=(inp==out))") == (1, 1)
    assert form(f"{mean}l = project(inp=a, op=(inp==out))") == (1, 1)
    assert form(f"{mean}{again}l = project(inp=b, op=(inp==out))") == (2, 1)
    # The MLP of a layer reads its heads; another head that reads the MLP is in the next layer.
    mlp = "m = element_wise_op(a, func=is_pure(0.5))\n"
    assert form(f"{mean}{mlp}l = project(inp=m, op=(inp==out))") == (1, 1)
    assert form(f"{mean}{mlp}b = aggregate(s=[], v=m)\nl = project(inp=b, op=(inp==out))") == (2, 1)
    # One pattern is one head, however many values it mixes.
    two = "c = aggregate(s=[], v=pos)\nd = element_wise_op(a, func=no_op)\ne = element_wise_op(c, func=no_op)\n"
    use = "l1 = project(inp=d, op=(inp==out))\nl2 = project(inp=e, op=(inp==out))\nprediction = softmax(l1+l2)"
    shape = compile_program(parse(f"{HEADER}{mean}{two}{use}")).shape
    assert (shape.n_layers, shape.n_heads) == (1, 1)
    other = "s = select(q=pos, k=pos, op=(k==q-1))\nb = aggregate(s=s, v=token)\n"
    use = "l1 = project(inp=a, op=(inp==out))\nl2 = project(inp=b, op=(inp==out))\nprediction = softmax(l1+l2)"
    shape = compile_program(parse(f"{HEADER}{mean}{other}{use}")).shape
    assert (shape.n_layers, shape.n_heads) == (1, 2)
