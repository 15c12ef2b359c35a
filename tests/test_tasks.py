"""Each task against a definition of its own, written here without automata or arrays."""

import itertools
import re
import time
from collections import Counter

import numpy as np
import pytest

from drasp.errors import DraspError
from drasp.tasks import EDITS, TASKS, Language, Task, answer_task, each_row, language_task
from drasp.tasks.automaton import Language as Automaton
from drasp.tasks.framed import language_of
from typed import known

N_POSITIONS = {
    **dict.fromkeys(["sort", "unique_copy", "unique_reverse", "unique_bigram_copy", "repeat_copy"], 303),
    **{"addition": 302, "count": 155, "bin_majority_interleave": 156},
    **dict.fromkeys(["majority", "bin_majority", "parity"], 154),
}
ALGORITHMIC = list(N_POSITIONS)
LANGUAGES = [name for name in TASKS if name not in ALGORITHMIC]


def runs(word: str) -> list[tuple[str, int]]:
    return [(symbol, len(list(group))) for symbol, group in itertools.groupby(word)]


def tomita3(word: str) -> bool:
    r = runs(word)
    return not any(
        r[i][0] == "1" and r[i][1] % 2 and r[i + 1][1] % 2 for i in range(1, len(r) - 2)
    )  # fmt: skip


def dyck(depth: int):
    def member(word: str) -> bool:
        open_now = 0
        for symbol in word:
            open_now += 1 if symbol == "a" else -1
            if not 0 <= open_now <= depth:
                return False
        return open_now == 0

    return member


