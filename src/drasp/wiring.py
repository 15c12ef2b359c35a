"""Writes a transformer, or what passes have left of it, as a D-RASP program.

The residual stream at every point is a sum of variables, each times a matrix, plus a constant:
x = Σ C_v v + c. It starts as token and position; each head adds one variable for each that it reads (the
same variable, aggregated), each MLP one of its own. So a head's attention score, a product of two such
sums, is a sum of selects, and the logits are a sum of projects.

Layer norm divides x by a number n. Where the transformer has a constant there, or no norm at all, it is absorbed
into the matrices. Otherwise n becomes a variable, `norm(…)`, and everything the receiver reads is divided by it,
the constant c included: that is what the variable `one` is for. RMSNorm is the same but for the mean over the stream,
which it does not take away. A bias of zeros is none, and takes no line.

What is written is the model with edits (`forward.run` runs the same): edges that are cut leave terms out, constants
join c. Some things fold away without any loss: a layer norm or an MLP of one one-hot variable is a table, two heads
with uniform attention aggregate the same, and the terms of one variable are one term. Every line says what of the model
it stands for: its head, MLP or norm, or its edges to the output; and, where a variable is read by way of what folded
away, the edges that it is read along.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.activations import ACTIVATIONS
from drasp.edits import Edit, Replaced, Scaled, Shifted
from drasp.errors import DraspError
from drasp.language.syntax import ONE, ElementWise, Network, Norm, Operand, Prediction, Program, Reference, TensorName
from drasp.layers import HeadWeights, Layer, Mlp, StreamNorm
from drasp.program_writer import ProgramWriter
from drasp.sites import (
    OUT,
    POSITION,
    SIDES,
    TOKEN,
    Component,
    ConstantNorm,
    Edge,
    NormSite,
    Path,
    Product,
    Read,
    Receiver,
    Sender,
    Site,
    through,
)
from drasp.streams import Constant, Stream, Term, bias_of, joined_senders, merged, sum_of, through_matrix, times, total
from drasp.transformer import Transformer
from drasp.vocabulary import Output, Vocabulary


class _Model:
    """The transformer with its edits: what was sent so far, and what each receiver sees of it."""

    def __init__(self, transformer: Transformer, edits: Mapping[Site, Edit]) -> None:
        self.transformer, self.edits = transformer, edits
        self.sent: dict[Component, Stream] = {}
        self.biases = Stream()  # of attention layers, which belong to no head

    def send(self, component: Component, stream: Stream) -> None:
        self.sent[component] = self.edited(component, stream)

    def seen(self, receiver: Receiver) -> Stream:
        senders = self.transformer.anatomy.senders_to(receiver)
        parts = [self.edited(Edge(sender, receiver), self.sent[sender]) for sender in senders]
        seen = total([*parts, self.biases])
        terms = tuple(
            replace(term, unread=self.is_cut(Read(term.path, receiver)))
            for term in seen.terms
            if self.hears(term.path, receiver)
        )
        return self.edited(receiver, replace(seen, terms=terms))

    def hears(self, path: Sender, receiver: Receiver) -> bool:
        """Whether a receiver hears what comes on a way through heads; that of one component is cut with its edge."""
        return not isinstance(path, Path) or not self.is_cut(Edge(path, receiver))

    def is_cut(self, site: Site) -> bool:
        match self.edits.get(site):
            case None:
                return False
            case Replaced(float(by)) if by == 0:
                return True
            case _:
                raise DraspError(f"{site}: what was done there has no program; expected it to be cut")

    def edited(self, site: Site, stream: Stream) -> Stream:
        match self.edits.get(site):
            case None:
                return stream
            case Replaced(float(by)) if by == 0:
                return Stream()
            case Replaced(Tensor(ndim=1) as by):
                return Stream((), by.double())
            case Shifted(Tensor(ndim=1) as by):
                return total([stream, Stream((), by.double())])
            case Scaled(float(by), ablation) if not isinstance(ablation, Tensor) and ablation == 0:
                return stream.times(by)
            case _:
                raise DraspError(f"{site}: what was done there has no program; expected a constant, or a scale")

    def norm_constant(self, receiver: Receiver) -> float | None:
        """What the receiver's norm is replaced by, where it is."""
        sites = [NormSite(receiver)]
        if receiver.kind in SIDES:
            sites.append(NormSite(Receiver(receiver.layer, "attention")))
        match next((self.edits[site] for site in sites if site in self.edits), None):
            case None:
                return None
            case Replaced(float(by)):
                return by
            case _:
                raise DraspError(f"{sites[0]}: what was done there has no program; expected a number instead")

    def divisors(self, receiver: Receiver) -> "_Divisors":
        match self.edits.get(ConstantNorm(receiver)):
            case None:
                return _Divisors(self.norm_constant(receiver))
            case Replaced(float(by)):
                return _Divisors(self.norm_constant(receiver), by)
            case _:
                raise DraspError(f"{ConstantNorm(receiver)}: what was done there has no program; expected a number")


