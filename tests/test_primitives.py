"""The two libraries against their definitions, and a user's additions to them."""

import numpy as np
import pytest
import torch

from drasp.errors import DraspError
from drasp.language import (
    Interpreter,
    check,
    function_primitive,
    function_primitives,
    indices,
    parse,
    same_basis,
    tensor_primitive,
    tensor_primitives,
    to_python,
    to_text,
)
from drasp.language.bases import One, Positions, Tokens
from drasp.language.function_primitives import _REGISTRY as FUNCTIONS
from drasp.language.syntax import PrimitiveTensor
from drasp.language.tensor_primitives import _REGISTRY as TENSORS
from drasp.language.tensor_primitives import NotApplicable, build, parse_primitive, print_primitive
from drasp.vocabulary import Vocabulary
from typed import known

TOKENS = Tokens(Vocabulary.with_specials(("a", "b")))  # a b BOS SEP EOS PAD
BOS, SEP = 2, 3

# What a primitive says, as a condition on a query q and a key k (both counted from 0), or a number.
SELECT_TEXTS = {
    "uniform selection": lambda q, k, n: 0,
    "k==q": lambda q, k, n: k == q,
    "k==q-1": lambda q, k, n: k == q - 1,
    "k==q-2": lambda q, k, n: k == q - 2,
    "k==q-3": lambda q, k, n: k == q - 3,
    "k==q+2": lambda q, k, n: k == q + 2,
    "(q-k)%2==0": lambda q, k, n: (q - k) % 2 == 0,
    "(q-k)%3==1": lambda q, k, n: (q - k) % 3 == 1,
    "k%2==1": lambda q, k, n: k % 2 == 1,
    "k is first": lambda q, k, n: (n - k) / n,
    "k is last": lambda q, k, n: (k + 1) / n,
    "k==BOS": lambda q, k, n: k == BOS,
    "k==SEP": lambda q, k, n: k == SEP,
}
VECTORS = {"uniform selection", "k%2==1", "k is first", "k is last", "k==BOS", "k==SEP"}


@pytest.mark.parametrize("text", SELECT_TEXTS)
@pytest.mark.parametrize("rows", [Positions(4), Positions(9), TOKENS])
def test_matrices_do_what_their_printed_names_say(text, rows):
    """Also where rows and columns differ in number: the pattern is cut off at the right and below."""
    op = PrimitiveTensor(*known(parse_primitive(text, "select")))
    matrix = build(op, None, rows, TOKENS)
    n_rows = 6 if rows is TOKENS else rows.count
    expected = [[10_000 * float(SELECT_TEXTS[text](q, k, 6)) for k in range(6)] for q in range(n_rows)]
    np.testing.assert_allclose(matrix, expected)
    assert print_primitive(op, "select") == f"({text})"


@pytest.mark.parametrize("text", SELECT_TEXTS)
def test_vectors_exist_where_only_the_key_matters(text):
    op = PrimitiveTensor(*known(parse_primitive(text, "select")), scale=1.0)
    if text in VECTORS:
        expected = [[float(SELECT_TEXTS[text](None, k, 6)) for k in range(6)]]
        np.testing.assert_allclose(build(op, None, One(), TOKENS), expected)
    else:
        with pytest.raises(NotApplicable):
            build(op, None, One(), TOKENS)


def test_first_is_largest_at_the_first_key_and_last_at_the_last():
    first = build(PrimitiveTensor("decreasing"), None, One(), Positions(5))[0]
    last = build(PrimitiveTensor("increasing"), None, One(), Positions(5))[0]
    assert first.argmax() == 0
    assert last.argmax() == 4


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("inp==out", lambda i, o: i == o),
        ("out==inp+1", lambda i, o: o == i + 1),
        ("out==EOS", lambda i, o: o == 4),
        ("uniform selection", lambda i, o: False),
    ],
)
def test_projects_have_names_of_their_own(text, condition):
    op = PrimitiveTensor(*known(parse_primitive(text, "project")), scale=2.0)
    expected = [[2.0 * condition(i, o) for o in range(6)] for i in range(6)]
    np.testing.assert_allclose(build(op, None, TOKENS, TOKENS), expected)
    assert print_primitive(op, "project") == f"({text})*2"


@pytest.mark.parametrize("text", ["k is first", "k==q-1", "(q-k)%3==0", "k==q"])
def test_projects_have_no_order_of_keys(text):
    assert parse_primitive(text, "project") is None


def test_special_op_replaces_the_rows_of_special_tokens():
    matrix = build(PrimitiveTensor("diagonal"), PrimitiveTensor("to_token", ("BOS",)), TOKENS, TOKENS)
    np.testing.assert_allclose(matrix[:2], 10_000 * np.eye(6)[:2])
    np.testing.assert_allclose(matrix[2:], 10_000 * np.eye(6)[[BOS] * 4])


