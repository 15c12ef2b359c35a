"""How often a model is right, and how often two models say the same: by whole inputs, with an interval."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from drasp.tasks import Inputs
from drasp.vocabulary import Output

TIE = 1e-5  # of the largest logit: what is nearer is a tie, which rounding in sums of some hundred terms decides

# Ids and positions to logits: a Transformer, or anything that stands in for one.
Model = Callable[[Int[Tensor, "n width"], Int[Tensor, "n width"]], Float[Tensor, "n width n_vocab"]]
# The token said at each position (softmax), or which tokens are held possible there (sigmoid).
Predictions = Int[Tensor, "n width"] | Bool[Tensor, "n width n_vocab"]


def wilson_interval(share: float, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of so many cases, which is sound near 0 and 1 as well."""
    z = 1.959963984540054
    centre = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    # Rounding must not put the value itself outside.
    return max(0.0, min(share, (centre - half) / scale)), min(1.0, max(share, (centre + half) / scale))


@dataclass(frozen=True)
class Share:
    """A share: so many of so many inputs; `every`: of all that there are."""

    hits: int
    total: int
    every: bool = False

    @property
    def value(self) -> float:
        return self.hits / self.total if self.total else math.nan

    @property
    def all(self) -> bool:
        return self.hits == self.total

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the share; none where nothing is left that was not tried."""
        if self.every:
            return None
        return wilson_interval(self.value, self.total) if self.total else (0.0, 1.0)

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.value:.3f} of all {self.total:,}"
        low, high = self.interval
        return f"{self.value:.3f} [{low:.3f}, {high:.3f}] of {self.total}"


def predictions(logits: Float[Tensor, "n width n_vocab"], output: Output) -> Predictions:
    return logits.argmax(-1) if output == "softmax" else logits > 0


def margins(logits: Float[Tensor, "*batch n_vocab"], output: Output) -> Float[Tensor, "*batch"]:
    """The margins by which answers are preferred to the nearest other one."""
    if output == "sigmoid":
        return logits.abs().amin(-1)
    first, second = logits.topk(2, dim=-1).values.unbind(-1)
    return first - second


def agreeing(a: Predictions, b: Predictions, counted: Bool[Tensor, "n width"]) -> Bool[Tensor, " n"]:
    """Which inputs have the same predictions at all positions that count."""
    return ~(differ_at(a, b) & counted).any(-1)


def differ_at(a: Tensor, b: Tensor) -> Bool[Tensor, "*places"]:
    """The places at which predictions are not the same; those with several tokens, in any of them."""
    return (a != b).any(-1) if a.dtype == torch.bool else a != b


def answer_text(answer: Tensor, names: Sequence[str]) -> str:
    """What is predicted at a position: the token, or `{a b}` where several may come next."""
    if answer.ndim == 0:
        return names[int(answer)]
    return "{" + " ".join(name for name, yes in zip(names, answer.tolist(), strict=True) if yes) + "}"


def share(which: Bool[Tensor, " n"], every: bool = False) -> Share:
    return Share(int(which.sum()), len(which), every)


@torch.no_grad()
def predict(model: Model, inputs: Inputs, output: Output) -> Predictions:
    """The model's predictions on a pool; 0 (False) on padding."""
    out: Tensor | None = None
    for rows, batch in inputs.batches():
        said = predictions(model(batch.ids, batch.positions), output)
        if out is None:
            out = said.new_zeros((*inputs.ids.shape, *said.shape[2:]))
        out[rows, : said.shape[1]] = said
    assert out is not None, "a pool holds at least one input"
    return out


def task_accuracy(model: Model, inputs: Inputs, output: Output) -> Share:
    """The share of inputs on which every counted prediction is right; of none where a task does not say what is."""
    return Share(0, 0) if inputs.targets is None else share(correct(model, inputs, output), inputs.every)


@torch.no_grad()
def correct(model: Model, inputs: Inputs, output: Output) -> Bool[Tensor, " n"]:
    """Which inputs are answered as their targets say."""
    right = torch.zeros(len(inputs), dtype=torch.bool)
    for rows, batch in inputs.batches():
        said = predictions(model(batch.ids, batch.positions), output)
        assert batch.targets is not None
        right[rows] = agreeing(said, batch.targets, batch.counted)
    return right
