"""Trains a model: fresh inputs at every step, a test at every hundredth, an end when none is wrong."""

import math
import time
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from drasp.errors import DraspError
from drasp.forward import Forward
from drasp.measure import Share
from drasp.tasks import Task, bin_name
from drasp.training.layout import TrainingBatch, lay_out, lay_out_pairs
from drasp.training.recipe import BATCH, OFFSETS, TEST_EVERY, TEST_INPUTS, WEIGHT_DECAY, Accuracies, Recipe
from drasp.transformer import Transformer, assemble, initial_weights
from drasp.vocabulary import Output

# A model that is not yet right on these need not be tested on all.
PROBE = 128
MAX_NORM = 1.0


@dataclass(frozen=True)
class TrainingProgress:
    """What a test found: the accuracies of the bins are estimates from the first inputs, unless the model got far."""

    step: int
    loss: float
    accuracies: tuple[Share, ...]
    steps_per_second: float


@dataclass
class TrainingState:
    """All that a run's future depends on, as it stands after a test."""

    weights: dict[str, Tensor]
    step: int = 0
    moments: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    draws: dict | None = None  # of the generator that draws inputs
    dropout: Tensor | None = None  # of the generator that drops
    seconds: float = 0.0
    saved: tuple[float, ...] = ()  # accuracies of the last checkpoint
    faultless_tests: int = 0  # in a row, up to now
    done: bool = False


class TrainingRun:
    """One training run. `advance` takes it from one test to the next, and `state` can be stored between."""

    def __init__(self, task: Task, recipe: Recipe, state: TrainingState | None = None) -> None:
        if task.pool(1, np.random.default_rng(0)).targets is None:
            raise DraspError(f"task {task.name}: gives no targets, and a model is trained to say what they say")
        task = replace(task, limit=task.n_positions)
        self.task = task
        self.recipe = recipe
        self.shape = recipe.shape(task)
        self.state = state or TrainingState(initial_weights(self.shape, recipe.seed))
        self._flat = {"matrices": self._gather(matrices=True), "vectors": self._gather(matrices=False)}
        self._weights = self._views()
        self.model: Transformer = assemble(self.shape, self._weights)
        self._optimiser = self._new_optimiser()
        self._rng = np.random.default_rng([recipe.seed, 1])
        if self.state.draws is not None:
            self._rng.bit_generator.state = self.state.draws
        self._probes = [_Test(task, b, recipe.seed, False, PROBE) for b in task.training_bins]
        self._tests = [_Test(task, b, recipe.seed, False, TEST_INPUTS) for b in task.training_bins]
        self._shifted = _Test(task, task.training_bins[0], recipe.seed, True, TEST_INPUTS)

    def advance(self, thorough: bool = False) -> TrainingProgress:
        """Trains up to the next test; `thorough` tests every bin on all its inputs."""
        start = time.perf_counter()
        steps = min(TEST_EVERY, self.recipe.steps - self.state.step)
        with torch.random.fork_rng(devices=[]):
            if self.state.dropout is None:
                torch.manual_seed(self.recipe.seed)
            else:
                torch.set_rng_state(self.state.dropout)
            loss = self._train(steps)
            dropout = torch.get_rng_state()
        trained = time.perf_counter()
        shares = [test.share(self.model) for test in (self._tests if thorough else self._probes)]
        if shares[0].all and not thorough:
            shares[0] = self._tests[0].share(self.model, until_wrong=True)
        # The inputs it trains on have random offsets: right at offset 0 alone would be too easy.
        faultless = shares[0].all and self._shifted.share(self.model, until_wrong=True).all
        faultless_tests = self.state.faultless_tests + 1 if faultless else 0
        self.state = TrainingState(
            weights={k: v.detach().clone() for k, v in self._weights.items()},
            step=self.state.step + steps,
            moments=self._moments(),
            draws=dict(self._rng.bit_generator.state),
            dropout=dropout,
            seconds=self.state.seconds + time.perf_counter() - start,
            saved=self.state.saved,
            faultless_tests=faultless_tests,
            done=faultless_tests >= self.recipe.patience or self.state.step + steps >= self.recipe.steps,
        )
        return TrainingProgress(self.state.step, loss, tuple(shares), steps / (trained - start))

    def final_accuracies(self) -> Accuracies:
        """The accuracies on the test inputs of every bin, at offset 0 and at random offsets."""
        return accuracies(self.model, self.task, self.recipe.seed)

    def _train(self, steps: int) -> float:
        # All inputs up to the next test at once: many cost little more than a few.
        pool = self.task.pool(BATCH * steps, self._rng, *self.task.training_bins[0])
        total = 0.0
        for i, batch in enumerate(lay_out_pairs(pool, BATCH)):
            loss = loss_of(self.model, batch, self.task.output, self.recipe.dropout)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(list(self._flat.values()), MAX_NORM)
            for group in self._optimiser.param_groups:
                group["lr"] = self.recipe.lr * (1 - (self.state.step + i) / self.recipe.steps)
            self._optimiser.step()
            self._optimiser.zero_grad(set_to_none=False)
            total += loss.item()
        if not math.isfinite(total):
            raise DraspError(f"--lr {self.recipe.lr:g}: the loss is no longer a finite number; try a smaller rate")
        return total / steps

    def _names(self, matrices: bool) -> list[str]:
        return [name for name, size in self.shape.weight_shapes().items() if (len(size) > 1) == matrices]

    def _gather(self, matrices: bool) -> Tensor:
        """All matrices, or all vectors, in one tensor: an optimiser's step costs the same for one as for many."""
        flat = torch.cat([self.state.weights[name].flatten() for name in self._names(matrices)]).requires_grad_()
        flat.grad = torch.zeros_like(flat)
        return flat

    def _views(self) -> dict[str, Tensor]:
        """The weights as parts of the flat tensors, and their gradients as parts of those tensors' gradients."""
        views: dict[str, Tensor] = {}
        sizes = self.shape.weight_shapes()
        for names, flat in zip((self._names(True), self._names(False)), self._flat.values(), strict=True):
            assert flat.grad is not None
            lengths = [math.prod(sizes[name]) for name in names]
            parts = zip(names, flat.detach().split(lengths), flat.grad.split(lengths), strict=True)
            for name, weight, gradient in parts:
                views[name] = weight.view(sizes[name]).requires_grad_()
                views[name].grad = gradient.view(sizes[name])
        return views

    def _new_optimiser(self) -> torch.optim.AdamW:
        groups = [
            {"params": [self._flat["matrices"]], "weight_decay": WEIGHT_DECAY},
            {"params": [self._flat["vectors"]], "weight_decay": 0.0},
        ]
        optimiser = torch.optim.AdamW(groups, lr=self.recipe.lr, fused=True)
        for name, moments in self.state.moments.items():
            optimiser.state[self._flat[name]] = {k: v.clone() for k, v in moments.items()}
        return optimiser

    def _moments(self) -> dict[str, dict[str, Tensor]]:
        states = self._optimiser.state
        return {name: {k: v.clone() for k, v in states[flat].items()} for name, flat in self._flat.items()}


