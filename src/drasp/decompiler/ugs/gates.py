"""Gates on a circuit, trained by gradient together with the constants: uniform gradient sampling.

A gate is a number θ; in each row of a batch it is open, closed, or in between, at random, so that the share of rows
that keep it is sigmoid(θ). Where an edge is closed, its receiver hears one learnt constant of the sender instead. What
is minimised is the divergence from the model, over the size of the vocabulary, plus λ Σ sigmoid(θ).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from drasp.decompiler.ugs.circuit import Circuit, detached, mapped, tensors_of, without
from drasp.decompiler.ugs.running import CircuitRun, Masks, means_of
from drasp.fitting.oracle import Batch, Oracle
from drasp.settings import PAPER_SETTINGS, UgsSettings
from drasp.sites import OUT, Edge
from drasp.vocabulary import Output

Ending = Literal["settled", "out of steps", "given up", "cut off"]


def sample_masks(theta: Float[Tensor, " gates"], rows: int, generator: torch.Generator) -> Float[Tensor, "rows gates"]:
    """Masks, between 0 and 1 in as many rows as the gate is undecided; the gradient is that of these, on average."""
    p = theta.sigmoid()
    width = (p * (1 - p)).detach()
    u = torch.rand(rows, len(theta), generator=generator)
    masks = ((p.detach() - u) / width + 0.5).clamp(0, 1)
    between = (masks > 0) & (masks < 1)
    weight = rows / between.sum(0).clamp(min=1)
    slope = between * weight * (theta - theta.detach())
    return masks + slope


@dataclass(frozen=True)
class Effort:
    """How long a run is trained, and on how many rows."""

    patience: int  # steps without undecided gates
    steps: int  # at most
    masks: int  # samples of the gates for each input


class Gates:
    """A gate for all that is pruned at a circuit's level, and the constants that are trained with them.

    Of the components, only norms learn beside the constants that closed edges leave; later, what receivers hear all the
    time, the parts of split MLPs, and the queries of terms of a key alone.
    """

    def __init__(self, circuit: Circuit, pool: Oracle, settings: UgsSettings = PAPER_SETTINGS) -> None:
        self.settings = settings
        self.senders = list(dict.fromkeys(gate.sender for gate in circuit.gates if isinstance(gate, Edge)))
        self.theta = torch.full((len(circuit.gates),), settings.start).requires_grad_()
        means = means_of(circuit, self.senders, pool)
        constants = [means[sender] for sender in self.senders] or [circuit.biases[0]]
        self.ablations = torch.stack(constants).requires_grad_()
        norms = circuit.log_variances
        self.circuit = replace(circuit, log_variances=None if norms is None else norms.clone().requires_grad_())
        if circuit.level != "components":
            self.circuit = replace(
                self.circuit,
                biases=circuit.biases.clone().requires_grad_(),
                mlps={
                    way: mapped(mlp, lambda t: t.detach().clone().requires_grad_()) for way, mlp in circuit.mlps.items()
                },
                queries={each: query.clone().requires_grad_() for each, query in circuit.queries.items()},
            )

    def rates(self) -> list[tuple[Tensor, float]]:
        """All that is trained, and how fast."""
        circuit, chosen = self.circuit, self.settings
        constants = [self.ablations, circuit.biases, *circuit.queries.values()]
        found = [(self.theta, chosen.gate_rate), *((tensor, chosen.constant_rate) for tensor in constants)]
        found += [(tensor, chosen.mlp_rate) for mlp in circuit.mlps.values() for tensor in tensors_of(mlp)]
        if circuit.log_variances is not None and circuit.model.anatomy.has_norms:
            found.append((circuit.log_variances, chosen.norm_rate))
        return [(tensor, rate) for tensor, rate in found if tensor.requires_grad]

    def answers(self, batch: Batch, kept: Float[Tensor, "rows gates"]) -> Float[Tensor, "inputs masks counted n_vocab"]:
        """The logits where answers count, for each input under as many masks as there are rows for it."""
        inputs = len(batch.inputs)
        places = {sender: i for i, sender in enumerate(self.senders)}
        masks = Masks(kept.unflatten(0, (inputs, -1)), places, self.ablations)
        logits = CircuitRun(self.circuit, batch.sequences, masks).logits()
        return logits.expand(inputs, masks.kept.shape[1], batch.where.shape[1], -1)

    @property
    def are_undecided(self) -> bool:
        """Whether some gate is open in many rows, and closed in many."""
        return bool((self.theta.detach().abs() < self.settings.undecided).any())

    @property
    def is_cut_off(self) -> bool:
        """Whether nothing reaches the output any more, nor ever will."""
        to_output = [isinstance(gate, Edge) and gate.receiver == OUT for gate in self.circuit.gates]
        reaching = self.theta.detach()[torch.tensor(to_output, dtype=torch.bool)]
        return self.circuit.level != "products" and bool((reaching < self.settings.shut).all())

    @torch.no_grad()
    def pruned(self) -> Circuit:
        """The circuit without what is closed, with what has been learnt."""
        pairs = zip(self.circuit.gates, self.theta.tolist(), strict=True)
        ablations = dict(zip(self.senders, self.ablations.detach(), strict=False))
        return detached(without(self.circuit, [gate for gate, theta in pairs if theta <= 0], ablations))


def divergence(
    batch: Batch, logits: Float[Tensor, "#inputs #masks counted n_vocab"], output: Output
) -> Float[Tensor, ""]:
    """The KL divergence from the model's answers, averaged over all that count, however many an input holds."""
    model = batch.logits[:, None]
    if output == "softmax":
        known = model.log_softmax(-1)
        each = (known.exp() * (known - logits.log_softmax(-1))).sum(-1)
    else:
        share = model.sigmoid()
        least = F.binary_cross_entropy_with_logits(model, share, reduction="none")
        each = (F.binary_cross_entropy_with_logits(logits, share.expand_as(logits), reduction="none") - least).sum(-1)
    valid = batch.valid[:, None]
    return (each * valid).sum() / (valid.sum() * logits.shape[1])


