"""Splice: what a line says in place of its component, inside the model, on the model's own variables.

The attention weights of an aggregate stand in for its heads' own; the stored map of an MLP's line is applied to what
the model itself computes. How far that moves the model's answers is measured against what it does to take them from
another input: 1 is as good as the component itself, 0 as bad as any other's. No constants of the program are used: of
an MLP only what varies around its mean is put in.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from drasp.causal.measures import NOT_APPLICABLE, BinMean, Logits, Measure, measured
from drasp.causal.mechanism import Mechanism
from drasp.causal.trials import Pairs, Trials
from drasp.edits import Edit, Replaced
from drasp.forward import Forward
from drasp.language import Interpreter, Program
from drasp.language.interpreter import pattern_of
from drasp.language.syntax import Aggregate, ElementWise, Network, Project
from drasp.sequences import Sequences
from drasp.settings import EVIDENCE
from drasp.sites import Component, Pattern, Site
from drasp.transformer import Transformer
from drasp.vocabulary import Output


def divergence(model: Logits, other: Logits, output: Output) -> Float[Tensor, "batch wanted"]:
    """The KL divergence of the answers from the model's, position by position."""
    if output == "softmax":
        log = model.log_softmax(-1)
        return (log.exp() * (log - other.log_softmax(-1))).sum(-1)
    share = model.sigmoid()
    least = F.binary_cross_entropy_with_logits(model, share, reduction="none")
    return (F.binary_cross_entropy_with_logits(other, share, reduction="none") - least).sum(-1)


@torch.no_grad()
def splice(program: Program, trials: Trials) -> dict[str, Measure]:
    """How well each aggregate and each MLP's line does in its component's place."""
    mechanism = Mechanism.of(program)
    found: dict[str, Measure] = {}
    by_weights: dict[object, Measure] = {}  # which aggregates of the same selectors share
    for statement in program.statements:
        match statement:
            case Aggregate(name, selectors):
                heads = tuple(c for c in mechanism.components(name) if c.kind == "head")
                if (selectors, heads) not in by_weights:
                    divergences = _aggregate(program, trials, name, heads) if heads else ()
                    by_weights[selectors, heads] = _measure(trials, divergences)
                found[name] = by_weights[selectors, heads]
            case ElementWise(name):
                mlps = _mapped(program, mechanism, trials.transformer, statement)
                found[name] = _measure(trials, _function(program, trials, name, mlps)) if mlps else NOT_APPLICABLE
            case _:
                pass
    return found


def _mean_divergence(pairs: Pairs, logits: Logits, output: Output) -> Float[Tensor, " batch"]:
    """The mean KL divergence of each input, over the positions that count."""
    each = divergence(pairs.base_logits, logits, output) * pairs.valid
    return each.sum(1) / pairs.valid.sum(1)


def _aggregate(
    program: Program, trials: Trials, name: str, heads: tuple[Component, ...]
) -> Iterable[tuple[Tensor, Tensor]]:
    """Divergences with the program's weights in the heads' place, and with those of the sources."""
    interpreter, sites = Interpreter.of(program), [Pattern(head) for head in heads]
    narrow = all(head.layer + 1 == trials.transformer.anatomy.n_layers for head in heads)
    for pairs in trials.batches:
        base, source = (side if narrow else side.everywhere for side in (pairs.base, pairs.source))
        ours = interpreter.run(base, record=[pattern_of(name)]).values[pattern_of(name)]
        if narrow and name in interpreter.plan.seen_by_others:
            ours = pairs.at_counted(ours)
        ours = ours.to(trials.transformer.token_embedding.dtype)
        theirs = Forward(trials.transformer, record=sites)(source).values
        edits: list[dict[Site, Edit]] = [
            {site: Replaced(ours) for site in sites},
            {site: Replaced(theirs[site]) for site in sites},
        ]
        logits = [_logits(trials.transformer, pairs, base, edit) for edit in edits]
        yield tuple(_mean_divergence(pairs, each, trials.output) for each in logits)  # pyright: ignore[reportReturnType]


def _logits(transformer: Transformer, pairs: Pairs, inputs: Sequences, edits: dict[Site, Edit]) -> Logits:
    logits = Forward(transformer, edits)(inputs).logits
    return logits if inputs.where is not None else pairs.at_counted(logits)