@dataclass(frozen=True)
class _Divisors:
    """The numbers that a layer norm divides by: everything, or what is constant. None: the root of the variance."""

    all: float | None = None
    constants: float | None = None


def write_program(
    transformer: Transformer, edits: Mapping[Site, Edit], vocabulary: Vocabulary, output: Output
) -> Program:
    """The program of a model with edits, layer by layer: what each receiver sees becomes lines, and these are sent."""
    writer, model = ProgramWriter(transformer.token_embedding.dtype), _Model(transformer, edits)
    model.send(TOKEN, Stream((Term("token", transformer.token_embedding.double(), TOKEN),)))
    model.send(POSITION, Stream((Term("pos", transformer.position_embedding.double(), POSITION),)))
    for number, layer in enumerate(transformer.layers):
        for head, stream in _write_heads(writer, number, layer, model):
            model.send(head, stream)
        model.biases = total([model.biases, Stream((), bias_of(layer.attention.output.bias))])
        if layer.mlp is not None:
            mlp = Component("mlp", number)
            model.send(mlp, _write_mlp(writer, mlp, layer.mlp, layer.mlp_norm, model))
    reading = _written_reading(writer, model.seen(OUT), transformer.final_norm, model.divisors(OUT), OUT)
    unembedding = transformer.unembedding.double()
    names: list[str] = []
    for operand, matrix, senders in reading.merged():
        writer.make_room(len(matrix), len(unembedding))
        names.append(writer.project(operand, matrix @ unembedding.T, senders))
    fixed = sum_of(through_matrix(reading.constant, unembedding.T), bias_of(transformer.unembedding_bias))
    names.append(writer.project(ONE, unembedding.new_zeros(1, len(unembedding)) if fixed is None else fixed[None], ()))
    writer.add(Prediction(output, tuple(Reference(name) for name in names)), (OUT,))
    return Program(vocabulary, transformer.n_positions, tuple(writer.with_sites()), writer.tensors)


@dataclass(frozen=True)
class _Reading:
    """What a receiver sees behind its layer norm: Σ operand·matrix + constant; `norm` is the norm's line."""

    terms: tuple[Term, ...]
    constant: Constant
    norm: str | None = None

    def operand(self, term: Term) -> Operand:
        return Operand(term.variable, self.norm)

    def merged(self) -> list[tuple[Operand, Float[Tensor, "_ d_model"], tuple[Component, ...]]]:
        return [(Operand(variable, self.norm), matrix, senders) for variable, matrix, senders in merged(self.terms)]


def _written_reading(
    writer: ProgramWriter, stream: Stream, norm: StreamNorm, divisors: _Divisors, receiver: Receiver
) -> _Reading:
    """A norm as something linear: centre, times the gain, over a norm (a line) or a constant."""
    gain, bias = norm.gain.double(), bias_of(norm.bias)
    linear = _linear_norm(stream, norm, divisors)
    if linear is not None:
        terms = tuple(replace(term, matrix=term.matrix * gain) for term in _read(linear.terms))
        return _Reading(terms, sum_of(bias, times(linear.constant, gain)))
    name = writer.fresh("n")
    op = f"N{name[1:]}"
    centred = [replace(term, matrix=norm.centred(term.matrix)) for term in stream.with_one()]
    variables = merged(centred)
    for i, (_, matrix, _) in enumerate(variables):
        writer.store(f"{op}.{i}", matrix)
    inputs = tuple(Operand(variable) for variable, _, _ in variables)
    writer.add(Norm(name, inputs, TensorName(op), norm.eps), (NormSite(receiver),))
    if divisors.constants is not None and stream.constant is not None:
        # The constant counts in the norm, but is itself divided by a number.
        bias = sum_of(bias, norm.centred(stream.constant) * gain / divisors.constants)
        centred = centred[:-1]
    return _Reading(tuple(replace(term, matrix=term.matrix * gain) for term in _read(centred)), bias, name)


