"""A line of a program taken from a source: in the program itself, in another program of the model, in the model.

In its own program a line is one variable. In the model it is what its sites say: the whole output of a head or an MLP
that it alone carries; what comes along a path, for the receivers that the program names, where it is one of several;
the products of a select; the divisor of a norm; and for a project its senders, as the output hears them. A part of a
split MLP is the MLP itself with that part of its input from the source. Lines that stand for the same go together.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from drasp.causal.measures import Logits
from drasp.causal.mechanism import Heard, Mechanism
from drasp.causal.trials import Pairs, Trials
from drasp.edits import Edit, Replaced, Scaled
from drasp.forward import Forward
from drasp.language import Program
from drasp.language.syntax import Aggregate, ElementWise, Norm, Project, Select, once
from drasp.sites import NO_COMPONENT, OUT, Anatomy, Component, Edge, Path, Product, Receiver, Sender, Site, last_of
from drasp.transformer import Transformer


@dataclass(frozen=True)
class Through:
    """What an MLP says to some receivers when a part of its input is the source's."""

    mlp: Component
    inputs: tuple[Sender, ...]
    receivers: tuple[Receiver, ...]


@dataclass(frozen=True)
class ModelSwap:
    """The sites of a model that are taken from a source for a line, and the MLPs of which a part is."""

    sites: tuple[Site, ...] = ()
    through: tuple[Through, ...] = ()


def model_swap(mechanism: Mechanism, line: str) -> ModelSwap:
    """What stands for a line, and those that share its sites, in the model."""
    parts = [_model_swap(mechanism, name) for name in mechanism.groups[line]]
    sites = dict.fromkeys(site for part in parts for site in part.sites)
    through = dict.fromkeys(each for part in parts for each in part.through)
    return ModelSwap(tuple(sites), tuple(through))


def _model_swap(mechanism: Mechanism, name: str) -> ModelSwap:
    match mechanism.statements[name]:
        case Select():
            return ModelSwap(mechanism.products(name))
        case Norm():
            return ModelSwap(mechanism.norm_sites(name))
        case Aggregate():
            sites: list[Site] = [c for c in mechanism.components(name) if not mechanism.is_split(c)]
            for sender in mechanism.senders[name]:
                head = last_of(sender)
                if mechanism.is_split(head):
                    sites += [Edge(sender, receiver) for receiver in mechanism.readers(name, head)]
            return ModelSwap(tuple(dict.fromkeys(sites)))
        case ElementWise():
            split = [c for c in mechanism.components(name) if mechanism.is_split(c)]
            whole = tuple(c for c in mechanism.components(name) if not mechanism.is_split(c))
            through = (Through(c, mechanism.mlp_inputs(name, c), mechanism.readers(name, c)) for c in split)
            return ModelSwap(whole, tuple(through))
        case Project():
            edges: list[Site] = []
            parts: list[Through] = []
            for heard in mechanism.heard[name]:
                if heard.receiver != OUT:
                    continue
                sender = heard.sender
                if isinstance(sender, Component) and sender.kind == "mlp" and mechanism.is_split(sender):
                    parts.append(Through(sender, part_inputs(mechanism, name, heard), (OUT,)))
                elif mechanism.is_split(last_of(sender)):
                    edges.append(Edge(sender, OUT))
                else:
                    edges.append(Edge(last_of(sender), OUT))
            return ModelSwap(tuple(dict.fromkeys(edges)), tuple(parts))
        case _:
            return ModelSwap()


def part_inputs(mechanism: Mechanism, name: str, heard: Heard) -> tuple[Sender, ...]:
    """What a part of a split MLP reads: its line, or the line that it is folded into by way of an operand."""
    assert isinstance(heard.sender, Component)
    if heard.folded:
        return mechanism.mlp_inputs(name, heard.sender, heard.operand)
    return mechanism.mlp_inputs(heard.operand.variable, heard.sender)


def known_swaps(reference: Transformer | Program, trials: Trials, number: int) -> dict[Hashable, Logits]:
    """What came of swaps in a reference on a batch: many programs are held to the same model, or the same program."""
    if not trials.keeps_logits:
        return {}
    match reference:
        case Program():
            return once(reference.of_numbers, ("swaps", trials, number), dict)
        case model if model is trials.transformer:
            return once(trials.found, ("swaps", number), dict)
        case _:
            return {}


# ------------------------------------------------------------------------------------- in the model


