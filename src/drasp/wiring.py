"""Writes a transformer, or what passes have left of it, as a D-RASP program.

The residual stream at every point is a sum of variables, each times a matrix, plus a constant:
x = Σ C_v v + c. It starts as token and position; each head adds one variable for each that it reads (the
same variable, aggregated), each MLP one of its own. So a head's attention score, a product of two such
sums, is a sum of selects, and the logits are a sum of projects.

Layer norm divides x by a number n. Where the transformer has a constant there, it is absorbed into the
matrices. Otherwise n becomes a variable, `norm(…)`, and everything the receiver reads is divided by it,
the constant c included: that is what the variable `one` is for.

A wiring says what each receiver sees of what was sent: `everything` for the exact translation; a graph whose
edges have been cut sees less, and a constant instead. Some things fold away without any loss: a layer norm or an MLP
of one one-hot variable is a table, two heads with uniform attention aggregate the same, and the terms of one
variable are one term.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Prediction,
    Program,
    Project,
    Reference,
    Select,
    Statement,
    TensorName,
)
from drasp.sites import OUT, POSITION, TOKEN, Component, Edge, NormSite, Site
from drasp.sites import Receiver as Place
from drasp.transformer import ACTIVATIONS, Head, Layer, LayerNorm, Mlp, Transformer
from drasp.vocabulary import Output, Vocabulary


@dataclass(frozen=True)
class Receiver:
    """Where the residual stream is read: q, k or v of a head, mlp, or out."""

    layer: int
    kind: str
    head: int = 0

    def __str__(self) -> str:
        match self.kind:
            case "out":
                return "out"
            case "mlp":
                return f"mlp{self.layer}"
            case _:
                return f"{self.kind}{self.layer}.{self.head}"


@dataclass(frozen=True)
class Term:
    """A variable and the matrix that takes it into a space: rows are the variable's dimensions."""

    variable: str
    matrix: Float[Tensor, "dims d_model"]


@dataclass(frozen=True)
class Stream:
    """x = Σ v·matrix + constant; no constant where nothing has written one."""

    terms: tuple[Term, ...] = ()
    constant: Float[Tensor, " d_model"] | None = None

    def with_one(self) -> tuple[Term, ...]:
        """The terms, with the constant as a multiple of the variable `one`."""
        return self.terms if self.constant is None else (*self.terms, Term("one", self.constant[None]))


@dataclass(frozen=True)
class Sent:
    """What was written to the residual stream so far: token, position, then the heads and the MLP of each layer.

    The biases of attention layers belong to no head and are kept apart.
    """

    components: tuple[Stream, ...]
    biases: Stream = Stream()

    def plus(self, *components: Stream) -> "Sent":
        return Sent((*self.components, *components), self.biases)


# What a receiver sees of it, and its norm.
Wiring = Callable[[Receiver, Sent, LayerNorm], tuple[Stream, LayerNorm]]


def everything(_receiver: Receiver, sent: Sent, norm: LayerNorm) -> tuple[Stream, LayerNorm]:
    """The whole residual stream, as in the model itself."""
    return total([*sent.components, sent.biases]), norm


def total(parts: Sequence[Stream]) -> Stream:
    """The sum; a variable that several parts hold is one term."""
    matrices: dict[str, Tensor] = {}
    constant: Tensor | None = None
    for part in parts:
        for term in part.terms:
            known = matrices.get(term.variable)
            matrices[term.variable] = term.matrix if known is None else known + term.matrix
        if part.constant is not None:
            constant = part.constant if constant is None else constant + part.constant
    return Stream(tuple(Term(variable, matrix) for variable, matrix in matrices.items()), constant)


def write_program(transformer: Transformer, wiring: Wiring, vocabulary: Vocabulary, output: Output) -> Program:
    """Layer by layer: what each receiver sees becomes lines, and what it sends the next receivers' terms."""
    writer = _Writer(transformer.token_embedding.dtype)
    token = Stream((Term("token", transformer.token_embedding.double()),))
    pos = Stream((Term("pos", transformer.position_embedding.double()),))
    sent = Sent((token, pos))
    for number, layer in enumerate(transformer.layers):
        sent = sent.plus(*_write_heads(writer, number, layer, wiring, sent))
        sent = Sent(sent.components, total([sent.biases, Stream((), layer.attention.output.bias.double())]))
        seen, norm = wiring(Receiver(number, "mlp"), sent, layer.mlp_norm)
        sent = sent.plus(_write_mlp(writer, number, layer.mlp, seen, norm))
    seen, norm = wiring(Receiver(len(transformer.layers), "out"), sent, transformer.final_norm)
    reading = writer.read(seen, norm, (NormSite(OUT),))
    unembedding = transformer.unembedding.double()
    names = [writer.project(operand, matrix @ unembedding.T) for operand, matrix in reading.operands]
    names.append(writer.project(ONE, (reading.constant @ unembedding.T)[None]))
    writer.statements.append(Prediction(output, tuple(Reference(name) for name in names), sites=(OUT,)))
    return Program(vocabulary, transformer.n_positions, tuple(writer.statements), writer.tensors)