def _read(terms: Iterable[Term]) -> list[Term]:
    return [term for term in terms if not term.unread]


def _linear_norm(stream: Stream, norm: StreamNorm, divisors: _Divisors) -> Stream | None:
    """The normed stream where that is linear in its variables; None where it takes a norm of its own."""
    centred = [replace(term, matrix=norm.centred(term.matrix)) for term in stream.terms]
    constant = None if stream.constant is None else norm.centred(stream.constant)
    if divisors.all is not None:
        return Stream(tuple(centred), constant).times(1 / divisors.all)
    if norm.kind == "none":
        return Stream(tuple(centred), times(constant, 1 / (divisors.constants or 1.0)))
    match merged(centred):
        case []:
            if constant is None:
                return Stream()
            return Stream((), constant / (divisors.constants or _root(constant, norm.eps)))
        case [("token" | "pos" as variable, matrix, _)]:
            # One direction at a time: each row has its norm, and the constant, divided by it, is a table too.
            root = _root(matrix if constant is None else matrix + constant, norm.eps)
            terms = tuple(replace(term, matrix=term.matrix / root) for term in centred)
            if constant is None:
                return Stream(terms)
            if divisors.constants is not None:
                return Stream(terms, constant / divisors.constants)
            return Stream((*terms, Term(variable, constant.expand_as(matrix) / root)))
        case _:
            return None


def _root(rows: Float[Tensor, "*dims d_model"], eps: float) -> Float[Tensor, "*dims 1"]:
    return (rows.square().mean(-1, keepdim=True) + eps).sqrt()


def _write_heads(writer: ProgramWriter, number: int, layer: Layer, model: _Model) -> list[tuple[Component, Stream]]:
    """Each head's queries, keys and values. Receivers that see the same share what they read."""
    known: list[tuple[Stream, _Divisors, _Reading, list[Receiver]]] = []

    def read(receiver: Receiver) -> _Reading:
        seen, divisors = model.seen(receiver), model.divisors(receiver)
        for stream, its_divisors, reading, receivers in known:
            if its_divisors == divisors and _same(stream, seen):
                receivers.append(receiver)
                return reading
        known.append(
            (seen, divisors, _written_reading(writer, seen, layer.attention_norm, divisors, receiver), [receiver])
        )
        return known[-1][2]

    heads = [
        (head, _write_head(writer, model, head, weights, *(read(side) for side in head.receivers)))
        for head, weights in zip(model.transformer.anatomy.heads(number), layer.attention.heads(), strict=True)
    ]
    for _, _, reading, receivers in known:
        if reading.norm is not None:
            all_of_them = len(receivers) == len(SIDES) * len(heads)
            receivers = [Receiver(number, "attention")] if all_of_them else receivers
            writer.sites[reading.norm] = [NormSite(receiver) for receiver in receivers]
    return heads


def _same(a: Stream, b: Stream) -> bool:
    if [(t.variable, t.path, t.unread) for t in a.terms] != [(t.variable, t.path, t.unread) for t in b.terms]:
        return False
    pairs = [(x.matrix, y.matrix) for x, y in zip(a.terms, b.terms, strict=True)]
    if a.constant is not None and b.constant is not None:
        pairs.append((a.constant, b.constant))
    return (a.constant is None) == (b.constant is None) and all(torch.equal(x, y) for x, y in pairs)


