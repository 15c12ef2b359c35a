"""The model's answers on fixed pools of inputs, computed once: passes ask here for loss and agreement."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from drasp.language import Interpreter, Program
from drasp.measure import Model, Predictions, Share, agreeing, margins, predictions
from drasp.sequences import Sequences
from drasp.tasks import Inputs, Task
from drasp.vocabulary import Output


@dataclass(frozen=True)
class Batch:
    """Inputs of like length, the positions at which answers count, and the model's logits there."""

    inputs: Inputs
    where: Int[Tensor, "batch counted"]
    valid: Bool[Tensor, "batch counted"]
    logits: Float[Tensor, "batch counted n_vocab"]

    @property
    def real(self) -> Bool[Tensor, "batch pos"]:
        """Where there are tokens and not padding."""
        return self.inputs.real

    @cached_property
    def sequences(self) -> Sequences:
        """The inputs as a model takes them, with logits wanted where answers count."""
        return Sequences(self.inputs.ids, self.inputs.positions, self.where)

    @cached_property
    def of_softmax(self) -> tuple[Float[Tensor, "batch counted n_vocab"], Float[Tensor, "batch counted n_vocab"]]:
        """The logarithms of the model's chances, and the chances."""
        logarithms = self.logits.log_softmax(-1)
        return logarithms, logarithms.exp()

    @cached_property
    def of_sigmoid(self) -> tuple[Float[Tensor, "batch counted n_vocab"], Float[Tensor, "batch counted n_vocab"]]:
        """The model's chances, token by token, and their entropies: no cross entropy is less."""
        chances = self.logits.sigmoid()
        return chances, F.binary_cross_entropy_with_logits(self.logits, chances, reduction="none")

    def rows(self, index: Int[Tensor, " rows"]) -> "Batch":
        return Batch(self.inputs.rows(index), self.where[index], self.valid[index], self.logits[index])

    def at_counted(self, x: Float[Tensor, "#batch #pos dims"]) -> Float[Tensor, "batch counted dims"]:
        """What is the same everywhere may come as one vector."""
        everywhere = x.expand(*self.inputs.ids.shape, -1)
        return everywhere.gather(1, self.where[..., None].expand(-1, -1, x.shape[-1]))


# A batch to logits at the positions that count.
Answering = Callable[[Batch], Float[Tensor, "batch counted n_vocab"]]


def answering(program: Program) -> Answering:
    """The program's logits at the positions that count."""
    interpreter = Interpreter.of(program)
    return lambda batch: interpreter(batch.inputs.ids, batch.inputs.positions, batch.where)


