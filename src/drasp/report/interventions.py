"""What the page needs to intervene in a program and its model at once: what each line stands for, and means."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drasp.causal.mechanism import Mechanism
from drasp.causal.swaps import model_swap, site_terms
from drasp.edits import Replaced
from drasp.errors import DraspError
from drasp.fitting.means import means_over
from drasp.forward import Forward
from drasp.language import Interpreter, Program
from drasp.language.syntax import Aggregate, ElementWise, Project
from drasp.measure import agreeing, predict, share
from drasp.report.examples import Example
from drasp.sequences import Sequences
from drasp.sites import Anatomy, Component, Edge, Pattern, Site, last_of, sides_of
from drasp.tasks import Inputs
from drasp.transformer import Transformer
from drasp.vocabulary import Output

_RECORDED = 45  # tokens, at most, of an example whose attention is recorded
_TOKENS = 1000  # of a batch of inputs whose values are recorded: a long program has many of them


def founded(program: Program, transformer: Transformer) -> Mechanism | None:
    """What the lines stand for in this model; None where they do not say it, or the model has no such places."""
    mechanism = Mechanism.of(program)
    try:
        mechanism.check(transformer.anatomy)
    except DraspError:
        return None
    return None if mechanism.without_sites else mechanism


def lines_data(mechanism: Mechanism, anatomy: Anatomy) -> dict[str, Any]:
    """What each line stands for, and what is taken from a source for it, in the program and in the model.

    Sites have factors: one that stands in several sums moves to the source's value as often as they say.
    """
    return {
        name: {
            "stands_for": mechanism.stands_for(name),
            "components": [str(component) for component in mechanism.components(name)],
            "program": _program_places(mechanism, mechanism.groups[name]),
            **_model_places(mechanism, name, anatomy),
        }
        for name in mechanism.lines
    }


def _program_places(mechanism: Mechanism, group: Iterable[str]) -> list[str]:
    """Variables, and for a project that divides by a norm what it and the norm read: the norm then sees it too."""
    places: list[str] = []
    for name in group:
        match mechanism.statements[name]:
            case Project(input=read) if read.norm is not None:
                places += [f"{read.variable} -> {reader}" for reader in (name, read.norm)]
            case _:
                places.append(name)
    return places


def _model_places(mechanism: Mechanism, name: str, anatomy: Anatomy) -> dict[str, Any]:
    swap = model_swap(mechanism, name)
    through = [
        {
            "inputs": _terms((Edge(sender, part.mlp.receivers[0]) for sender in part.inputs), anatomy),
            "edges": [str(Edge(part.mlp, receiver)) for receiver in part.receivers],
        }
        for part in swap.through
    ]
    return {"model": _terms(swap.sites, anatomy), "through": through}


def _terms(sites: Iterable[Site], anatomy: Anatomy) -> dict[str, float]:
    total: dict[str, float] = {}
    for site in sites:
        for part, factor in site_terms(site, anatomy).items():
            total[str(part)] = total.get(str(part), 0.0) + factor
    return {site: factor for site, factor in total.items() if factor}


# ----------------------------------------------------------------------------------- means


@dataclass(frozen=True)
class Means:
    """What heads and MLPs write, and what their lines hold, on average over all positions of some inputs.

    `changes` is by component the share of the inputs that are answered otherwise when it is at its mean.
    """

    components: dict[str, Tensor]
    lines: dict[str, Tensor]
    changes: dict[str, float]
    inputs: int

    def arrays(self) -> dict[str, np.ndarray]:
        named = {**self.components, **self.lines}
        return {f"mean of {name}": value.cpu().numpy().astype("<f4") for name, value in named.items()}


@torch.no_grad()
def means(program: Program, transformer: Transformer, inputs: Inputs, output: Output) -> Means:
    """The means over inputs, which a component that is switched off stays at, in the model and in the program."""
    components = [c for c in transformer.anatomy.senders if c.kind in ("head", "mlp")]
    lines = [s.name for s in program.statements if isinstance(s, Aggregate | ElementWise)]
    forward, interpreter = Forward(transformer, record=components), Interpreter.of(program)

    def values(batch: Inputs) -> dict[str, Tensor]:
        sequences = Sequences(batch.ids, batch.positions)
        in_model = {str(site): value for site, value in forward(sequences).values.items()}
        every = in_model | {**interpreter.run(sequences, record=lines).values}
        return {name: value.double() for name, value in every.items()}

    found = means_over((values(batch), batch.real) for _, batch in inputs.batches(_TOKENS))
    before, dtype = predict(transformer, inputs, output), transformer.token_embedding.dtype

    def changed(component: Component) -> float:
        edited = Forward(transformer, {component: Replaced(found[str(component)].to(dtype))})
        after = predict(lambda ids, positions: edited(Sequences(ids, positions)).logits, inputs, output)
        return 1 - share(agreeing(before, after, inputs.counted)).value

    return Means(
        {str(component): found[str(component)] for component in components},
        {name: found[name] for name in lines},
        {str(component): changed(component) for component in components},
        len(inputs),
    )


@torch.no_grad()
def recorded_patterns(
    mechanism: Mechanism, transformer: Transformer, examples: Iterable[Example]
) -> dict[str, np.ndarray]:
    """The patterns of heads that lines stand for, on the shorter examples: for a page that has not got the model."""
    heads = {c for name in mechanism.lines for c in mechanism.components(name) if c.kind == "head"}
    forward = Forward(transformer, record=[Pattern(head) for head in heads])
    found: dict[str, np.ndarray] = {}
    for example in examples:
        size = len(example.ids)
        if size > _RECORDED:
            continue
        positions = example.offset + torch.arange(size)
        values = forward(Sequences(torch.tensor([example.ids]), positions[None])).values
        place = f"{example.offset}:{','.join(map(str, example.ids))}"
        found |= {f"{place} {site}": v[0].cpu().numpy().astype("<f2") for site, v in values.items()}
    return found


def left_out(mechanism: Mechanism, anatomy: Anatomy) -> dict[str, Any]:
    """The heads and MLPs that no line stands for, those that have gone into other lines, and edges not heard."""
    lines = [name for name, s in mechanism.statements.items() if isinstance(s, Aggregate | ElementWise)]
    own = {component for name in lines for component in mechanism.components(name)}
    components = [c for c in anatomy.senders if c.kind in ("head", "mlp")]
    heard = {
        Edge(last_of(sender), side)
        for receiver, senders in mechanism.edges.items()
        for side in sides_of(receiver, anatomy)
        for sender in senders
    }
    return {
        "components": [str(c) for c in components if c not in mechanism.ways],
        "folded": {str(c): sorted(mechanism.ways[c]) for c in components if c in mechanism.ways and c not in own},
        "edges": {"heard": len(heard & set(anatomy.edges)), "all": len(anatomy.edges)},
    }
