"""A D-RASP program on one level of a tree of inputs after the other, with error bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from drasp.certificates.bounds import (
    Array,
    BoundedLogits,
    BoundedRows,
    Matrix,
    activated,
    add,
    add_logits,
    divide,
    linear,
    normalised,
    root_mean_square,
    to_logits,
)
from drasp.certificates.functions import FUNCTIONS
from drasp.certificates.level import (
    Kept,
    LevelValue,
    Own,
    RunningSum,
    Scores,
    Seen,
    Tables,
    Wanted,
    add_scores,
    grown,
    mixed,
    scores,
)

Operand = Sequence[str | None]  # a variable, and the norm that it is divided by


@dataclass
class ProgramLevels:
    """A program's lines, its tensors, and what of it depends on token and position alone."""

    steps: Sequence[Mapping[str, Any]]
    tensors: Mapping[str, Matrix]
    n_vocab: int
    n_positions: int
    tokens: Sequence[int]
    offset: int
    tables: dict[str, Tables] = field(default_factory=dict)
    local: dict[int, dict[str, Any]] = field(default_factory=dict)

    def extend(self, kept: Kept, parent: Array, codes: Array, wanted: Wanted) -> tuple[Kept, BoundedLogits]:
        """What children keep for their own children, and the logits of those that are wanted.

        `kept` is of the parents; `codes` [n, depth + 1] are the tokens from the root to each child.
        """
        level = _Level(self, kept, parent, codes, self.local.setdefault(codes.shape[1] - 1, {}))
        for step in self.steps:
            level.run(step)
        return level.kept, level.logits.take(wanted)


@dataclass
class _Level:
    program: ProgramLevels
    before: Kept
    parent: Array
    codes: Array
    local: dict[str, Any]
    kept: dict[str, Own | RunningSum] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.depth, self.last, self.n_tokens = self.codes.shape[1] - 1, self.codes[:, -1], len(self.program.tokens)
        if "token" not in self.local:
            n, program = self.n_tokens, self.program
            here = np.zeros((n, program.n_positions))
            here[:, program.offset + self.depth] = 1
            self.local["token"] = LevelValue(BoundedRows.exact(np.eye(program.n_vocab)[list(program.tokens)]), True)
            self.local["pos"] = LevelValue(BoundedRows.exact(here), True)
            self.local["one"] = LevelValue(BoundedRows.exact(np.ones((n, 1))), True)

    def found(self, name: str) -> Any:
        return self.local[name] if name in self.local else self.own[name]

    def read(self, operand: Operand) -> LevelValue:
        name, norm = operand
        assert name is not None
        value: LevelValue = self.found(name)
        if norm is None:
            return value
        by: LevelValue = self.found(norm)
        if value.local and by.local:
            return LevelValue(divide(value.rows, by.rows), True)
        return LevelValue(divide(value.at(self.last), by.at(self.last)), False)

    def run(self, step: Mapping[str, Any]) -> None:
        """Does what a line says; once a level where it depends on token and position alone."""
        name, kind = step["name"], step["kind"]
        if name in self.local:
            return
        inputs = [self.read(operand) for operand in step["inputs"]]
        match kind:
            case "select":
                query, key = inputs
                self.own[name] = self.select(query, key, _key_name(step), self.program.tensors[step["op"]])
            case "aggregate":
                self.own[name] = LevelValue(self.aggregate(inputs[0], step), False)
            case "norm":
                x = self.combined(inputs, step["op"])
                self.put(name, LevelValue(root_mean_square(x.rows, step["eps"]), x.local))
            case "element_wise_op":
                self.put(name, self.element_wise(inputs, step["function"]))
            case "project":
                (x,) = inputs
                part = to_logits(x.rows, self.program.tensors[step["op"]])
                (self.local if x.local else self.own)[name] = part
            case _:
                self.predict(step["logits"])

    def put(self, name: str, value: LevelValue) -> None:
        (self.local if value.local else self.own)[name] = value

    def select(self, query: LevelValue, key: LevelValue, name: str, op: Matrix) -> Scores:
        rows = LevelValue(linear(query.rows, op), query.local)
        return scores(rows, self.history(name, key), self.codes, self.n_tokens)

    def history(self, name: str, value: LevelValue) -> Seen:
        """What nodes see of a variable: their ancestors' values and their own."""
        if value.local:
            return self.program.tables.setdefault(name, Tables()).up_to(self.depth, value.rows)
        kept = self.kept.get(name)
        if not isinstance(kept, Own):
            kept = self.kept[name] = grown(self.before.get(name), self.parent, value.rows)
        return kept

    def aggregate(self, value: LevelValue, step: Mapping[str, Any]) -> BoundedRows:
        if step["selectors"]:
            total = reduce(add_scores, (self.own[name] for name in step["selectors"]))
            return mixed(total, self.history(_key_name(step), value), self.codes, self.n_tokens)
        name, rows = f"sum of {_key_name(step)}", value.at(self.last).plain
        before = self.before.get(name)
        if isinstance(before, RunningSum):
            rows = add(before.rows.take(self.parent), rows)
        self.kept[name] = RunningSum(rows)
        return BoundedRows(rows.value, rows.error, self.depth + 1)

    def combined(self, inputs: Sequence[LevelValue], name: str) -> LevelValue:
        """The sum of inputs, each times a matrix; what is local is added up first."""
        parts = [LevelValue(linear(x.rows, self.program.tensors[f"{name}.{i}"]), x.local) for i, x in enumerate(inputs)]
        local = [part.rows for part in parts if part.local]
        own = [part.rows for part in parts if not part.local]
        if not own:
            return LevelValue(reduce(add, local).plain, True)
        if local:
            own.append(reduce(add, local).take(self.last))
        return LevelValue(reduce(add, own).plain, False)

    def element_wise(self, inputs: Sequence[LevelValue], function: Mapping[str, Any]) -> LevelValue:
        if "mlp" not in function:
            local = all(x.local for x in inputs)
            rows = [x.rows if local else x.at(self.last) for x in inputs]
            return LevelValue(FUNCTIONS[function["primitive"]](rows, *function["arguments"]), local)
        name, tensors = function["mlp"], self.program.tensors
        x = self.combined(inputs, name)
        rows = x.rows if function["eps"] is None else normalised(x.rows, function["eps"])
        hidden = add(linear(rows, tensors[f"{name}.hidden"]), _bias(tensors[f"{name}.hidden_bias"]))
        hidden = activated(hidden.plain, function["activation"])
        return LevelValue(add(linear(hidden, tensors[f"{name}.out"]), _bias(tensors[f"{name}.out_bias"])), x.local)

    def predict(self, names: Sequence[str]) -> None:
        local = [self.local[name] for name in names if name in self.local]
        own = [self.own[name] for name in names if name not in self.local]
        if local:
            own.append(reduce(add_logits, local).take(self.last))
        self.logits = reduce(add_logits, own)


def _bias(m: Matrix) -> BoundedRows:
    return BoundedRows.exact(m.value.reshape(1, -1))


def _key_name(step: Mapping[str, Any]) -> str:
    """What others look at: the key of a select, the value of an aggregate."""
    name, norm = step["inputs"][-1]
    return f"{name}/{norm}" if norm else name
