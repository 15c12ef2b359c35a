"""Runs D-RASP programs without positions under rounded semantics with exact sums, one string at a time.

Results of aggregate and element_wise_op are rounded downwards to multiples of 2^-bits. Sums of an aggregate are sums of
fractions, so that 1/2 is never 0.49999; functions are computed in float64 and then rounded.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import torch

from drasp.crasp.exact import floor_to, softmax_levels
from drasp.crasp.syntax import CraspError
from drasp.language import Interpreter, Program
from drasp.language.syntax import Aggregate, ElementWise, Operand, Prediction, Project, Select

Vector = tuple[Fraction, ...]


class RoundedInterpreter:
    """A program at a precision: `said(ids)` gives the tokens that it says at each position of a string."""

    def __init__(self, program: Program, bits: int) -> None:
        self.program, self.bits = program, bits
        self.interpreter = Interpreter(program, torch.float64)
        self.apply = cache(self._apply)

    def trace(self, ids: Sequence[int]) -> dict[str, list[Vector]]:
        """The value of every activation variable at each position."""
        count = len(self.program.vocabulary)
        values: dict[str, list[Vector]] = {
            "token": [tuple(Fraction(i == j) for j in range(count)) for i in ids],
            "one": [(Fraction(1),) for _ in ids],
        }
        selects: dict[str, Select] = {}

        def read(operand: Operand) -> list[Vector]:
            if operand.variable == "pos" or operand.norm is not None:
                raise CraspError("rounded semantics covers programs without `pos` and without norms")
            return values[operand.variable]

        for statement in self.program.statements:
            match statement:
                case Select():
                    selects[statement.name] = statement
                case Aggregate(name, selectors, value):
                    scores = np.zeros((len(ids), len(ids)))
                    for selector in selectors:
                        select = selects[selector.variable]
                        query, key = (np.array(read(x), dtype=float) for x in (select.query, select.key))
                        scores += query @ self.interpreter.ops[select.name].numpy() @ key.T
                    values[name] = [
                        self.mean(scores[i, : i + 1].tolist(), read(value)[: i + 1]) for i in range(len(ids))
                    ]
                case ElementWise(name, inputs):
                    rows = zip(*(read(operand) for operand in inputs), strict=True)
                    values[name] = [self.apply(statement, row) for row in rows]
                case Project() | Prediction():
                    pass
                case _:
                    raise CraspError("rounded semantics covers programs without `pos` and without norms")
        return values

    def mean(self, scores: list[float], values: Sequence[Vector]) -> Vector:
        weights = softmax_levels(scores)[0]
        total = sum(weights.values())
        sums = (sum((w * values[j][d] for j, w in weights.items()), Fraction(0)) for d in range(len(values[0])))
        return tuple(floor_to(x / total, self.bits) for x in sums)

    def _apply(self, statement: ElementWise, row: tuple[Vector, ...]) -> Vector:
        inputs = [torch.tensor([[float(x) for x in vector]], dtype=torch.float64) for vector in row]
        result = self.interpreter.apply(statement.function, inputs)[0].tolist()
        return tuple(floor_to(Fraction(x), self.bits) for x in result)

    def said(self, ids: Sequence[int]) -> list[frozenset[str]]:
        """Which tokens are said at each position."""
        values, tokens = self.trace(ids), self.program.vocabulary.tokens
        projects = {s.name: s for s in self.program.statements if isinstance(s, Project)}
        logits = np.zeros((len(ids), len(tokens)))
        for reference in self.program.prediction.logits:
            project = projects[reference.variable]
            source = np.array(values[project.input.variable], dtype=float)
            logits += source @ self.interpreter.ops[project.name].numpy()
        if self.program.output == "sigmoid":
            return [frozenset(token for token, x in zip(tokens, row, strict=True) if x > 0) for row in logits]
        return [frozenset({tokens[int(i)]}) for i in logits.argmax(1)]