@torch.no_grad()
def unigram_loss(batches: Sequence[Batch], output: Output) -> float:
    """The divergence of the best answer that is the same everywhere: the model's own on average."""
    said = torch.cat([batch.logits[batch.valid] for batch in batches])
    shares = said.softmax(-1) if output == "softmax" else said.sigmoid()
    mean = shares.mean(0).clamp(1e-12, 1 - 1e-7)
    constant = mean.log() if output == "softmax" else mean.logit()
    losses = [(divergence(b, constant.expand_as(b.logits)[:, None], output), int(b.valid.sum())) for b in batches]
    return float(sum(loss * count for loss, count in losses)) / sum(count for _, count in losses)


class Training:
    """Gates and constants, trained together; `price` is the paper's λ."""

    def __init__(self, gates: Gates, price: float, output: Output) -> None:
        self.gates, self.price = gates, price
        self.output: Output = output
        self.settings = gates.settings
        groups = [{"params": [tensor], "lr": rate} for tensor, rate in gates.rates()]
        self.optimiser = torch.optim.AdamW(groups, betas=self.settings.betas, weight_decay=0)

    def objective(self, batch: Batch, kept: Float[Tensor, "rows gates"]) -> tuple[Tensor, Tensor]:
        """What is minimised, and the divergence that is a part of it."""
        logits = self.gates.answers(batch, kept)
        found = divergence(batch, logits, self.output)
        return found / logits.shape[-1] + self.price * self.gates.theta.sigmoid().sum(), found

    def step(self, batch: Batch, masks: int, generator: torch.Generator) -> float:
        """The divergence before the step."""
        kept = sample_masks(self.gates.theta, masks * len(batch.inputs), generator)
        self.optimiser.zero_grad()
        objective, found = self.objective(batch, kept)
        objective.backward()
        torch.nn.utils.clip_grad_norm_([self.gates.theta], self.settings.clip)
        self.optimiser.step()
        return float(found.detach())

    def run(
        self, batches: Sequence[Batch], effort: Effort, unigram: float, stop_cut_off: bool, generator: torch.Generator
    ) -> tuple[Ending, int]:
        """How the training ended, and after how many steps; where it was given up, the gates say nothing."""
        settled = above = 0
        every, checks = self.settings.check_every, self.settings.checks
        total = 0.0
        for step in range(1, effort.steps + 1):
            index = int(torch.randint(len(batches), (), generator=generator))
            total += self.step(batches[index], effort.masks, generator)
            settled = 0 if self.gates.are_undecided else settled + 1
            if settled >= effort.patience:
                return "settled", step
            if step % every == 0:
                if not total <= every * unigram:  # also where it is no number any more
                    above += 1
                else:
                    above = 0
                total = 0.0
                if above == checks:
                    return "given up", step
                if stop_cut_off and self.gates.is_cut_off:
                    return "cut off", step
        return "out of steps", effort.steps
