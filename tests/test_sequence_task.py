"""Tasks of any form: what they draw, measure and edit, and what they say of inputs that are wrong."""

import itertools
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drasp.errors import DraspError
from drasp.measure import Share, task_accuracy
from drasp.tasks import EDITS, bin_name, sequence_task
from typed import known

TOKENS = ["a", "b", "w", "?"]


def two_back(rng, count):
    """Letters; at every position but the first two, the token two before."""
    for _ in range(count):
        tokens = rng.integers(0, 4, rng.integers(3, 10)).tolist()
        yield tokens, range(2, len(tokens)), tokens[:-2]


def mine(draw=two_back, **options):
    return sequence_task("mine", TOKENS, draw, **options)


def test_positions_begin_at_0_and_lengths_are_what_is_drawn():
    task = mine()
    inputs = task.pool(300, np.random.default_rng(0))
    assert (task.lengths, task.n_positions) == (tuple(range(3, 10)), 9)
    assert not inputs.offsets.any()
    assert int(inputs.positions.max()) == 8
    for row in range(300):
        size = int(inputs.sizes[row])
        assert inputs.counted[row].nonzero()[:, 0].tolist() == list(range(2, size))
        assert known(inputs.targets)[row, 2:size].tolist() == inputs.ids[row, : size - 2].tolist()
    assert not inputs.every


