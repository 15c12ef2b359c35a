"""Element-wise functions as hidden layers: which an MLP holds exactly, which within a tolerance, which not at all.

A function becomes one stage or two, each of which fits the MLP of a layer: a linear map, or hidden units. Units of the
library's functions are rectifiers: relu is one, and gelu of a large multiple is one but for a neighbourhood of 0.

| function | any values | shares | one-hot |
|---|---|---|---|
| no_op, keep | exact | exact | exact |
| maximum | exact | exact | exact |
| is_pure, compare | but for a margin above the threshold | the same | exact |
| harden | but for a margin between the largest two | the same | exact |
| balance_01 | refused, unless n = 1 | within a tolerance, but for a margin around 0 | exact |
| cartesian, difference_mod | refused | exact, if all others are one-hot | exact |
| sharpen, and functions of a user's own | refused | refused | exact |
| a stored network | exact | exact | exact |
| a stored network with a layer norm | refused | refused | exact |

What is one-hot: token, pos, one; what attention picks at a single position always; and what harden gives.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.compiler.values import Values
from drasp.errors import DraspError
from drasp.language.bases import Basis, One, size
from drasp.language.interpreter import Interpreter
from drasp.language.syntax import Function, Network, PrimitiveFunction, Program

MARGIN = 1e-3
"""How far a value must be above a threshold for a step to have been taken in full.

Shares of up to 300 positions differ from each other, and from 1/2, by more than that unless they are equal.
"""
KNOTS = 128
"""Points between which a power is a straight line, close near 0 and as many evenly: errors below 1e-4 up to n = 3."""
SHARPNESS = 1e5
"""gelu(SHARPNESS z) / SHARPNESS is max(z, 0) wherever |z| is above 6e-5, and never off by more than 2e-6.

silu in its place is never off by more than 3e-6.
"""
MAX_UNITS = 8192
"""Hidden units of a function of the library: with more, all layers of the model would be that wide."""


class CannotCompileError(DraspError):
    """Says why no GPT-2 holds a line."""


@dataclass(frozen=True)
class Affine:
    """Σ inputᵢ mapᵢ + bias: an MLP holds it as pairs of units, since act(z) − act(−z) = z for all that there are."""

    maps: tuple[Float[Tensor, "_ dims"], ...]
    bias: Float[Tensor, " dims"]

    @property
    def size(self) -> int:
        return len(self.bias)


@dataclass(frozen=True)
class Units:
    """act(Σ inputᵢ mapᵢ + bias) out + out_bias."""

    maps: tuple[Float[Tensor, "_ units"], ...]
    bias: Float[Tensor, " units"]
    out: Float[Tensor, "units dims"]
    out_bias: Float[Tensor, " dims"]

    @property
    def size(self) -> int:
        return len(self.out_bias)


Stage: TypeAlias = Affine | Units


def in_code(stage: Stage, code: Float[Tensor, "dims block"]) -> Units:
    """A stage as units that give not its result but the result's code, which is all that is held of it."""
    match stage:
        case Affine(maps, bias):
            both = torch.cat([code, -code], 1)
            eye = torch.eye(code.shape[1], dtype=torch.float64)
            return Units(tuple(m @ both for m in maps), bias @ both, torch.cat([eye, -eye]), eye.sum(0) * 0)
        case Units(maps, bias, out, out_bias):
            return Units(maps, bias, out @ code, out_bias @ code)


@dataclass(frozen=True)
class Held:
    """How MLPs hold a function: each stage after the first reads the one before. `values` is known of the result."""

    stages: tuple[Stage, ...]
    values: Values