def test_special_op_of_a_vector_replaces_the_entries_of_special_tokens():
    vector = build(PrimitiveTensor("zeros"), PrimitiveTensor("to_token", ("SEP",)), One(), TOKENS)
    np.testing.assert_allclose(vector, [[0, 0, 0, 10_000, 0, 0]])


def test_special_op_needs_special_tokens():
    with pytest.raises(NotApplicable, match="special_op= needs a variable in the token basis"):
        build(PrimitiveTensor("zeros"), PrimitiveTensor("zeros"), Positions(3), TOKENS)


PAPERS_FUNCTIONS = ("no_op", "sharpen", "harden", "balance_01", "is_pure", "keep", "cartesian")


def distributions(rows: int, columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows)
    return torch.rand(rows, columns, generator=generator, dtype=torch.float64).softmax(-1)


@pytest.mark.parametrize("name", [*PAPERS_FUNCTIONS, "compare", "maximum"])
def test_functions_are_the_same_in_numpy_and_torch(name):
    primitive = function_primitives()[name]
    inputs = [distributions(7, 4), distributions(7, 4 if name == "maximum" else 3)][: primitive.inputs]
    parameters = {"n": 0.5, "tau": 0.3, "i": 2.0}
    arguments = [parameters[parameter] for parameter in primitive.parameters]
    in_torch = primitive.function(torch, inputs, *arguments)
    in_numpy = primitive.function(np, [x.numpy() for x in inputs], *arguments)
    np.testing.assert_allclose(in_torch.numpy(), in_numpy, atol=1e-12)


def test_hardening_is_the_limit_of_sharpening():
    x = torch.rand(20, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64).mul(50).softmax(-1)
    sharp = function_primitives()["sharpen"].function(torch, [x], 100.0)
    torch.testing.assert_close(sharp, function_primitives()["harden"].function(torch, [x]).double())


def test_comparing_counts_does_not_depend_on_rounding():
    third = torch.tensor([1 / 3, 0.1 + 0.2 + 1 / 30, 0.2], dtype=torch.float32)
    assert function_primitives()["compare"].function(torch, [third]).tolist() == [0, 1, 1]


def test_functions_of_nothing_give_nothing_and_not_nan():
    zero = torch.zeros(2, 3)
    assert function_primitives()["sharpen"].function(torch, [zero], 2.0).tolist() == zero.tolist()
    assert function_primitives()["cartesian"].function(torch, [zero, zero]).abs().sum() == 0


@pytest.fixture
def own_primitives():
    """A user's additions, taken back after the test."""

    @tensor_primitive(select="k<q-{m:int}")
    def long_before(rows, columns, m):
        q, k = indices(rows, columns)
        return 1.0 * (k < q - m)

    @function_primitive(basis=same_basis)
    def halve(xp, inputs):
        return inputs[0] / 2

    yield
    del TENSORS["long_before"], FUNCTIONS["halve"]


@pytest.mark.usefixtures("own_primitives")
def test_a_users_primitives_are_read_printed_run_and_exported():
    text = """vocab = [x, y]
positions = 6
1. s1 = select(q=pos, k=pos, op=(k<q-1))
2. a1 = aggregate(s=s1, v=pos)
3. h1 = element_wise_op(a1, func=halve)
4. logits1 = project(inp=token, op=(inp==out))
5. prediction = softmax(logits1)"""
    program = parse(text)
    assert check(program) == []
    assert text.splitlines()[2:] == to_text(program).splitlines()[4:]
    trace = Interpreter(program).trace(torch.tensor([[0, 1, 0, 1]]), torch.arange(4)[None])
    assert trace["h1"][0].tolist() == [[0.5, 0, 0, 0, 0, 0], [0.25, 0.25, 0, 0, 0, 0], [0.5, 0, 0, 0, 0, 0]] + [
        [0.25, 0.25, 0, 0, 0, 0]
    ]
    assert "def halve(xp, inputs):" in to_python(program)


@pytest.mark.usefixtures("own_primitives")
def test_names_are_given_once():
    with pytest.raises(DraspError, match="halve exists already"):
        function_primitive(basis=same_basis)(FUNCTIONS["halve"].function)
    with pytest.raises(DraspError, match="long_before exists already"):
        tensor_primitive(select="k>{m:int}")(TENSORS["long_before"].matrix)


def test_a_function_without_the_right_arguments_is_refused():
    with pytest.raises(DraspError, match="expected the arguments xp, inputs"):
        function_primitive(basis=same_basis)(lambda x: x)
    with pytest.raises(DraspError, match="differ in parameters"):
        tensor_primitive(select="k<{m:int}")(lambda rows, columns: np.zeros((1, 1)))


def test_the_papers_libraries_are_complete():
    assert set(tensor_primitives()) >= {
        *("zeros", "diagonal", "kth_diagonal", "every_kth", "decreasing", "increasing", "to_token")
    }
    assert set(function_primitives()) >= set(PAPERS_FUNCTIONS)
