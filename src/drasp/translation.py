"""The exact translation of a transformer into D-RASP.

The residual stream at every point is a sum of variables, each times a matrix, plus a constant:
x = Σ C_v v + c. It starts as token and position; each head adds one variable for each that it reads (the
same variable, aggregated), each MLP one of its own. So a head's attention score, a product of two such
sums, is a sum of selects, and the logits are a sum of projects.

Layer norm divides x by a number n. Where the transformer has a constant there, it is absorbed into the
matrices. Otherwise n becomes a variable, `norm(…)`, and everything the receiver reads is divided by it,
the constant c included: that is what the variable `one` is for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.errors import DraspError
from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Output,
    Prediction,
    Program,
    Project,
    Reference,
    Select,
    Statement,
    TensorName,
)
from drasp.transformer import Head, Layer, LayerNorm, Transformer
from drasp.vocabulary import Vocabulary

MAX_LINES = 20_000


@dataclass(frozen=True)
class Size:
    """The lines of a translation: those of the theorem, and what biases and exact layer norms add."""

    theorem: int
    biases: int
    norms: int

    @property
    def total(self) -> int:
        return self.theorem + self.biases + self.norms

    def __str__(self) -> str:
        return (
            f"{self.total:,} lines ({self.theorem:,} by the theorem, {self.biases:,} for the biases of queries, "
            f"{self.norms:,} for exact layer norms)"
        )


def theorem_lines(n_layers: int, n_heads: int, split_mlps: bool = False) -> int:
    """The paper's formula. Split MLPs have one line for each variable that they read."""
    variables, lines = 2, 0
    for _ in range(n_layers):
        lines += (variables**2 + variables) * n_heads  # selects and aggregates
        variables += variables * n_heads
        lines += variables if split_mlps else 1
        variables += variables if split_mlps else 1
    return lines + variables + 2  # projects, bias, prediction


def translation_size(transformer: Transformer) -> Size:
    """How many lines `translate` would write, without writing them."""
    theorem = theorem_lines(len(transformer.layers), transformer.n_heads)
    exact = _lines_written(transformer, [norm.constant is None for norm in transformer.norms])
    linear = _lines_written(transformer, [False] * len(transformer.norms))
    return Size(theorem, linear - theorem, exact - linear)


def _lines_written(transformer: Transformer, exact: Sequence[bool]) -> int:
    heads, variables, lines = transformer.n_heads, 2, 0
    for number in range(len(transformer.layers)):
        # From the second layer on the stream has a constant, which an exact norm makes a variable.
        norm = exact[2 * number]
        read = variables + (norm and number > 0)
        lines += norm + heads * (read**2 + read + read)  # selects, key-only selects, aggregates
        variables += heads * read
        lines += 1
        variables += 1
    norm = exact[-1]
    return lines + norm + variables + (norm and bool(transformer.layers)) + 2


def translate(transformer: Transformer, vocabulary: Vocabulary | None = None, output: Output = "softmax") -> Program:
    """The program that gives the transformer's logits. Layer norms with a constant are linear, others exact."""
    vocabulary = vocabulary or Vocabulary.unnamed(transformer.n_vocab)
    if len(vocabulary) != transformer.n_vocab:
        raise DraspError(f"the vocabulary has {len(vocabulary)} tokens, but the model has {transformer.n_vocab}")
    size = translation_size(transformer)
    if size.total > MAX_LINES:
        raise DraspError(f"the translation would have {size}; programs of at most {MAX_LINES:,} lines are built")
    writer = _Writer(transformer.token_embedding.dtype)
    stream = _Stream(
        (
            _Term("token", transformer.token_embedding.double()),
            _Term("pos", transformer.position_embedding.double()),
        ),
        None,
    )
    for number, layer in enumerate(transformer.layers):
        stream = _translate_layer(writer, number, layer, stream)
    _translate_output(writer, transformer, stream, output)
    return Program(vocabulary, transformer.n_positions, tuple(writer.statements), writer.tensors)


@dataclass(frozen=True)
class _Term:
    """A variable and the matrix that takes it into a space: rows are the variable's dimensions."""

    variable: str
    matrix: Float[Tensor, "dims d_model"]


