"""Eight tasks as a stranger would write them: positions from 0, and special tokens only where a task needs one.

`drasp decompile MODEL --task bench/own_tasks.py:two_back --out result` takes any of them.
"""

import itertools

from drasp.tasks import sequence_task

# ------------------------------------------------------------------------------------------ letters


def _two_back(rng, count):
    for _ in range(count):
        tokens = rng.integers(0, 6, rng.integers(3, 21)).tolist()
        yield tokens, range(2, len(tokens)), tokens[:-2]


two_back = sequence_task("two_back", list("abcdef"), _two_back, about="the token two before")


def _histogram(rng, count):
    for _ in range(count):
        tokens = rng.integers(0, 3, rng.integers(1, 11)).tolist()
        yield tokens, None, [str(tokens[: i + 1].count(token) % 3) for i, token in enumerate(tokens)]


histogram_mod_3 = sequence_task(
    "histogram_mod_3",
    list("abc012"),
    _histogram,
    special=list("012"),
    about="how often the token has come so far, modulo 3",
)


def _first_unique(rng, count):
    for _ in range(count):
        tokens = rng.integers(0, 5, rng.integers(2, 9)).tolist()
        once = [[t for t in tokens[: i + 1] if tokens[: i + 1].count(t) == 1] for i in range(len(tokens))]
        places = [i for i, found in enumerate(once) if found]
        yield tokens, places, [once[i][0] for i in places]


first_unique = sequence_task(
    "first_unique", list("abcde"), _first_unique, about="the first letter that has come only once so far"
)

# ------------------------------------------------------------------------------------------ flip-flop


def _flip_flop(rng, count):
    """`w` and a bit is a write, `i` and a bit is to be ignored, at `r` the latest bit written is to be said."""
    for _ in range(count):
        tokens, said, bit = [], {}, "0"
        for instruction in ["w", *rng.choice(list("wir"), rng.integers(2, 10), p=[0.2, 0.4, 0.4]), "r"]:
            if instruction == "r":
                said[len(tokens)] = bit
                tokens.append("r")
                continue
            drawn = str(rng.integers(2))
            bit = drawn if instruction == "w" else bit
            tokens += [instruction, drawn]
        yield tokens, list(said), list(said.values())


def _another_bit(rng, tokens):
    place = rng.choice([i for i, token in enumerate(tokens) if token < 2])
    return [1 - token if i == place else token for i, token in enumerate(tokens)]


flip_flop = sequence_task(
    "flip_flop", list("01wir"), _flip_flop, edit=_another_bit, about="at r, the latest bit after a w"
)

# ------------------------------------------------------------------------------------------ arithmetic

MODULUS = 13

modular_addition = sequence_task(
    "modular_addition",
    [str(n) for n in range(MODULUS)],
    every=[((a, b), [1], [(a + b) % MODULUS]) for a, b in itertools.product(range(MODULUS), repeat=2)],
    about=f"the sum of two numbers modulo {MODULUS}",
)


def _running_sum(rng, count):
    for _ in range(count):
        share, size = rng.random(), rng.integers(1, 21)
        tokens = (rng.random(size) < share).astype(int)
        sums = (1 - 2 * tokens).cumsum()
        places = [i for i, total in enumerate(sums) if total] or [0]
        yield tokens, places, ["+" if sums[i] > 0 else "-" for i in places]


running_sign = sequence_task(
    "running_sign", ["+", "-"], _running_sum, about="the sign of the sum so far, where it is not 0"
)

# ------------------------------------------------------------------------------------------ brackets

_PAIRS = {"(": ")", "[": "]"}
_DEPTH = 3


def _dyck(rng, count):
    """Beginnings of words of two kinds of brackets, at most three open; what may come next is to be said."""
    for _ in range(count):
        tokens, open_now, sets = [], [], []
        for _ in range(rng.integers(2, 21)):
            closing = [_PAIRS[open_now[-1]]] if open_now else []
            opening = list(_PAIRS) if len(open_now) < _DEPTH else []
            opens = not closing or (opening and rng.random() < 0.5)
            token = str(rng.choice(opening)) if opens else closing[0]
            open_now = [*open_now, token] if opens else open_now[:-1]
            tokens.append(token)
            sets.append((list(_PAIRS) if len(open_now) < _DEPTH else []) + ([_PAIRS[open_now[-1]]] if open_now else []))
        yield tokens, None, sets


def _another_kind(rng, tokens):
    """A bracket of the other kind, with the one that closes it: ids are ( ) [ ]."""
    place = rng.choice([i for i, token in enumerate(tokens) if token in (0, 2)])
    depth, changed = 0, list(tokens)
    for i in range(place, len(tokens)):
        depth += 1 if tokens[i] in (0, 2) else -1
        if i == place or depth == 0:
            changed[i] = (tokens[i] + 2) % 4
        if depth == 0:
            break
    return changed


dyck_2_3 = sequence_task(
    "dyck_2_3",
    list("()[]"),
    _dyck,
    output="sigmoid",
    edit=_another_kind,
    about="two kinds of brackets, at most three open: what may come next",
)

# ------------------------------------------------------------------------------------------ sorting

_NUMBERS, _SORT = 16, 16


def _sorted_after(x):
    return [*x, _SORT, *sorted(x)]


def _sorting(rng, count):
    for _ in range(count):
        x = rng.choice(_NUMBERS, rng.integers(3, 9), replace=False).tolist()
        tokens = _sorted_after(x)
        yield tokens[:-1], range(len(x), len(tokens) - 1), sorted(x)


def _another_number(rng, tokens):
    x = tokens[: tokens.index(_SORT)]
    other = rng.choice([n for n in range(_NUMBERS) if n not in x])
    place = rng.integers(len(x))
    return _sorted_after([int(other) if i == place else n for i, n in enumerate(x)])[:-1]


sorting = sequence_task(
    "sorting",
    [*map(str, range(_NUMBERS)), "="],
    _sorting,
    special=["="],
    edit=_another_number,
    about="after =, the distinct numbers before it in ascending order",
)
