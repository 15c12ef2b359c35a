"""The forward pass: a transformer on a batch of inputs, with edits at any of its sites, and values recorded there.

This is the only place where a transformer is computed: for training, for the model's answers, along the edges that
pruning has left, with gates on them, and under interventions. A receiver whose edges are as they were reads the
residual stream, which is then carried as one tensor and goes through fused matrices; one with edited edges reads the
sum of what is sent to it. What reaches neither the output nor a recorded site is not computed. Where logits are wanted
at some positions only, the last layer's queries, its MLP and the output are computed only there: values recorded
there, or put there, have those positions only.

Longer than 400 lines: an edit can be anywhere in a pass, so all steps of one pass are methods of one class.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import reduce

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from drasp.attention import attend, causal_weights, drop
from drasp.edits import CUT, Edit, Replaced, Scaled, Shifted, edited, with_values
from drasp.layers import Layer, Linear, Stack, StreamNorm
from drasp.plan import Plan
from drasp.sequences import Run, Sequences
from drasp.sites import (
    NO_COMPONENT,
    OUT,
    POSITION,
    TOKEN,
    Component,
    Edge,
    Path,
    Pattern,
    Product,
    Read,
    Receiver,
    Sender,
    Site,
    last_of,
)

# What is the same for all inputs, or at all positions, may come as one.
Values = Float[Tensor, "#batch #pos d_model"]
# What no input has a part in: constants, and matrices that take a norm's part in.
Known = dict[tuple[str, Receiver], Tensor]


class Forward:
    """A model with edits, ready to run on any number of batches: what has to be computed is found out once."""

    def __init__(self, model: Stack, edits: Mapping[Site, Edit] | None = None, record: Collection[Site] = ()) -> None:
        self.model = model
        self.plan = Plan(model.anatomy, edits or {}, frozenset(record))
        self.known: Known = {}

    def __call__(self, inputs: Sequences, dropout: float = 0.0) -> Run[Site]:
        """What the model says, and what is at the recorded sites."""
        assert not (dropout and self.plan.edits), "dropout is for training, which edits nothing"
        return _Pass(self.model, self.plan, inputs, dropout, self.known).run()


class _Pass:
    """One evaluation on one batch. `narrow` is what is at the wanted positions only."""

    def __init__(self, model: Stack, plan: Plan, inputs: Sequences, dropout: float, known: Known) -> None:
        self.model, self.plan, self.inputs, self.dropout, self.known = model, plan, inputs, dropout, known
        self.values: dict[Site, Tensor] = {}
        self.sent: dict[Component, Values] = {}
        self.narrow: dict[Component, Values] = {}
        self.stream: Values | None = None
        self.wide_stream: Values | None = None  # as it was before it became narrow
        self.is_narrow = False
        self.biases = torch.zeros_like(model.final_norm.bias)[None, None]
        self.roots: dict[Receiver, Tensor] = {}
        self.patterns: dict[Component, Tensor] = {}
        self.ways: dict[Path, tuple[Values, bool]] = {}
        self.parts: dict[tuple[Sender, Receiver, int], Tensor] = {}  # of queries and keys, for their products
        self.attention_bias: dict[bool, Tensor] = {}

    def run(self) -> Run[Site]:
        model, inputs = self.model, self.inputs
        self.send(TOKEN, lambda: _rows(model.token_embedding, inputs.ids))
        self.send(POSITION, lambda: _rows(model.position_embedding, inputs.positions))
        if self.stream is not None:
            self.stream = drop(self.stream, self.dropout)
        for number, layer in enumerate(model.layers):
            narrow = number + 1 == len(model.layers) and inputs.where is not None
            if self.plan.is_plain(number):
                self.plain_attention(layer, narrow)
            else:
                self.attention(number, layer, narrow)
            self.send(Component("mlp", number), lambda: drop(self.mlp(number, layer), self.dropout))  # noqa: B023
        if inputs.where is not None:
            self.become_narrow()
        x = self.behind_norm(OUT, model.final_norm)
        if inputs.counted is not None:
            x = self.everywhere(x, self.is_narrow).flatten(0, 1).index_select(0, inputs.counted)
        logits = x @ model.unembedding.T
        if model.unembedding_bias is not None:
            logits = logits + model.unembedding_bias
        return Run(logits if inputs.counted is not None else self.everywhere(logits, self.is_narrow), self.values)

    def send(self, component: Component, compute: Callable[[], Values]) -> None:
        """Puts what a component sends, where it is needed, to where receivers find it."""
        plan = self.plan
        if component not in plan.needed:
            return
        edit = plan.edits.get(component)
        computed = compute() if plan.computes(component) else self.biases
        value = self.constant(edit.by) if isinstance(edit, Replaced) else edited(computed, edit)
        self.note(component, value)
        if component in plan.apart:
            self.sent[component] = value
            if self.is_narrow:
                self.narrow[component] = value
        if plan.stream:
            self.stream = value if self.stream is None else self.stream + value

    def note(self, site: Site, value: Tensor) -> None:
        if site in self.plan.record:
            self.values[site] = value

    def constant(self, by: float | Tensor) -> Values:
        """What stands for vectors of the stream, whatever can be broadcast to them."""
        value = torch.as_tensor(by, dtype=self.biases.dtype, device=self.biases.device)
        return value.expand(*(1, 1, *value.shape[:-1])[-2:], self.model.d_model)

    # ---------------------------------------------------------------------------------- reading

    def become_narrow(self) -> None:
        if not self.is_narrow:
            self.is_narrow, self.wide_stream = True, self.stream
            self.stream = None if self.stream is None else self.at_wanted(self.stream)

    def at_wanted(self, x: Shaped[Tensor, "#batch #pos *dims"]) -> Shaped[Tensor, "#batch #wanted *dims"]:
        where = self.inputs.where
        assert where is not None
        if x.shape[1] == 1:
            return x
        if self.inputs.wants_first:
            return x[:, : where.shape[1]]
        batch, width = self.inputs.ids.shape
        flat = x.expand(batch, *x.shape[1:]).reshape(batch * width, -1)
        return _rows(flat, torch.arange(batch, device=where.device)[:, None] * width + where)

    def reads_narrow(self, receiver: Receiver) -> bool:
        """Keys and values are read at all positions."""
        return self.is_narrow and receiver.kind not in ("key", "value")

    def heard(self, sender: Sender, narrow: bool) -> Values:
        """What a sender sends."""
        if isinstance(sender, Path):
            if sender not in self.ways:
                self.ways[sender] = self.along(sender)
            value, is_narrow = self.ways[sender]
            return self.at_wanted(value) if narrow and not is_narrow else value
        if not narrow:
            return self.sent[sender]
        if sender not in self.narrow:
            self.narrow[sender] = self.at_wanted(self.sent[sender])
        return self.narrow[sender]

    def along(self, path: Path) -> tuple[Values, bool]:
        """That part of the last head's output that comes along a path, and whether it is narrow."""
        value = self.heard(path.origin, False)
        before = path.origin
        for head in path.heads:
            receiver, attention = head.receivers[2], self.model.layers[head.layer].attention
            match self.plan.edges.get(receiver, {}).get(before):
                case Replaced():
                    value = torch.zeros_like(value)
                case Scaled() as edit:
                    value = edited(value, Scaled(edit.by))
                case _:
                    pass
            mixed = self.patterns[head] @ self.part(value, receiver, 2)
            value = mixed @ attention.output_of(head.head)
            before = head
        return value, self.inputs.where is not None and path.heads[-1].layer + 1 == len(self.model.layers)

    def part(self, value: Values, receiver: Receiver, side: int) -> Float[Tensor, "batch pos d_head"]:
        """What one part of the stream makes of a head's query, key or value: given the norm, this is linear."""
        made = value @ self.through_norm(receiver, side) / self.roots[receiver]
        return self.everywhere(made, self.reads_narrow(receiver))

    def through_norm(self, receiver: Receiver, side: int) -> Float[Tensor, "d_model d_head"]:
        """What takes the stream to a head's query, key or value times the divisor of its norm."""

        def matrix() -> Tensor:
            layer = self.model.layers[receiver.layer]
            norm, weight = layer.attention_norm, layer.attention.side(side)[:, receiver.head]
            return norm.centred((norm.gain[:, None] * weight).T).T

        return self.once("through norm", receiver, matrix)

    def behind_norm(self, receiver: Receiver, norm: StreamNorm) -> Values:
        return self.normed(receiver, norm, self.read(receiver))

    def read(self, receiver: Receiver) -> Values:
        """What a receiver reads of the residual stream."""
        if receiver in self.plan.gated:
            return self.read_gated([receiver])[:, 0]
        return self.finished(receiver, self.summed(receiver))

    def summed(self, receiver: Receiver) -> Values:
        """What all senders send to a receiver, and the biases."""
        plan, narrow = self.plan, self.reads_narrow(receiver)
        if isinstance(plan.edits.get(receiver), Replaced):
            return self.biases
        if receiver not in plan.edges:
            x = self.stream if narrow or not self.is_narrow else self.wide_stream
            assert x is not None, "a receiver whose edges are as they were reads the stream"
            return x
        x = self.biases
        for sender in plan.anatomy.senders_to(receiver):
            match plan.edges[receiver].get(sender):
                case Replaced(by):
                    x = x if isinstance(by, float) and by == 0 else x + self.constant(by)
                case edit:
                    x = x + edited(self.heard(sender, narrow), edit)
        return x

    def finished(self, receiver: Receiver, x: Values) -> Values:
        """What a receiver reads once its paths are edited, and it itself."""
        plan, narrow = self.plan, self.reads_narrow(receiver)
        for path in plan.paths.get(receiver, ()) if receiver in plan.read else ():
            edge, value = Edge(path, receiver), self.heard(path, narrow)
            new = edited(value, plan.edits.get(edge))
            self.note(edge, new)
            x = x + (new - value)
        for sender in plan.recorded.get(receiver, ()):
            edge = Edge(sender, receiver)
            self.note(edge, edited(self.heard(sender, narrow), plan.edits.get(edge)))
        edit = plan.edits.get(receiver)
        x = self.constant(edit.by) if isinstance(edit, Replaced) else edited(x, edit)
        self.note(receiver, x)
        return x

    def read_gated(self, receivers: Sequence[Receiver]) -> Float[Tensor, "batch receivers pos d_model"]:
        """What receivers of one kind read where each row hears as much of each sender as its masks say."""
        plan, narrow = self.plan, self.reads_narrow(receivers[0])
        senders = list(dict.fromkeys(s for r in receivers if r in plan.read for s in plan.heard(r)))
        sent = torch.stack([self.everywhere(self.heard(s, narrow), narrow) for s in senders], 1)
        batch, count, length, width = sent.shape
        masks = torch.stack([self.masks(r, senders, batch) for r in receivers], 1)
        x = (masks @ sent.reshape(batch, count, -1)).view(batch, len(receivers), length, width)
        if not any(r in plan.special for r in receivers):
            left = [edited(self.left_behind(r), plan.edits.get(r)) for r in receivers]
            return x + torch.stack(torch.broadcast_tensors(*left), 1)
        parts = [self.finished(r, x[:, i] + self.left_behind(r)) for i, r in enumerate(receivers)]
        return torch.stack([self.everywhere(part, narrow) for part in parts], 1)

    def everywhere(self, x: Float[Tensor, "#batch #pos dims"], narrow: bool) -> Float[Tensor, "batch pos dims"]:
        places = self.inputs.where if narrow and self.inputs.where is not None else self.inputs.ids
        return x.expand(*places.shape, -1)

    def masks(self, receiver: Receiver, senders: Sequence[Component], batch: int) -> Float[Tensor, "batch senders"]:
        edits = self.plan.edges.get(receiver, {})
        columns: list[Tensor] = []
        for sender in senders:
            match edits.get(sender):
                case Scaled(by):
                    share = by
                case Replaced():
                    share = 0.0
                case _:
                    share = 1.0
            columns.append(share if isinstance(share, Tensor) else self.biases.new_full((batch,), share))
        return torch.stack(columns, 1)

    def left_behind(self, receiver: Receiver) -> Values:
        """What a receiver with gates reads beside its senders: biases, and what edits put there."""
        x = self.biases
        for edit in self.plan.edges.get(receiver, {}).values():
            match edit:
                case Replaced(by) | Shifted(by) if isinstance(by, Tensor) or by:
                    x = x + self.constant(by)
                case Scaled(by, ablation) if isinstance(ablation, Tensor) or ablation:
                    x = x + (1 - (by[:, None, None] if isinstance(by, Tensor) else by)) * self.constant(ablation)
                case _:
                    pass
        return x

    def normed(self, receiver: Receiver, norm: StreamNorm, x: Values) -> Values:
        if receiver not in self.plan.roots:
            return norm(x)
        x, root = self.with_root(receiver, norm, x)
        y = norm.gain * norm.centred(x) / root + norm.bias
        if receiver not in self.plan.bare:
            return y
        return y + norm.gain * norm.centred(self.constant_part(receiver)) * (1 / self.other_root(receiver) - 1 / root)

    def projected(self, receiver: Receiver, side: int) -> Float[Tensor, "batch pos d_head"]:
        """A head's query, key or value. The norm is taken in by its matrix: less is divided than the stream."""
        layer, x = self.model.layers[receiver.layer], self.read(receiver)
        norm, matrix = layer.attention_norm, layer.attention.side(side)[:, receiver.head]
        bias = layer.attention.side_bias(side)[receiver.head]
        if receiver not in self.plan.roots:
            return norm(x) @ matrix + bias
        x, root = self.with_root(receiver, norm, x)
        y = x @ self.through_norm(receiver, side)
        beside = self.once("beside", receiver, lambda: norm.bias @ matrix + bias)
        if receiver in self.plan.bare:
            constant = self.once(
                "through", receiver, lambda: self.constant_part(receiver) @ self.through_norm(receiver, side)
            )
            y, beside = y - constant, beside + constant / self.other_root(receiver)
        return y / root + beside

    def with_root(self, receiver: Receiver, norm: StreamNorm, x: Values) -> tuple[Values, Float[Tensor, "*_ 1"]]:
        """What a receiver reads behind its norm, and what it is divided by there."""
        edit = self.norm_edit(receiver)
        root = torch.as_tensor(edit.by, dtype=x.dtype) if isinstance(edit, Replaced) else edited(norm.root(x), edit)
        for site in self.plan.norm_sites(receiver):
            self.note(site, root)
        self.roots[receiver] = root[..., None]
        for way in self.plan.reads.get(receiver, ()):
            site, value = Read(way, receiver), self.heard(way, self.reads_narrow(receiver))
            new = edited(value, self.plan.edits.get(site))
            self.note(site, new)
            x = x + (new - value)
        return x, self.roots[receiver]

    def other_root(self, receiver: Receiver) -> Float[Tensor, "*_ 1"]:
        """What a bare receiver's constant is divided by."""
        return torch.as_tensor(self.plan.bare[receiver], dtype=self.biases.dtype)[..., None]

    def constant_part(self, receiver: Receiver) -> Float[Tensor, " d_model"]:
        """What of that which a receiver reads is the same for all inputs: biases, constants, what heads make of these.

        Known only where somebody's constants are edited.
        """

        def found() -> Tensor:
            edits = self.plan.edges.get(receiver, {})
            x = self.biases[0, 0]
            for head in (s for s in self.plan.anatomy.senders_to(receiver) if s.kind == "head"):
                if not isinstance(edits.get(head), Replaced):
                    x = x + self.fixed_by(head)
            match self.plan.edits.get(receiver):
                case Shifted(by):
                    return x + by
                case _:
                    return x

        return self.once("constant", receiver, found)

    def fixed_by(self, head: Component) -> Float[Tensor, " d_model"]:
        """What a head sends whatever it attends to: its biases, and constants that its norm divides by a number.

        From whatever input its output comes, it has these.
        """
        receiver, layer = head.receivers[2], self.model.layers[head.layer]

        def found() -> Tensor:
            norm, attention = layer.attention_norm, layer.attention
            x, edit = norm.bias, self.norm_edit(receiver)
            by = edit.by if isinstance(edit, Replaced) else self.plan.bare.get(receiver)
            if by is not None and not (isinstance(by, Tensor) and by.ndim):
                x = x + norm.gain * norm.centred(self.constant_part(receiver)) / by
            value = x @ attention.side(2)[:, head.head] + attention.side_bias(2)[head.head]
            return value @ attention.output_of(head.head)

        return self.once("sent", receiver, found)

    def once(self, what: str, receiver: Receiver, find: Callable[[], Tensor]) -> Tensor:
        """What no input has a part in, found for the first batch."""
        key = what, receiver
        if key not in self.known:
            self.known[key] = find()
        return self.known[key]

    def norm_edit(self, receiver: Receiver) -> Edit | None:
        """The edit of a receiver's norm, or of that of all heads of its layer, whose values are at all positions."""
        own, *shared = self.plan.norm_sites(receiver)
        edit = self.plan.edits.get(own)
        if edit is not None or not shared:
            return edit
        edit = self.plan.edits.get(shared[0])
        if not self.reads_narrow(receiver):
            return edit

        def wanted(x: float | Tensor) -> float | Tensor:
            return self.at_wanted(torch.atleast_2d(x)[..., None])[..., 0] if isinstance(x, Tensor) and x.ndim else x

        return with_values(edit, wanted)

    # -------------------------------------------------------------------------------- components

    def mlp(self, number: int, layer: Layer) -> Values:
        assert layer.mlp is not None, "only an MLP that is there is asked for"
        return layer.mlp(self.behind_norm(Receiver(number, "mlp"), layer.mlp_norm))

    def bias(self, narrow: bool) -> Float[Tensor, "any 1 query pos"]:
        if narrow not in self.attention_bias:
            self.attention_bias[narrow] = self.inputs.bias(narrow)[:, None].to(self.biases.dtype)
        return self.attention_bias[narrow]

    def plain_attention(self, layer: Layer, narrow: bool) -> None:
        """All heads at once, from the stream to the stream."""
        assert self.stream is not None
        attention, x = layer.attention, layer.attention_norm(self.stream)
        width = attention.width
        if narrow:
            weight, bias = attention.qkv.weight, attention.qkv.bias
            q = Linear(weight[:, :width], bias[:width])(self.at_wanted(x))
            k, v = Linear(weight[:, width:], bias[width:])(x).split(width, dim=-1)
            self.become_narrow()
        else:
            q, k, v = attention.qkv(x).split(width, dim=-1)
        seen = self.bias(narrow)
        if attention.n_heads == 1:
            # The same without an axis for heads, and without the time it takes to set one up.
            mixed = attend(q, k, v, seen[:, 0], attention.scale, self.dropout)
        else:
            q, k, v = (part.unflatten(-1, (attention.n_heads, -1)).transpose(1, 2) for part in (q, k, v))
            mixed = attend(q, k, v, seen, attention.scale, self.dropout).transpose(1, 2).flatten(2)
        self.biases = self.biases + attention.output.bias
        self.stream = self.stream + drop(attention.output(mixed), self.dropout)

    def attention(self, number: int, layer: Layer, narrow: bool) -> None:
        """Head by head, each with what it reads and where it looks."""
        plan, attention = self.plan, layer.attention
        if narrow:
            self.become_narrow()
        every = plan.anatomy.heads(number)
        heads = [head for head in every if plan.computes(head)]
        if plan.bare:
            # As biases are at this layer; also of heads whose output comes from elsewhere.
            for head in every:
                self.fixed_by(head)
        mixed = self.mixed(heads, layer) if heads else {}
        for head in every:
            self.send(head, lambda: mixed[head] @ attention.output_of(head.head))  # noqa: B023
        self.biases = self.biases + attention.output.bias
        if self.stream is not None:
            self.stream = self.stream + attention.output.bias

    def mixed(
        self, heads: Sequence[Component], layer: Layer
    ) -> Mapping[Component, Float[Tensor, "batch query d_head"]]:
        plan, v = self.plan, self.side(2, heads, layer)
        if not any(head in plan.patterns for head in heads):
            q, k = self.side(0, heads, layer), self.side(1, heads, layer)
            mixed = attend(q, k, v, self.bias(self.is_narrow), layer.attention.scale, 0.0)
            return dict(zip(heads, mixed.unbind(1), strict=True))
        for head in heads:
            self.patterns[head] = self.pattern(head, layer)
            self.note(Pattern(head), self.patterns[head])
        return {head: self.patterns[head] @ v[:, i] for i, head in enumerate(heads)}

    def pattern(self, head: Component, layer: Layer) -> Float[Tensor, "#batch query key"]:
        edit, bias = self.plan.edits.get(Pattern(head)), self.bias(self.is_narrow)[:, 0]
        other = torch.zeros_like(bias) + edit.by if isinstance(edit, Replaced) else None
        if other is not None and self.plan.watched.isdisjoint(head.receivers[:2]):
            return other
        q, k = (self.side(index, [head], layer)[:, 0] for index in (0, 1))
        products = self.plan.products.get(head, ())
        cut = [p for p in products if self.plan.edits.get(p) is CUT and p not in self.plan.record]
        rows, columns = self.without(cut, q, k)
        scores = (rows * layer.attention.scale) @ columns.mT
        for product in products:
            if product not in cut:
                scores = scores + self.change_of(product, layer.attention.scale, q, k)
        return edited(causal_weights(scores, bias), edit) if other is None else other

    def without(self, cut: Sequence[Product], q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys whose scores are those of `q` and `k` without some products.

        What is taken away is another few dimensions of the same matrix product: adding matrices of scores takes longer.
        """
        if not cut:
            return q, k
        by_query, by_key = _joined((p.query, p.key) for p in cut), _joined((p.key, p.query) for p in cut)
        groups = by_query if len(by_query) <= len(by_key) else [(queries, keys) for keys, queries in by_key]
        query, key, _ = cut[0].head.receivers
        rows, columns = [q], [k]
        for queries, keys in groups:
            rows.append(-reduce(torch.add, [self.side_part(sender, query, 0, q) for sender in queries]))
            columns.append(reduce(torch.add, [self.side_part(sender, key, 1, k) for sender in keys]))
        return torch.cat(rows, -1), torch.cat(columns, -1)

    def side(self, index: int, heads: Sequence[Component], layer: Layer) -> Float[Tensor, "batch heads pos d_head"]:
        """The queries (0), keys (1) or values (2) of some heads of a layer."""
        plan, attention = self.plan, layer.attention
        receivers = [head.receivers[index] for head in heads]
        chosen = [head.head for head in heads]
        weight, bias = attention.side(index), attention.side_bias(index)[chosen]
        narrow = self.reads_narrow(receivers[0])
        if any(receiver in plan.gated for receiver in receivers):
            x = self.gated_norms(receivers, layer.attention_norm)
            return x @ weight.transpose(0, 1)[chosen] + bias[:, None]
        if any(head in plan.inner for head in heads):
            parts = [self.everywhere(self.projected(r, index), narrow)[:, None] for r in receivers]
            return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        x = self.behind_norm(receivers[0], layer.attention_norm)
        y = x @ weight[:, chosen].flatten(1) + bias.flatten()
        return self.everywhere(y, narrow).unflatten(-1, (len(heads), -1)).transpose(1, 2)

    def gated_norms(self, receivers: Sequence[Receiver], norm: StreamNorm) -> Float[Tensor, "batch heads pos d_model"]:
        x = self.read_gated(receivers)
        edits = [self.norm_edit(receiver) for receiver in receivers]
        if not any(receiver in self.plan.roots for receiver in receivers):
            return norm(x)
        if all(isinstance(edit, Replaced) and isinstance(edit.by, Tensor) and not edit.by.ndim for edit in edits):
            roots = [torch.as_tensor(edit.by) for edit in edits if isinstance(edit, Replaced)]
            self.roots |= zip(receivers, roots, strict=True)
            return norm.centred(x) / torch.stack(roots)[:, None, None] * norm.gain + norm.bias
        return torch.stack([self.normed(r, norm, x[:, i]) for i, r in enumerate(receivers)], 1)

    def change_of(self, product: Product, scale: float, q: Tensor, k: Tensor) -> Float[Tensor, "batch query key"]:
        """What an edit of a product adds to a head's scores."""
        query, key, _ = product.head.receivers
        rows, columns = self.side_part(product.query, query, 0, q), self.side_part(product.key, key, 1, k)
        scores = (rows * scale) @ columns.mT
        new = edited(scores, self.plan.edits.get(product))
        self.note(product, new)
        return new - scores

    def side_part(self, sender: Sender, receiver: Receiver, index: int, whole: Tensor) -> Tensor:
        """What of a head's whole query or key comes from a sender, or from none."""
        key = sender, receiver, index
        if key not in self.parts:
            self.parts[key] = self.part_of(sender, receiver, index, whole)
        return self.parts[key]

    def part_of(self, sender: Sender, receiver: Receiver, index: int, whole: Tensor) -> Tensor:
        """The same, not looked up."""
        narrow = self.reads_narrow(receiver)
        if sender != NO_COMPONENT:
            return self.part(self.heard(sender, narrow), receiver, index)
        for each in self.plan.ways_to(receiver):
            value = self.heard(each, narrow)
            match self.plan.edges.get(receiver, {}).get(last_of(each)):
                case Scaled(by):
                    value = edited(value, Scaled(by))
                case _:
                    pass
            whole = whole - self.part(value, receiver, index)
        return whole


def _joined(pairs: Iterable[tuple[Sender, Sender]]) -> list[tuple[list[Sender], list[Sender]]]:
    """Pairs as few products of two sets: those that are paired with the same others come together."""
    others: dict[Sender, list[Sender]] = {}
    for one, other in pairs:
        others.setdefault(one, []).append(other)
    alike: dict[frozenset[Sender], list[Sender]] = {}
    for one, paired in others.items():
        alike.setdefault(frozenset(paired), []).append(one)
    return [(ones, others[ones[0]]) for ones in alike.values()]


def _rows(table: Float[Tensor, "n d"], which: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch d"]:
    """What `F.embedding` gives; the gradient is summed in the same order, in half the time."""
    return table.index_select(0, which.flatten()).view(*which.shape, -1)