def held(
    program: Program, function: Function, bases: Sequence[Basis], values: Sequence[Values], activation: str
) -> Held:
    """The stages that compute a function of variables with these bases and values; raises where there are none."""
    sizes = [size(basis) for basis in bases]
    one_hot = all(value is Values.ONE_HOT for value in values)
    match function:
        case Network(eps=None):
            return Held((_network(program, function, len(bases)),), Values.ANY)
        case PrimitiveFunction("no_op") | PrimitiveFunction("keep"):
            chosen = int(function.arguments[0]) - 1 if function.arguments else 0
            return Held((_identity(sizes, chosen),), values[chosen])
        case PrimitiveFunction("sharpen" | "harden") if one_hot:
            return Held((_identity(sizes, 0),), Values.ONE_HOT)
        case PrimitiveFunction("cartesian") if _at_most_one_soft(values):
            return Held((_table(program, function, bases, activation, linear_in_soft=True),), min(values))
        case PrimitiveFunction("difference_mod", (period,)) if _at_most_one_soft(values):
            return Held((_difference_mod(int(period), sizes[0], activation),), min(values))
        case PrimitiveFunction("maximum"):
            return Held((_maximum(sizes[0], activation),), Values.ANY)
        case _ if one_hot:
            return Held((_table(program, function, bases, activation),), Values.ANY)
        case PrimitiveFunction("is_pure", (tau,)):
            # Of shares at most one is above a half.
            pure = values[0] >= Values.SHARES and tau >= 0.5
            return Held((_is_pure(sizes[0], tau, activation),), Values.ONE_HOT if pure else Values.ANY)
        case PrimitiveFunction("compare"):
            return Held((_compare(sizes[0], activation),), Values.ANY)
        case PrimitiveFunction("harden"):
            return Held(_harden(sizes[0], activation), Values.ONE_HOT)
        case PrimitiveFunction("balance_01", (n,)) if n == 1 or (values[0] is Values.SHARES and n > 0):
            return Held((_balance(sizes[0], n, activation),), Values.ANY)
        case Network():
            raise CannotCompileError(
                "a network with a layer norm of its own (eps=) is a table of one-hot variables, found others; "
                "the model's layer norm is shared by all that the residual stream holds"
            )
        case PrimitiveFunction(primitive):
            needs = {"cartesian": " but for one", "difference_mod": " but for one"}.get(primitive, "")
            raise CannotCompileError(
                f"{primitive} needs inputs that are one-hot{needs}, and here they may be mixtures; one hidden layer "
                "does not compute it for those"
            )


def _check_units(count: int) -> None:
    if count > MAX_UNITS:
        raise CannotCompileError(f"its function takes {count:,} hidden units, expected at most {MAX_UNITS:,}")


def _at_most_one_soft(values: Sequence[Values]) -> bool:
    return min(values) >= Values.SHARES and sum(value is not Values.ONE_HOT for value in values) <= 1


def _network(program: Program, network: Network, inputs: int) -> Units:
    part = {key: tensor.double() for key, tensor in program.tensors.items() if key.startswith(f"{network.name}.")}
    hidden, bias, out, out_bias = (
        part[f"{network.name}.{key}"] for key in ("hidden", "hidden_bias", "out", "out_bias")
    )
    return Units(tuple(part[f"{network.name}.{i}"] @ hidden for i in range(inputs)), bias, out, out_bias)


def _identity(sizes: Sequence[int], chosen: int) -> Affine:
    width = sizes[chosen]
    eye, nothing = torch.eye(width, dtype=torch.float64), torch.zeros
    maps = tuple(eye if i == chosen else nothing(count, width, dtype=torch.float64) for i, count in enumerate(sizes))
    return Affine(maps, nothing(width, dtype=torch.float64))


def _table(
    program: Program, function: Function, bases: Sequence[Basis], activation: str, linear_in_soft: bool = False
) -> Stage:
    """A function of one-hot variables: linear where there is one, else a unit for each combination.

    A unit adds up its combination's entries, less their number but one: 1 where all are 1. Where one of the inputs
    is soft and the function `linear_in_soft`, what is left over is that input's entry.
    """
    sizes = [size(basis) for basis in bases]
    count = prod(sizes)
    _check_units(count)
    places = torch.cartesian_prod(*(torch.arange(n) for n in sizes)).view(count, len(sizes))
    maps = [torch.nn.functional.one_hot(places[:, i], n).double() for i, n in enumerate(sizes)]
    rows = Interpreter(program, torch.float64).apply(function, maps)
    nothing = torch.zeros(rows.shape[1], dtype=torch.float64)
    variables = [i for i, basis in enumerate(bases) if not isinstance(basis, One)]
    if len(variables) <= 1 and not linear_in_soft:
        # All combinations of one variable, in its order.
        tables = [torch.zeros(n, rows.shape[1], dtype=torch.float64) for n in sizes]
        tables[variables[0] if variables else 0] = rows
        return Affine(tuple(tables), nothing)
    bias = torch.full((count,), 1.0 - len(sizes), dtype=torch.float64)
    return _rectifiers([m.T for m in maps], bias, rows, nothing, activation)


def _rectifiers(maps: Sequence[Tensor], bias: Tensor, out: Tensor, out_bias: Tensor, activation: str) -> Units:
    """max(Σ inputᵢ mapᵢ + bias, 0) out + out_bias."""
    sharp = 1.0 if activation == "relu" else SHARPNESS
    return Units(tuple(m * sharp for m in maps), bias * sharp, out / sharp, out_bias)


