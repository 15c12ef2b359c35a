"""The model as components that send to each other, along edges that can be cut.

Token, position, heads and MLPs send vectors of the residual stream; the query, key and value of each head,
each MLP and the output receive sums of them. Where an edge is cut, its sender's mean joins the receiver's
constant, which is then tuned. What no longer reaches the output is not computed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from drasp.fitting.oracle import Batch, Oracle
from drasp.transformer import Layer, LayerNorm, Transformer
from drasp.wiring import Receiver, Sent, Stream, Wiring, total


@dataclass(frozen=True)
class Sender:
    """`kind` is token, pos, head or mlp."""

    kind: str
    layer: int = -1
    head: int = 0

    def __str__(self) -> str:
        match self.kind:
            case "head":
                return f"head{self.layer}.{self.head}"
            case "mlp":
                return f"mlp{self.layer}"
            case _:
                return self.kind


Edge = tuple[Sender, Receiver]


@dataclass(frozen=True)
class Anatomy:
    """Who can send to whom in a model of this size, in the order of the forward pass."""

    n_layers: int
    n_heads: int

    @cached_property
    def senders(self) -> tuple[Sender, ...]:
        senders = [Sender("token"), Sender("pos")]
        for layer in range(self.n_layers):
            senders += [Sender("head", layer, head) for head in range(self.n_heads)] + [Sender("mlp", layer)]
        return tuple(senders)

    @cached_property
    def receivers(self) -> tuple[Receiver, ...]:
        receivers: list[Receiver] = []
        for layer in range(self.n_layers):
            receivers += [Receiver(layer, kind, head) for kind in "qkv" for head in range(self.n_heads)]
            receivers.append(Receiver(layer, "mlp"))
        return (*receivers, Receiver(self.n_layers, "out"))

    def senders_to(self, receiver: Receiver) -> tuple[Sender, ...]:
        before = 2 + receiver.layer * (self.n_heads + 1)
        return self.senders[: before + self.n_heads if receiver.kind == "mlp" else before]

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        return tuple((sender, receiver) for receiver in self.receivers for sender in self.senders_to(receiver))


def receivers_of(sender: Sender) -> tuple[Receiver, ...]:
    """What a component itself reads."""
    match sender.kind:
        case "head":
            return tuple(Receiver(sender.layer, kind, sender.head) for kind in "qkv")
        case "mlp":
            return (Receiver(sender.layer, "mlp"),)
        case _:
            return ()


def component_of(receiver: Receiver) -> Sender | None:
    """What a receiver is part of; None for the output."""
    match receiver.kind:
        case "out":
            return None
        case "mlp":
            return Sender("mlp", receiver.layer)
        case _:
            return Sender("head", receiver.layer, receiver.head)


@dataclass(frozen=True)
class Graph:
    """The edges that are left, the constant at each receiver, and the norms that have become constant."""

    anatomy: Anatomy
    kept: frozenset[Edge]
    constants: Mapping[Receiver, Float[Tensor, " d_model"]]
    norms: Mapping[Receiver, float]

    def cut(self, edges: Iterable[Edge], means: Mapping[Sender, Float[Tensor, " d_model"]]) -> "Graph":
        """Without these edges, and without what then has no input or no reader."""
        lost = self.kept - _alive(self.kept - frozenset(edges))
        constants = dict(self.constants)
        for sender, receiver in sorted(lost, key=self.anatomy.edges.index):
            constants[receiver] = constants[receiver] + means[sender]
        return replace(self, kept=self.kept - lost, constants=constants)

    def bypass(self, mlp: Sender, means: Mapping[Sender, Float[Tensor, " d_model"]]) -> "Graph":
        """What the MLP reads goes directly to its readers: for MLPs that add nothing to what is already there."""
        [own] = receivers_of(mlp)
        readers = [receiver for sender, receiver in self.kept if sender == mlp]
        new = {(sender, reader) for sender in self.senders_to(own) for reader in readers} - self.kept
        constants = dict(self.constants)
        for sender, receiver in sorted(new, key=self.anatomy.edges.index):
            constants[receiver] = constants[receiver] - means[sender]
        wider = replace(self, kept=self.kept | new, constants=constants)
        return wider.cut([edge for edge in wider.kept if edge[0] == mlp], means)

    def senders_to(self, receiver: Receiver) -> list[Sender]:
        return [sender for sender in self.anatomy.senders_to(receiver) if (sender, receiver) in self.kept]

    def is_used(self, sender: Sender) -> bool:
        return any(sender == other for other, _ in self.kept)

    def live_receivers(self) -> tuple[Receiver, ...]:
        """Those whose constant matters: of components that are used."""
        used = {sender for sender, _ in self.kept}
        live = {receiver for sender in used for receiver in receivers_of(sender)}
        return tuple(r for r in self.anatomy.receivers if r in live or r.kind == "out")

    def lines(self) -> int:
        """About as many as its program has: a select for each pair of paths to a query and a key, and so on."""
        paths: dict[Sender, int] = {}

        def heard(receiver: Receiver) -> int:
            # What divides by a norm divides the constant too, which then is one path more.
            return sum(paths[sender] for sender in self.senders_to(receiver)) + (receiver not in self.norms)

        lines = 0
        for sender in self.anatomy.senders:
            match receivers_of(sender) if self.is_used(sender) else ():
                case (query, key, value):
                    paths[sender] = heard(value)
                    lines += (heard(query) + 1) * heard(key) + heard(value)
                case (_mlp,):
                    paths[sender] = 1
                    lines += 1
                case _:
                    paths[sender] = 1
        return lines + heard(Receiver(self.anatomy.n_layers, "out")) + 1

    def norm(self, receiver: Receiver, norm: LayerNorm) -> LayerNorm:
        return replace(norm, constant=self.norms.get(receiver))

    def wiring(self) -> Wiring:
        """For writing the graph as a program."""

        def wire(receiver: Receiver, sent: Sent, norm: LayerNorm) -> tuple[Stream, LayerNorm]:
            kept = [sent.components[self.anatomy.senders.index(sender)] for sender in self.senders_to(receiver)]
            constant = Stream((), self.constants[receiver].double())
            return total([*kept, constant]), self.norm(receiver, norm)

        return wire


def _alive(kept: frozenset[Edge]) -> frozenset[Edge]:
    """Edges from components that have an input, to components that are used."""
    while True:
        # A head without queries or keys attends uniformly; without values, or an MLP without inputs, it says nothing.
        fed = {component_of(receiver) for _, receiver in kept if receiver.kind not in ("q", "k")}
        used = {sender for sender, _ in kept}
        alive = frozenset(
            (sender, receiver)
            for sender, receiver in kept
            if (not receivers_of(sender) or sender in fed) and (component_of(receiver) or sender) in used
        )
        if alive == kept:
            return kept
        kept = alive


class Components:
    """The model's forward pass along the edges of a graph."""

    def __init__(self, transformer: Transformer) -> None:
        self.transformer = transformer
        self.anatomy = Anatomy(len(transformer.layers), transformer.n_heads)

    def whole(self) -> Graph:
        """All edges. Attention biases belong to no sender and are part of the constants."""
        constants: dict[Receiver, Tensor] = {}
        for r in self.anatomy.receivers:
            biases = [layer.attention.output.bias for layer in self.transformer.layers[: r.layer + (r.kind == "mlp")]]
            constants[r] = torch.stack(biases).sum(0) if biases else torch.zeros(self.transformer.d_model)
        return Graph(self.anatomy, frozenset(self.anatomy.edges), constants, {})

    def logits(self, graph: Graph, batch: Batch) -> Float[Tensor, "batch counted n_vocab"]:
        """At the positions that count; the last layer is computed only there."""
        model, last = self.transformer, len(self.transformer.layers) - 1
        inputs = batch.inputs
        sent: dict[Sender, Tensor] = {
            Sender("token"): F.embedding(inputs.ids, model.token_embedding),
            Sender("pos"): F.embedding(inputs.positions, model.position_embedding),
        }
        here = sent
        for number, layer in enumerate(model.layers):
            if number == last:
                here = {sender: batch.at_counted(x) for sender, x in sent.items()}
            for h in range(self.anatomy.n_heads):
                sender = Sender("head", number, h)
                if graph.is_used(sender):
                    queries = batch.where if number == last else None
                    here[sender] = self._head(graph, layer, number, h, sent, here, queries)
            mlp = Sender("mlp", number)
            if graph.is_used(mlp):
                here[mlp] = layer.mlp(self._read(graph, Receiver(number, "mlp"), here, layer.mlp_norm))
        x = self._read(graph, Receiver(last + 1, "out"), here, model.final_norm)
        logits = x @ model.unembedding.T
        return logits.expand(*batch.where.shape, -1) if model.layers else batch.at_counted(logits)

    def _read(
        self, graph: Graph, receiver: Receiver, sent: Mapping[Sender, Tensor], norm: LayerNorm
    ) -> Float[Tensor, "#batch #pos d_model"]:
        x = graph.constants[receiver][None, None]
        for sender in graph.senders_to(receiver):
            x = x + sent[sender]
        return graph.norm(receiver, norm)(x)

    def _head(
        self,
        graph: Graph,
        layer: Layer,
        number: int,
        h: int,
        sent: Mapping[Sender, Tensor],
        queries_from: Mapping[Sender, Tensor],
        where: Tensor | None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """What a head sends; without the layer's output bias."""
        attention = layer.attention
        d_model, n_heads = self.transformer.d_model, attention.n_heads
        weight = attention.qkv.weight.view(d_model, 3, n_heads, -1)
        bias = attention.qkv.bias.view(3, n_heads, -1)

        def side(kind: str, index: int, source: Mapping[Sender, Tensor]) -> Tensor:
            return (
                self._read(graph, Receiver(number, kind, h), source, layer.attention_norm) @ weight[:, index, h]
                + bias[index, h]
            )

        k, v = side("k", 1, sent), side("v", 2, sent)
        q = side("q", 0, queries_from)
        length = sent[Sender("token")].shape[1]
        batch = sent[Sender("token")].shape[0]
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        mask = seen[None] if where is None else seen[where]
        n_queries = mask.shape[1]
        shape = (batch, -1, q.shape[-1])
        mixed = F.scaled_dot_product_attention(
            q.expand(batch, n_queries, -1)[:, None],
            k.expand(batch, length, -1)[:, None],
            v.expand(batch, length, -1)[:, None],
            attn_mask=mask[:, None],
            scale=attention.scale,
        )
        return mixed.reshape(shape) @ attention.output.weight.view(n_heads, -1, d_model)[h]

    @torch.no_grad()
    def means(self, oracle: Oracle) -> dict[Sender, Float[Tensor, " d_model"]]:
        """What each component of the whole model sends on average, over all positions."""
        graph = self.whole()
        sums: dict[Sender, Tensor] = {}
        count = 0
        for batch in oracle.batches:
            real = batch.real
            count += int(real.sum())
            for sender, x in self._everything_sent(graph, batch).items():
                sums[sender] = sums.get(sender, torch.zeros(x.shape[-1])) + x[real].sum(0)
        return {sender: total / count for sender, total in sums.items()}

    @torch.no_grad()
    def mean_norms(self, graph: Graph, receivers: Sequence[Receiver], oracle: Oracle) -> dict[Receiver, float]:
        """What the receivers' layer norms divide by, on average."""
        model = self.transformer
        totals = dict.fromkeys(receivers, 0.0)
        count = 0
        for batch in oracle.batches:
            sent, real = self._everything_sent(graph, batch), batch.real
            count += int(real.sum())
            for r in receivers:
                norm = model.final_norm if r.kind == "out" else model.layers[r.layer].attention_norm
                x = graph.constants[r] + sum((sent[s] for s in graph.senders_to(r)), torch.zeros(1))
                root = (x.var(-1, correction=0) + norm.eps).sqrt().expand(batch.inputs.ids.shape)
                totals[r] += float(root[real].sum())
        return {receiver: total / count for receiver, total in totals.items()}

    def _everything_sent(self, graph: Graph, batch: Batch) -> dict[Sender, Float[Tensor, "batch pos d_model"]]:
        model = self.transformer
        sent: dict[Sender, Tensor] = {
            Sender("token"): F.embedding(batch.inputs.ids, model.token_embedding),
            Sender("pos"): F.embedding(batch.inputs.positions, model.position_embedding),
        }
        for number, layer in enumerate(model.layers):
            new = {
                Sender("head", number, h): self._head(graph, layer, number, h, sent, sent, None)
                for h in range(self.anatomy.n_heads)
            }
            sent |= new
            sent[Sender("mlp", number)] = layer.mlp(self._read(graph, Receiver(number, "mlp"), sent, layer.mlp_norm))
        return sent
