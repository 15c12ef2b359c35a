"""Runs D-RASP programs in torch, on batches of inputs of different lengths and offsets.

What makes it fast: one-hot variables are kept as indices and looked up, never multiplied; uniform
attention is a running mean; the selectors of an aggregate are summed by key before anything of size
query × key is made, so that a head with many selects costs one such matrix a key; and where logits are wanted at
some positions only, what nothing else looks at is computed only there.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeAlias

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from drasp.language.bases import Basis, Tokens
from drasp.language.checker import Activation, VariableType, variable_types
from drasp.language.function_primitives import function_primitives
from drasp.language.syntax import (
    Aggregate,
    ElementWise,
    Function,
    Network,
    Norm,
    Operand,
    Prediction,
    PrimitiveFunction,
    PrimitiveTensor,
    Program,
    Project,
    Select,
    Statement,
    TensorName,
    TensorOp,
)
from drasp.language.tensor_primitives import build
from drasp.transformer import ACTIVATIONS

# The query axis is 1 where all queries see the same, and the batch axis where all inputs do.
Scores: TypeAlias = Float[Tensor, "#batch #query key"]


@dataclass(frozen=True)
class OneHot:
    """A variable whose value at each position is one direction, times a weight where it was divided."""

    index: Int[Tensor, "batch pos"]
    size: int
    weight: Float[Tensor, "batch pos"] | None = None


@dataclass(frozen=True)
class Dense:
    value: Float[Tensor, "batch pos dims"]


Value: TypeAlias = OneHot | Dense


class Interpreter:
    """A checked program, ready to run: `interpreter(ids, positions)` gives logits as a transformer does.

    With `precision` = p, the results of aggregate and element_wise_op are rounded downwards to multiples
    of 2^-p, as in the semantics that makes D-RASP comparable with C-RASP.
    """

    def __init__(self, program: Program, dtype: torch.dtype = torch.float32, precision: int | None = None) -> None:
        self.program, self.dtype, self.precision = program, dtype, precision
        self.types = variable_types(program)
        self.tensors = {name: tensor.to(dtype) for name, tensor in program.tensors.items()}
        self.ops = {s.name: self._op(s) for s in program.statements if isinstance(s, Select | Project)}
        self.selects = {s.name: s for s in program.statements if isinstance(s, Select)}
        self.last_use = _last_uses(program.statements)
        self.seen_by_others = _seen_by_others(program.statements)

    def __call__(
        self,
        ids: Int[Tensor, "batch pos"],
        positions: Int[Tensor, "batch pos"],
        where: Int[Tensor, "batch wanted"] | None = None,
    ) -> Float[Tensor, "batch wanted_or_pos n_vocab"]:
        """Logits, at all positions or `where` they are wanted.

        Values are dropped after their last use, and selectors are never kept.
        """
        return _Run(self, ids, positions, where).logits()

    def trace(
        self, ids: Int[Tensor, "batch pos"], positions: Int[Tensor, "batch pos"]
    ) -> dict[str, Float[Tensor, "batch pos *dims"]]:
        """The value of every variable, `token`, `pos`, `one` and `prediction` among them.

        Selectors are [batch, query, key], before the softmax and the causal mask; norms are [batch, pos].
        """
        return _Run(self, ids, positions).trace()

    def values(
        self, ids: Int[Tensor, "batch pos"], positions: Int[Tensor, "batch pos"], operands: Sequence[Operand]
    ) -> list[Float[Tensor, "batch pos _"]]:
        """What lines would read, and nothing else: no selector is kept."""
        return _Run(self, ids, positions).operands(operands)

    def apply(self, function: Function, inputs: Sequence[Float[Tensor, "n _"]]) -> Float[Tensor, "n _"]:
        """An element-wise function of values given by hand, one position a row."""
        empty = torch.zeros(1, len(inputs[0]), dtype=torch.long)
        return _Run(self, empty, empty).apply(function, [Dense(value[None]) for value in inputs])[0]

    def _op(self, statement: Select | Project) -> Float[Tensor, "rows columns"]:
        match statement:
            case Select(query=query, key=key, op=op, special_op=special_op):
                rows, columns = basis_of(self.types, query), basis_of(self.types, key)
            case Project(input=source, op=op, special_op=special_op):
                rows, columns = basis_of(self.types, source), Tokens(self.program.vocabulary)
        return self._tensor(op, special_op, rows, columns)

    def _tensor(self, op: TensorOp, special: PrimitiveTensor | None, rows: Basis, columns: Basis) -> Tensor:
        match op:
            case TensorName(name):
                return self.tensors[name]
            case PrimitiveTensor():
                return torch.tensor(build(op, special, rows, columns), dtype=self.dtype)


def basis_of(types: Mapping[str, VariableType], operand: Operand) -> Basis:
    found = types[operand.variable]
    assert isinstance(found, Activation)
    return found.basis


def _last_uses(statements: tuple[Statement, ...]) -> dict[str, int]:
    """The line after which a variable is needed no more; selects count where they are aggregated."""
    selects = {s.name: s for s in statements if isinstance(s, Select)}
    uses: dict[str, int] = {}
    for number, statement in enumerate(statements):
        for operand in _reads(statement, selects):
            uses[operand.variable] = number
            if operand.norm:
                uses[operand.norm] = number
    return uses


def _reads(statement: Statement, selects: Mapping[str, Select]) -> Iterable[Operand]:
    match statement:
        case Aggregate(selectors=selectors, value=value):
            yield value
            for selector in selectors:
                yield selects[selector.variable].query
                yield selects[selector.variable].key
        case ElementWise(inputs=inputs) | Norm(inputs=inputs):
            yield from inputs
        case Project(input=source):
            yield source
        case Select() | Prediction():
            pass


def _seen_by_others(statements: tuple[Statement, ...]) -> frozenset[str]:
    """Variables that other positions look at, as keys or values or by way of what these depend on."""
    selects = {s.name: s for s in statements if isinstance(s, Select)}
    seen: set[str] = set()
    for statement in reversed(statements):
        match statement:
            case Aggregate(name, selectors, value):
                keys = [selects[selector.variable].key for selector in selectors]
                read = [value, *keys]
                if name in seen:
                    read += [selects[selector.variable].query for selector in selectors]
            case ElementWise(name, inputs) | Norm(name, inputs) if name in seen:
                read = list(inputs)
            case _:
                read = []
        seen |= {name for operand in read for name in (operand.variable, operand.norm) if name}
    return frozenset(seen)


class _Run:
    """One evaluation on one batch. What is computed at the wanted positions only is in `narrow`."""

    def __init__(
        self, interpreter: Interpreter, ids: Tensor, positions: Tensor, where: Int[Tensor, "batch wanted"] | None = None
    ) -> None:
        program = interpreter.program
        self.interpreter = interpreter
        self.where = where
        self.narrow: set[str] = set()
        self.values: dict[str, Value] = {
            "token": OneHot(ids, len(program.vocabulary)),
            "pos": OneHot(positions, program.n_positions),
            "one": OneHot(torch.zeros_like(ids), 1),
        }
        self.divisors: dict[str, Tensor] = {}
        self.logit_parts: dict[str, Tensor] = {}
        # Aggregates with the same selectors share their attention weights.
        self.attention: dict[tuple[bool, tuple[str, ...]], Tensor] = {}
        self.shape = ids.shape
        length = ids.shape[1]
        self.future = torch.ones(length, length, dtype=torch.bool).triu(1)
        self.counts = torch.arange(1, length + 1, dtype=interpreter.dtype)

    def logits(self) -> Tensor:
        statements = self.interpreter.program.statements
        last = self.interpreter.last_use
        last_attention = {self.attention_key(s): i for i, s in enumerate(statements) if isinstance(s, Aggregate)}
        for number, statement in enumerate(statements):
            self.execute(statement)
            for name in [name for name in self.values if last.get(name, -1) <= number]:
                del self.values[name]
            for key in [key for key in self.attention if last_attention[key] <= number]:
                del self.attention[key]
        return self.summed_logits()

    def trace(self) -> dict[str, Tensor]:
        result: dict[str, Tensor] = {}
        for name in ("token", "pos", "one"):
            result[name] = self.dense(self.values[name])
        batch, length = self.shape
        for statement in self.interpreter.program.statements:
            self.execute(statement)
            name = statement.name
            match statement:
                case Select():
                    result[name] = self.scores((name,)).expand(batch, length, length)
                case Aggregate() | ElementWise():
                    result[name] = self.dense(self.values[name])
                case Norm():
                    result[name] = self.divisors[name]
                case Project():
                    result[name] = self.logit_parts[name].expand(batch, length, -1)
                case Prediction(output=output):
                    logits = self.summed_logits()
                    result[name] = logits.softmax(-1) if output == "softmax" else logits.sigmoid()
        return result

    def operands(self, wanted: Sequence[Operand]) -> list[Tensor]:
        for statement in self.interpreter.program.statements:
            self.execute(statement)
        return [self.dense(self.read(operand)) for operand in wanted]

    def execute(self, statement: Statement) -> None:
        narrow = self.is_narrow(statement)
        if narrow:
            self.narrow.add(statement.name)
        match statement:
            case Aggregate(name):
                self.values[name] = Dense(self.rounded(self.aggregate(statement)))
            case ElementWise(name, inputs, function):
                self.values[name] = Dense(self.rounded(self.apply(function, [self.read(v, narrow) for v in inputs])))
            case Norm(name, inputs, op, eps):
                values = [self.read(v, narrow) for v in inputs]
                self.divisors[name] = self.root_mean_square(self.combine(op.name, values), eps)
            case Project(name, source):
                op = self.interpreter.ops[name]
                # A bias is the same everywhere: one row, broadcast.
                self.logit_parts[name] = op if _is_one(source) else self.times(self.read(source, narrow), op)
            case Select() | Prediction():
                pass  # selects are evaluated where they are aggregated

    def summed_logits(self) -> Tensor:
        prediction = self.interpreter.program.statements[-1]
        assert isinstance(prediction, Prediction)
        total = reduce(torch.add, (self.logit_parts[part.variable] for part in prediction.logits))
        return total.expand(*(self.shape if self.where is None else self.where.shape), -1)

    def is_narrow(self, statement: Statement) -> bool:
        return self.where is not None and statement.name not in self.interpreter.seen_by_others

    # ------------------------------------------------------------------------------- attention

    def attention_key(self, statement: Aggregate) -> tuple[bool, tuple[str, ...]]:
        return self.is_narrow(statement), tuple(selector.variable for selector in statement.selectors)

    def aggregate(self, statement: Aggregate) -> Float[Tensor, "batch queries dims"]:
        key = narrow, names = self.attention_key(statement)
        value = self.read(statement.value)
        if not names:
            mean = self.dense(value).cumsum(1) / self.counts[:, None]
            return self.at_wanted(mean) if narrow else mean
        if key not in self.attention:
            future = self.future[self.where] if narrow else self.future
            scores = self.scores(names, narrow).expand(-1, future.shape[-2], -1)
            self.attention[key] = scores.masked_fill(future, -math.inf).softmax(-1)
        weights = self.attention[key]
        match value:
            case Dense(dense):
                return weights @ dense
            case OneHot(index, size, weight):
                shares = weights if weight is None else weights * weight[:, None, :]
                batch = index.shape[0]
                empty = shares.new_zeros(batch, shares.shape[1], size)
                return empty.scatter_add(
                    2, index[:, None, :].expand(batch, shares.shape[1], -1), shares.expand(batch, -1, -1)
                )

    def scores(self, names: tuple[str, ...], narrow: bool = False) -> Scores:
        """The sum of selectors. Those with the same key are added on the query's side first."""
        by_key: dict[Operand, list[Select]] = {}
        for name in names:
            select = self.interpreter.selects[name]
            by_key.setdefault(select.key, []).append(select)
        parts: list[Tensor] = []
        for operand, selects in by_key.items():
            rows = reduce(torch.add, (self.query_rows(select, narrow) for select in selects))
            parts.append(self.against_keys(rows, self.read(operand)))
        return reduce(torch.add, parts)

    def query_rows(self, select: Select, narrow: bool) -> Float[Tensor, "#batch #query dims"]:
        """What each query looks for, in the key's basis."""
        op = self.interpreter.ops[select.name]
        return op[None] if _is_one(select.query) else self.times(self.read(select.query, narrow), op)

    def against_keys(self, rows: Float[Tensor, "#batch #query dims"], key: Value) -> Scores:
        match key:
            case Dense(dense):
                return rows @ dense.transpose(1, 2)
            case OneHot(index, _, weight):
                batch, length = index.shape
                found = rows.expand(batch, -1, -1).gather(2, index[:, None, :].expand(batch, rows.shape[1], length))
                return found if weight is None else found * weight[:, None, :]

    # ---------------------------------------------------------------------- element by element

    def read(self, operand: Operand, narrow: bool = False) -> Value:
        """The operand's value; `narrow`: at the wanted positions."""
        value = self.values[operand.variable]
        if narrow and operand.variable not in self.narrow:
            match value:
                case Dense(dense):
                    value = Dense(self.at_wanted(dense))
                case OneHot(index):
                    value = replace(value, index=self.at_wanted(index))
        if operand.norm is None:
            return value
        divisor = self.divisors[operand.norm]
        if narrow and operand.norm not in self.narrow:
            divisor = self.at_wanted(divisor)
        match value:
            case Dense(dense):
                return Dense(dense / divisor[..., None])
            case OneHot():
                return replace(value, weight=1 / divisor)

    def at_wanted(self, x: Shaped[Tensor, "batch pos *dims"]) -> Shaped[Tensor, "batch wanted *dims"]:
        assert self.where is not None
        index = self.where if x.ndim == 2 else self.where[..., None].expand(-1, -1, x.shape[-1])
        return x.gather(1, index)

    def dense(self, value: Value) -> Float[Tensor, "batch pos dims"]:
        match value:
            case Dense(dense):
                return dense
            case OneHot(index, size, weight):
                ones = torch.nn.functional.one_hot(index, size).to(self.interpreter.dtype)
                return ones if weight is None else ones * weight[..., None]

    def times(self, value: Value, op: Float[Tensor, "rows columns"]) -> Float[Tensor, "batch pos columns"]:
        match value:
            case Dense(dense):
                return dense @ op
            case OneHot(index, _, weight):
                found = torch.nn.functional.embedding(index, op)
                return found if weight is None else found * weight[..., None]

    def combine(self, name: str, values: list[Value]) -> Float[Tensor, "batch pos dims"]:
        tensors = self.interpreter.tensors
        return reduce(torch.add, (self.times(v, tensors[f"{name}.{i}"]) for i, v in enumerate(values)))

    def root_mean_square(self, x: Float[Tensor, "batch pos dims"], eps: float) -> Float[Tensor, "batch pos"]:
        return (x.square().mean(-1) + eps).sqrt()

    def apply(self, function: Function, inputs: list[Value]) -> Float[Tensor, "batch pos dims"]:
        match function:
            case Network(name, activation, eps):
                tensors = self.interpreter.tensors
                x = self.combine(name, inputs)
                if eps is not None:
                    x = x / self.root_mean_square(x, eps)[..., None]
                hidden = x @ tensors[f"{name}.hidden"] + tensors[f"{name}.hidden_bias"]
                return ACTIVATIONS[activation](hidden) @ tensors[f"{name}.out"] + tensors[f"{name}.out_bias"]
            case PrimitiveFunction(primitive, arguments):
                run = function_primitives()[primitive].function
                return run(torch, [self.dense(x) for x in inputs], *arguments).to(self.interpreter.dtype)

    def rounded(self, x: Float[Tensor, "batch pos dims"]) -> Float[Tensor, "batch pos dims"]:
        """Downwards to p bits. What floating-point sums miss a step by still counts as having reached it."""
        if self.interpreter.precision is None:
            return x
        step = 2.0**self.interpreter.precision
        slack = 16 * torch.finfo(x.dtype).eps * step
        return (x * step + slack).floor() / step


def _is_one(operand: Operand) -> bool:
    return operand.variable == "one" and operand.norm is None
