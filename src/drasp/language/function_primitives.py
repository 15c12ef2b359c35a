"""The library of functions that `element_wise_op(…, func=…)` can name, and the decorator that extends it.

A function is written once, in what NumPy and torch have in common: it gets the module (`xp`), the list of
inputs [..., dimensions], and its parameters. So the interpreter runs it in torch, and the stand-alone
`program.py` carries its source and runs it in NumPy.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from itertools import combinations, product
from typing import Any

from drasp.errors import DraspError
from drasp.language.bases import Basis, Named, Positions, Products, Tokens, describe, labels

# Arrays of NumPy or of torch: the functions below must not care which.
Array = Any


@dataclass(frozen=True)
class FunctionPrimitive:
    """`inputs` is how many variables it takes (None: any number); `basis` gives the result's directions.

    `tried` holds the parameters with which naming tries it.
    """

    name: str
    function: Callable[..., Array]
    inputs: int | None
    parameters: tuple[str, ...]
    basis: Callable[..., Basis]
    tried: tuple[tuple[float, ...], ...]


_REGISTRY: dict[str, FunctionPrimitive] = {}


def function_primitive(
    basis: Callable[..., Basis], *, inputs: int | None = 1, tried: Mapping[str, Sequence[float | int]] | None = None
) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Adds an element-wise function to the library, under the function's name.

    `basis` gets the list of the inputs' bases and the parameters, and gives the basis of the result; it
    may raise a `DraspError` where the function makes no sense. `tried` gives, for each parameter, the values
    that naming tries where it looks for a function that could stand for an MLP; by default 1, 2 and 3.

        @function_primitive(basis=same_basis)
        def square(xp, inputs):
            return inputs[0] ** 2
    """

    def add(function: Callable[..., Array]) -> Callable[..., Array]:
        name = function.__name__
        if name in _REGISTRY or name == "mlp":
            raise DraspError(f"element-wise function {name} exists already")
        parameters = list(signature(function).parameters.values())
        if len(parameters) < 2 or any(p.kind is not Parameter.POSITIONAL_OR_KEYWORD for p in parameters):
            raise DraspError(f"element-wise function {name}: expected the arguments xp, inputs, and parameters")
        names = tuple(p.name for p in parameters[2:])
        ranges = [(tried or {}).get(parameter, (1, 2, 3)) for parameter in names]
        values = tuple(product(*(tuple(map(float, numbers)) for numbers in ranges)))
        _REGISTRY[name] = FunctionPrimitive(name, function, inputs, names, basis, values)
        return function

    return add


def function_primitives() -> Mapping[str, FunctionPrimitive]:
    return _REGISTRY


def same_basis(bases: list[Basis], *_parameters: float) -> Basis:
    return bases[0]


def _with_none(bases: list[Basis], *_parameters: float) -> Basis:
    return Named((*labels(bases[0]), "none"))


def _balance_basis(bases: list[Basis], *_parameters: float) -> Basis:
    match bases[0]:
        case Tokens(vocabulary) if vocabulary.tokens[:2] == ("0", "1"):
            return Named(("1>0", "0>1", "0=1"))
        case _:
            raise DraspError("balance_01 compares tokens 0 and 1, which must be the first two of a token variable")


def _kept_basis(bases: list[Basis], i: float) -> Basis:
    if i not in range(1, len(bases) + 1):
        raise DraspError(f"keep takes the number of an input, 1 to {len(bases)}, found {i:g}")
    return bases[int(i) - 1]


def _remainders(bases: list[Basis], m: float) -> Basis:
    if m not in range(1, 10_000):
        raise DraspError(f"difference_mod takes a period, a whole number of at least 1, found {m:g}")
    if bases[0] != bases[1] or not isinstance(bases[0], Positions):
        raise DraspError(f"difference_mod compares positions, found {' and '.join(map(describe, bases))}")
    return Named(tuple(str(r) for r in range(int(m))))