@dataclass(frozen=True)
class _Reading:
    """What a receiver sees behind its layer norm: Σ operand·matrix + constant."""

    operands: tuple[tuple[Operand, Float[Tensor, "_ d_model"]], ...]
    constant: Float[Tensor, " d_model"]


class _Writer:
    """Collects statements and tensors, and numbers the variables of each kind."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.statements: list[Statement] = []
        self.tensors: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.uniform: dict[Operand, str] = {}

    def fresh(self, prefix: str) -> str:
        self.counts[prefix] = self.counts.get(prefix, 0) + 1
        return f"{prefix}{self.counts[prefix]}"

    def store(self, name: str, tensor: Tensor) -> None:
        # The products are computed in double precision and kept in the model's own.
        self.tensors[name] = tensor.detach().to(self.dtype).contiguous()

    def select(self, query: Operand, key: Operand, tensor: Tensor, sites: tuple[Site, ...]) -> str:
        name = self.fresh("s")
        op = f"A{name[1:]}"
        self.store(op, tensor)
        self.statements.append(Select(name, query, key, TensorName(op), sites=sites))
        return name

    def aggregate(self, selectors: list[str], value: Operand, sites: tuple[Site, ...]) -> str:
        if not selectors and value in self.uniform:
            return self.uniform[value]
        name = self.fresh("a")
        references = tuple(Reference(selector) for selector in selectors)
        self.statements.append(Aggregate(name, references, value, sites=sites))
        if not selectors:
            self.uniform[value] = name
        return name

    def project(self, source: Operand, tensor: Tensor) -> str:
        name = self.fresh("logits")
        op = f"R{name.removeprefix('logits')}"
        self.store(op, tensor)
        senders = {"token": (TOKEN,), "pos": (POSITION,), "one": ()} | {s.name: s.sites for s in self.statements}
        sites = tuple(Edge(site, OUT) for site in senders[source.variable] if isinstance(site, Component))
        self.statements.append(Project(name, source, TensorName(op), sites=sites or (OUT,)))
        return name

    def read(self, stream: Stream, norm: LayerNorm, sites: tuple[Site, ...]) -> _Reading:
        """Layer norm as something linear: centre, times the gain, over a norm (a line) or a constant."""
        gain, bias = norm.gain.double(), norm.bias.double()
        linear = _linear_norm(stream, norm)
        if linear is not None:
            operands = tuple((Operand(term.variable), term.matrix * gain) for term in linear.terms)
            return _Reading(operands, bias if linear.constant is None else bias + linear.constant * gain)
        name = self.fresh("n")
        op = f"N{name[1:]}"
        terms = stream.with_one()
        for i, term in enumerate(terms):
            self.store(f"{op}.{i}", _centred(term.matrix))
        inputs = tuple(Operand(term.variable) for term in terms)
        self.statements.append(Norm(name, inputs, TensorName(op), norm.eps, sites=sites))
        return _Reading(tuple((Operand(t.variable, name), _centred(t.matrix) * gain) for t in terms), bias)


def _centred(matrix: Float[Tensor, "*dims d_model"]) -> Float[Tensor, "*dims d_model"]:
    return matrix - matrix.mean(-1, keepdim=True)


def _linear_norm(stream: Stream, norm: LayerNorm) -> Stream | None:
    """The normed stream where that is linear in its variables; None where it takes a norm of its own."""
    centred = [Term(term.variable, _centred(term.matrix)) for term in stream.terms]
    constant = None if stream.constant is None else _centred(stream.constant)
    if norm.constant is not None:
        terms = tuple(Term(term.variable, term.matrix / norm.constant) for term in centred)
        return Stream(terms, None if constant is None else constant / norm.constant)
    match centred:
        case []:
            return Stream((), None if constant is None else _over_own_norm(constant, norm.eps))
        case [Term("token" | "pos" as variable, matrix)]:
            # One direction at a time: each row has its norm, and the constant goes into every row.
            rows = matrix if constant is None else matrix + constant
            return Stream((Term(variable, _over_own_norm(rows, norm.eps)),))
        case _:
            return None


def _over_own_norm(rows: Float[Tensor, "*dims d_model"], eps: float) -> Float[Tensor, "*dims d_model"]:
    return rows / (rows.square().mean(-1, keepdim=True) + eps).sqrt()


def _write_heads(writer: _Writer, number: int, layer: Layer, wiring: Wiring, sent: Sent) -> list[Stream]:
    """Each head's queries, keys and values. Receivers that see the same share what they read."""
    known: list[tuple[Stream, LayerNorm, _Reading]] = []

    def read(kind: str, head: int) -> _Reading:
        seen, norm = wiring(Receiver(number, kind, head), sent, layer.attention_norm)
        for stream, its_norm, reading in known:
            if its_norm.constant == norm.constant and _same(stream, seen):
                return reading
        known.append((seen, norm, writer.read(seen, norm, (NormSite(Place(number, "attention")),))))
        return known[-1][2]

    return [
        _write_head(writer, head, read("q", h), read("k", h), read("v", h), (Component("head", number, h),))
        for h, head in enumerate(layer.attention.heads())
    ]


