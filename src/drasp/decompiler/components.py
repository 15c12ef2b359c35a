"""The model as components that send to each other, along edges that can be cut.

Token, position, heads and MLPs send vectors of the residual stream; the query, key and value of each head,
each MLP and the output receive sums of them. What a head sends is a sum too, of ways: one for each that its value
hears; and its scores are a sum of products of the ways to its query and its key. Edges, ways and products can be cut.
Where an edge or a way is, its mean joins the receiver's constant, which is then tuned. A graph is a set of edits: the
same that interventions are made of, so it is the model cut down, and its program has the model's own tensors.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.edits import CUT, Edit, Replaced, Shifted
from drasp.fitting.means import means_over
from drasp.fitting.oracle import Batch, Oracle
from drasp.forward import Forward
from drasp.sites import (
    NO_COMPONENT,
    OUT,
    Anatomy,
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
    last_of,
)
from drasp.transformer import Transformer

SomeSite = TypeVar("SomeSite", Component, Edge)
Edits = Mapping[Site, Edit]
Means = Mapping[Sender, Float[Tensor, " d_model"]]
# What can be cut: an edge between components, a way through heads to a receiver, what is read of a way behind a norm
# that still hears it, or a product of two ways.
Cuttable: TypeAlias = Edge | Read | Product


@dataclass(frozen=True)
class Graph:
    """What is left of a model: edges, what each receiver hears instead of the others, and norms that are constant.

    `closed` are ways through heads, and reads and products of ways, that are cut though their edges are kept. `bare`
    receivers have a real norm by which their constant is not divided, but by a number: else it would take lines.
    """

    anatomy: Anatomy
    kept: frozenset[Edge]
    constants: Mapping[Receiver, Float[Tensor, " d_model"]]
    norms: Mapping[Receiver, float | Float[Tensor, ""]]  # tensors only while they are settled
    closed: frozenset[Cuttable] = frozenset()
    bare: Mapping[Receiver, float] = field(default_factory=dict[Receiver, float])
    # What was measured of this very graph, and by whom; one with other constants is another.
    measured: dict[Hashable, Any] = field(init=False, default_factory=dict, compare=False, repr=False)

    @cached_property
    def edits(self) -> Edits:
        """What makes the whole model this graph."""
        shifts = {receiver: Shifted(self.constants[receiver]) for receiver in self.live_receivers()}
        norms = {NormSite(receiver): Replaced(value) for receiver, value in self.norms.items()}
        bare = {
            ConstantNorm(receiver): Replaced(value)
            for receiver, value in self.bare.items()
            if receiver in shifts and receiver not in self.norms
        }
        return {**self.cuts, **shifts, **norms, **bare}

    @cached_property
    def cuts(self) -> Edits:
        return {**_cuts(self.anatomy, self.kept), **dict.fromkeys(sorted(self.closed, key=str), CUT)}

    def cut(self, sites: Iterable[Cuttable], means: Means) -> "Graph":
        """The graph without these edges, ways and products, and without what then has no input or no reader.

        The mean of what an edge or a way carried joins the receiver's constant.
        """
        sites = set(sites) - self.closed
        between = {site for site in sites if isinstance(site, Edge) and isinstance(site.sender, Component)}
        ways = [site for site in sites if isinstance(site, Edge) and site not in between]
        graph = replace(self, closed=self.closed | (sites - between))._shifted(sorted(ways, key=str), means)
        return graph._without_edges(between, means)._tidied(means)

    def _without_edges(self, edges: set[Edge], means: Means) -> "Graph":
        lost = self.kept - _alive(self.kept - frozenset(edges))
        return replace(self, kept=self.kept - lost)._shifted(sorted(lost, key=self.anatomy.edges.index), means, self)

    def _shifted(self, edges: Iterable[Edge], means: Means, before: "Graph | None" = None) -> "Graph":
        """The graph with the means of what edges carried in its constants.

        Ways that were closed before have left theirs already, and of what was not read nothing is missing.
        """
        constants = dict(self.constants)
        for edge in edges:
            constants[edge.receiver] = constants[edge.receiver] + means[edge.sender]
            for site in sorted(before.closed, key=str) if before else ():
                if isinstance(site, Product) or site.receiver != edge.receiver:
                    continue
                if last_of(site.sender) == edge.sender:
                    constants[edge.receiver] = constants[edge.receiver] - means[site.sender]
        return replace(self, constants=constants)

    def _tidied(self, means: Means) -> "Graph":
        """The graph without closed sites that are gone, and edges on which nothing comes any more."""
        gone = sorted((site for site in self.closed if not self._is_there(site)), key=str)
        constants = dict(self.constants)
        for site in gone:
            # What began such a way is constant by now, and comes along the edge: its mean must not count twice.
            if isinstance(site, Edge) and Edge(last_of(site.sender), site.receiver) in self.kept:
                constants[site.receiver] = constants[site.receiver] - means[site.sender]
        graph = replace(self, closed=self.closed.difference(gone), constants=constants)
        idle = graph._idle_edges()
        return graph._without_edges(idle, means)._tidied(means) if idle else graph

    def _is_there(self, site: Cuttable) -> bool:
        """Whether what is closed would be heard if it were open."""
        match site:
            case Edge(Path(origin, heads), receiver):
                way = origin if len(heads) == 1 else Path(origin, heads[:-1])
                values = heads[-1].receivers[2]
                before = self.hears(way, values) and Read(way, values) not in self.closed
                return before and Edge(heads[-1], receiver) in self.kept
            case Read(way, receiver):
                return self.hears(way, receiver) and receiver in self.live_receivers()
            case Product(query, key, head):
                sides = zip((query, key), head.receivers, strict=False)
                heard = all(way == NO_COMPONENT or self.hears(way, side) for way, side in sides)
                return heard and self.is_used(head)
            case _:
                return False

    def has(self, site: Cuttable) -> bool:
        """Whether something comes along an edge or a way, or by a product."""
        match site:
            case Edge(sender, receiver):
                return self.hears(sender, receiver)
            case Read() | Product():
                return site not in self.closed and self._is_there(site)

    def is_like(self, other: "Graph") -> bool:
        """Whether the same is cut."""
        return (self.kept, self.closed) == (other.kept, other.closed)

    def hears(self, way: Sender, receiver: Receiver) -> bool:
        edge = Edge(way, receiver)
        return edge in self.kept if isinstance(way, Component) else edge not in self.closed and self._is_there(edge)

    def _idle_edges(self) -> set[Edge]:
        """Edges from heads all ways through which are closed, and those to attention that nothing is left of."""
        idle: set[Edge] = set()
        if not self.closed:
            return idle
        unread = {site.receiver for site in self.closed if isinstance(site, Read)}
        for edge in self.kept:
            heard = {last_of(way) for way in self.heard_by(edge.receiver)}
            if _component(edge).kind == "head" and edge.sender not in heard:
                idle.add(edge)
            if edge.receiver in unread:
                read = {last_of(way) for way in self.ways_to(edge.receiver)}
                # A constant norm hears nothing, and values of which nothing is read are none.
                if (not self.has_norm(edge.receiver) and edge.sender not in read) or not read:
                    idle.add(edge)
        for head in {site.head for site in self.closed if isinstance(site, Product)}:
            query, key, _ = head.receivers
            left = self.products(head)
            for side, ways in ((query, {p.query for p in left}), (key, {p.key for p in left})):
                if not left or not self.has_norm(side):
                    idle |= {Edge(s, side) for s in self.senders_to(side) if s not in {last_of(w) for w in ways}}
        return idle

    def has_norm(self, receiver: Receiver) -> bool:
        """Whether what a receiver reads is divided by a norm that is no number."""
        return self.anatomy.has_norms and receiver not in self.norms

    def senders_to(self, receiver: Receiver) -> list[Component]:
        return [sender for sender in self.anatomy.senders_to(receiver) if Edge(sender, receiver) in self.kept]

    def ways_to(self, receiver: Receiver) -> list[Sender]:
        """The ways by which a receiver reads embeddings and MLPs: each is a variable of the program."""
        return self.anatomy.ways_to(
            receiver, lambda edge: self._is_cut(edge) or Read(edge.sender, edge.receiver) in self.closed, self._ways
        )

    @cached_property
    def _ways(self) -> dict[Receiver, list[Sender]]:
        """The ways that receivers read, as far as somebody has asked."""
        return {}

    def heard_by(self, receiver: Receiver) -> list[Sender]:
        """The ways by which a receiver or its norm hears embeddings and MLPs."""
        silent = [site.sender for site in self.closed if isinstance(site, Read) and site.receiver == receiver]
        return [*self.ways_to(receiver), *sorted(silent, key=str)]

    def _is_cut(self, edge: Edge) -> bool:
        return edge in self.closed if isinstance(edge.sender, Path) else edge not in self.kept

    def products(self, head: Component) -> list[Product]:
        """What a head's scores are the sum of: each is a select of the program."""
        query, key, _ = head.receivers
        every = (Product(q, k, head) for q in (*self.ways_to(query), NO_COMPONENT) for k in self.ways_to(key))
        return [product for product in every if product not in self.closed]

    @cached_property
    def reads(self) -> int:
        """How many ways and products are read, whatever norms hear."""
        ways = sum(len(self.ways_to(r)) for r in self.live_receivers() if r.kind not in ("query", "key"))
        return ways + sum(len(self.products(head)) for head in self.used_heads())

    def used_heads(self) -> list[Component]:
        return [sender for sender in self.anatomy.senders if sender.kind == "head" and self.is_used(sender)]

    def is_used(self, component: Component) -> bool:
        return any(component == edge.sender for edge in self.kept)

    def live_receivers(self) -> tuple[Receiver, ...]:
        """The receivers whose constant matters: those of components that are used."""
        used = {edge.sender for edge in self.kept}
        return tuple(r for r in self.anatomy.receivers if r == OUT or r.component in used)

    def lines(self) -> int:
        """About as many as its program has: a select for each pair of paths to a query and a key, and so on."""
        paths: dict[Component, int] = {}

        def heard(receiver: Receiver) -> int:
            # What divides by a norm divides the constant too, which then is one path more.
            return sum(paths[sender] for sender in self.senders_to(receiver)) + self.has_norm(receiver)

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
        # A head without keys attends uniformly, whatever its queries; without values, or an MLP without inputs, it
        # says nothing.
        fed = {edge.receiver.component for edge in kept if edge.receiver.kind not in ("query", "key")}
        looking = {edge.receiver.component for edge in kept if edge.receiver.kind == "key"}
        used = {edge.sender for edge in kept}
        alive = frozenset(
            edge
            for edge in kept
            if (not _component(edge).receivers or edge.sender in fed)
            and (edge.receiver.component or edge.sender) in used
            and (edge.receiver.kind != "query" or edge.receiver.component in looking)
        )
        if alive == kept:
            return kept
        kept = alive