def _mapped(program: Program, mechanism: Mechanism, model: Transformer, line: ElementWise) -> list[Component]:
    """The MLP that a line stands for alone, where what it stores leads to the model's own space."""
    mlps = [c for c in mechanism.components(line.name) if c.kind == "mlp"]
    if len(mlps) != 1 or mechanism.is_split(mlps[0]) or not isinstance(line.function, Network):
        return []
    # A function that gives logits itself has taken in what reads it.
    says_logits = any(isinstance(r, Project) and r.stored is None for r in program.readers(line.name))
    return [] if says_logits or program.tensors[f"{line.function.name}.out"].shape[1] != model.d_model else mlps


def _function(program: Program, trials: Trials, name: str, mlps: list[Component]) -> Iterable[tuple[Tensor, Tensor]]:
    """The same for an MLP, on what the model's heads and the MLPs before it say."""
    mechanism, interpreter, [mlp] = Mechanism.of(program), Interpreter.of(program), mlps
    heads = {
        s.name: [Pattern(c) for c in mechanism.components(s.name) if c.kind == "head"]
        for s in program.statements
        if isinstance(s, Aggregate)
    }
    before = {
        s.name: found[0]
        for s in program.statements
        if isinstance(s, ElementWise)
        and (found := _mapped(program, mechanism, trials.transformer, s))
        and s.name != name
    }
    record: set[Site] = {mlp, *before.values(), *(site for sites in heads.values() for site in sites)}
    said: list[tuple[Tensor, Tensor]] = []
    for pairs in trials.batches:
        inputs = pairs.base.everywhere
        own = Forward(trials.transformer, record=record)(inputs).values
        edits: dict[str, Edit] = {line: Replaced(own[c]) for line, c in before.items()}
        for line, sites in heads.items():
            if sites:
                edits[pattern_of(line)] = Replaced(torch.stack([own[site] for site in sites]).mean(0))
        said.append((interpreter.run(inputs, edits, [name]).values[name].to(own[mlp].dtype), own[mlp]))
    real = [pairs.real for pairs in trials.batches]
    means = [torch.cat([pair[i][r] for pair, r in zip(said, real, strict=True)]).mean(0) for i in (0, 1)]
    for pairs, (ours, _) in zip(trials.batches, said, strict=True):
        inputs = pairs.base.everywhere
        source = Forward(trials.transformer, record=[mlp])(pairs.source.everywhere).values[mlp]
        edits_in_model = [{mlp: Replaced(ours - means[0] + means[1])}, {mlp: Replaced(source)}]
        logits = [_logits(trials.transformer, pairs, inputs, {**edit}) for edit in edits_in_model]
        yield tuple(_mean_divergence(pairs, each, trials.output) for each in logits)  # pyright: ignore[reportReturnType]


def _measure(trials: Trials, divergences: Iterable[tuple[Tensor, Tensor]]) -> Measure:
    """One minus the ratio of two means over inputs, with the interval of such a ratio."""
    pairs = list(divergences)
    if not pairs:
        return NOT_APPLICABLE
    spliced, resampled = (torch.cat([pair[i] for pair in pairs]).double() for i in (0, 1))
    everything = torch.cat([_mean_divergence(p, p.source_logits, trials.output) for p in trials.batches])
    lengths = torch.cat([p.lengths for p in trials.batches])
    if float(resampled.mean()) <= EVIDENCE.least_effect * float(everything.mean()):
        return Measure(None, 0, None, "untested" if trials.possible else "not_applicable")
    return measured(lambda rows: _ratio(spliced[rows], resampled[rows]), lengths, trials.task.bins)


def _ratio(spliced: Float[Tensor, " n"], resampled: Float[Tensor, " n"]) -> BinMean:
    total = float(resampled.sum())
    if total <= 0:
        return BinMean(None, 0, None)
    ratio = float(spliced.sum()) / total
    half = 1.96 * float((spliced - ratio * resampled).square().sum().sqrt()) / total
    value, low, high = (max(EVIDENCE.furthest, 1 - ratio + by) for by in (0.0, -half, half))
    return BinMean(value, len(spliced), (low, min(1.0, high)))