def loss_of(model: Transformer, batch: TrainingBatch, output: Output, dropout: float = 0.0) -> Float[Tensor, ""]:
    """The mean cross-entropy of a model's answers at the counted positions of a batch."""
    logits = Forward(model)(batch.sequences, dropout).logits
    if output == "softmax":
        return F.cross_entropy(logits, batch.targets)
    return F.binary_cross_entropy_with_logits(logits, batch.targets.to(logits.dtype))


@dataclass(frozen=True)
class _Test:
    """Test inputs of one bin, drawn and laid out once, when they are first needed."""

    task: Task
    lengths: tuple[int, int]
    seed: int
    random_offsets: bool
    count: int

    @cached_property
    def _batches(self) -> list[TrainingBatch]:
        # One generator for each test set, so that none depends on what else was drawn.
        rng = np.random.default_rng([self.seed, 2, self.lengths[0], self.random_offsets])
        inputs = self.task.pool(self.count, rng, *self.lengths, random_offsets=self.random_offsets)
        return [lay_out(batch) for _, batch in inputs.batches()]

    def share(self, model: Transformer, until_wrong: bool = False) -> Share:
        hits = total = 0
        with torch.no_grad():
            for batch in self._batches:
                hits += _rows_right(Forward(model)(batch.sequences).logits, batch)
                total += batch.n_rows
                if until_wrong and hits < total:
                    break
        return Share(hits, total)


def _rows_right(logits: Float[Tensor, "counted n_vocab"], batch: TrainingBatch) -> int:
    """How many rows are right at all their counted positions."""
    sigmoid = batch.targets.dtype == torch.bool
    right = ((logits > 0) == batch.targets).all(-1) if sigmoid else logits.argmax(-1) == batch.targets
    return batch.n_rows - len(batch.owner[~right].unique())


def accuracies(model: Transformer, task: Task, seed: int) -> Accuracies:
    return {
        OFFSETS[random_offsets]: {
            bin_name(low, high): _Test(task, (low, high), seed, bool(random_offsets), TEST_INPUTS).share(model)
            for low, high in task.training_bins
        }
        for random_offsets in (0, 1)
    }
