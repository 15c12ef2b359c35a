"""The residual stream of a program that is being written: a sum of variables, each times a matrix, plus a constant."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.sites import NO_COMPONENT, Component, Path, Sender, last_of

# None where nothing is added.
Constant: TypeAlias = Float[Tensor, " _"] | None


@dataclass(frozen=True)
class Term:
    """A variable and the matrix that takes it into a space; `path` is the way on which it came there.

    What is `unread` counts in the receiver's norm alone.
    """

    variable: str
    matrix: Float[Tensor, "dims d_model"]
    path: Sender = NO_COMPONENT
    unread: bool = False

    @property
    def senders(self) -> tuple[Component, ...]:
        """The component that wrote it there, if any did."""
        return () if self.path == NO_COMPONENT else (last_of(self.path),)

    @property
    def source(self) -> Sender:
        """The same way, but none where it does not begin at a component: constants stay constants behind heads."""
        match self.path:
            case Path(origin=origin) if origin == NO_COMPONENT:
                return NO_COMPONENT
            case path:
                return path


@dataclass(frozen=True)
class Stream:
    """x = Σ v·matrix + constant; no constant where nothing has written one. Ways may lead to the same variable."""

    terms: tuple[Term, ...] = ()
    constant: Float[Tensor, " d_model"] | None = None

    def with_one(self) -> tuple[Term, ...]:
        """The terms, with the constant as a multiple of the variable `one`."""
        return self.terms if self.constant is None else (*self.terms, Term("one", self.constant[None]))

    def times(self, factor: float) -> "Stream":
        terms = tuple(replace(term, matrix=factor * term.matrix) for term in self.terms)
        return Stream(terms, times(self.constant, factor))


def total(parts: Sequence[Stream]) -> Stream:
    """The sum of several streams, with all their terms."""
    return Stream(tuple(term for part in parts for term in part.terms), sum_of(*(part.constant for part in parts)))


def bias_of(tensor: Constant) -> Constant:
    """A bias in double precision; None where it adds nothing."""
    return tensor.double() if tensor is not None and bool(tensor.any()) else None


def sum_of(*constants: Constant) -> Constant:
    """The sum of those constants that are there; None where none is."""
    there = [constant for constant in constants if constant is not None]
    return torch.stack(there).sum(0) if there else None


def times(constant: Constant, by: float | Tensor) -> Constant:
    """A constant times a number or, entry by entry, a vector."""
    return None if constant is None else constant * by


def through_matrix(constant: Constant, matrix: Float[Tensor, "dims columns"]) -> Constant:
    """A constant, as a row, times a matrix."""
    return None if constant is None else constant @ matrix


def merged(terms: Iterable[Term]) -> list[tuple[str, Float[Tensor, "_ d_model"], tuple[Component, ...]]]:
    """Each variable once, with its matrix and the components that wrote it."""
    groups: dict[str, list[Term]] = {}
    for term in terms:
        groups.setdefault(term.variable, []).append(term)
    return [
        (variable, torch.stack([term.matrix for term in group]).sum(0), joined_senders(group))
        for variable, group in groups.items()
    ]


def joined_senders(terms: Iterable[Term]) -> tuple[Component, ...]:
    return tuple(dict.fromkeys(sender for term in terms for sender in term.senders))
