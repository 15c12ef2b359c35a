"""Runs C-RASP programs in NumPy, on batches of strings of one length; integers are exact whatever their size."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
from jaxtyping import Bool, Int, Shaped

from drasp.crasp.syntax import (
    And,
    Compare,
    Constant,
    Count,
    CountName,
    CraspProgram,
    Difference,
    Expression,
    Formula,
    FormulaName,
    Local,
    Not,
    Number,
    Or,
    Periodic,
    Residue,
    Sum,
    Times,
    Token,
    Truth,
)

Array = np.ndarray
_WIDE = 2**62  # what is larger is computed in Python's own integers
_OPERATORS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


def trace(
    program: CraspProgram, ids: Int[Array, "batch pos"], symbols: Sequence[str]
) -> Mapping[str, Shaped[Array, "batch pos"]]:
    """The value of every definition at every position; `symbols[id]` is what a token is called."""
    run = _Run(ids, {symbol: index for index, symbol in enumerate(symbols)})
    for definition in program.definitions:
        run.values[definition.name] = run.value(definition.expression)
    return run.values


def answers(program: CraspProgram, ids: Int[Array, "batch pos"], symbols: Sequence[str]) -> Bool[Array, "batch pos"]:
    """Whether the program's answer holds, at every position."""
    return np.asarray(trace(program, ids, symbols)[program.answer.name], bool)


def all_strings(symbols: Sequence[int], length: int, batch: int = 1 << 15) -> Iterator[Int[Array, "batch pos"]]:
    """Every string of a length over these ids, in batches; their prefixes are all shorter strings."""
    found: list[tuple[int, ...]] = []
    for word in product(symbols, repeat=length):
        found.append(word)
        if len(found) == batch:
            yield np.array(found, dtype=np.int64).reshape(len(found), length)
            found = []
    if found:
        yield np.array(found, dtype=np.int64).reshape(len(found), length)


class _Run:
    def __init__(self, ids: Array, number: Mapping[str, int]) -> None:
        self.ids, self.number = ids, number
        self.values: dict[str, Array] = {}

    def value(self, expression: Expression) -> Array:
        if isinstance(expression, Count | CountName | Constant | Sum | Difference | Times):
            return self.count(expression)
        return self.formula(expression)

    def formula(self, formula: Formula) -> Array:
        match formula:
            case Token(symbol):
                return self.ids == self.number.get(symbol, -1)
            case Truth(value):
                return np.full(self.ids.shape, value)
            case FormulaName(name):
                return self.values[name]
            case Not(body):
                return ~self.formula(body)
            case And(parts):
                return np.logical_and.reduce([np.full(self.ids.shape, True), *map(self.formula, parts)])
            case Or(parts):
                return np.logical_or.reduce([np.full(self.ids.shape, False), *map(self.formula, parts)])
            case Compare(left, operator, right):
                return np.asarray(_OPERATORS[operator](self.count(left), self.count(right)), bool)
            case Residue(period, remainder):
                return np.broadcast_to(np.arange(self.ids.shape[1]) % period == remainder, self.ids.shape)

    def count(self, number: Number) -> Array:
        match number:
            case Count(body, relation):
                return _counted(self.formula(body), relation)
            case CountName(name):
                return self.values[name]
            case Constant(value):
                return np.full(self.ids.shape, value, dtype=np.int64 if abs(value) < _WIDE else object)
            case Sum(parts):
                return _combined([(1, self.count(part)) for part in parts], self.ids.shape)
            case Difference(left, right):
                return _combined([(1, self.count(left)), (-1, self.count(right))], self.ids.shape)
            case Times(factor, body):
                return _combined([(factor, self.count(body))], self.ids.shape)


def _combined(parts: list[tuple[int, Array]], shape: tuple[int, ...]) -> Array:
    """A linear combination, in Python's integers where NumPy's could overflow."""
    largest = sum(abs(factor) * _size(part) for factor, part in parts)
    kind = np.int64 if largest < _WIDE else object
    total = np.zeros(shape, dtype=kind)
    for factor, part in parts:
        total = total + factor * part.astype(kind)
    return total


def _size(values: Array) -> int:
    return max(1, abs(int(values.max())), abs(int(values.min()))) if values.size else 1


def _counted(body: Array, relation: Local | Periodic | None) -> Array:
    ones = body.astype(np.int64)
    match relation:
        case None:
            return ones.cumsum(1)
        case Local(distance):
            return _shifted(ones, distance)
        case Periodic(period, remainder):
            total = ones.copy()
            for i in range(period, total.shape[1]):
                total[:, i] += total[:, i - period]
            return _shifted(total, remainder)


def _shifted(values: Array, distance: int) -> Array:
    moved = np.zeros_like(values)
    kept = max(values.shape[1] - distance, 0)
    moved[:, values.shape[1] - kept :] = values[:, :kept]
    return moved
