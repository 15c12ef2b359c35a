"""Inputs, each with a source: drawn once, with what the model says of both, for all measures.

A source is another input of the task of the same size, or the same input with tokens changed. What a line is on the
source takes the place of what it is on the base; the positions at which answers count are the same for both.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from drasp.causal.measures import Cases, Clear, Logits, alike, differing
from drasp.fitting.means import means_over
from drasp.forward import Forward
from drasp.measure import answer_text, margins, predictions
from drasp.sequences import Sequences
from drasp.settings import EVIDENCE
from drasp.sites import Site
from drasp.tasks import EDITS, Inputs, Task
from drasp.transformer import Transformer
from drasp.vocabulary import Output

FROM_TASK = "another input"
SOURCES = (FROM_TASK, *EDITS)
_TOKENS = 8192  # in a batch: attention weights of all heads on it fit into some ten megabytes
_WIDE = 1000  # tokens of a vocabulary: logits, and means of tokens, have a number for each, wherever they are looked at
_MOST_KEPT = 25_000_000  # logits of a swap that are kept for the next one who asks: a hundred megabytes for each line


@dataclass(frozen=True)
class Pairs:
    """A batch of bases and their sources; `kinds` are places in SOURCES, `valid` says which wanted positions count."""

    base: Sequences
    source: Sequences
    valid: Bool[Tensor, "batch wanted"]
    kinds: Int[Tensor, " batch"]
    lengths: Int[Tensor, " batch"]
    sizes: Int[Tensor, " batch"]
    base_logits: Logits
    source_logits: Logits

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def where(self) -> Int[Tensor, "batch wanted"]:
        assert self.base.where is not None
        return self.base.where

    @property
    def real(self) -> Bool[Tensor, "batch pos"]:
        """The positions of the bases that are more than padding."""
        return torch.arange(self.base.ids.shape[1]) < self.sizes[:, None]

    def at_counted(self, x: Float[Tensor, "batch pos dims"]) -> Float[Tensor, "batch wanted dims"]:
        return x.gather(1, self.where[..., None].expand(-1, -1, x.shape[-1]))

    def rows(self, index: Int[Tensor, " rows"]) -> "Pairs":
        def inputs(every: Sequences) -> Sequences:
            return Sequences(every.ids[index], every.positions[index], self.where[index])

        return Pairs(
            inputs(self.base),
            inputs(self.source),
            self.valid[index],
            self.kinds[index],
            self.lengths[index],
            self.sizes[index],
            self.base_logits[index],
            self.source_logits[index],
        )


@dataclass(frozen=True)
class Amount:
    """How many pairs are drawn: sources from the task, and of each kind of edit."""

    from_task: int
    of_each_edit: int


@dataclass(frozen=True, eq=False)
class Trials:
    """Pairs in batches of like size, with the model that answered them; `found` keeps what was found out once."""

    transformer: Transformer
    task: Task
    batches: tuple[Pairs, ...]
    clear: Clear = Clear()
    found: dict[Any, Any] = field(default_factory=dict[Any, Any])

    @classmethod
    @torch.no_grad()
    def draw(
        cls, transformer: Transformer, task: Task, amount: Amount, rng: np.random.Generator, clear: Clear | None = None
    ) -> "Trials":
        """Pairs whose base and source differ; fewer than asked for where a task has few such."""
        if not (amount.from_task or amount.of_each_edit):
            return cls(transformer, task, (), clear or Clear())  # a task's own draw may fail at none
        parts = [_pairs(task, kind, amount, rng) for kind in range(len(SOURCES))]
        forward, pad = Forward(transformer), task.vocabulary.padding
        base, source = (stacked([part[side] for part in parts], pad) for side in (0, 1))
        kinds = torch.cat([torch.full((len(part[0]),), kind) for kind, part in enumerate(parts)])
        batches: list[Pairs] = []
        for rows, ours in base.batches(at_once(_TOKENS, transformer)):
            theirs = source.rows(rows)
            where, valid = wanted(ours)
            before, after = (Sequences(inputs.ids, inputs.positions, where) for inputs in (ours, theirs))
            logits, other = forward(before).logits, forward(after).logits
            batches.append(Pairs(before, after, valid, kinds[rows], ours.lengths, ours.sizes, logits, other))
        return cls(transformer, task, tuple(batches), clear or Clear())

    @property
    def output(self) -> Output:
        return self.task.output

    def __len__(self) -> int:
        return sum(len(pairs) for pairs in self.batches)

    @cached_property
    def keeps_logits(self) -> bool:
        """Whether there is room for what each line's swap makes of all pairs."""
        return sum(pairs.base_logits.numel() for pairs in self.batches) <= _MOST_KEPT

    @torch.no_grad()
    def means(self, sites: Sequence[Site]) -> dict[Site, Tensor]:
        """What is at sites of the model on average over all positions of the bases."""
        forward = Forward(self.transformer, record=sites)
        values = (forward(pairs.base.everywhere).values for pairs in self.batches)
        return means_over(zip(values, (pairs.real for pairs in self.batches), strict=True))

    @cached_property
    def margin(self) -> float:
        """The median margin by which the model prefers its answers to others."""
        return median_margin((p.base_logits for p in self.batches), self)

    @cached_property
    def possible(self) -> bool:
        """Whether the model ever answers otherwise on a source: if not, a swap of everything changes nothing."""
        return any(bool((differing(p.base_logits, p.source_logits, self.output) & p.valid).any()) for p in self.batches)


