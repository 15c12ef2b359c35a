"""The scores of a head: how large they must be, and when they pick a single position.

A program's hard attention has scores of 10,000. A layer norm that is constant only to the sixth digit turns equal
scores of that size into unequal ones, and softmax needs no more than a gap of log(n/ε) to choose among n keys. So
scores are lowered, wherever attention stays the same: differences in a select between one-hot variables must stay
above the gap, and above what all lesser selects of the head can add up to if they were so before.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.compiler.positions import in_few_dimensions
from drasp.compiler.values import Values

LEAK = 1e-6
"""The share of attention that may go astray in a hard choice."""
EQUAL = 1e-9
"""Scores of a select whose difference is a smaller share of the largest are the same."""
WIDE = 64
"""A head may be so wide for the sake of the positions that it compares."""
MAX_DIFFERENCES = 200
"""So many different differences of selects are added up, one with another; more count as any number."""


@dataclass(frozen=True)
class ScoreTerm:
    """A part of a head's scores: query · tensor · key, as a line has it."""

    line: str
    query: str
    key: str
    tensor: Float[Tensor, "query_dims key_dims"]


def hard_gap(keys: int) -> float:
    """How far one score must be above all others for a hard choice among so many keys."""
    return math.log(keys / LEAK)


@dataclass(frozen=True)
class _Group:
    """Selects that are scaled together: the least and the greatest difference that they make between two keys.

    `differences` are all of them, where they are few; 0 for `gap` says that any number may be among them.
    """

    members: tuple[int, ...]
    gap: float
    reach: float
    differences: Float[Tensor, " n"] | None

    @classmethod
    def of(cls, members: tuple[int, ...], reach: float, differences: Float[Tensor, " n"] | None) -> "_Group":
        if differences is None or len(differences) > MAX_DIFFERENCES:
            return cls(members, 0.0, reach, None)
        apart = differences.abs()
        apart = apart[apart > EQUAL * reach]
        return cls(members, float(apart.min()) if len(apart) else math.inf, reach, differences)

    def joined(self, other: "_Group") -> "_Group":
        both = None
        if self.differences is not None and other.differences is not None:
            both = torch.unique((self.differences[:, None] + other.differences).flatten())
        return _Group.of((*self.members, *other.members), self.reach + other.reach, both)


def lowered(scores: Sequence[ScoreTerm], values: Mapping[str, Values], keys: int) -> tuple[ScoreTerm, ...]:
    """The scores of a head, as low as variables of such values allow without changing what it attends to."""
    wanted = hard_gap(keys)
    groups: list[_Group] = []
    for group in sorted((_group(i, score, values) for i, score in enumerate(scores)), key=lambda g: g.gap):
        # What does not outweigh all that is below it is scaled together with the uppermost of that.
        while groups and group.gap < sum(g.reach for g in groups) + wanted:
            group = groups.pop().joined(group)
        groups.append(group)
    new, below = list(scores), 0.0
    for group in groups:
        factor = min(1.0, (below + wanted) / group.gap) if group.gap >= wanted else 1.0
        for i in group.members:
            new[i] = replace(scores[i], tensor=factor * scores[i].tensor)
        if group is groups[-1] and factor < 1:
            _make_narrow(new, group, below + wanted)
        below += factor * group.reach
    return tuple(new)


def _make_narrow(scores: list[ScoreTerm], group: _Group, gap: float) -> None:
    """Positions are compared in few dimensions, where a select of them decides before all others."""
    match [scores[i] for i in group.members]:
        case [ScoreTerm(query="pos", key="pos", tensor=tensor) as score] if len(tensor) > WIDE:
            narrow = in_few_dimensions(tensor)
            if narrow is not None:
                scores[group.members[0]] = replace(score, tensor=gap * narrow)
        case _:
            pass


def _group(index: int, score: ScoreTerm, values: Mapping[str, Values]) -> _Group:
    """A select alone. Softmax sees only differences between the keys of a query."""
    known = min(values[score.query], values[score.key])
    if known < Values.SHARES:
        return _Group((index,), 0.0, math.inf, None)
    rows = torch.unique(score.tensor, dim=0).sort(1).values
    reach = float((rows[:, -1] - rows[:, 0]).max())
    if known < Values.ONE_HOT:
        return _Group((index,), 0.0, reach, None)
    steps = rows.diff(dim=1).flatten()
    steps = steps[steps > EQUAL * reach]
    few = list(map(torch.unique, rows))
    if max(map(len, few)) ** 2 <= MAX_DIFFERENCES:
        found = torch.unique(torch.cat([(row[:, None] - row).flatten() for row in few]))
        return _Group.of((index,), reach, found)
    return _Group((index,), float(steps.min()) if len(steps) else math.inf, reach, None)


def picks_one(scores: Sequence[ScoreTerm], n_positions: int) -> bool:
    """Whether a head attends to one position only, wherever its input begins; known where it compares positions."""
    if not scores or any(score.key != "pos" or score.query not in ("pos", "one") for score in scores):
        return False
    total = sum(score.tensor.expand(n_positions, -1) for score in scores)
    assert isinstance(total, Tensor)
    # Keys come in from the query backwards, as if the input began earlier and earlier.
    best, gap = torch.diagonal(total).clone(), torch.full((n_positions,), math.inf, dtype=total.dtype)
    for step in range(1, n_positions):
        new = torch.diagonal(total, -step)
        lead = best[step:] - new
        gap[step:] = torch.where(lead > 0, torch.minimum(gap[step:], lead), -lead)
        best[step:] = torch.maximum(best[step:], new)
        if bool((gap < hard_gap(n_positions) * (1 - 1e-6)).any()):  # but for rounding
            return False
    return True