def _pairs_basis(bases: list[Basis]) -> Basis:
    names = labels(bases[0])
    if not 2 <= len(names) <= 12:
        raise DraspError(f"compare takes a variable of 2 to 12 dimensions, found {len(names)}")
    return Named(tuple(f"{a}>{b}" for a, b in combinations(names, 2)))


def _common_basis(bases: list[Basis]) -> Basis:
    if bases[0] != bases[1]:
        raise DraspError(f"maximum takes two variables alike, found {' and '.join(map(describe, bases))}")
    return bases[0]


def _product_basis(bases: list[Basis]) -> Basis:
    return Products(tuple(bases))


@function_primitive(basis=same_basis)
def no_op(xp: Any, inputs: list[Array]) -> Array:
    return inputs[0]


@function_primitive(basis=same_basis, tried={"n": (2, 3, 5)})
def sharpen(xp: Any, inputs: list[Array], n: float) -> Array:
    powers = inputs[0] ** n
    total = powers.sum(-1)[..., None]
    return powers / xp.where(total == 0, total + 1, total)


@function_primitive(basis=same_basis)
def harden(xp: Any, inputs: list[Array]) -> Array:
    x = inputs[0]
    place = xp.ones_like(x).cumsum(-1) - 1  # counted on the device that x is on
    return 1.0 * (place == x.argmax(-1)[..., None])


@function_primitive(basis=_balance_basis, tried={"n": (0.5, 0.05, 0.01)})
def balance_01(xp: Any, inputs: list[Array], n: float) -> Array:
    difference = inputs[0][..., 1] - inputs[0][..., 0]
    more_ones = difference.clip(0, None) ** n
    more_zeros = (-difference).clip(0, None) ** n
    return xp.stack([more_ones, more_zeros, 1 - more_ones - more_zeros], -1)


@function_primitive(basis=_with_none, tried={"tau": (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.5, 0.25, 0.01)})
def is_pure(xp: Any, inputs: list[Array], tau: float) -> Array:
    pure = 1.0 * (inputs[0] > tau)
    return xp.concatenate([pure, 1 - pure.sum(-1)[..., None]], -1)


@function_primitive(basis=_pairs_basis)
def compare(xp: Any, inputs: list[Array]) -> Array:
    """The sign of each difference; shares that differ by rounding alone are the same."""
    x = inputs[0]
    n = x.shape[-1]
    first = [i for i in range(n) for _ in range(i + 1, n)]
    second = [j for i in range(n) for j in range(i + 1, n)]
    difference = x[..., first] - x[..., second]
    return 1.0 * (difference > 1e-6) - 1.0 * (difference < -1e-6)


@function_primitive(basis=_common_basis, inputs=2)
def maximum(xp: Any, inputs: list[Array]) -> Array:
    return xp.maximum(inputs[0], inputs[1])


@function_primitive(basis=_kept_basis, inputs=None)
def keep(xp: Any, inputs: list[Array], i: float) -> Array:
    return inputs[int(i) - 1]


@function_primitive(basis=_product_basis, inputs=None)
def cartesian(xp: Any, inputs: list[Array]) -> Array:
    smallest = inputs[0]
    for x in inputs[1:]:
        pairs = xp.minimum(smallest[..., :, None], x[..., None, :])
        smallest = pairs.reshape((*pairs.shape[:-2], pairs.shape[-2] * pairs.shape[-1]))
    total = smallest.sum(-1)[..., None]
    return smallest / xp.where(total == 0, total + 1, total)


@function_primitive(basis=_remainders, inputs=2, tried={"m": (2, 3, 4, 5, 6)})
def difference_mod(xp: Any, inputs: list[Array], m: float) -> Array:
    """How much of the first input minus the second leaves which remainder; for one-hot inputs, one of them."""
    period = int(m)
    first, second = (xp.stack([x[..., r::period].sum(-1) for r in range(period)], -1) for x in inputs)
    turned = [[(r + s) % period for s in range(period)] for r in range(period)]
    return (first[..., turned] * second[..., None, :]).sum(-1)