@dataclass(frozen=True)
class Oracle:
    """`loss` compares logits with the model's; `agreeing` says which inputs are answered alike.

    `every`: its inputs are all that there are.
    """

    output: Output
    batches: tuple[Batch, ...]
    every: bool = False

    @classmethod
    @torch.no_grad()
    def draw(cls, transformer: Model, task: Task, count: int, rng: np.random.Generator, batch_size: int) -> "Oracle":
        """`count` inputs at random lengths and offsets."""
        return cls.of(transformer, task, task.pool(count, rng), batch_size)

    @classmethod
    @torch.no_grad()
    def of(cls, transformer: Model, task: Task, inputs: Inputs, batch_size: int) -> "Oracle":
        """The model's answers to inputs, in batches of like length: little work on padding.

        Long ones, where a program that differs is found out first, come first.
        """
        batches: list[Batch] = []
        for rows in inputs.sizes.argsort(stable=True, descending=True).split(batch_size):
            part = inputs.rows(rows)
            counts = part.counted.sum(1)
            width = int(counts.max())
            # Positions that count come first; the rest of a row repeats some position and is not valid.
            where = part.counted.float().argsort(dim=1, descending=True, stable=True)[:, :width]
            valid = torch.arange(width) < counts[:, None]
            logits = transformer(part.ids, part.positions)
            batches.append(
                Batch(part, where, valid, logits.gather(1, where[..., None].expand(-1, -1, logits.shape[-1])))
            )
        return cls(task.output, tuple(batches), inputs.every)

    def __len__(self) -> int:
        return sum(len(batch.inputs) for batch in self.batches)

    def loss(self, batch: Batch, logits: Float[Tensor, "batch counted n_vocab"]) -> Float[Tensor, " batch"]:
        """The KL divergence from the model's answers for each input, averaged over the positions that count."""
        if self.output == "softmax":
            model, chances = batch.of_softmax
            each = (chances * (model - logits.log_softmax(-1))).sum(-1)
        else:
            share, least = batch.of_sigmoid
            each = (F.binary_cross_entropy_with_logits(logits, share, reduction="none") - least).sum(-1)
        return (each * batch.valid).sum(-1) / batch.valid.sum(-1)

    def agreeing(self, batch: Batch, logits: Float[Tensor, "batch counted n_vocab"]) -> Bool[Tensor, " batch"]:
        said, model = predictions(logits, self.output), predictions(batch.logits, self.output)
        return agreeing(said, model, batch.valid)

    @torch.no_grad()
    def match(self, answering: Answering) -> Share:
        """The share of the pool on which `answering` agrees with the model."""
        hits = sum(int(self.agreeing(batch, answering(batch)).sum()) for batch in self.batches)
        return Share(hits, len(self), self.every)

    @torch.no_grad()
    def right(self, answering: Answering) -> Share:
        """The share of the pool on which `answering` gives the task's own answers; of none where there are none."""
        if any(batch.inputs.targets is None for batch in self.batches):
            return Share(0, 0)
        hits = sum(int(_right(batch, answering(batch), self.output).sum()) for batch in self.batches)
        return Share(hits, len(self), self.every)

    @torch.no_grad()
    def match_if(self, answering: Answering, target: float) -> float:
        """The share that agrees; 0 as soon as it is clear that the share stays below `target`."""
        allowed = (1 - target) * len(self) + 1e-9
        misses = 0
        for batch in self.batches:
            misses += int((~self.agreeing(batch, answering(batch))).sum())
            if misses > allowed:
                return 0.0
        return 1 - misses / len(self)

    @property
    def answers_each(self) -> float:
        """How many answers an input holds, on average."""
        return sum(int(batch.valid.sum()) for batch in self.batches) / len(self)

    @torch.no_grad()
    def mean_loss(self, answering: Answering) -> float:
        total = sum(float(self.loss(batch, answering(batch)).sum()) for batch in self.batches)
        return total / len(self)

    def clear(self, share: float) -> "Oracle":
        """The same inputs, with only those answers counted that the model prefers by so much of its median margin."""
        found = [margins(batch.logits, self.output) for batch in self.batches]
        least = share * float(torch.cat([m[b.valid] for m, b in zip(found, self.batches, strict=True)]).median())
        pairs = zip(self.batches, found, strict=True)
        return Oracle(self.output, tuple(replace(b, valid=b.valid & (m >= least)) for b, m in pairs))

    def where_right(self) -> "Oracle":
        """The same inputs, with only those answers counted by which the model says what the task asks for."""

        def only(batch: Batch) -> Batch:
            same = predictions(batch.logits, self.output) == _targets(batch)
            return replace(batch, valid=batch.valid & (same.all(-1) if same.ndim == 3 else same))

        return Oracle(self.output, tuple(map(only, self.batches)))

    def part(self, every: int) -> "Oracle":
        """Every so-many-th batch: all lengths, but fewer inputs; at least one batch."""
        every = min(every, len(self.batches))
        return Oracle(self.output, self.batches[every // 2 :: every])


def _right(batch: Batch, logits: Float[Tensor, "batch counted n_vocab"], output: Output) -> Bool[Tensor, " batch"]:
    return agreeing(predictions(logits, output), _targets(batch), batch.valid)


def _targets(batch: Batch) -> Predictions:
    """What the task asks for at the positions that count."""
    targets = batch.inputs.targets
    assert targets is not None, "a task that says what is right"
    where = batch.where if targets.ndim == 2 else batch.where[..., None].expand(-1, -1, targets.shape[-1])
    return targets.gather(1, where)
