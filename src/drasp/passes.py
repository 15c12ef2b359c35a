"""A pass: one step of a pipeline, as a value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

State = TypeVar("State")
Context = TypeVar("Context")

Unit: TypeAlias = Literal["edges", "lines"]


@dataclass(frozen=True)
class Pass(Generic[State, Context]):
    """A step from one state to the next, by what its context knows; it takes away, or says shorter, what `unit` says.

    An exact one changes no logit of any input, and is tested for that. What another does its context has to accept.
    """

    name: str
    unit: Unit
    run: Callable[[State, Context], State]
    exact: bool = False
