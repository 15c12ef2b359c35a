"""What a project says, in words: from its tensor alone."""

import numpy as np
from jaxtyping import Float

from drasp.language.bases import Basis, One, Space, Tokens, labels
from drasp.vocabulary import Output
from drasp.words.labels import heard, levels, listed, ordinary, sayable

_STEP = 0.1  # of the range of a row, in softmax: what differs by less is said alike
_LITTLE = 0.03  # of the largest number: what is less hardly counts
_ROWS = 6  # kinds of rows that are told one by one
_LABELS = 40  # rows, of which no more than two kinds are told

Matrix = Float[np.ndarray, "rows tokens"]


def saying(tensor: Matrix, rows: Basis, columns: Tokens, source: str, mixed: bool, output: Output, alone: bool) -> str:
    """A project's tensor to what it says of `source`, which is what its input is called.

    `mixed`: the input holds shares of several labels. `alone`: there is no other project, so that signs are answers.
    """
    if isinstance(rows, Space):
        return f"turns {source} into scores of tokens, by numbers that have no name"
    said = sayable(columns)
    part = tensor[:, said]
    part = part - np.median(part, axis=1, keepdims=True) if output == "softmax" else part
    whole = float(np.abs(part[heard(rows)]).max(initial=0.0))
    if whole == 0:
        return "says nothing"
    names = [labels(columns)[i] for i in said]
    allows = output == "sigmoid" and alone and not mixed
    copies = output == "softmax" and labels(rows) == labels(columns)
    copied = _copied(tensor, rows, columns, source, mixed) if copies else None
    groups: dict[str, list[str]] = {}
    for i in heard(rows):
        if copied is not None and i in ordinary(rows):
            continue
        if words := _row(part[i], whole, names, output, allows):
            groups.setdefault(words, []).append(labels(rows)[i])
    if isinstance(rows, One):
        return next((f"always {words}" for words in groups), "says nothing")
    if len(groups) > _ROWS or (len(groups) > 2 and len(heard(rows)) > _LABELS):
        return f"speaks for tokens by a table of {source}"
    told = [f"{words}{_condition(where, source, mixed)}" for words, where in groups.items()]
    return "; ".join([*([copied] if copied else []), *told]) or "says nothing"


def _condition(where: list[str], source: str, mixed: bool) -> str:
    if mixed:
        return f", the more of {listed(where)} there is in {source}"
    return f" where {source} is {listed(where, 'or')}"


def _copied(tensor: Matrix, rows: Basis, columns: Tokens, source: str, mixed: bool) -> str | None:
    """The words where every ordinary token speaks for itself, or against itself."""
    own, said = ordinary(rows), sayable(columns)
    part = tensor[np.ix_(own, said)] - np.median(tensor[np.ix_(own, said)], axis=1, keepdims=True)
    diagonal = tensor[own, own] - np.median(tensor[np.ix_(own, said)], axis=1)
    mixture = f"what {source} holds most of" if mixed else source
    if (diagonal >= part.max(1)).all() and _alone(part, own, said):
        return f"says {mixture}"
    if (diagonal <= part.min(1)).all() and _alone(-part, own, said):
        return f"speaks against {mixture}"
    return None


def _alone(part: Matrix, own: list[int], said: list[int]) -> bool:
    """Whether in each row one token leads, and the others are far behind."""
    ranks = [levels(row, _STEP * float(np.ptp(row))) for row in part]
    return len(said) > 1 and all([said[i] for i in rank[0]] == [token] for rank, token in zip(ranks, own, strict=True))


def _row(row: Float[np.ndarray, " tokens"], whole: float, names: list[str], output: Output, allows: bool) -> str:
    """What one direction of the input says; empty where it hardly says anything."""
    if output == "softmax":
        if np.ptp(row) <= _LITTLE * whole:
            return ""
        step = _STEP * float(np.ptp(row))
        best, worst = levels(row, step)[0], levels(-row, step)[0]
        if len(best) > len(names) / 2:
            return f"speaks against {listed([names[i] for i in worst])}"
        return f"speaks for {listed([names[i] for i in best])}"
    up = [name for name, x in zip(names, row, strict=True) if x > _LITTLE * whole]
    down = [name for name, x in zip(names, row, strict=True) if x < -_LITTLE * whole]
    if allows:
        return f"allows {listed(up)}" if up else ""
    told = [f"for {listed(up)}"] * bool(up) + [f"against {listed(down)}"] * bool(down)
    return f"speaks {' and '.join(told)}" if told else ""