def _difference_mod(period: int, positions: int, activation: str) -> Units:
    """A unit for each pair of remainders."""
    remainders = torch.nn.functional.one_hot(torch.arange(positions) % period, period).double()
    pairs = torch.cartesian_prod(torch.arange(period), torch.arange(period)).view(-1, 2)
    first, second = (torch.nn.functional.one_hot(pairs[:, i], period).double() for i in (0, 1))
    out = torch.nn.functional.one_hot((pairs[:, 0] - pairs[:, 1]) % period, period).double()
    bias = torch.full((len(pairs),), -1.0, dtype=torch.float64)
    maps = (remainders @ first.T, remainders @ second.T)
    return _rectifiers(maps, bias, out, torch.zeros(period, dtype=torch.float64), activation)


def _maximum(width: int, activation: str) -> Units:
    """The second, and as much as the first is above it; the second as a difference of rectifiers."""
    eye, nothing = torch.eye(width, dtype=torch.float64), torch.zeros(width, width, dtype=torch.float64)
    maps = (torch.cat([eye, nothing, nothing], 1), torch.cat([-eye, eye, -eye], 1))
    bias = torch.zeros(3 * width, dtype=torch.float64)
    return _rectifiers(maps, bias, torch.cat([eye, eye, -eye]), bias[:width], activation)


def _steps(
    differences: Float[Tensor, "dims steps"],
    thresholds: Float[Tensor, " steps"],
    out: Float[Tensor, "steps result"],
    out_bias: Float[Tensor, " result"],
    activation: str,
    margin: float = MARGIN,
) -> Units:
    """Steps from 0 to 1 where a difference passes its threshold, in the middle half of the margin above it."""
    maps = torch.cat([differences, differences], 1)
    bias = torch.cat([-thresholds - margin / 4, -thresholds - 3 * margin / 4])
    slope = 2 / margin
    return _rectifiers([maps], bias, torch.cat([slope * out, -slope * out]), out_bias, activation)


def _is_pure(width: int, tau: float, activation: str) -> Units:
    eye = torch.eye(width, dtype=torch.float64)
    out = torch.cat([eye, -torch.ones(width, 1, dtype=torch.float64)], 1)
    none = torch.cat([torch.zeros(width, dtype=torch.float64), torch.ones(1, dtype=torch.float64)])
    return _steps(eye, torch.full((width,), tau, dtype=torch.float64), out, none, activation)


def _pairs(width: int) -> Float[Tensor, "dims pairs"]:
    """The matrix that gives, for each pair of entries, the first minus the second."""
    first, second = torch.triu_indices(width, width, 1)
    eye = torch.eye(width, dtype=torch.float64)
    return eye[:, first] - eye[:, second]


def _compare(width: int, activation: str) -> Units:
    """A step upwards on either side of 0."""
    pairs = _pairs(width)
    eye = torch.eye(pairs.shape[1], dtype=torch.float64)
    nothing = torch.zeros(2 * len(eye), dtype=torch.float64)
    return _steps(torch.cat([pairs, -pairs], 1), nothing, torch.cat([eye, -eye]), nothing[: len(eye)], activation)


def _harden(width: int, activation: str) -> tuple[Units, Units]:
    """First how many others each entry beats, of equal ones the earlier; then who beats all."""
    _check_units(width * (width - 1))
    pairs = _pairs(width)
    later_wins = -pairs.T
    wins_of_earlier = pairs.clamp(min=0).sum(1)
    nothing = torch.zeros(pairs.shape[1], dtype=torch.float64)
    contest = _steps(-pairs, nothing, later_wins, wins_of_earlier, activation)
    eye = torch.eye(width, dtype=torch.float64)
    all_but_one = torch.full((width,), width - 2.0, dtype=torch.float64)
    return contest, _steps(eye, all_but_one, eye, torch.zeros(width, dtype=torch.float64), activation, margin=1.0)


def _balance(width: int, n: float, activation: str) -> Units:
    """Powers of a difference and of its opposite, by straight lines between points."""
    close, even = torch.logspace(math.log10(MARGIN), 0, KNOTS), torch.linspace(0, 1, KNOTS)
    knots = torch.cat([close, even]).double().unique() if n != 1 else torch.tensor([0.0, 1.0]).double()
    slopes = (knots**n).diff() / knots.diff()
    bends = torch.cat([slopes[:1], slopes.diff()])
    difference = torch.zeros(width, 1, dtype=torch.float64)
    difference[:2, 0] = torch.tensor([-1.0, 1.0])
    maps = torch.cat([difference.expand(-1, len(bends)), -difference.expand(-1, len(bends))], 1)
    out = torch.zeros(2 * len(bends), 3, dtype=torch.float64)
    out[: len(bends), 0] = out[len(bends) :, 1] = bends
    out[:, 2] = -out[:, 0] - out[:, 1]
    start = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    return _rectifiers([maps], -knots[:-1].repeat(2), out, start, activation)
