"""Complement: the model with everything that a program leaves out taken from another input.

Every receiver reads the base along the edges that the program has, and the source along all others; a head's scores
are the source's, but for the products that the program has, which are the base's. Layer norms are the model's own, on
what is read; there are no constants. If the program is complete, the answers are those of the base.

A product of the base is taken with the norms of what its receivers read, so heads are dealt with layer by layer: what
they read gives the norms, these the products, these the scores, and so on to the next layer.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from drasp.causal.measures import Logits
from drasp.causal.mechanism import Mechanism
from drasp.causal.swaps import product_terms
from drasp.causal.trials import Answers, Outcome, Pairs, Trials, outcome
from drasp.edits import Edit, Replaced, Shifted
from drasp.forward import Forward
from drasp.language import Program
from drasp.sites import NO_COMPONENT, OUT, Component, Edge, NormSite, Product, Receiver, Sender, Site, last_of, through
from drasp.transformer import Transformer


@torch.no_grad()
def complement(program: Program, trials: Trials) -> Outcome:
    """Whether the model still answers as on the base, where its answer on the source is another."""
    rest = Rest(Mechanism.of(program), trials.transformer)
    found: list[Outcome] = []
    for pairs in trials.batches:
        after = rest.logits(pairs)
        model = Answers(pairs.source_logits, pairs.base_logits)
        found.append(outcome(trials, pairs, model, Answers(after, after), trials.margin))
    return Outcome.joined(found)


class Rest:
    """What a program leaves out of a model, and the edits that take it from a source."""

    def __init__(self, mechanism: Mechanism, transformer: Transformer) -> None:
        self.transformer, self.anatomy = transformer, transformer.anatomy
        self.mechanism = mechanism
        self.kept = [c for c in self.anatomy.senders if c in mechanism.ways]
        self.products = {
            head: tuple(sorted(mechanism.products_of_heads.get(head, ()), key=str))
            for head in self.kept
            if head.kind == "head"
        }

    @property
    def read(self) -> list[Receiver]:
        """The receivers of the program: values of heads that it has, inputs of its MLPs, and the output."""
        return [r for c in self.kept for r in c.receivers if r.kind in ("value", "mlp")] + [OUT]

    @property
    def looking(self) -> list[Receiver]:
        """The queries and keys of its heads."""
        return [r for head in self.products for r in head.receivers[:2]]

    def heard(self, receiver: Receiver) -> frozenset[Sender]:
        """What the program hears at a receiver, its norm included."""
        shared = Receiver(receiver.layer, "attention") if receiver.kind in ("query", "key", "value") else receiver
        edges = self.mechanism.edges
        return edges.get(receiver, frozenset()) | edges.get(shared, frozenset())

    def others(self, receiver: Receiver) -> list[Edge]:
        """The edges to a receiver that the program does not have: from components, or along other paths of a head."""
        heard = self.heard(receiver)
        edges: list[Edge] = []
        for sender in self.anatomy.senders_to(receiver):
            named = {s for s in heard if last_of(s) == sender}
            if not named:
                edges.append(Edge(sender, receiver))
            elif sender.kind == "head" and sender not in named:
                known = {through(s, sender) for s in self.heard(sender.receivers[2])}
                edges += [Edge(p, receiver) for p in sorted(known - named, key=str) if p.origin != NO_COMPONENT]
        return edges

    def logits(self, pairs: Pairs) -> Logits:
        products = {p: product_terms(p, self.anatomy) for found in self.products.values() for p in found}
        sites: set[Site] = {edge for r in (*self.read, *self.looking) for edge in self.others(r)}
        sites |= {*self.looking, *(part for terms in products.values() for part in terms)}
        source = Forward(self.transformer, record=sites)(pairs.source).values
        edits: dict[Site, Edit] = {edge: Replaced(source[edge]) for r in self.read for edge in self.others(r)}
        for layer in range(self.anatomy.n_layers):
            heads = [head for head in self.products if head.layer == layer]
            edits |= self.scores(pairs, heads, edits, source, products)
        return Forward(self.transformer, edits)(pairs.base).logits

    def scores(
        self,
        pairs: Pairs,
        heads: list[Component],
        edits: dict[Site, Edit],
        source: Mapping[Site, Tensor],
        products: dict[Product, dict[Product, float]],
    ) -> dict[Site, Edit]:
        """Edits that give heads of a layer the source's scores, with the base's products that the program has."""
        looking = [r for head in heads for r in head.receivers[:2]]
        mixed: dict[Site, Edit] = {edge: Replaced(source[edge]) for r in looking for edge in self.others(r)}
        own = [p for head in heads for p in self.products[head]]
        norms = [NormSite(r) for r in looking]
        roots = Forward(self.transformer, {**edits, **mixed}, norms)(pairs.base).values if own else {}
        parts = {part for p in own for part in products[p]}
        fixed: dict[Site, Edit] = {norm: Replaced(root) for norm, root in roots.items()}
        base = Forward(self.transformer, {**edits, **fixed}, parts)(pairs.base).values if own else {}
        moved: dict[Site, Edit] = {r: Replaced(source[r]) for r in looking}
        shifts: dict[Site, Tensor] = {}
        for p in own:
            for part, factor in products[p].items():
                change = factor * (base[part] - source[part])
                shifts[part] = shifts[part] + change if part in shifts else change
        return moved | {part: Shifted(change) for part, change in shifts.items()}