class MeansOfWays(dict[Sender, Float[Tensor, " d_model"]]):
    """What components send on average, and ways through heads where somebody asks for them."""

    def __init__(self, components: "Components", oracle: Oracle) -> None:
        super().__init__(components.averages({}, components.anatomy.senders, oracle).items())
        self.components, self.oracle = components, oracle

    def __missing__(self, way: Sender) -> Float[Tensor, " d_model"]:
        edge = Edge(way, OUT)
        self[way] = self.components.averages({}, [edge], self.oracle)[edge]
        return self[way]


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

    def means(self, oracle: Oracle) -> Means:
        """What each component of the whole model sends on average, over all positions, and each way through heads."""
        return MeansOfWays(self, oracle)

    @torch.no_grad()
    def mean_norms(self, graph: Graph, receivers: Sequence[Receiver], oracle: Oracle) -> dict[Receiver, float]:
        """What the receivers' layer norms divide by, on average over the positions at which they are read."""
        sites = [NormSite(receiver) for receiver in receivers]
        forward, last = Forward(self.transformer, graph.edits, sites), len(self.transformer.layers) - 1
        sums, counts = dict.fromkeys(receivers, 0.0), dict.fromkeys(receivers, 0)
        for batch in oracle.batches:
            values = forward(batch.sequences).values
            for site in sites:
                receiver = site.receiver
                narrow = receiver == OUT or (receiver.layer == last and receiver.kind in ("query", "mlp"))
                where = batch.valid if narrow else batch.real
                sums[receiver] += float(values[site].expand_as(where)[where].sum())
                counts[receiver] += int(where.sum())
        return {receiver: sums[receiver] / counts[receiver] for receiver in receivers}

    @torch.no_grad()
    def averages(self, edits: Mapping[Site, Edit], sites: Sequence[SomeSite], oracle: Oracle) -> dict[SomeSite, Tensor]:
        """The means of what is at sites, over all positions of some inputs."""
        forward = Forward(self.transformer, edits, sites)

        def values(batch: Batch) -> dict[SomeSite, Tensor]:
            found = forward(batch.sequences.everywhere).values
            return {site: found[site] for site in sites}

        return means_over((values(batch), batch.real) for batch in oracle.batches)
