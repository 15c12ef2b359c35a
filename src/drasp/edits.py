"""What can be done to a value on its way: the same three edits for the sites of a model and the variables of a program.

A value has the batch as its first axis. What an edit holds is a number or a tensor that is broadcast to the value;
`Scaled.by` is a number, or one number for each row of the batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Replaced:
    """Another value instead: a constant, or what was recorded in another run. The old one need not be computed."""

    by: float | Tensor


@dataclass(frozen=True, eq=False)
class Scaled:
    """`by` of the value, and `1 - by` of what is left where it is cut."""

    by: float | Float[Tensor, " batch"]
    ablation: float | Tensor = 0.0


@dataclass(frozen=True, eq=False)
class Shifted:
    """The value plus something."""

    by: float | Tensor


Edit: TypeAlias = Replaced | Scaled | Shifted

CUT = Replaced(0.0)


def edited(value: Tensor, edit: Edit | None) -> Tensor:
    """The value after an edit, of the same shape or broadcast to it."""
    match edit:
        case None:
            return value
        case Replaced(by):
            return value.new_tensor(by) if isinstance(by, float | int) else by
        case Scaled(by, ablation):
            share = by if isinstance(by, float | int) else by.view(-1, *[1] * (value.ndim - 1))
            return share * value + (1 - share) * ablation
        case Shifted(by):
            return value + by


def with_values(edit: Edit | None, change: Callable[[float | Tensor], float | Tensor]) -> Edit | None:
    """The edit with the values that it puts there changed, and shares of rows as they are."""
    match edit:
        case Replaced(by) | Shifted(by):
            return replace(edit, by=change(by))
        case Scaled(_, ablation):
            return replace(edit, ablation=change(ablation))
        case None:
            return None
