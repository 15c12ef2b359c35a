"""The model as components that send to each other, along edges that can be cut.

Token, position, heads and MLPs send vectors of the residual stream; the query, key and value of each head,
each MLP and the output receive sums of them. Where an edge is cut, its sender's mean joins the receiver's
constant, which is then tuned. A graph is a set of edits: the same that interventions are made of.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.edits import CUT, Edit, Replaced, Shifted
from drasp.fitting.oracle import Batch, Oracle
from drasp.forward import Forward
from drasp.sequences import Sequences
from drasp.sites import OUT, Anatomy, Component, Edge, NormSite, Receiver, Site
from drasp.transformer import Transformer

SomeSite = TypeVar("SomeSite", Component, NormSite)
Edits = Mapping[Site, Edit]
Means = Mapping[Component, Float[Tensor, " d_model"]]


@dataclass(frozen=True)
class Graph:
    """The edges that are left, what each receiver hears instead of the others, and the norms that are constant."""

    anatomy: Anatomy
    kept: frozenset[Edge]
    constants: Mapping[Receiver, Float[Tensor, " d_model"]]
    norms: Mapping[Receiver, float]

    @cached_property
    def edits(self) -> Edits:
        """What makes the whole model this graph."""
        shifts = {receiver: Shifted(self.constants[receiver]) for receiver in self.live_receivers()}
        norms = {NormSite(receiver): Replaced(value) for receiver, value in self.norms.items()}
        return {**_cuts(self.anatomy, self.kept), **shifts, **norms}

    def cut(self, edges: Iterable[Edge], means: Means) -> "Graph":
        """The graph without these edges, and without what then has no input or no reader."""
        lost = self.kept - _alive(self.kept - frozenset(edges))
        constants = dict(self.constants)
        for edge in sorted(lost, key=self.anatomy.edges.index):
            constants[edge.receiver] = constants[edge.receiver] + means[_component(edge)]
        return replace(self, kept=self.kept - lost, constants=constants)

    def bypass(self, mlp: Component, means: Means) -> "Graph":
        """The graph in which what an MLP reads goes directly to its readers: for MLPs that add nothing to it."""
        [own] = mlp.receivers
        readers = [edge.receiver for edge in self.kept if edge.sender == mlp]
        new = {Edge(sender, reader) for sender in self.senders_to(own) for reader in readers} - self.kept
        constants = dict(self.constants)
        for edge in sorted(new, key=self.anatomy.edges.index):
            constants[edge.receiver] = constants[edge.receiver] - means[_component(edge)]
        wider = replace(self, kept=self.kept | new, constants=constants)
        return wider.cut([edge for edge in wider.kept if edge.sender == mlp], means)

    def senders_to(self, receiver: Receiver) -> list[Component]:
        return [sender for sender in self.anatomy.senders_to(receiver) if Edge(sender, receiver) in self.kept]

    def is_used(self, component: Component) -> bool:
        return any(component == edge.sender for edge in self.kept)

    def live_receivers(self) -> tuple[Receiver, ...]:
        """Those whose constant matters: of components that are used."""
        used = {edge.sender for edge in self.kept}
        return tuple(r for r in self.anatomy.receivers if r == OUT or r.component in used)

    def lines(self) -> int:
        """About as many as its program has: a select for each pair of paths to a query and a key, and so on."""
        paths: dict[Component, int] = {}

        def heard(receiver: Receiver) -> int:
            # What divides by a norm divides the constant too, which then is one path more.
            return sum(paths[sender] for sender in self.senders_to(receiver)) + (receiver not in self.norms)

        lines = 0
        for sender in self.anatomy.senders:
            match sender.receivers if self.is_used(sender) else ():
                case (query, key, value):
                    paths[sender] = heard(value)
                    lines += (heard(query) + 1) * heard(key) + heard(value)
                case (_mlp,):
                    paths[sender] = 1
                    lines += 1
                case _:
                    paths[sender] = 1
        return lines + heard(OUT) + 1


@lru_cache(maxsize=64)
def _cuts(anatomy: Anatomy, kept: frozenset[Edge]) -> Edits:
    return {edge: CUT for edge in anatomy.edges if edge not in kept}


def _component(edge: Edge) -> Component:
    assert isinstance(edge.sender, Component)
    return edge.sender


def _alive(kept: frozenset[Edge]) -> frozenset[Edge]:
    """Edges from components that have an input, to components that are used."""
    while True:
        # A head without queries or keys attends uniformly; without values, or an MLP without inputs, it says nothing.
        fed = {edge.receiver.component for edge in kept if edge.receiver.kind not in ("query", "key")}
        used = {edge.sender for edge in kept}
        alive = frozenset(
            edge
            for edge in kept
            if (not _component(edge).receivers or edge.sender in fed)
            and (edge.receiver.component or edge.sender) in used
        )
        if alive == kept:
            return kept
        kept = alive


class Components:
    """A model that is run along the edges of graphs."""

    def __init__(self, transformer: Transformer) -> None:
        self.transformer = transformer
        self.anatomy = transformer.anatomy
        self._ready: tuple[Graph, Forward] | None = None

    def whole(self) -> Graph:
        """All edges."""
        zero = torch.zeros_like(self.transformer.final_norm.bias)
        return Graph(self.anatomy, frozenset(self.anatomy.edges), dict.fromkeys(self.anatomy.receivers, zero), {})

    def logits(self, graph: Graph, batch: Batch) -> Float[Tensor, "batch counted n_vocab"]:
        """The graph's logits at the positions that count."""
        # Batch after batch is asked of one graph.
        if self._ready is None or self._ready[0] is not graph:
            self._ready = graph, Forward(self.transformer, graph.edits)
        return self._ready[1](batch.sequences).logits

    def means(self, oracle: Oracle) -> dict[Component, Float[Tensor, " d_model"]]:
        """What each component of the whole model sends on average, over all positions."""
        return self._averages({}, self.anatomy.senders, oracle)

    def mean_norms(self, graph: Graph, receivers: Sequence[Receiver], oracle: Oracle) -> dict[Receiver, float]:
        """What the receivers' layer norms divide by, on average."""
        sites = [NormSite(receiver) for receiver in receivers]
        return {site.receiver: float(mean) for site, mean in self._averages(graph.edits, sites, oracle).items()}

    @torch.no_grad()
    def _averages(
        self, edits: Mapping[Site, Edit], sites: Sequence[SomeSite], oracle: Oracle
    ) -> dict[SomeSite, Tensor]:
        forward = Forward(self.transformer, edits, sites)
        sums: dict[SomeSite, Tensor] = {}
        count = 0
        for batch in oracle.batches:
            ids, real = batch.inputs.ids, batch.real
            values = forward(Sequences(ids, batch.inputs.positions)).values
            count += int(real.sum())
            for site in sites:
                total = values[site].expand(*ids.shape, *values[site].shape[2:])[real].sum(0)
                sums[site] = sums[site] + total if site in sums else total
        return {site: total / count for site, total in sums.items()}