def test_names_serve_as_ids_and_none_counts_everywhere():
    task = mine(lambda rng, n: [("ab?", None, ["a", 1, np.int64(3)]), (np.array([2, 1]), (1,), [2])] * (n // 2))
    inputs = task.pool(2, np.random.default_rng(0))
    assert inputs.ids.tolist() == [[0, 1, 3], [2, 1, 0]]
    assert inputs.counted.tolist() == [[True] * 3, [False, True, False]]
    assert known(inputs.targets).tolist() == [[0, 1, 3], [0, 2, 0]]


def test_a_sigmoid_task_has_sets_for_targets():
    task = mine(lambda rng, n: [("ab", [0, 1], [{"a", 1}, []])] * n, output="sigmoid")
    assert known(task.pool(1, np.random.default_rng(0)).targets)[0].int().tolist() == [[1, 1, 0, 0], [0, 0, 0, 0]]


def test_bins_are_terciles_of_what_is_drawn_or_given():
    def draw(rng, count):
        return [([0] * n, None) for n in np.resize([2, 3, 8, 30, 31, 90], count)]

    assert mine(draw).bins == ((2, 3), (8, 30), (31, 90))
    assert mine(draw, bins=[(1, 50), (51, 100)]).bins == ((1, 50), (51, 100))
    one = mine(lambda rng, n: [("ab", None)] * n)
    assert one.bins == ((2, 2),)
    assert [bin_name(*each) for each in (*one.bins, (3, 5))] == ["2", "3-5"]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_every_length_is_in_one_bin(sizes):
    listed = [([number] * n, None) for number, n in enumerate(sizes)]
    task = sequence_task("mine", [str(number) for number in range(30)], every=listed)
    assert all(sum(low <= n <= high for low, high in task.bins) == 1 for n in sizes)
    assert len(task.bins) <= 3


def test_offsets_where_asked_for():
    task = mine(offsets=range(5, 8))
    inputs = task.pool(200, np.random.default_rng(0))
    assert set(inputs.offsets.tolist()) == {5, 6, 7}
    assert task.n_positions == 9 + 7
    assert not task.pool(20, np.random.default_rng(0), random_offsets=False).offsets.any()


def test_lengths_in_a_range_and_of_each_length():
    task, rng = mine(), np.random.default_rng(0)
    assert set(task.pool(100, rng, 4, 5).lengths.tolist()) == {4, 5}
    wanted = np.array([9, 3, 3, 9, 7])
    assert task.inputs(wanted, rng).lengths.tolist() == wanted.tolist()
    with pytest.raises(DraspError, match="task mine: no inputs of lengths 20 to 30; the nearest length is 9"):
        task.pool(5, rng, 20, 30)


def test_another_input_for_each_has_its_length_and_its_positions():
    def draw(rng, count):
        for _ in range(count):
            size = int(rng.integers(2, 6))
            yield rng.integers(0, 4, size), sorted(rng.choice(size, 2, replace=False).tolist())

    task, rng = mine(draw), np.random.default_rng(0)
    inputs = task.pool(100, rng)
    others = task.like(inputs, rng)
    assert torch.equal(inputs.sizes, others.sizes)
    assert torch.equal(inputs.counted, others.counted)
    assert (inputs.ids != others.ids).any(1).float().mean() > 0.9


# ------------------------------------------------------------------------------------------------ all inputs


def sums(modulus: int):
    return [([a, b, modulus], [2], [(a + b) % modulus]) for a in range(modulus) for b in range(modulus)]


def test_listed_inputs_are_measured_all_of_them():
    task = sequence_task("sums", [*map(str, range(5)), "="], every=sums(5), special=["="])
    inputs = task.measured(2000, np.random.default_rng(0))
    assert len(inputs) == 25
    assert inputs.every
    assert len({tuple(row) for row in inputs.ids.tolist()}) == 25

    def right(ids, positions):
        return torch.nn.functional.one_hot((ids[:, :1] + ids[:, 1:2]) % 5, 6).float().expand(-1, 3, -1)

    share = task_accuracy(right, inputs, "softmax")
    assert share == Share(25, 25, every=True)
    assert share.interval is None
    assert str(share) == "1.000 of all 25"


def test_of_listed_inputs_none_comes_twice_before_all_have_come():
    task = sequence_task("sums", "01234=", every=sums(5))
    rows = [tuple(row) for row in task.pool(60, np.random.default_rng(0)).ids.tolist()]
    assert len(set(rows[:25])) == len(set(rows[25:50])) == 25


def test_the_same_tokens_with_other_positions_are_another_input():
    assert len(mine(None, every=[("ab", [0]), ("ab", [1])]).measured(5, np.random.default_rng(0))) == 2


def test_a_draw_beside_a_list_gives_no_other_inputs():
    listed = [([a, b], [1]) for a in range(2) for b in range(2)]
    some = mine(lambda rng, n: [listed[0]] * n, every=listed)
    assert some.pool(3, np.random.default_rng(0)).ids.tolist() == [[0, 0]] * 3
    others = mine(lambda rng, n: [("ab", [1])] * (n - 1) + [("aw", [1])], every=listed)
    expected = r"task mine: input 2 of its draw \(a w\) is not among those that every= lists"
    with pytest.raises(DraspError, match=expected):
        others.pool(3, np.random.default_rng(0))


def test_a_task_without_targets_says_nothing_of_right_and_wrong():
    task = mine(lambda rng, n: [("ab", None)] * n)
    inputs = task.pool(10, np.random.default_rng(0))
    assert inputs.targets is None
    assert task_accuracy(lambda ids, positions: torch.zeros(*ids.shape, 4), inputs, "softmax") == Share(0, 0)


# ------------------------------------------------------------------------------------------------ edits


@pytest.mark.parametrize("kind", EDITS)
def test_edits_leave_special_tokens_alone(kind):
    task = sequence_task("mine", ["=", "a", "b", "c"], lambda rng, n: two_back(rng, n), special=["="])
    inputs = task.pool(200, np.random.default_rng(0))
    edited = task.edited(inputs, kind, np.random.default_rng(1))
    assert torch.equal(edited.counted, inputs.counted)
    assert torch.equal(edited.sizes, inputs.sizes)
    inside = torch.arange(inputs.ids.shape[1]) < inputs.sizes[:, None]
    assert torch.equal((edited.ids == 0) & inside, (inputs.ids == 0) & inside)
    changes = ((edited.ids != inputs.ids) & inside).sum(1)
    assert not ((edited.ids != inputs.ids) & ~inside).any()
    assert changes.any()
    assert int(changes.max()) <= {"one token": 1, "two swapped": 2}.get(kind, 9)


def test_an_edit_of_ones_own_keeps_inputs_in_kind():
    def draw(rng, count):
        return [(rng.permutation(4), None) for _ in range(count)]

    def rotated(rng, tokens):
        return tokens[1:] + tokens[:1]

    task = mine(draw, edit=rotated)
    inputs = task.pool(50, np.random.default_rng(0))
    once = task.edited(inputs, "one token", np.random.default_rng(0))
    assert torch.equal(once.ids, inputs.ids.roll(-1, 1))
    assert torch.equal(task.edited(inputs, "all tokens", np.random.default_rng(0)).ids, inputs.ids)  # four times
    assert torch.equal(task.edited(inputs, "two swapped", np.random.default_rng(0)).ids, inputs.ids)
    with pytest.raises(DraspError, match=r"task mine: what its edit made of . . . .: has 3 tokens of 4; an edit k"):
        mine(draw, edit=lambda rng, tokens: tokens[1:]).edited(inputs, "one token", np.random.default_rng(0))
    with pytest.raises(DraspError, match=r"task mine: its edit failed in test_sequence_task.py, line \d+: ZeroDiv"):
        mine(draw, edit=lambda rng, tokens: 1 // 0).edited(inputs, "one token", np.random.default_rng(0))


# ------------------------------------------------------------------------------------------------ fitted to a model


def test_spare_tokens_of_a_model_get_names():
    task = sequence_task("mine", ["a", "spare2"], lambda rng, n: [([0, 1], None, [[0], [1]])] * n, output="sigmoid")
    wide = task.fitted(5, 10)
    assert wide.vocabulary.tokens == ("a", "spare2", "spare2_", "spare3", "spare4")
    assert wide.vocabulary.special == ("spare2_", "spare3", "spare4")
    inputs = wide.pool(50, np.random.default_rng(0))
    assert known(inputs.targets).shape == (50, 2, 5)
    edited = [wide.edited(inputs, kind, np.random.default_rng(0)).ids for kind in EDITS]
    assert all(int(ids.max()) <= 1 for ids in edited)


def test_a_task_that_does_not_fit_says_why():
    with pytest.raises(DraspError, match=re.escape("task mine: has 4 tokens (a b w ?), but the model has 3")):
        mine().fitted(3, 100)
    with pytest.raises(DraspError, match=r"needs 109 positions \(its longest input \(.*\) has 9, and the off"):
        mine(offsets=range(101)).fitted(4, 32)
    drawn = itertools.chain([3] * 1000, itertools.repeat(7))  # the first thousand tell how long inputs are
    task = mine(lambda rng, n: [("abw?aab"[: next(drawn)], None) for _ in range(n)]).fitted(4, 5)
    expected = "task mine: an input of 7 tokens at offset 0 (a b w ? a a b) does not fit 5 positions; draw shorter ones"
    with pytest.raises(DraspError, match=re.escape(expected)):
        task.pool(5, np.random.default_rng(0))


# ------------------------------------------------------------------------------------------------ bad input

WRONG = {
    "empty": (([], None), "input 1 of its draw: has no tokens"),
    "nested": (([[0, 1], [2]], None), "input 1 of its draw: token 0 is the list [0, 1], expected an id or a name"),
    "an array of two dimensions": (
        (np.zeros((2, 2), int), None),
        "input 1 of its draw: token 0 is the list [0, 0], expected an id or a name",
    ),
    "out of range": (([0, 4], None), "input 1 of its draw: token 1 is id 4, expected 0 to 3"),
    "negative": (([-1], None), "input 1 of its draw: token 0 is id -1, expected 0 to 3"),
    "no such name": (("axb", None), "input 1 of its draw: token 1 is 'x', which is not in the vocabulary (a b w ?)"),
    "a float": (([0, 1.0], None), "input 1 of its draw: token 1 is the float 1.0, expected an id or a name"),
    "floats": ((np.zeros(2), None), "input 1 of its draw: token 0 is the float 0.0, expected an id or a name"),
    "a number": ((3, None), "input 1 of its draw: its tokens: expected a list, found the int 3"),
    "numbers alone": (
        [0, 1, 2],
        "input 1 of its draw: its tokens: expected a list, found the int 0; an input is (tokens, counted) or (tok",
    ),
    "tokens without order": (({"a", "b"}, None), "input 1 of its draw: its tokens: expected a list, found the set {"),
    "positions without order": (("ab", {1, 0}), "input 1 of its draw (a b): the positions that count: expected a list"),
    "targets by position": (
        ("ab", [0, 1], {0: "a", 1: "b"}),
        "input 1 of its draw (a b): its targets: expected a list, found the dict {0: 'a', 1: 'b'}",
    ),
    "a target that is missing": (
        ("ab", None, ["a", None]),
        "input 1 of its draw (a b): a target is None, expected an id or a name",
    ),
    "tokens alone": ([0, 1, 2, 3], "input 1 of its draw: expected (tokens, counted) or (tokens, counted, targets), "),
    "a text": ("abab", "input 1 of its draw: expected (tokens, counted) or (tokens, counted, targets), found the str"),
    "position outside": (("ab", [2]), "input 1 of its draw (a b): position 2 counts, but its positions are 0 to 1"),
    "position before": (("ab", [-1]), "input 1 of its draw (a b): position -1 counts, but its positions are 0 to 1"),
    "position twice": (("ab", [1, 1]), "input 1 of its draw (a b): position 1 is named twice among those that count"),
    "no position": (("ab", []), "input 1 of its draw (a b): no position counts; leave such inputs out"),
    "a mask": (("ab", [True, False]), "input 1 of its draw (a b): a position that counts is the bool True"),
    "a float position": (("ab", [1.0]), "input 1 of its draw (a b): a position that counts is the float 1.0"),
    "one position": (
        ("ab", 1),
        "input 1 of its draw (a b): the positions that count: expected a list, found",
    ),
    "too many targets": (
        ("ab", [1], ["a", "b"]),
        "input 1 of its draw (a b): targets: 2, positions that count: 1; expected",
    ),
    "too few targets": (
        ("ab", None, ["a"]),
        "input 1 of its draw (a b): targets: 1, positions that count: 2; expected",
    ),
    "target out of range": (("ab", [1], [9]), "input 1 of its draw (a b): a target is id 9, expected 0 to 3"),
    "a float target": (("ab", [1], [0.5]), "input 1 of its draw (a b): a target is the float 0.5, expected an id"),
    "no targets": (("ab", [1]), "input 1 of its draw (a b): has no targets, and input 0 has; expected targets for all"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_input_is_named_in_one_line(what):
    wrong, expected = WRONG[what]
    task = mine(lambda rng, n: [("ab", [1], ["a"]), wrong, *[("ab", [1], ["a"])] * (n - 2)])
    with pytest.raises(DraspError, match=re.escape(f"task mine: {expected}")) as caught:
        task.pool(10, np.random.default_rng(0))
    assert "\n" not in str(caught.value)


def test_a_set_of_targets_is_expected_for_sigmoid():
    task = mine(lambda rng, n: [("ab", [1], ["a", "b"][:1])] * (n - 1) + [("ab", [1], [3])], output="sigmoid")
    with pytest.raises(DraspError, match=r"task mine: input 999 of its draw \(a b\): a target: expected a list"):
        task.pool(10, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rng, n: [("ab", None)] * 3, "its draw gave 3, where 1000 inputs were asked for"),
        (lambda rng, n: 1 / 0, r"its draw failed in test_sequence_task.py, line \d+: ZeroDivisionError"),
        (lambda rng: [], r"its draw failed: TypeError\(.*takes 1 positional argument but 2 were given"),
        (lambda rng, n: None, "its draw gave None; expected 1000 inputs"),
        (lambda rng, n: itertools.repeat(("ab", None)), "its draw gave more than 1000, where 1000 inputs were"),
    ],
)
def test_a_draw_that_fails_is_named(draw, expected):
    with pytest.raises(DraspError, match=f"task mine: {expected}"):
        mine(draw).pool(10, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: mine(None), "task mine: says neither how inputs are drawn"),
        (lambda: mine(offsets=[-1]), r"task mine: offsets=\[-1\]; expected positions from 0 on"),
        (lambda: mine(None, every=sums(2), offsets=range(3)), "task mine: every= lists all inputs at positions from 0"),
        (lambda: mine(bins=[(5, 2)]), r"task mine: bins= holds \(5, 2\); expected \(shortest, longest\)"),
        (lambda: sequence_task("mine", ["a", "a"], two_back), "task mine: the vocabulary names token 'a' more than"),
        (lambda: sequence_task("mine", "ab", two_back, special=["c"]), "task mine: special token 'c' is not in"),
        (lambda: mine(None, every=[]).lengths, "task mine: every= lists no input"),
        (
            lambda: mine(None, every=[("ab", None), ("ba", None), ("ab", None)]).lengths,
            r"task mine: input 2 of every= \(a b\) is input 0 again; list each once",
        ),
    ],
)
def test_a_task_that_cannot_be_is_refused(make, expected):
    with pytest.raises(DraspError, match=expected):
        make()
