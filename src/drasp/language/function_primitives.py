"""The library of functions that `element_wise_op(…, func=…)` can name, and the decorator that extends it.

A function is written once, in what NumPy and torch have in common: it gets the module (`xp`), the list of
inputs [..., dimensions], and its parameters. So the interpreter runs it in torch, and the stand-alone
`program.py` carries its source and runs it in NumPy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

from drasp.errors import DraspError
from drasp.language.bases import Basis, Named, Products, Tokens, labels

# Arrays of NumPy or of torch: the functions below must not care which.
Array = Any


@dataclass(frozen=True)
class FunctionPrimitive:
    """`inputs` is how many variables it takes (None: any number); `basis` gives the result's directions."""

    name: str
    function: Callable[..., Array]
    inputs: int | None
    parameters: tuple[str, ...]
    basis: Callable[..., Basis]


_REGISTRY: dict[str, FunctionPrimitive] = {}


def function_primitive(
    basis: Callable[..., Basis], *, inputs: int | None = 1
) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Adds an element-wise function to the library, under the function's name.

    `basis` gets the list of the inputs' bases and the parameters, and gives the basis of the result; it
    may raise a `DraspError` where the function makes no sense.

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
        _REGISTRY[name] = FunctionPrimitive(name, function, inputs, names, basis)
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


def _product_basis(bases: list[Basis]) -> Basis:
    return Products(tuple(bases))


@function_primitive(basis=same_basis)
def no_op(xp: Any, inputs: list[Array]) -> Array:
    return inputs[0]


@function_primitive(basis=same_basis)
def sharpen(xp: Any, inputs: list[Array], n: float) -> Array:
    powers = inputs[0] ** n
    total = powers.sum(-1)[..., None]
    return powers / xp.where(total == 0, total + 1, total)


@function_primitive(basis=same_basis)
def harden(xp: Any, inputs: list[Array]) -> Array:
    x = inputs[0]
    return 1.0 * (xp.arange(x.shape[-1]) == x.argmax(-1)[..., None])


@function_primitive(basis=_balance_basis)
def balance_01(xp: Any, inputs: list[Array], n: float) -> Array:
    difference = inputs[0][..., 1] - inputs[0][..., 0]
    more_ones = difference.clip(0, None) ** n
    more_zeros = (-difference).clip(0, None) ** n
    return xp.stack([more_ones, more_zeros, 1 - more_ones - more_zeros], -1)


@function_primitive(basis=_with_none)
def is_pure(xp: Any, inputs: list[Array], tau: float) -> Array:
    pure = 1.0 * (inputs[0] > tau)
    return xp.concatenate([pure, 1 - pure.sum(-1)[..., None]], -1)


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
