"""The directions of a variable that words speak of, and lists of them."""

from collections.abc import Sequence

import numpy as np

from drasp.language.bases import Basis, Products, Tokens, labels

_ENDS = ("EOS", "PAD")  # nothing is asked behind these
_NEVER_SAID = ("BOS", "SEP", "PAD")
_NAMED = 6  # labels of a list that are named


def heard(basis: Basis) -> list[int]:
    """The directions that can be met where answers count: not those of the end, which nothing follows."""
    return [i for i, parts in enumerate(_parts(basis)) if not any(_is(basis, part, _ENDS) for part in parts)]


def ordinary(basis: Basis) -> list[int]:
    """The directions without a special token."""
    return [i for i, parts in enumerate(_parts(basis)) if not any(_is_special(basis, part) for part in parts)]


def sayable(basis: Tokens) -> list[int]:
    """The tokens that an answer can be."""
    return [i for i, token in enumerate(basis.vocabulary.tokens) if not _is(basis, token, _NEVER_SAID)]


def _parts(basis: Basis) -> list[tuple[str, ...]]:
    match basis:
        case Products(factors):
            return [tuple(label.split("×")) if len(factors) > 1 else (label,) for label in labels(basis)]
        case _:
            return [(label,) for label in labels(basis)]


def _is(basis: Basis, label: str, names: Sequence[str]) -> bool:
    return label in names and _is_special(basis, label)


def _is_special(basis: Basis, label: str) -> bool:
    match basis:
        case Tokens(vocabulary):
            return label in vocabulary.special
        case Products(factors):
            return any(_is_special(factor, label) for factor in factors)
        case _:
            return False


def listed(names: Sequence[str], last: str = "and") -> str:
    """`a, b and c`; of many names, the first."""
    if len(names) > _NAMED:
        return f"{', '.join(names[: _NAMED - 1])} {last} {len(names) - _NAMED + 1} others"
    return f" {last} ".join([*([", ".join(names[:-1])] if names[1:] else []), *names[-1:]])


def levels(values: np.ndarray, step: float) -> list[list[int]]:
    """Places in falling order of their values; those that are less than a step below the first of them are together."""
    order = np.argsort(-values, kind="stable")
    found: list[list[int]] = []
    for i in order.tolist():
        if found and values[found[-1][0]] - values[i] <= step:
            found[-1].append(i)
        else:
            found.append([i])
    return [sorted(level) for level in found]
