"""Reads the inputs of a user's task: each `(tokens, counted)` or `(tokens, counted, targets)`, checked one by one."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from drasp.errors import DraspError
from drasp.tasks.task import Rows, shown
from drasp.vocabulary import Output, Vocabulary

_LONGEST = 60  # letters of a value in a message


def read_inputs(inputs: Sequence[Any], vocabulary: Vocabulary, output: Output, origin: str) -> Rows:
    """The inputs side by side; the first that is wrong is named, with what is wrong with it."""
    tokens: list[list[int]] = []
    counted: list[list[int]] = []
    targets: list[list[Any] | None] = []
    for number, each in enumerate(inputs):
        ids, places, wanted = _parts(each, f"input {number} of {origin}")
        tokens.append(read_tokens(ids, vocabulary, f"input {number} of {origin}"))
        name = f"input {number} of {origin} ({shown(vocabulary, tokens[-1])})"
        counted.append(_positions(places, len(tokens[-1]), name))
        targets.append(None if wanted is None else _targets(wanted, len(counted[-1]), vocabulary, output, name))
        if (targets[0] is None) != (wanted is None):
            other = "has targets, and input 0 has none" if wanted is not None else "has no targets, and input 0 has"
            raise DraspError(f"{name}: {other}; expected targets for all inputs or for none")
    return _side_by_side(tokens, counted, targets, vocabulary, output)


def _parts(each: Any, name: str) -> tuple[Any, Any, Any]:
    if not isinstance(each, tuple | list) or len(each) not in (2, 3):
        found = f"{len(each)} values" if isinstance(each, tuple | list) else f"{_kind(each)}{_short(each)}"
        raise DraspError(f"{name}: expected (tokens, counted) or (tokens, counted, targets), found {found}")
    tokens, counted, *targets = each
    if isinstance(tokens, int | np.integer):
        raise DraspError(
            f"{name}: its tokens: expected a list, found {_kind(tokens)}{tokens}; "
            "an input is (tokens, counted) or (tokens, counted, targets)"
        )
    return tokens, counted, targets[0] if targets else None


def read_tokens(tokens: Any, vocabulary: Vocabulary, name: str) -> list[int]:
    """Ids of an input that is given by ids or names."""
    found = [
        _id(token, vocabulary, lambda place=place: f"{name}: token {place}")
        for place, token in enumerate(_list(tokens, f"{name}: its tokens"))
    ]
    if not found:
        raise DraspError(f"{name}: has no tokens")
    return found


def _positions(places: Any, size: int, name: str) -> list[int]:
    if places is None:
        return list(range(size))
    found = [
        _whole(place, lambda: f"{name}: a position that counts", "a whole number")
        for place in _list(places, f"{name}: the positions that count")
    ]
    for place in found:
        if not 0 <= place < size:
            raise DraspError(f"{name}: position {place} counts, but its positions are 0 to {size - 1}")
    if len(set(found)) < len(found):
        twice = next(place for place in found if found.count(place) > 1)
        raise DraspError(f"{name}: position {twice} is named twice among those that count")
    if not found:
        raise DraspError(f"{name}: no position counts; leave such inputs out, or give None for all positions")
    return found


def _targets(wanted: Any, places: int, vocabulary: Vocabulary, output: Output, name: str) -> list[Any]:
    wanted = _list(wanted, f"{name}: its targets")
    if len(wanted) != places:
        raise DraspError(f"{name}: targets: {len(wanted)}, positions that count: {places}; expected as many of both")
    where = f"{name}: a target"
    if output == "softmax":
        return [_id(target, vocabulary, lambda: where) for target in wanted]
    # What may come next at a position is as well a set.
    listed = (sorted(each, key=str) if isinstance(each, Set) else _list(each, where) for each in wanted)
    return [[_id(target, vocabulary, lambda: where) for target in each] for each in listed]


def _list(values: Any, name: str) -> list[Any]:
    """A sequence of any kind, arrays and tensors among them, as a list; a set or a dictionary has no order."""
    try:
        if isinstance(values, Set | Mapping):
            raise TypeError
        return list(values.tolist() if hasattr(values, "tolist") else values)
    except TypeError:
        raise DraspError(f"{name}: expected a list, found {_kind(values)}{_short(values)}") from None


def _id(token: Any, vocabulary: Vocabulary, name: Callable[[], str]) -> int:
    if isinstance(token, str):
        if token not in vocabulary.ids:
            raise DraspError(f"{name()} is {token!r}, which is not in the vocabulary ({_names(vocabulary)})")
        return vocabulary.ids[token]
    found = _whole(token, name, "an id or a name")
    if not 0 <= found < len(vocabulary):
        raise DraspError(f"{name()} is id {found}, expected 0 to {len(vocabulary) - 1}")
    return found


def _whole(value: Any, name: Callable[[], str], expected: str) -> int:
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise DraspError(f"{name()} is {_kind(value)}{_short(value)}, expected {expected}")
    return int(value)


def _kind(value: Any) -> str:
    """What stands before a value in a message; None says itself what it is."""
    return "" if value is None else f"the {type(value).__name__} "


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _names(vocabulary: Vocabulary) -> str:
    return shown(vocabulary, range(len(vocabulary)))


def _side_by_side(
    tokens: list[list[int]],
    counted: list[list[int]],
    targets: list[list[Any] | None],
    vocabulary: Vocabulary,
    output: Output,
) -> Rows:
    sizes = np.array([len(row) for row in tokens], int)
    ids = np.full((len(tokens), int(sizes.max(initial=0))), vocabulary.padding)
    counts = np.zeros(ids.shape, bool)
    wanted = None
    if targets and targets[0] is not None:
        wanted = np.zeros(ids.shape, int) if output == "softmax" else np.zeros((*ids.shape, len(vocabulary)), bool)
    for row, (its_tokens, places, said) in enumerate(zip(tokens, counted, targets, strict=True)):
        ids[row, : len(its_tokens)] = its_tokens
        counts[row, places] = True
        if wanted is None or said is None:
            continue
        if output == "softmax":
            wanted[row, places] = said
        else:
            for place, possible in zip(places, said, strict=True):
                wanted[row, place, possible] = True
    return Rows(ids, sizes, sizes, counts, wanted)
