"""Plain means: the model with everything that a program leaves out replaced by its mean.

A program of the model cut down has constants in the place of what it leaves out, and these may be fitted. Here they are
not: what an edge carries, or a way through heads, is its mean over all positions of the bases; a head's scores are the
products that the program has, since the mean of any other is the same for all keys. Layer norms are the model's own, of
what is read then, as in the complement: whether a program has one folded into its numbers its sites do not say.
"""

from collections.abc import Iterator
from itertools import product

import torch

from drasp.causal.complement import Rest
from drasp.causal.mechanism import Mechanism
from drasp.causal.trials import Trials
from drasp.edits import CUT, Edit, Replaced
from drasp.language import Program
from drasp.sites import NO_COMPONENT, OUT, Component, Edge, Path, Product, Sender, Site, last_of


@torch.no_grad()
def with_means(program: Program, trials: Trials) -> dict[Site, Edit]:
    """The edits of the model that leave what the program has of it, and means of the rest."""
    rest = Rest(Mechanism.of(program), trials.transformer)
    edges = [edge for receiver in (*rest.read, *rest.looking) for edge in rest.others(receiver)]
    sent = {edge: edge.sender if isinstance(edge.sender, Component) else Edge(edge.sender, OUT) for edge in edges}
    means = trials.means(list(dict.fromkeys(sent.values())))
    edits: dict[Site, Edit] = {edge: Replaced(means[site]) for edge, site in sent.items()}
    for head in rest.products:
        edits |= dict.fromkeys(_closed(rest, head, set(edges)), CUT)
    return edits


def _closed(rest: Rest, head: Component, cut: set[Edge]) -> Iterator[Site]:
    """The products of what a head hears that the program does not have; without any, its keys are all alike."""
    own, (query, key, _) = rest.products[head], head.receivers
    if not own:
        yield key
        return
    queries, keys = (rest.anatomy.ways_to(side, cut.__contains__) for side in (query, key))
    for q, k in product((*queries, NO_COMPONENT), (*keys, NO_COMPONENT)):
        if not any(_is_of(q, p.query) and _is_of(k, p.key) for p in own):
            yield Product(q, k, head)


def _is_of(way: Sender, sender: Sender) -> bool:
    """Whether a way is the sender, or one of those that it is made of; `one` is all that comes from no component."""
    constant = isinstance(sender, Path) and sender.origin == NO_COMPONENT
    return way == (NO_COMPONENT if constant else sender) or last_of(way) == sender
