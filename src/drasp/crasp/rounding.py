"""The theorem's construction: results of aggregate and element_wise_op rounded downwards to multiples of 2^-bits.

A mixture becomes the finitely many vectors that it is rounded to, each with the linear inequalities that say so. How
many there can be is known from the numbers alone, before any formula is made.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import torch

from drasp.crasp.builder import Builder, Guard
from drasp.crasp.exact import floor_to
from drasp.crasp.syntax import CraspError
from drasp.crasp.values import MAX_CASES, Case, Mixture, Vector
from drasp.language import Program
from drasp.language.interpreter import Interpreter
from drasp.language.syntax import Aggregate, ElementWise, Operand


def rounded(builder: Builder, cases: Sequence[Case], bits: int) -> list[Case]:
    """Cases whose values are vectors of multiples of 2^-bits."""
    found: list[Case] = []
    for case in cases:
        match case.value:
            case Mixture() as mixture:
                found += _cells(builder, case.guard, mixture, bits)
            case tuple() as vector:
                found.append(Case(case.guard, tuple(floor_to(x, bits) for x in vector)))
            case _:
                raise CraspError("a function of a share that was not rounded")
    return found


def _cells(builder: Builder, guard: Guard, mixture: Mixture, bits: int) -> list[Case]:
    """Entry by entry: which multiple of 2^-bits it lies above, and not above the next."""
    cells: list[tuple[Guard, Vector]] = [(guard, ())]
    step = Fraction(1, 2**bits)
    for index in range(mixture.dims):
        entry = mixture.entry(index)
        parts = [part.vector[index] for part in mixture.parts]
        values = _steps(min(parts), max(parts), bits)
        at_least = [builder.not_negative(entry - mixture.denominator * value) for value in values]
        further: list[tuple[Guard, Vector]] = []
        for before, vector in cells:
            for number, value in enumerate(values):
                inside = builder.guard(at_least[number]) if number else frozenset()
                below = frozenset()
                if number + 1 < len(values):
                    below = builder.guard(builder.positive(mixture.denominator * (value + step) - entry))
                if inside is not None and below is not None:
                    together = builder.both(before, inside, below)
                    if together is not None and _possible(mixture, (*vector, value), step):
                        further.append((together, (*vector, value)))
        cells = further
    return [Case(cell, vector) for cell, vector in cells]


def _possible(mixture: Mixture, lower: Vector, step: Fraction) -> bool:
    """Whether entries that add up to the same for all that is mixed can be rounded so."""
    sums = {sum(part.vector[: len(lower)]) for part in mixture.parts}
    return min(sums) < sum(lower) + step * len(lower) and max(sums) >= sum(lower)


# ------------------------------------------------------------------------------------------- size


def construction_size(program: Program, bits: int) -> dict[str, int]:
    """An upper bound, for each line, of the values that its variable takes when it is rounded to so many bits.

    Raises where a line takes more than can be written down.
    """
    interpreter = Interpreter(program, torch.float64)
    tokens = len(program.vocabulary)
    # The values that each entry may have, and how many the whole may have.
    entries: dict[str, list[list[Fraction]]] = {"token": [[Fraction(0), Fraction(1)]] * tokens, "one": [[Fraction(1)]]}
    sizes = {"token": tokens, "one": 1}

    def vectors(operand: Operand) -> list[Vector]:
        if operand.variable == "token":
            return [tuple(Fraction(i == j) for j in range(tokens)) for i in range(tokens)]
        return list(product(*entries[operand.variable]))

    for statement in program.statements:
        name = statement.name
        match statement:
            case Aggregate(value=value) if value.variable in entries:
                entries[name] = [_steps(min(x), max(x), bits) for x in entries[value.variable]]
                sizes[name] = math.prod(map(len, entries[name]))
            case ElementWise(inputs=inputs, function=function) if all(v.variable in entries for v in inputs):
                sizes[name] = math.prod(sizes[operand.variable] for operand in inputs)
                if sizes[name] <= MAX_CASES:
                    columns = list(zip(*product(*map(vectors, inputs)), strict=True))
                    numbers = [torch.tensor([[float(x) for x in v] for v in c], dtype=torch.float64) for c in columns]
                    results = interpreter.apply(function, numbers).T.tolist()
                    found = [sorted({floor_to(Fraction(x), bits) for x in entry}) for entry in results]
                    entries[name] = found
            case _:
                continue
        if sizes[name] > MAX_CASES:
            raise CraspError(
                f"rounded to {bits} bits `{name}` takes up to {sizes[name]:,} values, expected at most {MAX_CASES:,}; "
                "fewer bits would do with less"
            )
    return {name: count for name, count in sizes.items() if name not in ("token", "one")}


def _steps(low: Fraction, high: Fraction, bits: int) -> list[Fraction]:
    first, last = (math.floor(bound * 2**bits) for bound in (low, high))
    return [Fraction(step, 2**bits) for step in range(first, last + 1)]