MEMBER = {
    "tomita1": lambda w: "0" not in w,
    "tomita2": lambda w: w == "10" * (len(w) // 2),
    "tomita3": tomita3,
    "tomita4": lambda w: "000" not in w,
    "tomita5": lambda w: len(w) % 2 == 0 and w.count("1") % 2 == 0,
    "tomita6": lambda w: (w.count("0") - w.count("1")) % 3 == 0,
    "tomita7": lambda w: len(runs("0" + w + "1")) <= 4,
    "D2": dyck(2),
    "D3": dyck(3),
    "D4": dyck(4),
    "D12": dyck(12),
    "aastar": lambda w: len(w) % 2 == 0,
    "aaaastar": lambda w: len(w) % 4 == 0,
    "ababstar": lambda w: w == "abab" * (len(w) // 4),
    "abcde": lambda w: "".join(symbol for symbol, _ in runs(w)) == "abcde",
    "ab_d_bc": lambda w: w.count("d") == 1 and "c" not in w.split("d")[0] and "a" not in w.split("d")[1],
    "012_0_2": lambda w: "0" in w and set(w.split("0")[-1]) <= {"2"},
}
# The longest words that are checked, and the longest that are searched for ways on, by the alphabet's size.
REACH = {1: (10, 14), 2: (10, 13), 3: (9, 11), 4: (7, 8), 5: (7, 8)}


def texts(task, inputs) -> list[list[str]]:
    tokens = task.vocabulary.tokens
    return [
        [tokens[i] for i in row[:size]] for row, size in zip(inputs.ids.tolist(), inputs.sizes.tolist(), strict=True)
    ]


def test_all_28_tasks_are_there():
    assert set(LANGUAGES) == set(MEMBER)
    assert len(TASKS) == 28
    assert {t.vocabulary.tokens[-4:] for t in TASKS.values()} == {("BOS", "SEP", "EOS", "PAD")}


@pytest.mark.parametrize("name", LANGUAGES)
def test_language_equals_brute_force(name):
    task = TASKS[name]
    language, symbols = known(language_of(task)), task.vocabulary.tokens[:-4]
    longest, reach = REACH[len(symbols)]
    members = [
        w for n in range(reach + 1) for w in map("".join, itertools.product(symbols, repeat=n)) if MEMBER[name](w)
    ]
    prefixes = {w[:i] for w in members for i in range(len(w) + 1)}
    words = {w for w in members if len(w) <= longest}

    lengths = {len(w) for w in words if w}
    assert {n for n in range(1, longest + 1) if language.has_length(n)} == lengths
    drawn = {n for n in task.lengths if n <= longest}
    assert drawn == ({n for n in lengths if n % 2} if name == "tomita6" else lengths)

    ids, vocabulary = task.vocabulary.ids, len(task.vocabulary)
    for w in itertools.islice(sorted(words), 0, None, max(1, len(words) // 1500)):
        row = np.array([[ids["BOS"], *(ids[s] for s in w), ids["EOS"]]])
        counted = np.arange(row.shape[1])[None] <= len(w)
        allowed = language.allowed_after(row, counted)[0]
        for i in range(len(w) + 1):
            expected = np.zeros(vocabulary, bool)
            expected[[ids[s] for s in symbols if w[:i] + s in prefixes]] = True
            expected[ids["EOS"]] = w[:i] in words
            assert (allowed[i] == expected).all(), (w, i)
        assert not allowed[len(w) + 1].any()
    for w in itertools.islice(map("".join, itertools.product(symbols, repeat=min(longest, 6))), 4096):
        assert language.accepts([ids[s] for s in w]) == (w in words)


@pytest.mark.parametrize("name", LANGUAGES)
def test_drawn_words_are_members(name):
    task = TASKS[name]
    inputs = task.pool(500, np.random.default_rng(3))
    assert inputs.lengths.max() > 140
    for row, length in zip(texts(task, inputs), inputs.lengths.tolist(), strict=True):
        assert (row[0], row[-1], len(row)) == ("BOS", "EOS", length + 2)
        assert MEMBER[name]("".join(row[1:-1]))
    columns = np.arange(inputs.ids.shape[1])
    assert (inputs.counted.numpy() == (columns <= inputs.lengths.numpy()[:, None])).all()


def most(x: list[str]) -> str:
    (winner, count), *others = Counter(x).most_common()
    assert not others or others[0][1] < count
    return winner


ANSWER = {
    "bin_majority": lambda x: [most(x)],
    "bin_majority_interleave": lambda x: [*(most(x[i::3]) for i in range(3)), "EOS"],
    "majority": lambda x: [most(x)],
    "sort": lambda x: [*sorted(x, key=int), "EOS"],
    "count": lambda x: [*map(str, range(int(x[0]), int(x[1]) + 1)), "EOS"],
    "unique_copy": lambda x: [*x, "EOS"],
    "unique_bigram_copy": lambda x: [*x, "EOS"],
    "unique_reverse": lambda x: [*x[::-1], "EOS"],
    "repeat_copy": lambda x: [*x, "EOS"],
    "parity": lambda x: [str(x.count("1") % 2)],
    "addition": lambda x: [*f"{sum(int(n, 2) for n in ''.join(x).split('+')):b}", "EOS"],
}


@pytest.mark.parametrize("name", ALGORITHMIC)
def test_algorithmic_answers(name):
    task = TASKS[name]
    inputs = task.pool(400, np.random.default_rng(5))
    for i, row in enumerate(texts(task, inputs)):
        length, sep = int(inputs.lengths[i]), row.index("SEP")
        x, y = row[1:sep], row[sep + 1 :]
        assert row[0] == "BOS"
        assert y == ANSWER[name](x)
        assert (len(y) - 1 if name == "count" else len(x)) == length
        counted = inputs.counted[i].nonzero()[:, 0].tolist()
        assert counted == list(range(sep, len(row) - 1))
        assert [task.vocabulary.tokens[t] for t in known(inputs.targets)[i][counted].tolist()] == y
        if name in ("sort", "unique_copy", "unique_reverse"):
            assert len(set(x)) == len(x)
        if name == "unique_bigram_copy":
            assert len(set(itertools.pairwise(x))) == len(x) - 1
        if name == "addition":
            assert not any(re.fullmatch("0.+", n) for n in "".join(x).split("+"))


@pytest.mark.parametrize("name", TASKS)
def test_positions_use_all_the_room(name):
    task = TASKS[name]
    assert task.n_positions == N_POSITIONS.get(name, 152)
    inputs = task.pool(3000, np.random.default_rng(0), longest=task.lengths[2])
    room = (2 if task.n_positions == 303 else 1) * (150 - inputs.lengths)
    assert (inputs.offsets <= room).all()
    assert (inputs.offsets == room).any()
    assert (inputs.offsets == 0).any()
    assert inputs.positions.max() < task.n_positions
    assert (inputs.positions[:, 0] == inputs.offsets).all()
    at_zero = task.pool(10, np.random.default_rng(0), random_offsets=False)
    assert (at_zero.offsets == 0).all()


def drawn_words(name: str, length: int, count: int = 20000) -> np.ndarray:
    inputs = TASKS[name].inputs(np.full(count, length), np.random.default_rng(11))
    return inputs.ids[:, 1 : length + 1].numpy()


def shares(values: np.ndarray) -> dict[int, float]:
    return {int(v): n / len(values) for v, n in zip(*np.unique(values, return_counts=True), strict=True)}


@pytest.mark.parametrize(
    ("name", "length", "token", "possible"),
    [
        ("bin_majority", 9, 0, range(10)),
        ("bin_majority", 8, 0, [0, 1, 2, 3, 5, 6, 7, 8]),
        ("parity", 7, 1, range(8)),
        ("tomita5", 8, 0, [0, 2, 4, 6, 8]),
        ("tomita6", 9, 0, [0, 3, 6, 9]),
    ],
)
def test_counts_are_uniform(name, length, token, possible):
    words = drawn_words(name, length)
    found = shares((words == token).sum(1))
    assert set(found) == set(possible)
    assert all(abs(share - 1 / len(found)) < 0.015 for share in found.values())
    # Shuffled: every place is as likely as another.
    places = (words == token).mean(0)
    assert abs(places - places.mean()).max() < 0.02


def test_places_are_uniform():
    d = shares((drawn_words("ab_d_bc", 5) == 3).argmax(1))
    last_zero = shares(4 - (drawn_words("012_0_2", 5)[:, ::-1] == 0).argmax(1))
    for found in (d, last_zero):
        assert set(found) == set(range(5))
        assert all(abs(share - 0.2) < 0.015 for share in found.values())


def test_tomita4_is_a_fair_coin_with_a_third_zero_refused():
    words = drawn_words("tomita4", 3)
    found = Counter("".join(map(str, w)) for w in words.tolist())
    expected = {f"{i:03b}": 0.125 for i in range(1, 8)} | {"001": 0.25}
    assert all(abs(found[w] / len(words) - p) < 0.015 for w, p in expected.items())
    assert found["000"] == 0


def test_uniform_words_are_uniform():
    language = Automaton("ab", "(a|ba)*b?")
    words = language.uniform_words(np.random.default_rng(0), np.full(20000, 4))
    found = Counter("".join(map(str, w)) for w in words.tolist())
    assert len(found) == 8
    assert all(abs(n / 20000 - 1 / 8) < 0.015 for n in found.values())


@pytest.mark.parametrize("name", ["unique_bigram_copy", "sort", "majority", "D12"])
def test_a_large_pool_is_drawn_in_seconds(name):
    start = time.process_time()
    inputs = TASKS[name].pool(20_000, np.random.default_rng(0))
    assert len(inputs) == 20_000
    assert time.process_time() - start < 10


def test_batches_hold_every_row_once():
    inputs = TASKS["majority"].pool(500, np.random.default_rng(0))
    seen = []
    for rows, batch in inputs.batches(tokens=2000):
        assert batch.ids.numel() <= 2000
        assert (inputs.ids[rows, : batch.ids.shape[1]] == batch.ids).all()
        assert batch.ids.shape[1] == batch.sizes.max()
        seen += rows.tolist()
    assert sorted(seen) == list(range(500))


def test_lengths_that_do_not_exist():
    with pytest.raises(DraspError, match="ababstar: no inputs of lengths 5 to 7; the nearest length is (4|8)"):
        TASKS["ababstar"].pool(10, np.random.default_rng(0), 5, 7)
    with pytest.raises(DraspError, match="tomita2: no inputs of length 3"):
        TASKS["tomita2"].inputs(np.array([2, 3]), np.random.default_rng(0))
    with pytest.raises(DraspError, match="no length from 1 to 150 exists"):
        language_task("empty", Language("a", "()"))


def test_an_own_task_that_is_wrong_says_so():
    rng = np.random.default_rng(0)
    with pytest.raises(DraspError, match="its answer gave token id 7, expected 0 to 1"):
        answer_task("t", "ab", each_row(lambda x: [7])).pool(5, rng)
    with pytest.raises(DraspError, match=r"its answer failed in test_tasks.py, line \d+: ZeroDivisionError"):
        answer_task("t", "ab", each_row(lambda x: [1 // 0])).pool(5, rng)
    with pytest.raises(DraspError, match="its draw should give whole numbers"):
        answer_task("t", "ab", each_row(lambda x: x), draw=lambda rng, n: n).pool(5, rng)
    with pytest.raises(DraspError, match="does not fit its 154 positions; give the longest answer"):
        answer_task("t", "ab", lambda x: x).pool(50, rng)
    with pytest.raises(DraspError, match="expression '\\(a' over a, b"):
        Language("ab", "(a")


# ------------------------------------------------------------------------------------------------ edited inputs

DISTINCT = ("sort", "unique_copy", "unique_reverse")


def x_and_y(task, inputs, row: int) -> tuple[list[str], list[str]]:
    names = [task.vocabulary.tokens[i] for i in inputs.ids[row, : int(inputs.sizes[row])].tolist()]
    end = names.index("SEP") if "SEP" in names else names.index("EOS")
    return names[1:end], [name for name in names[end + 1 :] if name not in ("EOS", "PAD")]


@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("name", TASKS)
def test_edits_change_the_tokens_of_x_alone_and_y_follows(name, kind):
    task = TASKS[name]
    inputs = task.pool(60, np.random.default_rng(0), longest=60)
    edited = task.edited(inputs, kind, np.random.default_rng(1))
    assert edited.offsets.tolist() == inputs.offsets.tolist()
    changed = 0
    for row in range(len(inputs)):
        (x, _), (new, y) = x_and_y(task, inputs, row), x_and_y(task, edited, row)
        assert len(x) == len(new)
        different = sum(a != b for a, b in zip(x, new, strict=True))
        changed += different > 0
        if kind == "one token":
            assert different <= 1
        if kind == "two swapped":
            assert different in (0, 2)
            assert Counter(x) == Counter(new)
        if name in DISTINCT:
            assert len(set(new)) == len(new)
        if name == "unique_bigram_copy":
            assert len(set(itertools.pairwise(new))) == len(new) - 1
        if name == "addition":
            first, second = "".join(new).split("+")
            assert "0" not in (first[0], second[0]) or "1" in (first, second) or "0" in (first, second)
            assert int("".join(y), 2) == int(first, 2) + int(second, 2)
        if name == "count":
            assert list(map(int, y)) == list(range(int(new[0]), int(new[1]) + 1))
        if name == "sort":
            assert list(map(int, y)) == sorted(map(int, new))
        if name in ("unique_copy", "repeat_copy", "unique_bigram_copy"):
            assert y == new
        if name == "parity":
            assert y == [str(new.count("1") % 2)]
    one_letter = name in ("aastar", "aaaastar") or (name == "tomita1" and kind == "two swapped")
    assert (changed == 0) == (one_letter or (name == "count" and kind != "all tokens"))


def test_an_answer_that_cannot_be_computed_stays():
    def answer(x: list[int]) -> list[int]:
        return [["ab", "ba"].index("".join("ab"[i] for i in x[:2]))]

    def draw(rng, lengths):
        return np.stack([np.array([0, 1])[:: rng.choice([-1, 1])] for _ in lengths])

    task = answer_task("pair", "ab", each_row(answer), draw=draw, lengths=[2])
    inputs = task.pool(20, np.random.default_rng(0))
    edited = task.edited(inputs, "one token", np.random.default_rng(0))
    for row in range(len(inputs)):
        (x, y), (new, after) = x_and_y(task, inputs, row), x_and_y(task, edited, row)
        assert x != new
        assert y == after


@pytest.mark.parametrize(
    "task",
    [
        answer_task("short", "ab", lambda x: x[:, :1], lengths=range(2, 6), longest_input=9, room=9, ends=False),
        language_task("short", Language("ab", "(a|b)*"), lengths=range(2, 6), room=9),
    ],
)
def test_a_task_with_little_room_has_few_positions_and_uses_them_all(task: Task):
    inputs = task.pool(500, np.random.default_rng(0))
    assert int((inputs.offsets + inputs.lengths).max()) == 9
    assert int(inputs.offsets.min()) == 0
    assert int(inputs.positions.max()) < task.n_positions < 15
