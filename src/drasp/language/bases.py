"""What the dimensions of an activation variable mean: each basis names its directions."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import TypeAlias

from drasp.vocabulary import Vocabulary


@dataclass(frozen=True)
class Tokens:
    vocabulary: Vocabulary


@dataclass(frozen=True)
class Positions:
    count: int


@dataclass(frozen=True)
class One:
    """The constant variable's single direction."""


@dataclass(frozen=True)
class Products:
    factors: "tuple[Basis, ...]"


@dataclass(frozen=True)
class Named:
    """Directions that a function of the library made and named."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Space:
    """A model's own space, whose directions mean nothing by themselves."""

    count: int


Basis: TypeAlias = Tokens | Positions | One | Products | Named | Space


def size(basis: Basis) -> int:
    match basis:
        case Tokens(vocabulary):
            return len(vocabulary)
        case Positions(count) | Space(count):
            return count
        case One():
            return 1
        case Products(factors):
            return prod(size(factor) for factor in factors)
        case Named(names):
            return len(names)


@lru_cache(maxsize=64)
def labels(basis: Basis) -> tuple[str, ...]:
    match basis:
        case Tokens(vocabulary):
            return vocabulary.tokens
        case Positions(count) | Space(count):
            return tuple(str(index) for index in range(count))
        case One():
            return ("1",)
        case Products(factors):
            return tuple("×".join(combination) for combination in product(*map(labels, factors)))
        case Named(names):
            return names


def describe(basis: Basis) -> str:
    """A basis in messages: `token (6)`, `pos (154)`, `token×token (36)`."""
    match basis:
        case One():
            return "one (1)"
        case _:
            return f"{_name(basis)} ({size(basis)})"


def _name(basis: Basis) -> str:
    match basis:
        case Tokens():
            return "token"
        case Positions():
            return "pos"
        case One():
            return "one"
        case Products(factors):
            return "×".join(map(_name, factors))
        case Named():
            return "named"
        case Space():
            return "space"