def _same(a: Stream, b: Stream) -> bool:
    if [term.variable for term in a.terms] != [term.variable for term in b.terms]:
        return False
    pairs = [(x.matrix, y.matrix) for x, y in zip(a.terms, b.terms, strict=True)]
    if a.constant is not None and b.constant is not None:
        pairs.append((a.constant, b.constant))
    return (a.constant is None) == (b.constant is None) and all(torch.equal(x, y) for x, y in pairs)


def _write_head(
    writer: _Writer, head: Head, queries: _Reading, keys: _Reading, values: _Reading, sites: tuple[Site, ...]
) -> Stream:
    """One select for each pair of variables, key-only ones for the query's constant, and the aggregates.

    The key's constant adds the same to every key, which softmax does not see.
    """
    query, key, value, output = (m.double() for m in (head.query, head.key, head.value, head.output))
    in_key_space = [(operand, matrix @ key.T) for operand, matrix in keys.operands]
    names = [
        writer.select(operand, key_operand, matrix @ query.T @ key_matrix.T, sites)
        for operand, matrix in queries.operands
        for key_operand, key_matrix in in_key_space
    ]
    fixed = queries.constant @ query.T + head.query_bias.double()
    names += [writer.select(ONE, operand, (matrix @ fixed)[None], sites) for operand, matrix in in_key_space]
    terms = tuple(
        Term(writer.aggregate(names, operand, sites), matrix @ value.T @ output.T)
        for operand, matrix in values.operands
    )
    # Attention weights add up to one, so the value's constant passes through as it is.
    return Stream(terms, (values.constant @ value.T + head.value_bias.double()) @ output.T)


def _write_mlp(writer: _Writer, number: int, mlp: Mlp, seen: Stream, norm: LayerNorm) -> Stream:
    """An MLP with its layer norm is one element-wise function of the variables and `one`."""
    weight, bias = mlp.hidden.weight.double(), mlp.hidden.bias.double()
    gain, shift, out = norm.gain.double(), norm.bias.double(), mlp.output.weight.double()
    out_bias = mlp.output.bias.double()
    linear = _linear_norm(seen, norm)
    match linear.terms if linear else None:
        case () | (Term("token" | "pos"),) as terms if linear:
            # A function of one direction at a time is a table.
            constant = linear.constant if linear.constant is not None else torch.zeros_like(gain)
            rows = [(term.matrix + constant) for term in terms] or [constant[None]]
            table = ACTIVATIONS[mlp.activation]((rows[0] * gain + shift) @ weight + bias) @ out
            if terms:
                return Stream((Term(terms[0].variable, table),), out_bias)
            return Stream((), table[0] + out_bias)
        case _:
            pass
    name = writer.fresh("m")
    network = f"F{name[1:]}"
    if linear is None:
        terms, eps = seen.with_one(), norm.eps
        matrices = [_centred(term.matrix) for term in terms]
    else:
        terms, eps = linear.terms, None
        matrices = [term.matrix for term in terms]
        shift = shift if linear.constant is None else shift + linear.constant * gain
    for i, matrix in enumerate(matrices):
        writer.store(f"{network}.{i}", matrix)
    writer.store(f"{network}.hidden", gain[:, None] * weight)
    writer.store(f"{network}.hidden_bias", shift @ weight + bias)
    writer.store(f"{network}.out", out)
    writer.store(f"{network}.out_bias", out_bias)
    inputs = tuple(Operand(term.variable) for term in terms)
    function = Network(network, mlp.activation, eps)
    writer.statements.append(ElementWise(name, inputs, function, sites=(Component("mlp", number),)))
    return Stream((Term(name, torch.eye(out.shape[1], dtype=torch.float64)),))