def _write_head(
    writer: ProgramWriter,
    model: _Model,
    head: Component,
    weights: HeadWeights,
    queries: _Reading,
    keys: _Reading,
    values: _Reading,
) -> Stream:
    """One select for each pair of variables, key-only ones for the query's constant, and the aggregates.

    The key's constant adds the same to every key, which softmax does not see.
    """
    query, key, value, output = (m.double() for m in (weights.query, weights.key, weights.value, weights.output))
    query_side, key_side, value_side = head.receivers
    in_key_space = [replace(term, matrix=term.matrix @ key.T) for term in keys.terms]
    fixed = sum_of(through_matrix(queries.constant, query.T), bias_of(weights.query_bias))
    looking = [(queries.operand(term), replace(term, matrix=term.matrix @ query.T)) for term in queries.terms]
    pairs: dict[tuple[Operand, Operand], list[tuple[Term, Term]]] = {}
    for operand, rows in (*looking, *([] if fixed is None else [(ONE, Term("one", fixed[None]))])):
        for columns in in_key_space:
            if not model.is_cut(Product(rows.source, columns.source, head)):
                pairs.setdefault((operand, keys.operand(columns)), []).append((rows, columns))
    names: list[str] = []
    for (operand, key_operand), products in pairs.items():
        writer.make_room(len(products[0][0].matrix), len(products[0][1].matrix))
        scores = torch.stack([rows.matrix @ columns.matrix.T for rows, columns in products]).sum(0)
        name = writer.select(operand, key_operand, scores, head)
        writer.note(name, operand.variable, joined_senders(rows for rows, _ in products), query_side)
        writer.note(name, key_operand.variable, joined_senders(columns for _, columns in products), key_side)
        names.append(name)
    aggregates = {operand: (writer.aggregate(names, operand, head), senders) for operand, _, senders in values.merged()}
    for operand, (name, senders) in aggregates.items():
        writer.note(name, operand.variable, senders, value_side)
    terms = tuple(
        Term(aggregates[values.operand(term)][0], term.matrix @ value.T @ output.T, through(term.path, head))
        for term in values.terms
    )
    # Attention weights add up to one, so the value's constant passes through as it is.
    fixed_value = sum_of(through_matrix(values.constant, value.T), bias_of(weights.value_bias))
    return Stream(terms, through_matrix(fixed_value, output.T))


def _write_mlp(writer: ProgramWriter, component: Component, mlp: Mlp, norm: StreamNorm, model: _Model) -> Stream:
    """An MLP with its layer norm is one element-wise function of the variables and `one`."""
    [receiver] = component.receivers
    seen = model.seen(receiver)
    weight, bias = mlp.hidden.weight.double(), mlp.hidden.bias.double()
    gain, shift, out = norm.gain.double(), norm.bias.double(), mlp.output.weight.double()
    out_bias = mlp.output.bias.double()
    linear = _linear_norm(seen, norm, model.divisors(receiver))
    match merged(linear.terms) if linear else None:
        case [] | [("token" | "pos", _, _)] as variables if linear:
            # A function of one direction at a time is a table.
            constant = linear.constant if linear.constant is not None else torch.zeros_like(gain)
            rows = [matrix + constant for _, matrix, _ in variables] or [constant[None]]
            table = ACTIVATIONS[mlp.activation]((rows[0] * gain + shift) @ weight + bias) @ out + out_bias
            if not variables:
                return Stream((), table[0])
            [(variable, _, senders)] = variables
            writer.note(component, variable, senders, receiver)
            return Stream((Term(variable, table, component),))
        case _:
            pass
    name = writer.fresh("m")
    network = f"F{name[1:]}"
    if linear is None:
        variables, eps = merged(replace(t, matrix=norm.centred(t.matrix)) for t in seen.with_one()), norm.eps
    else:
        variables, eps = merged(linear.terms), None
        shift = shift if linear.constant is None else shift + linear.constant * gain
    for i, (_, matrix, _) in enumerate(variables):
        writer.store(f"{network}.{i}", matrix)
    writer.store(f"{network}.hidden", gain[:, None] * weight)
    writer.store(f"{network}.hidden_bias", shift @ weight + bias)
    writer.store(f"{network}.out", out)
    writer.store(f"{network}.out_bias", out_bias)
    inputs = tuple(Operand(variable) for variable, _, _ in variables)
    writer.add(ElementWise(name, inputs, Network(network, mlp.activation, eps)), (component,))
    for variable, _, senders in variables:
        writer.note(name, variable, senders, receiver)
    return Stream((Term(name, torch.eye(out.shape[1], dtype=torch.float64), component),))
