"""Attention: how far the heads of a program look where the model's do, at the positions where that matters.

The weight of a position is how much the answers change when the head's output there is replaced by its mean. Positions
are drawn, a few an input, and weighted by how likely they were to be drawn: half of them where answers count, half
anywhere, but for heads of the last layer, which are read nowhere else. All this is found out once for a head.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from drasp.causal.measures import Measure, measured, weighted_mean
from drasp.causal.mechanism import Mechanism
from drasp.causal.trials import Pairs, Trials
from drasp.edits import Edit, Replaced
from drasp.forward import Forward
from drasp.language import Interpreter, Program
from drasp.language.interpreter import pattern_of
from drasp.language.syntax import Aggregate, once
from drasp.settings import EVIDENCE
from drasp.sites import Component, Pattern, Site

Heads = tuple[Component, ...]


@dataclass(frozen=True)
class Looks:
    """The mean attention weights of heads at some positions of a batch, and how much each position matters.

    `places` are positions, or among the wanted ones (`narrow`) for heads of the last layer.
    """

    places: Int[Tensor, "batch places"]
    weights: Float[Tensor, "batch places"]
    patterns: Float[Tensor, "batch places key"]
    narrow: bool


@torch.no_grad()
def attention(program: Program, trials: Trials) -> dict[str, Measure]:
    """The overlap of each aggregate's attention weights with those of the heads that it stands for."""
    mechanism, interpreter = Mechanism.of(program), Interpreter.of(program)
    heads = {
        s.name: tuple(c for c in mechanism.components(s.name) if c.kind == "head")
        for s in program.statements
        if isinstance(s, Aggregate)
    }
    looks = {name: looks_of(trials, own) for name, own in heads.items() if own}
    overlaps: dict[str, list[Tensor]] = {name: [] for name in looks}
    for number, pairs in enumerate(trials.batches):
        for narrow in (False, True):
            names = [name for name, found in looks.items() if found[number].narrow == narrow]
            inputs = pairs.base if narrow else pairs.base.everywhere
            values = interpreter.run(inputs, record=[pattern_of(name) for name in names]).values if names else {}
            for name in names:
                found, pattern = looks[name][number], values[pattern_of(name)]
                # What other positions look at is there at all of them, even where answers are wanted at some only.
                wide = narrow and name in interpreter.plan.seen_by_others
                places = pairs.where.gather(1, found.places) if wide else found.places
                ours = _rows_at(pattern, places)
                overlaps[name].append(torch.minimum(ours, found.patterns.to(ours.dtype)).sum(-1))
    return {name: _measure(trials, looks[name], overlaps[name]) for name in looks}


def _measure(trials: Trials, looks: Sequence[Looks], overlaps: list[Tensor]) -> Measure:
    """The mean over inputs, each weighted by how much its positions matter."""
    weights = torch.cat([found.weights.double().sum(1) for found in looks])
    shares = torch.cat([(found.weights * o).double().sum(1) for found, o in zip(looks, overlaps, strict=True)])
    values, lengths = shares / weights.clamp(min=1e-300), torch.cat([pairs.lengths for pairs in trials.batches])
    return measured(lambda rows: weighted_mean(values[rows], weights[rows]), lengths, trials.task.bins)


def looks_of(trials: Trials, heads: Heads) -> tuple[Looks, ...]:
    """The looks of heads of the model, batch by batch; found out once for the same trials."""
    return once(trials.found, ("looks", heads), lambda: _looks_of(trials, heads))


def _looks_of(trials: Trials, heads: Heads) -> tuple[Looks, ...]:
    rng = np.random.default_rng(len(trials))
    narrow = all(head.layer + 1 == trials.transformer.anatomy.n_layers for head in heads)
    means = {head: mean_outputs(trials)[head] for head in heads}
    return tuple(_looks(trials, pairs, heads, means, narrow, rng) for pairs in trials.batches)


def mean_outputs(trials: Trials) -> dict[Site, Float[Tensor, " d_model"]]:
    """What each head writes on average, over all positions of the bases."""
    heads = [c for c in trials.transformer.anatomy.senders if c.kind == "head"]
    return once(trials.found, "mean outputs", lambda: trials.means(heads))


def _looks(
    trials: Trials,
    pairs: Pairs,
    heads: Heads,
    means: dict[Component, Float[Tensor, " d_model"]],
    narrow: bool,
    rng: np.random.Generator,
) -> Looks:
    inputs = pairs.base if narrow else pairs.base.everywhere
    record: list[Site] = [*heads, *map(Pattern, heads)]
    values = Forward(trials.transformer, record=record)(inputs).values
    places, chances = _places(pairs, narrow, rng)
    rows = torch.arange(len(pairs))
    changes: list[Tensor] = []
    for column in places.T:
        edits: dict[Site, Edit] = {}
        for head in heads:
            value = values[head].clone()
            value[rows, column] = means[head]
            edits[head] = Replaced(value)
        logits = Forward(trials.transformer, edits)(pairs.base if narrow else inputs).logits
        change = (logits if narrow else pairs.at_counted(logits)) - pairs.base_logits
        if trials.output == "softmax":
            change = change - change.mean(-1, keepdim=True)  # which the answers do not depend on
        changes.append(change.square().sum(-1).mul(pairs.valid).sum(-1).sqrt())
    patterns = torch.stack([values[Pattern(head)].expand(len(pairs), -1, -1) for head in heads]).mean(0)
    return Looks(places, torch.stack(changes, 1) / chances, _rows_at(patterns, places), narrow)


def _places(
    pairs: Pairs, narrow: bool, rng: np.random.Generator
) -> tuple[Int[Tensor, "batch places"], Float[Tensor, "batch places"]]:
    """Positions drawn for each input, and how likely each was."""
    counts, shape = pairs.valid.sum(1, keepdim=True), (len(pairs), EVIDENCE.places)
    draws = torch.as_tensor(rng.random(shape))
    counted = (draws * counts).long()
    if narrow:
        return counted, (1 / counts).expand(-1, EVIDENCE.places)
    # Nothing behind the last position that counts matters.
    reach = torch.where(pairs.valid, pairs.where, 0).amax(1, keepdim=True) + 1
    anywhere = (torch.as_tensor(rng.random(shape)) * reach).long()
    half = torch.as_tensor(rng.random(shape) < 0.5)
    places = torch.where(half, pairs.where.gather(1, counted), anywhere)
    counts_there = ((pairs.where[:, None] == places[..., None]) & pairs.valid[:, None]).any(-1)
    return places, 0.5 * counts_there / counts + 0.5 / reach


def _rows_at(
    pattern: Float[Tensor, "batch query key"], places: Int[Tensor, "batch places"]
) -> Float[Tensor, "batch places key"]:
    return pattern.gather(1, places[..., None].expand(-1, -1, pattern.shape[-1]))