def recorded_sites(swap: ModelSwap, anatomy: Anatomy) -> set[Site]:
    """What has to be known of a source."""
    inputs = (Edge(sender, t.mlp.receivers[0]) for t in swap.through for sender in t.inputs)
    return {part for site in (*swap.sites, *inputs) for part in site_terms(site, anatomy)}


class SwappedModel:
    """A model on a batch of pairs: before, and with lines from the sources, which are run once for all lines.

    `known` is what came of swaps on these pairs, kept by who asks more than once.
    """

    def __init__(
        self,
        transformer: Transformer,
        pairs: Pairs,
        swaps: Mapping[str, ModelSwap],
        known: dict[Hashable, Logits] | None = None,
    ) -> None:
        self.transformer, self.pairs, self.swaps, self.before = transformer, pairs, swaps, pairs.base_logits
        self.known = {} if known is None else known
        new = [swap for swap in swaps.values() if swap not in self.known]
        sites = {site for swap in new for site in recorded_sites(swap, transformer.anatomy)}
        self.source = Forward(transformer, record=sites)(pairs.source).values if sites else {}

    def after(self, line: str) -> Logits:
        swap = self.swaps[line]
        return once(self.known, swap, lambda: self._after(swap))

    def _after(self, swap: ModelSwap) -> Logits:
        edits = self._from_source(swap.sites)
        for through in swap.through:
            inner = self._from_source([Edge(sender, through.mlp.receivers[0]) for sender in through.inputs])
            edges = [Edge(through.mlp, receiver) for receiver in through.receivers]
            values = Forward(self.transformer, inner, edges)(self.pairs.base).values
            edits |= {edge: Replaced(values[edge]) for edge in edges}
        return Forward(self.transformer, edits)(self.pairs.base).logits

    def _from_source(self, sites: Iterable[Site]) -> dict[Site, Edit]:
        """Edits that put the source's values at sites; one that stands in several sums moves as often as they say."""
        moves: dict[Site, float] = {}
        for site in sites:
            for part, factor in site_terms(site, self.transformer.anatomy).items():
                moves[part] = moves.get(part, 0.0) + factor
        return {
            site: Replaced(self.source[site]) if factor == 1 else Scaled(1 - factor, self.source[site])
            for site, factor in moves.items()
            if factor
        }


def site_terms(site: Site, anatomy: Anatomy) -> dict[Site, float]:
    """A site as a sum of those that a model has, each with its factor."""
    match site:
        case Edge(Path() as sender, receiver):
            return {Edge(part, receiver): factor for part, factor in _sender_terms(sender, anatomy).items()}
        case Product():
            return {**product_terms(site, anatomy)}
        case _:
            return {site: 1.0}


def product_terms(product: Product, anatomy: Anatomy) -> dict[Product, float]:
    """A product as a sum of those that a model has, each with its factor."""
    return {
        Product(q, k, product.head): a * b
        for q, a in _sender_terms(product.query, anatomy).items()
        for k, b in _sender_terms(product.key, anatomy).items()
    }


def _sender_terms(sender: Sender, anatomy: Anatomy) -> dict[Sender, float]:
    """A sender as a sum of those that a model has.

    What of a head comes from `one` is what no path from a component carries.
    """
    if not isinstance(sender, Path) or sender.origin != NO_COMPONENT:
        return {sender: 1.0}
    head = sender.heads[0]
    constants = (_constant(first, sender.heads, anatomy) for first in _first_heads(anatomy, head.layer))
    return _total([_constant(head, sender.heads[1:], anatomy), *constants])


def _first_heads(anatomy: Anatomy, layer: int) -> tuple[Component, ...]:
    """The heads of the first layer that a later one hears."""
    return anatomy.heads(0) if layer > 0 else ()


def _constant(head: Component, onwards: tuple[Component, ...], anatomy: Anatomy) -> dict[Sender, float]:
    """What of a head comes from none of its senders, passed on by other heads."""
    whole = Path(head, onwards) if onwards else head
    return {whole: 1.0} | {Path(s, (head, *onwards)): -1.0 for s in anatomy.senders_to(head.receivers[2])}


def _total(parts: Iterable[Mapping[Sender, float]]) -> dict[Sender, float]:
    total: dict[Sender, float] = {}
    for part in parts:
        for sender, factor in part.items():
            total[sender] = total.get(sender, 0.0) + factor
    return {sender: factor for sender, factor in total.items() if factor}
