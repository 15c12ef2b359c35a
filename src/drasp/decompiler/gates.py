"""Masks on the edges of the component graph, one for each row: all edges are weighed at once, by slopes.

Where an edge is cut, its receiver hears a constant of the sender instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.decompiler.components import Components
from drasp.edits import CUT, Edit, Scaled, Shifted
from drasp.fitting.oracle import Batch
from drasp.forward import Forward
from drasp.sites import Edge, Site

Masks = Float[Tensor, "batch edges"]


@dataclass(frozen=True)
class Learnt:
    """What is there beside masks: a constant for each sender and each receiver."""

    ablations: Float[Tensor, "senders d_model"]
    constants: Float[Tensor, "receivers d_model"]


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
        return edits

    def _ablated(self, masks: Masks, ablations: Tensor) -> Float[Tensor, "batch receivers d_model"]:
        """Constants in place of what is not kept."""
        beside = masks.new_tensor([0.0, 1.0]).expand(len(masks), 2)
        kept = torch.cat([masks, beside], 1)[:, self.places]
        return (1 - kept) @ ablations
