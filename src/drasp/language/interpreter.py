"""Runs D-RASP programs in torch, on batches of inputs of different lengths and offsets.

What makes it fast: one-hot variables are kept as indices and looked up, never multiplied; uniform
attention is a running mean; the selectors of an aggregate are summed by key before anything of size
query × key is made, so that a head with many selects costs one such matrix a key; and where logits are wanted at
some positions only, what nothing else looks at is computed only there.

Every variable can be recorded and edited on its way, and so can `a1 pattern`, the attention weights of an aggregate.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import reduce

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from drasp.activations import ACTIVATIONS
from drasp.attention import causal_weights
from drasp.edits import Edit, Replaced, edited
from drasp.errors import DraspError
from drasp.language.bases import size
from drasp.language.checker import Activation, Divisor, Logits, op_bases, variable_types
from drasp.language.function_primitives import function_primitives
from drasp.language.schedule import Schedules, pattern_of
from drasp.language.syntax import (
    INITIAL_VARIABLES,
    ONE,
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
    once,
)
from drasp.language.tensor_primitives import build
from drasp.language.values import Dense, OneHot, Scores, Value, at_positions
from drasp.sequences import Run, Sequences

_NO_EDITS: Mapping[str, Edit] = {}


class Interpreter:
    """A checked program, ready to run: `interpreter(ids, positions)` gives logits as a transformer does.

    With `precision` = p, the results of aggregate and element_wise_op are rounded downwards to multiples
    of 2^-p, as in the semantics that makes D-RASP comparable with C-RASP.
    """

    def __init__(self, program: Program, dtype: torch.dtype = torch.float32, precision: int | None = None) -> None:
        self.dtype, self.precision = dtype, precision
        self.statements, self.sizes = program.statements, (len(program.vocabulary), program.n_positions, 1)
        self.types = variable_types(program)
        self.plan = once(program.of_shape, "plan", lambda: Schedules.of(program.statements))
        self.tensors = {name: tensor.to(dtype) for name, tensor in program.tensors.items()}
        self.products: dict[Hashable, Tensor] = {}  # of what networks apply to their inputs one after the other
        of_library = once(program.of_shape, ("library", dtype), lambda: _library_tensors(program, dtype))
        self.ops = {
            s.name: self.tensors[s.op.name] if isinstance(s.op, TensorName) else of_library[s.name]
            for s in program.statements
            if isinstance(s, Select | Project)
        }

    @classmethod
    def of(cls, program: Program, dtype: torch.dtype = torch.float32) -> "Interpreter":
        """The program's own, made when it is first asked for."""
        return once(program.of_numbers, (cls, dtype), lambda: cls(program, dtype))

    def __call__(
        self,
        ids: Int[Tensor, "batch pos"],
        positions: Int[Tensor, "batch pos"],
        where: Int[Tensor, "batch wanted"] | None = None,
    ) -> Float[Tensor, "batch wanted_or_pos n_vocab"]:
        """Logits, at all positions or `where` they are wanted."""
        return self.run(Sequences(ids, positions, where)).logits

    def run(self, inputs: Sequences, edits: Mapping[str, Edit] = _NO_EDITS, record: Collection[str] = ()) -> Run[str]:
        """Logits, at all positions or where they are wanted, with some variables edited and some recorded.

        Activations are [batch, pos, dims], selectors [batch, query, key] before softmax and causal mask, norms
        [batch, pos], what a project gives [batch, pos, n_vocab], and `a1 pattern`, the attention weights behind softmax
        and mask, [batch, query, key]. `prediction`, the chances, can be recorded only. With `where`, what no other
        position looks at has the wanted positions instead of all, both as recorded and as an edit holds it.
        Values are dropped after their last use, and what an edit replaces is not computed.
        """
        for name in (*edits, *record):
            if name not in self.plan.names or (name == "prediction" and name in edits):
                raise DraspError(f"`{name}`: the program has no such variable that could be edited or recorded")
        return _Evaluation(self, inputs, edits, frozenset(record)).run()

    def trace(
        self, ids: Int[Tensor, "batch pos"], positions: Int[Tensor, "batch pos"]
    ) -> Mapping[str, Float[Tensor, "batch pos *dims"]]:
        """The value of every variable, `token`, `pos`, `one` and `prediction` among them, as `run` records them."""
        names = (*INITIAL_VARIABLES, *(s.name for s in self.statements))
        return self.run(Sequences(ids, positions), record=names).values

    def values(
        self, ids: Int[Tensor, "batch pos"], positions: Int[Tensor, "batch pos"], operands: Sequence[Operand]
    ) -> list[Float[Tensor, "batch pos _"]]:
        """The values of operands, divided by their norms, as lines would read them."""
        names = {name for operand in operands for name in (operand.variable, operand.norm) if name}
        found = self.run(Sequences(ids, positions), record=names).values
        return [found[o.variable] / found[o.norm][..., None] if o.norm else found[o.variable] for o in operands]

    def apply(self, function: Function, inputs: Sequence[Float[Tensor, "n _"]]) -> Float[Tensor, "n _"]:
        """An element-wise function of values given by hand, one position a row."""
        empty = torch.zeros(1, len(inputs[0]), dtype=torch.long, device=inputs[0].device)
        return _Evaluation(self, Sequences(empty, empty)).apply(function, [Dense(value[None]) for value in inputs])[0]


