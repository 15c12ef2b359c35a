"""Gates on the edges of the component graph, trained by gradient: all edges are weighed at once.

A gate is a number θ; in each row of a batch its edge is kept, cut, or kept in part, at random, so that the share of
rows that keep it is sigmoid(θ) (uniform gradient sampling). Where an edge is cut, its receiver hears one learnt
constant of the sender instead.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from drasp.decompiler.components import Components, Edge, Graph, component_of
from drasp.fitting.oracle import Batch, Oracle
from drasp.transformer import LayerNorm
from drasp.wiring import Receiver

START = 8.0  # θ of a gate that has not been trained
CONSTANT_RATE, NORM_RATE = 0.002, 0.1

Masks = Float[Tensor, "batch edges"]


def sample_masks(theta: Float[Tensor, " edges"], rows: int, generator: torch.Generator) -> Masks:
    """Between 0 and 1 in as many rows as the gate is undecided; the gradient is that of those rows, on average."""
    p = theta.sigmoid()
    width = (p * (1 - p)).detach()
    u = torch.rand(rows, len(theta), generator=generator)
    masks = ((p.detach() - u) / width + 0.5).clamp(0, 1)
    between = (masks > 0) & (masks < 1)
    weight = rows / between.sum(0).clamp(min=1)
    slope = between * weight * (theta - theta.detach())
    return masks + slope


@dataclass(frozen=True)
class Learnt:
    """What is trained beside the gates: a constant for each sender and each receiver, and norms that are constant."""

    ablations: Float[Tensor, "senders d_model"]
    constants: Float[Tensor, "receivers d_model"]
    log_variances: Float[Tensor, " receivers"] | None = None


class GatedModel:
    """The forward pass of `Components` with a mask for every row and edge."""

    def __init__(self, components: Components, edges: Sequence[Edge]) -> None:
        self.components, self.edges = components, tuple(edges)
        anatomy = components.anatomy
        self.senders, self.receivers = anatomy.senders, anatomy.receivers
        self.columns = {edge: i for i, edge in enumerate(self.edges)}

    def logits(self, learnt: Learnt, masks: Masks, batch: Batch) -> Float[Tensor, "batch counted n_vocab"]:
        model, last = self.components.transformer, len(self.components.transformer.layers) - 1
        n_heads = self.components.anatomy.n_heads
        inputs = batch.inputs
        sent = torch.stack(
            [F.embedding(inputs.ids, model.token_embedding), F.embedding(inputs.positions, model.position_embedding)], 1
        )
        here = sent
        length = sent.shape[2]
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        for number, layer in enumerate(model.layers):
            attention = layer.attention
            here = _counted(sent, batch) if number == last else sent
            sides: list[Tensor] = []
            for index, (kind, source) in enumerate(zip("qkv", (here, sent, sent), strict=True)):
                receivers = [Receiver(number, kind, h) for h in range(n_heads)]
                x = self._read(learnt, masks, receivers, source, layer.attention_norm)
                weight = attention.qkv.weight.view(model.d_model, 3, n_heads, -1)[:, index].transpose(0, 1)
                sides.append(x @ weight + attention.qkv.bias.view(3, n_heads, 1, -1)[index])
            mask = seen[batch.where][:, None] if number == last else seen
            mixed = F.scaled_dot_product_attention(*sides, attn_mask=mask, scale=attention.scale)
            here = torch.cat([here, mixed @ attention.output.weight.view(n_heads, -1, model.d_model)], 1)
            x = self._read(learnt, masks, [Receiver(number, "mlp")], here, layer.mlp_norm)
            here = torch.cat([here, layer.mlp(x)], 1)
            sent = here
        x = self._read(learnt, masks, [Receiver(last + 1, "out")], here, model.final_norm)
        return x[:, 0] @ model.unembedding.T

    def _read(
        self,
        learnt: Learnt,
        masks: Masks,
        receivers: Sequence[Receiver],
        sent: Float[Tensor, "batch senders pos d_model"],
        norm: LayerNorm,
    ) -> Float[Tensor, "batch receivers pos d_model"]:
        batch, count, length, width = sent.shape
        zero = masks.new_zeros(batch)
        kept = torch.stack(
            [
                torch.stack([masks[:, c] if (c := self._column(i, r)) is not None else zero for i in range(count)], 1)
                for r in receivers
            ],
            1,
        )
        rows = [self.receivers.index(r) for r in receivers]
        constants = learnt.constants[rows] + _ablated(kept, learnt.ablations[:count])
        x = (kept @ sent.reshape(batch, count, -1)).view(batch, len(receivers), length, width) + constants[:, :, None]
        if learnt.log_variances is None:
            return norm(x)
        divisor = (0.5 * learnt.log_variances[rows]).exp()[:, None, None]
        return (x - x.mean(-1, keepdim=True)) / divisor * norm.gain + norm.bias

    def _column(self, sender: int, receiver: Receiver) -> int | None:
        return self.columns.get((self.senders[sender], receiver))


def _ablated(
    kept: Float[Tensor, "batch receivers senders"], ablations: Float[Tensor, "senders d_model"]
) -> Float[Tensor, "batch receivers d_model"]:
    """Constants in place of what is not kept; they learn only from rows where nothing of it is."""
    gone = (kept == 0).to(kept.dtype)
    return gone @ ablations + (1 - kept - gone) @ ablations.detach()


def _counted(sent: Float[Tensor, "batch senders pos d_model"], batch: Batch) -> Tensor:
    index = batch.where[:, None, :, None].expand(-1, sent.shape[1], -1, sent.shape[3])
    return sent.gather(2, index)


class EdgeGates:
    """A gate for every edge of the graph, a constant for every sender, and norms that are numbers."""

    def __init__(self, components: Components, oracle: Oracle) -> None:
        self.model, self.oracle, self.whole = (
            GatedModel(components, components.anatomy.edges),
            oracle,
            components.whole(),
        )
        means = components.means(oracle)
        norms = [*components.mean_norms(self.whole, self.model.receivers, oracle).values()]
        self.theta: Float[Tensor, " edges"] = torch.full((len(self.model.edges),), START).requires_grad_()
        self.learnt = Learnt(
            ablations=torch.stack([means[sender] for sender in self.model.senders]).requires_grad_(),
            constants=torch.stack([self.whole.constants[receiver] for receiver in self.model.receivers]),
            log_variances=torch.tensor([2 * math.log(norm) for norm in norms]).requires_grad_(),
        )

    def rates(self) -> list[tuple[Tensor, float]]:
        assert self.learnt.log_variances is not None
        return [(self.learnt.ablations, CONSTANT_RATE), (self.learnt.log_variances, NORM_RATE)]

    def divergence(self, batch: Batch, masks: int, generator: torch.Generator) -> Float[Tensor, ""]:
        """From the model, with so many samples of the gates for each input."""
        wide = batch.rows(torch.arange(len(batch.inputs)).repeat_interleave(masks))
        logits = self.model.logits(self.learnt, sample_masks(self.theta, len(wide.inputs), generator), wide)
        return self.oracle.loss(wide, logits).mean()

    @torch.no_grad()
    def pruned(self) -> Graph:
        """Without the edges whose gates have closed, with what has been learnt."""
        assert self.learnt.log_variances is not None
        constants, kept = dict(self.whole.constants), set[Edge]()
        for edge, theta in zip(self.model.edges, self.theta, strict=True):
            sender, receiver = edge
            if float(theta) > 0:
                kept.add(edge)
            else:
                constants[receiver] = constants[receiver] + self.learnt.ablations[self.model.senders.index(sender)]
        norms = zip(self.model.receivers, (0.5 * self.learnt.log_variances).exp().tolist(), strict=True)
        return replace(self.whole, kept=_heard(kept), constants=constants, norms=dict(norms))


def _heard(kept: set[Edge]) -> frozenset[Edge]:
    """Edges to the output and to components that are themselves heard. Constant ones still send their constant."""
    while True:
        senders = {sender for sender, _ in kept}
        heard = {edge for edge in kept if (component_of(edge[1]) or edge[0]) in senders}
        if heard == kept:
            return frozenset(kept)
        kept = heard
