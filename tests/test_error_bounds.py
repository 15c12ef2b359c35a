"""Error bounds, held to numbers of 60 digits: the true number is never outside, and bounds are not far too wide."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import exp, mpf, sqrt

from cases import CASES
from drasp.certificates.bounds import BoundedLogits, BoundedRows, Matrix, activated, linear, normalised, softmax
from drasp.certificates.checker import unpacked
from drasp.certificates.findings import answers
from drasp.certificates.functions import FUNCTIONS
from drasp.certificates.level import Tables
from drasp.certificates.lowering import lowered_model, lowered_program
from drasp.certificates.model_levels import ModelLevels
from drasp.certificates.program_levels import ProgramLevels
from drasp.certificates.tree import Walk, Words
from drasp.language import Program, function_primitives, parse
from drasp.model_files import load_model
from drasp.transformer import Transformer
from effort import examples, in_both, part
from precise import ACTIVATIONS, Vector, model_logits, program_logits
from random_models import random_gpt2
from random_programs import random_program, randoms


def _matrices(packed: dict) -> dict[str, Matrix]:
    return {name: Matrix(unpacked(each).astype(np.float64)) for name, each in packed.items()}


def _tree(n_vocab: int, symbols: int, longest: int) -> Words:
    """All strings over the first symbols, behind the vocabulary's last token."""
    after = np.zeros((2, symbols), int)
    return Words(after, np.zeros((2, n_vocab), bool), 1, n_vocab - 1, longest, everything=True)


def _all_logits(side, tree: Words):
    """Every string with its logits and their bounds, at the last token."""
    with np.errstate(all="ignore"):
        for nodes, _, (logits,) in Walk(tree, [side], tree.longest):
            for codes, value, error in zip(nodes.codes, logits.value, logits.error, strict=True):
                yield [tree.tokens[c] for c in codes], value / logits.over, error / logits.over


def _program_side(program: Program, tree: Words, offset: int) -> ProgramLevels:
    lowered = lowered_program(program)
    tensors = _matrices({**lowered["stored"], **lowered["library"]})
    return ProgramLevels(lowered["steps"], tensors, len(program.vocabulary), program.n_positions, tree.tokens, offset)


def _model_side(model: Transformer, tree: Words, offset: int) -> ModelLevels:
    lowered = lowered_model(model)
    return ModelLevels(_matrices(lowered["weights"]), lowered["eps"], lowered["layers"], tree.tokens, offset)


def _assert_inside(side, tree: Words, exact: Callable[[list[int]], list[Vector]]) -> float:
    """Every logit of every string lies within its bound; gives the widest bound, as a share of the logit (or of 1)."""
    known: dict[tuple[int, ...], Vector] = {}
    for symbols in product(range(tree.after.shape[1]), repeat=tree.longest):
        ids = [tree.bos, *symbols]
        known |= {tuple(ids[: i + 1]): row for i, row in enumerate(exact(ids))}
    widest, seen = 0.0, 0
    for ids, value, error in _all_logits(side, tree):
        seen += 1
        for true, v, e in zip(known[tuple(ids)], value, error, strict=True):
            # Dividing by `over` rounds once more, here in the test. What cannot be known has no number as its bound.
            slack = mpf(2) ** -53 * abs(true)
            assert np.isnan(e) or abs(mpf(float(v)) - true) <= mpf(float(e)) + slack, (ids, true, v, e)
        widest = max(widest, float((error / np.maximum(1, np.abs(value))).max()))
    assert seen == len(known)
    return widest


@examples(150)
@given(randoms)
def test_programs_lie_within_their_bounds(rng):
    program = random_program(rng)
    tree = _tree(len(program.vocabulary), min(2, len(program.vocabulary)), 2)
    _assert_inside(_program_side(program, tree, 2), tree, lambda ids: program_logits(program, ids, 2))


_SMALL = [case for case in CASES if case.positions <= 20 and len(case.vocabulary) <= 12]


@pytest.mark.parametrize("case", _SMALL, ids=lambda case: case.name)
def test_programs_written_by_hand_lie_within_their_bounds(case):
    program = case.program
    longest = min(3, program.n_positions - 1)
    tree = _tree(len(program.vocabulary), min(2, len(program.vocabulary)), longest)
    _assert_inside(_program_side(program, tree, 0), tree, lambda ids: program_logits(program, ids, 0))


