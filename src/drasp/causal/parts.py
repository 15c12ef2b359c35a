"""Parts of components: a path of several through a head, a part of a split MLP; and whether they are dormant.

What comes along a path may change answers when it is taken from a source, while the whole component, taken from the
same source, changes none: then what the parts say cancels out, and the path is no mechanism of the model.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from drasp.causal.measures import Logits, differing
from drasp.causal.mechanism import Mechanism
from drasp.causal.swaps import ModelSwap, SwappedModel, known_swaps, model_swap
from drasp.causal.trials import Pairs, Trials
from drasp.language import Program
from drasp.settings import EVIDENCE
from drasp.sites import Component, Edge, Site, last_of


@dataclass(frozen=True)
class PartEffect:
    """The share of pairs in which the source's part of a component, for which a line stands, changes an answer.

    `component` is that share for all of the component, to the same readers if the line is read by the output alone.
    """

    part: float
    component: float
    pairs: int
    dormant: bool


@torch.no_grad()
def part_effects(program: Program, trials: Trials) -> dict[str, PartEffect]:
    """What each line that stands for a part of a component changes in the model, and what the whole does."""
    mechanism = Mechanism.of(program)
    parts = {line: swap for line in mechanism.lines if _is_part(swap := model_swap(mechanism, line))}
    wholes = {line: ModelSwap(tuple(dict.fromkeys(_wholes(mechanism, line, swap)))) for line, swap in parts.items()}
    changed = dict.fromkeys((*parts.values(), *wholes.values()), 0)
    for number, pairs in enumerate(trials.batches if parts else ()):
        known = known_swaps(trials.transformer, trials, number)
        swapped = SwappedModel(trials.transformer, pairs, {str(i): swap for i, swap in enumerate(changed)}, known)
        for i, swap in enumerate(changed):
            changed[swap] += _changed(trials, pairs, swapped.after(str(i)))
    return {line: _effect(changed[swap], changed[wholes[line]], len(trials)) for line, swap in parts.items()}


def _is_part(swap: ModelSwap) -> bool:
    return bool(swap.through) or any(
        isinstance(site, Edge) and site.sender != last_of(site.sender) for site in swap.sites
    )


def _wholes(mechanism: Mechanism, line: str, swap: ModelSwap) -> Iterable[Site]:
    """The components that a line stands for a part of; for a project, as the output hears them."""
    is_project = mechanism.statements[line].kind == "project"
    heard = [(t.mlp, r) for t in swap.through for r in t.receivers]
    heard += [(last_of(site.sender), site.receiver) for site in swap.sites if isinstance(site, Edge)]
    yield from (site for site in swap.sites if isinstance(site, Component))
    yield from (Edge(component, receiver) if is_project else component for component, receiver in heard)


def _changed(trials: Trials, pairs: Pairs, after: Logits) -> int:
    """The number of pairs in which some answer is another one."""
    return int((differing(pairs.base_logits, after, trials.output) & pairs.valid).any(1).sum())


def _effect(part: int, component: int, pairs: int) -> PartEffect:
    shares = part / max(1, pairs), component / max(1, pairs)
    return PartEffect(*shares, pairs, dormant=shares[0] >= EVIDENCE.often and shares[1] <= EVIDENCE.hardly)