def at_once(tokens: int, transformer: Transformer) -> int:
    """The tokens of a batch: as many as is usual, and fewer of a model whose logits are wide."""
    return min(tokens, tokens * _WIDE // transformer.n_vocab)


def median_margin(logits: Iterable[Logits], trials: Trials) -> float:
    """The median over the answers that count, given the logits of all batches."""
    found = [margins(x, trials.output)[p.valid] for x, p in zip(logits, trials.batches, strict=True)]
    return float(torch.cat(found).median()) if found else 0.0


def wanted(inputs: Inputs) -> tuple[Int[Tensor, "batch wanted"], Bool[Tensor, "batch wanted"]]:
    """The positions at which answers count, those of each row first, and which of them are more than filling."""
    counts = inputs.counted.sum(1)
    where = inputs.counted.float().argsort(dim=1, descending=True, stable=True)[:, : int(counts.max())]
    return where, torch.arange(where.shape[1]) < counts[:, None]


def _pairs(task: Task, kind: int, amount: Amount, rng: np.random.Generator) -> tuple[Inputs, Inputs]:
    """Bases and sources of a kind, of the same sizes, with answers at the same positions, that are not the same."""
    count = amount.from_task if SOURCES[kind] == FROM_TASK else amount.of_each_edit
    bases = task.pool(count, rng)
    if SOURCES[kind] == FROM_TASK:
        sources = task.like(bases, rng)
    else:
        sources = task.edited(bases, EDITS[kind - 1], rng)
    width = min(bases.ids.shape[1], sources.ids.shape[1])
    same_size = bases.sizes == sources.sizes
    fits = same_size & (bases.counted[:, :width] == sources.counted[:, :width]).all(1)
    differs = (bases.ids[:, :width] != sources.ids[:, :width]).any(1) | (bases.offsets != sources.offsets)
    rows = (fits & differs).nonzero()[:, 0]
    return bases.rows(rows), sources.rows(rows)


def stacked(parts: list[Inputs], pad: int) -> Inputs:
    """All inputs of several pools."""
    width = max(part.ids.shape[1] for part in parts)

    def wide(name: str, value: int) -> Tensor:
        padded = (F.pad(getattr(part, name), (0, width - part.ids.shape[1]), value=value) for part in parts)
        return torch.cat(list(padded))

    sizes, lengths, offsets = (torch.cat([getattr(p, n) for p in parts]) for n in ("sizes", "lengths", "offsets"))
    ids, counted = wide("ids", pad), wide("counted", 0)
    return Inputs(ids, sizes, lengths, offsets, counted, torch.zeros_like(ids))


# ---------------------------------------------------------------------------------------- what happened


@dataclass(frozen=True)
class DifferingCase:
    """One case at its first position at which two sides differ: what each said before, and after."""

    tokens: tuple[str, ...]
    offset: int
    source: tuple[str, ...]
    source_offset: int
    position: int
    model_before: str
    model: str
    program_before: str
    program: str


@dataclass(frozen=True)
class Outcome:
    """What came of an intervention on a batch: the cases that matter, and one in which the sides differ."""

    cases: Cases
    case: DifferingCase | None = None

    @staticmethod
    def joined(parts: Sequence["Outcome"]) -> "Outcome":
        """All batches, with the shortest case in which the sides differ."""
        failing = [part.case for part in parts if part.case is not None]
        first = min(failing, key=lambda case: len(case.tokens), default=None)
        return Outcome(Cases.joined([part.cases for part in parts]), first)


@dataclass(frozen=True)
class Answers:
    """Logits of one side before an intervention and after it."""

    before: Logits
    after: Logits


def lowest(outcomes: Iterable[Outcome], fewest: int, many: int) -> float:
    """The lowest share of several, of those with `many` cases, and of all together; 1 where there are hardly any."""
    cases = [outcome.cases for outcome in outcomes]
    together = Cases.joined(cases)
    said = [each for each in cases if len(each) >= many] + [together] * (len(together) >= fewest)
    return min((float(each.values.mean()) for each in said), default=1.0)


def outcome(
    trials: Trials,
    pairs: Pairs,
    reference: Answers,
    other: Answers,
    margin: float,
    clear: float | None = None,
    rows: Tensor | None = None,
) -> Outcome:
    """Compares two sides of the same intervention where it matters; in some rows of the batch, or in all.

    `margin` is that by which the reference prefers its answers as a rule; by `clear` of it, an answer counts: without,
    by as much as one of the model has to be.
    """
    clear = trials.clear.in_model if clear is None else clear
    output, preferred = trials.output, margins(reference.after, trials.output)
    changed = differing(reference.before, reference.after, output) | differing(other.before, other.after, output)
    matters = changed & pairs.valid & (preferred > clear * margin)
    if rows is not None:
        matters = matters & torch.zeros(len(pairs), 1, dtype=torch.bool).index_fill(0, rows, True)
    same, tied, unsaid = alike(reference.after, other.after, output)
    same, tied = same & ~(tied & (preferred > EVIDENCE.even * margin)), tied & (preferred <= EVIDENCE.even * margin)
    matters = matters & ~(unsaid & (preferred <= EVIDENCE.vague * margin))
    count = matters.sum(1)
    some = count > 0
    shares = [((which & matters).sum(1) / count.clamp(min=1))[some] for which in (same, tied)]
    cases = Cases(shares[0], shares[1], pairs.lengths[some])
    wrong = (matters & ~same).nonzero()
    return Outcome(cases, _case(trials, pairs, reference, other, *wrong[0].tolist()) if len(wrong) else None)


def _case(trials: Trials, pairs: Pairs, reference: Answers, other: Answers, row: int, place: int) -> DifferingCase:
    names, size = trials.task.vocabulary.tokens, int(pairs.sizes[row])

    def said(logits: Logits) -> str:
        return answer_text(predictions(logits[row, place][None, None], trials.output)[0, 0], names)

    def tokens(side: Sequences) -> tuple[str, ...]:
        return tuple(names[i] for i in side.ids[row, :size].tolist())

    return DifferingCase(
        tokens(pairs.base),
        int(pairs.base.positions[row, 0]),
        tokens(pairs.source),
        int(pairs.source.positions[row, 0]),
        int(pairs.where[row, place]),
        said(reference.before),
        said(reference.after),
        said(other.before),
        said(other.after),
    )
