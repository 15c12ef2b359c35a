"""Gates on the edges of the component graph, trained by gradient: all edges are weighed at once.

A gate is a number θ; in each row of a batch its edge is kept, cut, or kept in part, at random, so that the share of
rows that keep it is sigmoid(θ) (uniform gradient sampling). Where an edge is cut, its receiver hears one learnt
constant of the sender instead.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.decompiler.components import Components, Graph
from drasp.edits import CUT, Edit, Replaced, Scaled, Shifted
from drasp.fitting.oracle import Batch, Oracle
from drasp.forward import Forward
from drasp.sites import Component, Edge, NormSite, Site

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
    """A model with a mask for every row and edge; edges that are not among those given are closed."""

    def __init__(self, components: Components, edges: Sequence[Edge]) -> None:
        self.transformer, self.anatomy, self.edges = components.transformer, components.anatomy, tuple(edges)
        self.cuts: Mapping[Site, Edit] = {edge: CUT for edge in self.anatomy.edges if edge not in self.edges}
        places = {edge: i for i, edge in enumerate(self.edges)}
        never, always = len(places), len(places) + 1  # columns beside those of the gates
        self.places = torch.tensor(
            [
                [places.get(edge := Edge(s, r), never if edge in self.cuts else always) for s in self.anatomy.senders]
                for r in self.anatomy.receivers
            ]
        )

    def logits(self, learnt: Learnt, masks: Masks, batch: Batch) -> Float[Tensor, "batch counted n_vocab"]:
        return Forward(self.transformer, self.edits(learnt, masks))(batch.sequences).logits

    def edits(self, learnt: Learnt, masks: Masks) -> dict[Site, Edit]:
        edits: dict[Site, Edit] = {**self.cuts}
        edits |= {edge: Scaled(column) for edge, column in zip(self.edges, masks.unbind(1), strict=True)}
        shifts = learnt.constants + self._ablated(masks, learnt.ablations)
        edits |= {r: Shifted(shift[:, None]) for r, shift in zip(self.anatomy.receivers, shifts.unbind(1), strict=True)}
        if learnt.log_variances is not None:
            roots = (0.5 * learnt.log_variances).exp().unbind()
            edits |= {NormSite(r): Replaced(root) for r, root in zip(self.anatomy.receivers, roots, strict=True)}
        return edits

    def _ablated(self, masks: Masks, ablations: Tensor) -> Float[Tensor, "batch receivers d_model"]:
        """Constants in place of what is not kept; they learn only from rows where nothing of it is."""
        beside = masks.new_tensor([0.0, 1.0]).expand(len(masks), 2)
        kept = torch.cat([masks, beside], 1)[:, self.places]
        gone = (kept == 0).to(kept.dtype)
        return gone @ ablations + (1 - kept - gone) @ ablations.detach()


class EdgeGates:
    """A gate for every edge of the graph, a constant for every sender, and norms that are numbers."""

    def __init__(self, components: Components, oracle: Oracle) -> None:
        anatomy = components.anatomy
        self.model, self.oracle, self.whole = GatedModel(components, anatomy.edges), oracle, components.whole()
        means = components.means(oracle)
        norms = [*components.mean_norms(self.whole, anatomy.receivers, oracle).values()]
        self.theta: Float[Tensor, " edges"] = torch.full((len(self.model.edges),), START).requires_grad_()
        self.learnt = Learnt(
            ablations=torch.stack([means[sender] for sender in anatomy.senders]).requires_grad_(),
            constants=torch.stack([self.whole.constants[receiver] for receiver in anatomy.receivers]),
            log_variances=torch.tensor([2 * math.log(norm) for norm in norms]).requires_grad_(anatomy.has_norms),
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
        anatomy, constants, kept = self.whole.anatomy, dict(self.whole.constants), set[Edge]()
        ablations = dict(zip(anatomy.senders, self.learnt.ablations, strict=True))
        for edge, theta in zip(self.model.edges, self.theta, strict=True):
            if float(theta) > 0:
                kept.add(edge)
            else:
                assert isinstance(edge.sender, Component)
                constants[edge.receiver] = constants[edge.receiver] + ablations[edge.sender]
        norms = zip(anatomy.receivers, (0.5 * self.learnt.log_variances).exp().tolist(), strict=True)
        return replace(self.whole, kept=_heard(kept), constants=constants, norms=dict(norms))


def _heard(kept: set[Edge]) -> frozenset[Edge]:
    """Edges to the output and to components that are themselves heard. Constant ones still send their constant."""
    while True:
        senders = {edge.sender for edge in kept}
        heard = {edge for edge in kept if (edge.receiver.component or edge.sender) in senders}
        if heard == kept:
            return frozenset(kept)
        kept = heard