_FUNCTIONS = """
vocab = [0, 1, BOS]
positions = 6
u = aggregate(s=[], v=token)
s = select(k=token, op=(1: 0=1 1=2)*0.3)
a = aggregate(s=s, v=token)
p = aggregate(s=s, v=pos)
m = element_wise_op(VARIABLES, func=FUNCTION)
l = project(inp=m, op=R)
prediction = sigmoid(l)
"""


@pytest.mark.parametrize(
    ("function", "variables", "width"),
    [
        ("sharpen(3)", "a", 3),
        ("sharpen(0.5)", "u", 3),
        ("harden", "a", 3),
        ("harden", "u", 3),
        ("balance_01(0.05)", "u", 3),
        ("balance_01(0.5)", "u", 3),
        ("is_pure(0.5)", "u", 4),
        ("is_pure(0.4)", "a", 4),
        ("compare", "u", 3),
        ("compare", "a", 3),
        ("maximum", "a, u", 3),
        ("cartesian", "a, u", 9),
        ("difference_mod(2)", "pos, p", 2),
        ("difference_mod(3)", "p, p", 3),
    ],
)
def test_functions_of_the_library_lie_within_bounds_that_are_narrow(function, variables, width):
    """Ties of means of whole numbers are decided: that is what `over` is for."""
    text = _FUNCTIONS.replace("VARIABLES", variables).replace("FUNCTION", function)
    tensor = torch.linspace(-1, 2, 3 * width).reshape(width, 3)
    program = parse(text.strip(), {"R": tensor})
    tree = _tree(3, 2, 4)
    widest = _assert_inside(_program_side(program, tree, 0), tree, lambda ids: program_logits(program, ids, 0))
    assert widest < 1e-12


@pytest.mark.parametrize("size", [1e-300, 1e-315, 5e-324])
def test_logits_that_underflow_lie_within_their_bounds(size):
    """A share of the smallest number that float64 has is 0 in float64, which is not said; the true logit is above 0."""
    text = _FUNCTIONS.replace("VARIABLES", "a").replace("FUNCTION", "no_op")
    program = parse(text.strip(), {"R": torch.eye(3, dtype=torch.float64) * size})
    tree = _tree(3, 2, 3)
    side = _program_side(program, tree, 0)
    _assert_inside(side, tree, lambda ids: program_logits(program, ids, 0))
    for _, value, error in _all_logits(side, tree):
        assert not answers(BoundedLogits(value[None], error[None]), "sigmoid").certain.all() or value.max() == size


def test_powers_that_may_be_off_by_a_whole_number_are_not_exact():
    """Four units in the last place are 0.125 at 3 to the 30, and 1 at 3 to the 32."""
    found = [FUNCTIONS["balance_01"]([BoundedRows.exact(np.array([[0.0, 3.0]]))], n) for n in (30, 32)]
    assert [each.is_exact for each in found] == [True, False]
    assert found[1].error[0] >= 1


def test_every_function_of_the_library_has_bounds():
    assert set(FUNCTIONS) == set(function_primitives())


_FORMS = [(layers, heads, act) for layers, heads in ((1, 1), (2, 1), (1, 2)) for act in ("gelu_new", "gelu", "relu")]


@in_both
@pytest.mark.parametrize("seed", range(part(60)))
def test_models_lie_within_bounds_that_are_narrow(seed):
    """A layer norm of three numbers that happen to be nearly equal divides by next to nothing, which widens bounds."""
    layers, heads, activation = _FORMS[seed % len(_FORMS)]
    model = load_model(random_gpt2(seed, layers, heads, d_head=3, vocab=4, activation=activation).float())
    tree = _tree(4, 2, 2)
    assert _assert_inside(_model_side(model, tree, 1), tree, lambda ids: model_logits(model, ids, 1)) < 1e-6


@pytest.mark.parametrize("activation", ACTIVATIONS)
@given(x=st.floats(-60, 60), off=st.just(0.0) | st.floats(1e-30, 3))  # x + off is exact in 60 digits
def test_activations_move_by_no_more_than_their_bound(activation, x, off):
    found = activated(BoundedRows(np.array([[x]]), np.array([off])), activation)
    for true in (mpf(x) - mpf(off), mpf(x), mpf(x) + mpf(off)):
        assert abs(ACTIVATIONS[activation](true) - mpf(float(found.value[0, 0]))) <= mpf(float(found.error[0]))