@dataclass(frozen=True)
class _Stream:
    """x = Σ v·matrix + constant; there is no constant before the first layer has written one."""

    terms: tuple[_Term, ...]
    constant: Float[Tensor, " d_model"] | None

    def plus(self, terms: Sequence[_Term], constant: Tensor) -> "_Stream":
        total = constant if self.constant is None else self.constant + constant
        return _Stream((*self.terms, *terms), total)

    def with_one(self) -> tuple[_Term, ...]:
        """The terms, with the constant as a multiple of the variable `one`."""
        return self.terms if self.constant is None else (*self.terms, _Term("one", self.constant[None]))


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

    def fresh(self, prefix: str) -> str:
        self.counts[prefix] = self.counts.get(prefix, 0) + 1
        return f"{prefix}{self.counts[prefix]}"

    def store(self, name: str, tensor: Tensor) -> None:
        # The products are computed in double precision and kept in the model's own.
        self.tensors[name] = tensor.detach().to(self.dtype).contiguous()

    def select(self, query: Operand, key: Operand, tensor: Tensor, comment: str) -> str:
        name = self.fresh("s")
        op = f"A{name[1:]}"
        self.store(op, tensor)
        self.statements.append(Select(name, query, key, TensorName(op), comment=comment))
        return name

    def project(self, source: Operand, tensor: Tensor) -> str:
        name = self.fresh("logits")
        op = f"R{name.removeprefix('logits')}"
        self.store(op, tensor)
        self.statements.append(Project(name, source, TensorName(op)))
        return name

    def read(self, stream: _Stream, norm: LayerNorm, comment: str) -> _Reading:
        """Layer norm as something linear: centre, times the gain, over a norm (a line) or a constant."""
        gain, bias = norm.gain.double(), norm.bias.double()
        if norm.constant is not None:
            operands = tuple((Operand(t.variable), _centred(t.matrix) * gain / norm.constant) for t in stream.terms)
            if stream.constant is not None:
                bias = bias + _centred(stream.constant) * gain / norm.constant
            return _Reading(operands, bias)
        name = self.fresh("n")
        op = f"N{name[1:]}"
        terms = stream.with_one()
        for i, term in enumerate(terms):
            self.store(f"{op}.{i}", _centred(term.matrix))
        inputs = tuple(Operand(term.variable) for term in terms)
        self.statements.append(Norm(name, inputs, TensorName(op), norm.eps, comment))
        return _Reading(tuple((Operand(t.variable, name), _centred(t.matrix) * gain) for t in terms), bias)


def _centred(matrix: Float[Tensor, "*dims d_model"]) -> Float[Tensor, "*dims d_model"]:
    return matrix - matrix.mean(-1, keepdim=True)


def _translate_layer(writer: _Writer, number: int, layer: Layer, stream: _Stream) -> _Stream:
    reading = writer.read(stream, layer.attention_norm, f"layer {number} attention norm")
    added: list[_Term] = []
    constant = layer.attention.output.bias.double()
    for index, head in enumerate(layer.attention.heads()):
        terms, shift = _translate_head(writer, head, reading, f"layer {number} head {index}")
        added += terms
        constant = constant + shift
    stream = stream.plus(added, constant)
    variable = _translate_mlp(writer, number, layer, stream)
    matrix = torch.eye(len(constant), dtype=torch.float64)
    return stream.plus([_Term(variable, matrix)], layer.mlp.output.bias.double())


def _translate_head(
    writer: _Writer, head: Head, reading: _Reading, comment: str
) -> tuple[list[_Term], Float[Tensor, " d_model"]]:
    """One select for each pair of variables, key-only ones for the query's constant, and the aggregates.

    The key's constant adds the same to every key, which softmax does not see.
    """
    query, key, value, output = (m.double() for m in (head.query, head.key, head.value, head.output))
    keys = [(operand, matrix @ key.T) for operand, matrix in reading.operands]
    names = [
        writer.select(operand, key_operand, matrix @ query.T @ key_matrix.T, comment)
        for operand, matrix in reading.operands
        for key_operand, key_matrix in keys
    ]
    fixed_query = reading.constant @ query.T + head.query_bias.double()
    names += [writer.select(ONE, operand, (matrix @ fixed_query)[None], comment) for operand, matrix in keys]
    selectors = tuple(Reference(name) for name in names)
    terms: list[_Term] = []
    for operand, matrix in reading.operands:
        name = writer.fresh("a")
        writer.statements.append(Aggregate(name, selectors, operand, comment))
        terms.append(_Term(name, matrix @ value.T @ output.T))
    # Attention weights add up to one, so the value's constant passes through as it is.
    return terms, (reading.constant @ value.T + head.value_bias.double()) @ output.T


def _translate_mlp(writer: _Writer, number: int, layer: Layer, stream: _Stream) -> str:
    """An MLP with its layer norm is one element-wise function of the variables and `one`."""
    name = writer.fresh("m")
    network = f"F{name[1:]}"
    norm, mlp = layer.mlp_norm, layer.mlp
    weight, bias = mlp.hidden.weight.double(), mlp.hidden.bias.double()
    shift = norm.bias.double()
    if norm.constant is None:
        terms, scale = stream.with_one(), 1.0
    else:
        terms, scale = stream.terms, norm.constant
        if stream.constant is not None:
            shift = shift + _centred(stream.constant) / scale * norm.gain.double()
    for i, term in enumerate(terms):
        writer.store(f"{network}.{i}", _centred(term.matrix) / scale)
    writer.store(f"{network}.hidden", norm.gain.double()[:, None] * weight)
    writer.store(f"{network}.hidden_bias", shift @ weight + bias)
    writer.store(f"{network}.out", mlp.output.weight)
    function = Network(network, mlp.activation, norm.eps if norm.constant is None else None)
    inputs = tuple(Operand(term.variable) for term in terms)
    writer.statements.append(ElementWise(name, inputs, function, f"layer {number} mlp"))
    return name


def _translate_output(writer: _Writer, transformer: Transformer, stream: _Stream, output: Output) -> None:
    reading = writer.read(stream, transformer.final_norm, "final norm")
    unembedding = transformer.unembedding.double()
    names = [writer.project(operand, matrix @ unembedding.T) for operand, matrix in reading.operands]
    names.append(writer.project(ONE, (reading.constant @ unembedding.T)[None]))
    writer.statements.append(Prediction(output, tuple(Reference(name) for name in names)))
