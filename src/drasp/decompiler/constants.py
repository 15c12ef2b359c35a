"""Constants of a graph that are no values of what they stand for.

A receiver hears a constant in the place of the edges and ways that were cut, and a norm that is constant divides by one
number. They begin as means and may be settled. Where they leave the range of what the model itself has there, they are
no stand-in for it any more: they say something of their own.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from drasp.decompiler.components import Components, Graph
from drasp.fitting.oracle import Oracle
from drasp.forward import Forward
from drasp.sites import Edge, NormSite, Receiver, Site

_LEAST = 1e-4  # of what is compared: by less, it differs by rounding


@torch.no_grad()
def out_of_range(components: Components, graph: Graph, oracle: Oracle) -> tuple[str, ...]:
    """What of a graph's constants is outside the range, over all positions, of what it replaces; in words.

    What a receiver hears is a vector: it is out of range if it lies further from the mean of what it replaces than any
    of this, along the line from that mean to it. The mean over a vector's entries, which layer norm takes away, does
    not count.
    """
    return (*_receivers(components, graph, oracle), *_norms(components, graph, oracle))


def _receivers(components: Components, graph: Graph, oracle: Oracle) -> Iterator[str]:
    replaced = {receiver: _replaced(graph, receiver) for receiver in graph.live_receivers()}
    sent, norm = components.means(oracle), components.transformer.final_norm  # all of a model's norms are of one kind
    zero = torch.zeros_like(norm.bias)
    means = {r: norm.centred(sum((sent[edge.sender] for edge in edges), zero)) for r, edges in replaced.items()}
    steps = {r: norm.centred(graph.constants[r]) - means[r] for r in replaced}
    furthest = dict.fromkeys(replaced, 0.0)
    edges = [edge for parts in replaced.values() for edge in parts]
    for values in _runs(components, edges, oracle):
        for r, parts in replaced.items():
            if parts:
                away = norm.centred(torch.stack([values[edge] for edge in parts]).sum(0)) - means[r]
                furthest[r] = max(furthest[r], float((away @ steps[r]).max() / steps[r].norm().clamp(min=1e-30)))
    for r, step in steps.items():
        rounding = _LEAST * float(means[r].norm() + graph.constants[r].norm())
        if float(step.norm()) > furthest[r] + rounding:
            known = f"which goes to {furthest[r]:.3g}" if replaced[r] else "which is nothing"
            yield f"{r}: a constant {float(step.norm()):.3g} from the mean of what it replaces, {known}"


def _replaced(graph: Graph, receiver: Receiver) -> tuple[Edge, ...]:
    """What the receiver's constant stands for: edges that it does not hear, and closed ways."""
    cut = (Edge(s, receiver) for s in graph.anatomy.senders_to(receiver))
    ways = (site for site in graph.closed if isinstance(site, Edge) and site.receiver == receiver)
    return (*(edge for edge in cut if edge not in graph.kept), *sorted(ways, key=str))


def _runs(components: Components, sites: Sequence[Site], oracle: Oracle) -> Iterator[Mapping[Site, Tensor]]:
    """What is at sites of the whole model, batch by batch, at all positions that are more than padding."""
    forward = Forward(components.transformer, {}, sites)
    for batch in oracle.batches if sites else ():
        values = forward(batch.sequences.everywhere).values
        yield {site: values[site].expand(*batch.real.shape, *values[site].shape[2:])[batch.real] for site in sites}


def _norms(components: Components, graph: Graph, oracle: Oracle) -> Iterator[str]:
    live = set(graph.live_receivers())
    sites = {NormSite(receiver): float(value) for receiver, value in graph.norms.items() if receiver in live}
    lowest, highest = dict.fromkeys(sites, float("inf")), dict.fromkeys(sites, 0.0)
    for values in _runs(components, list(sites), oracle):
        for site in sites:
            lowest[site] = min(lowest[site], float(values[site].min()))
            highest[site] = max(highest[site], float(values[site].max()))
    for site, value in sites.items():
        if not lowest[site] * (1 - _LEAST) <= value <= highest[site] * (1 + _LEAST):
            yield f"{site}: {value:.3g} in the place of {lowest[site]:.3g} to {highest[site]:.3g}"