@given(st.lists(st.floats(-800, 800), min_size=1, max_size=6), st.floats(0, 0.5), randoms)
def test_attention_weights_are_as_far_off_as_their_bound(scores, delta, rng):
    weights, off = softmax(np.array([scores]), np.array([delta]))
    moved = [mpf(s) + rng.choice([-1, 1]) * mpf(delta) for s in scores]
    powers = [exp(s - max(moved)) for s in moved]
    true = [p / sum(powers) for p in powers]
    assert sum(abs(t - mpf(float(w))) for t, w in zip(true, weights[0], strict=True)) <= mpf(float(off[0]))


_SIZES = st.just(1.0) | st.integers(-180, 170).map(lambda digits: 10.0**digits)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 10**9), _SIZES, _SIZES, st.sampled_from([0.0, 1e-6]))
@example(rows=4, columns=3, seed=0, size=1e-178, factor=1e140, moved=0.0)
@example(rows=1, columns=1, seed=3, size=1e143, factor=1e170, moved=0.0)
def test_products_lie_within_their_bound(rows, columns, seed, size, factor, moved):
    """Entries of very different sizes, where float64 loses most; some so large or small that their squares are lost."""
    rng = np.random.default_rng(seed)
    x, m, shift = (
        rng.standard_normal(shape) * 10 ** rng.uniform(-12, 12, shape)
        for shape in ((1, rows), (rows, columns), (rows,))
    )
    shift *= moved * size
    x, m = x * size, m * factor
    error = float(np.sqrt(sum(mpf(each) ** 2 for each in shift))) * (1 + 1e-12)
    with np.errstate(all="ignore"):
        found = linear(BoundedRows(x, np.array([error])), Matrix(m))
    true = [sum((mpf(x[0, i]) + mpf(shift[i])) * mpf(m[i, j]) for i in range(rows)) for j in range(columns)]
    off = sqrt(sum((t - mpf(float(v))) ** 2 for t, v in zip(true, found.value[0], strict=True)))
    assert np.isnan(found.error[0]) or off <= mpf(float(found.error[0]))


@given(st.integers(1, 6), st.integers(0, 10**9), _SIZES, st.sampled_from([0.0, 1e-5]))
def test_norms_lie_within_their_bound(width, seed, size, eps):
    x = np.random.default_rng(seed).standard_normal((1, width)) * size
    with np.errstate(all="ignore"):
        found = normalised(BoundedRows.exact(x), eps)
    root = sqrt(sum(mpf(each) ** 2 for each in x[0]) / width + mpf(eps))
    off = sqrt(sum((mpf(each) / root - mpf(float(v))) ** 2 for each, v in zip(x[0], found.value[0], strict=True)))
    assert np.isnan(found.error[0]) or off <= mpf(float(found.error[0]))


def test_spectral_norms_are_not_too_small():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        m = Matrix(rng.standard_normal(rng.integers(1, 30, 2)) * 10.0 ** rng.integers(-8, 8))
        largest = float(np.linalg.svd(m.value, compute_uv=False)[0])
        assert largest <= m.spectral <= 3 * largest


def test_what_is_unknown_once_stays_unknown():
    """A bound that is no number must not be lost behind others: of keys that all nodes share, and of overflow."""
    rows = [BoundedRows(np.ones((2, 1)), np.array([error, 0.0])) for error in (np.nan, 0.0)]
    for order in (rows, rows[::-1]):
        tables = Tables()
        for depth, each in enumerate(order):
            tables.up_to(depth, each)
        assert np.isnan(tables.levels[1].error)
    with np.errstate(all="ignore"):
        assert np.isnan(softmax(np.array([[0.0, -np.inf]]), np.zeros(1))[1]).all()
        assert not answers(BoundedLogits(np.array([[np.inf, -1.0]]), np.ones((1, 2)) * 1e-9), "softmax").certain.any()
        assert not answers(BoundedLogits(np.array([[np.inf]]), np.ones((1, 1)) * 1e-9), "sigmoid").certain.any()
