"""What a cut must not change beside the answers: where heads look, and how answers follow when inputs are edited.

Answers alone do not tell one mechanism from another that answers alike. So a graph stands only if the heads that it
keeps attend as they do in the model, at the positions where their outputs are read, and if it answers as the model does
where a change of tokens changes an answer. A graph is complete if, besides, what it leaves out does not matter: the
answers stay when all of that comes from another input, instead of being a constant. These are the measures of
`drasp.causal`, on a small set of inputs and on graphs instead of programs.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping

import torch
from torch import Tensor

from drasp.causal.attention import looks_of
from drasp.causal.measures import Cases
from drasp.causal.trials import Answers, Outcome, Pairs, Trials, lowest, outcome
from drasp.decompiler.components import Graph
from drasp.edits import Edit, Replaced
from drasp.forward import Forward
from drasp.language.syntax import once
from drasp.sequences import Sequences
from drasp.settings import DEFAULT, EVIDENCE, Settings
from drasp.sites import Component, Edge, NormSite, Pattern, Read, Receiver, Site
from drasp.tasks import EDITS

_MOST_BYTES = 2_000_000_000  # of what is kept from sources: products of long inputs take most of it


class Standards:
    """Graphs of one model are held to what the model does on a fixed set of pairs of inputs."""

    def __init__(self, trials: Trials, settings: Settings = DEFAULT) -> None:
        self.trials, self.transformer, self.settings = trials, trials.transformer, settings
        self.sources: dict[tuple[int, Site], Tensor] = {}
        self.swapped: dict[Hashable, Tensor] = {}
        self.effects: dict[Component, float] = {}  # the last share alike of each
        # Of the last graph alone: logits of all pairs take much room, and its components are asked about in a row.
        self.unswapped: tuple[Graph, list[Tensor], list[Mapping[Site, Tensor]]] | None = None
        self.said: tuple[Graph, list[Tensor]] | None = None  # the logits on all bases, of the last graph looked at

    def spare(self, graph: Graph) -> float:
        """By how much the graph is nearer to what the model does than is asked for, as far as a look tells."""

        def found() -> float:
            overlaps, edited = self.look(graph)
            overlap, chosen = min(overlaps.values(), default=1.0), self.settings
            return min(overlap - chosen.least_overlap, edited - chosen.least_edited)

        return once(graph.measured, (self, "spare"), found)

    @torch.no_grad()
    def look(self, graph: Graph) -> tuple[dict[Component, float], float]:
        """How much each head of the graph looks where it does in the model, and the share of answers that edits change
        which the graph gives too, for the kind of edit where it is lowest.
        """
        heads = graph.used_heads()
        looking = Forward(self.transformer, graph.edits, [Pattern(head) for head in heads])
        answering = Forward(self.transformer, graph.edits)
        said: list[Tensor] = []
        shared = dict.fromkeys(heads, 0.0)
        read = dict.fromkeys(heads, 1e-30)
        found: dict[int, list[Outcome]] = {kind: [] for kind in range(1, 1 + len(EDITS))}
        for number, pairs in enumerate(self.trials.batches):
            base = looking(pairs.base)
            said.append(base.logits)
            for head in heads:
                looks = looks_of(self.trials, (head,))[number]
                pattern = base.values[Pattern(head)].expand(len(pairs), -1, -1)
                ours = pattern.gather(1, looks.places[..., None].expand(-1, -1, pattern.shape[-1]))
                overlap = torch.minimum(ours, looks.patterns.to(ours.dtype)).sum(-1)
                shared[head] += float((overlap * looks.weights).sum())
                read[head] += float(looks.weights.sum())
            edited = pairs.kinds.nonzero()[:, 0]  # what the others are on their sources is not asked here
            if not len(edited):
                continue
            some = pairs.rows(edited)
            after = answering(some.source).logits
            sides = Answers(some.base_logits, some.source_logits), Answers(base.logits[edited], after)
            for kind, parts in found.items():
                rows = (some.kinds == kind).nonzero()[:, 0]
                parts.append(outcome(self.trials, some, *sides, self.trials.margin, rows=rows))
        self.said = graph, said
        overlaps = {head: shared[head] / read[head] if read[head] > 1e-20 else 1.0 for head in heads}
        return overlaps, self._lowest(Outcome.joined(parts) for parts in found.values())

    def _lowest(self, outcomes: Iterable[Outcome]) -> float:
        return lowest(outcomes, self.settings.fewest, self.settings.many)

    def complement(self, graph: Graph) -> float:
        """The share of answers that stay the model's when all that is cut comes from a source which answers otherwise.

        Norms are the model's own, and there are no constants.
        """
        found = self._complement(graph)
        while len(found) < len(self.trials.batches):
            found.append(self._complement_of(graph, len(found)))
        return self._lowest([Outcome.joined(found)])

    def is_complement(self, graph: Graph, least: float) -> bool:
        """Whether that share is at least so large: inputs are looked at until those that are left cannot change it."""
        found, sizes = self._complement(graph), [len(pairs) for pairs in self.trials.batches]
        while (left := sum(sizes[len(found) :])) > 0:
            alike = torch.cat([torch.ones(0), *(each.cases.values for each in found)])
            if len(alike) >= self.settings.fewest and (float(alike.sum()) + left) / (len(alike) + left) < least:
                return False
            found.append(self._complement_of(graph, len(found)))
        return self.complement(graph) >= least

    def _complement(self, graph: Graph) -> list[Outcome]:
        """What was found so far, batch by batch."""
        return once(graph.measured, (self, "complement"), list)

    @torch.no_grad()
    def _complement_of(self, graph: Graph, number: int) -> Outcome:
        pairs = self.trials.batches[number]
        edits = self._from_source(number, pairs, graph.cuts)
        base = Sequences(pairs.base.ids, pairs.base.positions)
        said = pairs.at_counted(Forward(self.transformer, edits)(base).logits)
        model = Answers(pairs.source_logits, pairs.base_logits)
        return outcome(self.trials, pairs, model, Answers(said, said), self.trials.margin)

    def interchange(self, graph: Graph, near: bool = True) -> float:
        """The share of answers alike in the graph and in the model when a head or an MLP comes from a source, where
        that changes an answer of either: of the component where it is lowest. Answers `near` to another one count as
        well, or not; of these some more may differ.
        """
        return min((self._effect(graph, c, near) for c in self._used(graph)), default=1.0)

    def keeps_effects(self, graph: Graph, least: float, near: bool = True) -> bool:
        """Whether that share is at least so large: components that did worst elsewhere are looked at first."""
        used = sorted(self._used(graph), key=lambda component: self.effects.get(component, 1.0))
        return all(self._effect(graph, component, near) >= least for component in used)

    def _used(self, graph: Graph) -> list[Component]:
        return [c for c in self.transformer.anatomy.senders if c.receivers and graph.is_used(c)]

    def _effect(self, graph: Graph, component: Component, near: bool) -> float:
        """The share of answers alike for one component, as `interchange` has it."""
        clearly, nearly = once(graph.measured, (self, component), lambda: self._interchanged(graph, component))
        self.effects[component] = min(clearly, nearly + self.settings.more_of_near)
        return self.effects[component] if near else clearly

    @torch.no_grad()
    def _interchanged(self, graph: Graph, component: Component) -> tuple[float, float]:
        """The share alike of answers that are clear, and of those with the ones that are near to another."""
        if self.unswapped is None or self.unswapped[0] is not graph:
            self.unswapped = graph, *self._unswapped(graph)
        _, before, sources = self.unswapped
        margins = self.settings.clear_of_norms, EVIDENCE.clear
        found: list[list[Cases]] = [[] for _ in margins]
        for number, pairs in enumerate(self.trials.batches):
            base = Sequences(pairs.base.ids, pairs.base.positions)
            edits = {**graph.edits, component: Replaced(sources[number][component])}
            after = pairs.at_counted(Forward(self.transformer, edits)(base).logits)
            sides = Answers(pairs.base_logits, self._swapped(number, pairs, component)), Answers(before[number], after)
            for cases, clear in zip(found, margins, strict=True):
                cases.append(outcome(self.trials, pairs, *sides, self.trials.margin, clear).cases)
        clearly, nearly = (Cases.joined(cases).values for cases in found)
        fewest = self.settings.fewest
        share, with_near = (1.0 if len(x) < fewest else float(x.mean()) for x in (clearly, nearly))
        return share, with_near

    @torch.no_grad()
    def _unswapped(self, graph: Graph) -> tuple[list[Tensor], list[Mapping[Site, Tensor]]]:
        """What the graph says of all bases, and what its components are on all sources."""
        record = Forward(self.transformer, graph.edits, self._used(graph))
        if self.said is not None and self.said[0] is graph:
            before = self.said[1]
        else:
            answering = Forward(self.transformer, graph.edits)
            before = [answering(pairs.base).logits for pairs in self.trials.batches]
        sources = (Sequences(pairs.source.ids, pairs.source.positions) for pairs in self.trials.batches)
        return before, [record(source).values for source in sources]

    def _swapped(self, number: int, pairs: Pairs, component: Component) -> Tensor:
        """What the model says when a component comes from the sources."""
        base = Sequences(pairs.base.ids, pairs.base.positions)

        def said() -> Tensor:
            edits = self._from_source(number, pairs, [component])
            return pairs.at_counted(Forward(self.transformer, edits)(base).logits)

        return once(self.swapped, (number, component), said)

    @torch.no_grad()
    def norm_matters(self, receiver: Receiver) -> bool:
        """Whether the divisor of a receiver's layer norm, taken from a source, changes more than a few answers."""
        changed, site = 0, NormSite(receiver)
        for number, pairs in enumerate(self.trials.batches):
            edits = self._from_source(number, pairs, [site])
            base = Sequences(pairs.base.ids, pairs.base.positions)
            said = pairs.at_counted(Forward(self.transformer, edits)(base).logits)
            sides = Answers(pairs.base_logits, said)
            changed += len(outcome(self.trials, pairs, sides, sides, self.trials.margin).cases)
        return changed > self.settings.seldom * len(self.trials)

    def _from_source(self, number: int, pairs: Pairs, sites: Iterable[Site]) -> dict[Site, Edit]:
        """Edits that put there what is at sites on the sources; an edge carries what its sender sends."""

        def value_of(site: Site) -> Site:
            match site:
                case Edge(Component() as sender) | Read(Component() as sender):
                    return sender
                case Read(way, receiver):
                    return Edge(way, receiver)
                case _:
                    return site

        wanted = {site: value_of(site) for site in sites}
        missing = [each for each in dict.fromkeys(wanted.values()) if (number, each) not in self.sources]
        if missing:
            source = Sequences(pairs.source.ids, pairs.source.positions)
            values = Forward(self.transformer, {}, missing)(source).values
            self.sources |= {(number, each): values[each] for each in missing}
            self._forget(besides={(number, each) for each in wanted.values()})
        return {site: Replaced(self.sources[number, each]) for site, each in wanted.items()}

    def _forget(self, besides: Collection[tuple[int, Site]]) -> None:
        """Drops the oldest of what is kept from sources, as far as it takes too much room; it can be computed again."""
        room = _MOST_BYTES - sum(value.nbytes for value in self.sources.values())
        for key in [key for key in self.sources if key not in besides]:
            if room >= 0:
                break
            room += self.sources.pop(key).nbytes