def _library_tensors(program: Program, dtype: torch.dtype) -> Mapping[str, Float[Tensor, "rows columns"]]:
    """The tensors of the library, by the lines that read them."""
    return {
        s.name: torch.tensor(build(s.op, s.special_op, *op_bases(program, s)), dtype=dtype)
        for s in program.statements
        if isinstance(s, Select | Project) and isinstance(s.op, PrimitiveTensor)
    }


class _Evaluation:
    """One evaluation on one batch. What is narrow is computed at the wanted positions only."""

    def __init__(
        self,
        interpreter: Interpreter,
        inputs: Sequences,
        edits: Mapping[str, Edit] = _NO_EDITS,
        record: frozenset[str] = frozenset(),
    ) -> None:
        self.interpreter, self.inputs, self.edits, self.record = interpreter, inputs, edits, record
        self.where, self.shape, self.device = inputs.where, inputs.ids.shape, inputs.ids.device
        self.recorded: dict[str, Tensor] = {}
        self.divisors: dict[str, Tensor] = {}
        self.logit_parts: dict[str, Tensor] = {}
        # Only of selectors that are edited or recorded; others are evaluated where they are aggregated.
        self.apart: dict[str, Tensor] = {}
        # Aggregates with the same selectors share their attention weights.
        self.attention: dict[tuple[bool, tuple[str, ...]], Tensor] = {}
        self.bias: dict[bool, Tensor] = {}
        self.values: dict[str, Value] = {}
        indices = (inputs.ids, inputs.positions, torch.zeros_like(inputs.ids))
        for name, index, count in zip(INITIAL_VARIABLES, indices, interpreter.sizes, strict=True):
            one_hot = self.values[name] = OneHot(index, count)
            if self.is_touched(name):
                dense = Dense(self.settled(name, lambda value=one_hot: value.dense(interpreter.dtype)))
                self.values[name] = dense if name in edits else one_hot  # which is faster to read

    def run(self) -> Run[str]:
        statements, schedule = self.interpreter.statements, self.interpreter.plan.schedule(self.edits, self.record)
        last, last_attention = schedule.last_use, self.last_attention()
        for number, statement in enumerate(statements):
            if statement.name in schedule.needed:
                self.execute(statement)
            for name in [name for name in self.values if last.get(name, -1) <= number]:
                del self.values[name]
            for key in [key for key in self.attention if last_attention[key] <= number]:
                del self.attention[key]
        return Run(self.summed_logits(), self.recorded)

    def execute(self, statement: Statement) -> None:
        name = statement.name
        match statement:
            case Select():
                if self.is_touched(name):
                    self.apart[name] = self.settled(name, lambda: self.computed(statement))
            case Aggregate() | ElementWise():
                self.values[name] = Dense(self.settled(name, lambda: self.rounded(self.computed(statement))))
            case Norm():
                self.divisors[name] = self.settled(name, lambda: self.computed(statement))
            case Project():
                self.logit_parts[name] = self.settled(name, lambda: self.computed(statement))
            case Prediction():
                if self.is_touched(name):
                    self.recorded[name] = self.computed(statement)
        if isinstance(statement, Aggregate) and pattern_of(name) in self.record - self.recorded.keys():
            self.weights(statement)  # which a replaced aggregate has not asked for

    def computed(self, statement: Statement) -> Tensor:
        name, narrow = statement.name, self.is_narrow(statement.name)
        match statement:
            case Select():
                return self.scores((name,), narrow)
            case Aggregate():
                return self.aggregate(statement)
            case ElementWise(inputs=inputs, function=function):
                return self.apply(function, [self.read(v, narrow) for v in inputs])
            case Norm(inputs=inputs, op=op, eps=eps):
                return self.root_mean_square(self.combine(op.name, [self.read(v, narrow) for v in inputs]), eps)
            case Project(input=source):
                # A bias is the same everywhere: one row, broadcast.
                return self.op(name) if self.is_one(source) else self.read(source, narrow).times(self.op(name))
            case Prediction(output=output):
                logits = self.summed_logits()
                return logits.softmax(-1) if output == "softmax" else logits.sigmoid()

    def summed_logits(self) -> Tensor:
        prediction = self.interpreter.statements[-1]
        assert isinstance(prediction, Prediction)
        total = reduce(torch.add, (self.logit_parts[part.variable] for part in prediction.logits))
        return total.expand(*(self.shape if self.where is None else self.where.shape), -1)

    def is_narrow(self, name: str) -> bool:
        return self.where is not None and name not in self.interpreter.plan.seen_by_others

    # ----------------------------------------------------------------------- edits and records

    def is_touched(self, name: str) -> bool:
        return name in self.edits or name in self.record

    def settled(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """The value of a variable, recorded where that is wanted: as computed, or what an edit makes of it."""
        if not self.is_touched(name):
            return compute()
        edit, shape = self.edits.get(name), self.shape_of(name)
        nothing = torch.zeros((), dtype=self.interpreter.dtype, device=self.device)
        value = nothing if isinstance(edit, Replaced) else compute().expand(shape)
        try:
            value = edited(value, edit).to(nothing).expand(shape)
        except RuntimeError:
            raise DraspError(f"the edit of `{name}` does not fit a value of shape {list(shape)}") from None
        if name in self.record:
            self.recorded[name] = value
        return value

    def shape_of(self, name: str) -> tuple[int, ...]:
        variable = name.removesuffix(" pattern")
        batch, length = self.shape
        places = self.where.shape[1] if self.where is not None and self.is_narrow(variable) else length
        match self.interpreter.types[name] if name == variable else None:
            case Activation(basis):
                return batch, places, size(basis)
            case Divisor():
                return batch, places
            case Logits():
                return batch, places, self.interpreter.sizes[0]
            case _:
                return batch, places, length

    # ------------------------------------------------------------------------------- attention

    def last_attention(self) -> dict[tuple[bool, tuple[str, ...]], int]:
        statements = self.interpreter.statements
        return {self.attention_key(s): i for i, s in enumerate(statements) if isinstance(s, Aggregate)}

    def attention_key(self, statement: Aggregate) -> tuple[bool, tuple[str, ...]]:
        return self.is_narrow(statement.name), tuple(selector.variable for selector in statement.selectors)

    def aggregate(self, statement: Aggregate) -> Float[Tensor, "batch queries dims"]:
        value = self.read(statement.value)
        if not statement.selectors and not self.is_touched(pattern_of(statement.name)):
            counts = torch.arange(1, self.shape[1] + 1, dtype=self.interpreter.dtype, device=self.device)
            mean = value.dense(self.interpreter.dtype).cumsum(1) / counts[:, None]
            return self.at_wanted(mean) if self.is_narrow(statement.name) else mean
        return value.mixed(self.weights(statement))

    def weights(self, statement: Aggregate) -> Float[Tensor, "#batch queries key"]:
        return self.settled(pattern_of(statement.name), lambda: self.shared_weights(self.attention_key(statement)))

    def shared_weights(self, key: tuple[bool, tuple[str, ...]]) -> Float[Tensor, "#batch queries key"]:
        narrow, names = key
        if key not in self.attention:
            if narrow not in self.bias:
                self.bias[narrow] = self.inputs.bias(narrow).to(self.interpreter.dtype)
            self.attention[key] = causal_weights(self.scores(names, narrow), self.bias[narrow])
        return self.attention[key]

    def scores(self, names: tuple[str, ...], narrow: bool) -> Scores:
        """The sum of selectors. Those with the same key are added on the query's side first."""
        parts: list[Tensor] = []
        by_key: dict[Operand, list[Select]] = {}
        for name in names:
            if name in self.apart:
                scores = self.apart[name]
                parts.append(self.at_wanted(scores) if narrow and not self.is_narrow(name) else scores)
            else:
                select = self.interpreter.plan.selects[name]
                by_key.setdefault(select.key, []).append(select)
        for operand, selects in by_key.items():
            rows = reduce(torch.add, (self.query_rows(select, narrow) for select in selects))
            parts.append(self.read(operand).scores(rows))
        nothing = torch.zeros(1, 1, self.shape[1], dtype=self.interpreter.dtype, device=self.device)
        return reduce(torch.add, parts) if parts else nothing

    def query_rows(self, select: Select, narrow: bool) -> Float[Tensor, "#batch #query dims"]:
        """What each query looks for, in the key's basis."""
        op = self.op(select.name)
        return op[None] if self.is_one(select.query) else self.read(select.query, narrow).times(op)

    # ---------------------------------------------------------------------- element by element

    def read(self, operand: Operand, narrow: bool = False) -> Value:
        """The operand's value; `narrow`: at the wanted positions."""
        value = self.values[operand.variable]
        if narrow and not self.is_narrow(operand.variable):
            value = value.at(self.wanted)
        if operand.norm is None:
            return value
        divisor = self.divisors[operand.norm]
        return value.divided(self.at_wanted(divisor) if narrow and not self.is_narrow(operand.norm) else divisor)

    @property
    def wanted(self) -> Int[Tensor, "batch wanted"]:
        assert self.where is not None
        return self.where

    def at_wanted(self, x: Shaped[Tensor, "batch pos *dims"]) -> Shaped[Tensor, "batch wanted *dims"]:
        return at_positions(x, self.wanted)

    def op(self, name: str) -> Float[Tensor, "rows columns"]:
        return self.interpreter.ops[name].to(self.device)

    def stored(self, name: str) -> Tensor:
        return self.interpreter.tensors[name].to(self.device)

    def is_one(self, operand: Operand) -> bool:
        return operand == ONE and "one" not in self.edits

    def combine(self, name: str, values: list[Value]) -> Float[Tensor, "batch pos dims"]:
        return reduce(torch.add, (v.times(self.stored(f"{name}.{i}")) for i, v in enumerate(values)))

    def root_mean_square(self, x: Float[Tensor, "batch pos dims"], eps: float) -> Float[Tensor, "batch pos"]:
        return (x.square().mean(-1) + eps).sqrt()

    def apply(self, function: Function, inputs: list[Value]) -> Float[Tensor, "batch pos dims"]:
        match function:
            case Network(name, activation, eps):
                hidden = self.hidden(name, eps, inputs) + self.stored(f"{name}.hidden_bias")
                return ACTIVATIONS[activation](hidden) @ self.stored(f"{name}.out") + self.stored(f"{name}.out_bias")
            case PrimitiveFunction(primitive, arguments):
                run = function_primitives()[primitive].function
                return run(torch, [x.dense(self.interpreter.dtype) for x in inputs], *arguments).to(
                    self.interpreter.dtype
                )

    def hidden(self, name: str, eps: float | None, inputs: list[Value]) -> Float[Tensor, "batch pos hidden"]:
        """What a network makes of its inputs before bias and activation.

        Few dimensions go through one product of matrices, without the space between, which is as wide as a model.
        """
        sources, matrix = [self.stored(f"{name}.{i}") for i in range(len(inputs))], self.stored(f"{name}.hidden")
        at_once = sum(map(len, sources)) < len(matrix) and not any(t.requires_grad for t in (*sources, matrix))
        if at_once:
            read = torch.cat([value.dense(self.interpreter.dtype) for value in inputs], -1)
            matrix = once(self.interpreter.products, name, lambda: torch.cat(sources) @ self.stored(f"{name}.hidden"))
        else:
            read = self.combine(name, inputs)
        if eps is not None:
            read = read / self.root_mean_square(self.combine(name, inputs) if at_once else read, eps)[..., None]
        return read @ matrix

    def rounded(self, x: Float[Tensor, "batch pos dims"]) -> Float[Tensor, "batch pos dims"]:
        """Values rounded downwards to p bits; what floating-point sums miss a step by counts as having reached it."""
        if self.interpreter.precision is None:
            return x
        step = 2.0**self.interpreter.precision
        slack = 16 * torch.finfo(x.dtype).eps * step
        return (x * step + slack).floor() / step
