"""What a measure is: a share of cases, with its interval, and whether it passes; and how answers are compared.

A case is an intervention on one input: one token changed, a line taken from a source. It counts only where it matters:
at positions where one of two sides answers otherwise than before, and the reference's answer is clear. Its value is the
share of these positions at which both sides then answer alike; a measure is the mean over cases.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from drasp.measure import TIE, differ_at, predictions, wilson_interval
from drasp.settings import EVIDENCE
from drasp.vocabulary import Output


@dataclass(frozen=True)
class Clear:
    """The share of the median margin from which on an answer counts: of the model cut down, and of the model."""

    cut_down: float = EVIDENCE.clear
    in_model: float = EVIDENCE.clear_in_model


@dataclass(frozen=True)
class BinMean:
    """The mean over the cases of one length bin."""

    value: float | None
    n: int
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Measure:
    """A mean over `n` cases, and what it says: passed, failed, untested (too few cases) or not_applicable.

    `ties` is the share of what counted as alike by a tie alone.
    """

    value: float | None
    n: int
    interval: tuple[float, float] | None
    status: str
    by_length: dict[str, BinMean] = field(default_factory=dict[str, BinMean])
    ties: float = 0.0

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def failed(self) -> bool:
        return self.status == "failed"

    @property
    def idle(self) -> bool:
        """Whether nothing ever changed, on either side: then there is nothing to compare."""
        return self.status == "untested" and not self.n

    def __str__(self) -> str:
        if self.idle:
            return "idle"
        if self.value is None or self.status == "not_applicable":
            return self.status.replace("_", " ")
        return f"{self.value:.2f} of {self.n}" + (" (untested)" if self.status == "untested" else "")


NOT_APPLICABLE = Measure(None, 0, None, "not_applicable")


def measured(
    mean: Callable[[Any], BinMean],
    lengths: Int[Tensor, " n"],
    bins: Sequence[tuple[int, int]],
    possible: bool = True,
    ties: float = 0.0,
) -> Measure:
    """The measure by a mean, which is given the rows that it is taken over: all of them, and those of each length bin.

    `possible` is whether there could have been any case.
    """
    whole = mean(slice(None))
    inside = {f"{low}-{high}": (lengths >= low) & (lengths <= high) for low, high in bins}
    by_length = {name: mean(rows) for name, rows in inside.items()}
    return Measure(whole.value, whole.n, whole.interval, status_of(whole, possible), by_length, ties)


def status_of(whole: BinMean, possible: bool = True) -> str:
    """Whether a mean passes, fails, or has too few cases to say anything."""
    if whole.n < EVIDENCE.fewest_cases or whole.value is None or whole.interval is None:
        return "untested" if possible else "not_applicable"
    passes = whole.value >= EVIDENCE.passing and whole.interval[0] >= EVIDENCE.lowest_passing
    return "passed" if passes else "failed"


@dataclass(frozen=True)
class Cases:
    """The cases that matter: the share alike of each, the share of ties in it, and the length of its input."""

    values: Float[Tensor, " n"]
    ties: Float[Tensor, " n"]
    lengths: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.values)

    @staticmethod
    def joined(parts: Iterable["Cases"]) -> "Cases":
        parts = list(parts)
        if not parts:
            return Cases(torch.zeros(0), torch.zeros(0), torch.zeros(0, dtype=torch.long))
        return Cases(*(torch.cat([getattr(part, name) for part in parts]) for name in ("values", "ties", "lengths")))

    def measure(self, bins: Sequence[tuple[int, int]], possible: bool = True) -> Measure:
        """The mean over all cases; `possible` is whether there could have been any."""
        ties = round(float(self.ties.mean()), 4) if len(self) else 0.0
        return measured(lambda rows: _mean(self.values[rows]), self.lengths, bins, possible, ties)


def _mean(values: Float[Tensor, " n"]) -> BinMean:
    if not len(values):
        return BinMean(None, 0, None)
    # The interval is that of as many answers that are alike or not, which is wider than that of shares.
    value = float(values.double().mean())
    return BinMean(value, len(values), wilson_interval(value, len(values)))


def weighted_mean(values: Float[Tensor, " n"], weights: Float[Tensor, " n"]) -> BinMean:
    """The weighted mean of shares with the normal 95 % interval of such a mean."""
    counting = weights > 0
    if not bool(counting.any()):
        return BinMean(None, 0, None)
    values, weights = values[counting].double(), weights[counting].double()
    weights = weights / weights.sum()
    value = float((weights * values).sum())
    half = 1.96 * float((weights * (values - value)).square().sum().sqrt())
    return BinMean(value, len(values), (max(0.0, value - half), min(1.0, value + half)))


def worst(measures: Mapping[str, Measure]) -> Measure:
    """The measure that fails most clearly, or else the lowest of those that say something."""
    order = {"failed": 0, "passed": 1, "untested": 2, "not_applicable": 3}
    found = sorted(measures.values(), key=lambda m: (order[m.status], 1.0 if m.value is None else m.value, -m.n))
    return found[0] if found else NOT_APPLICABLE


# ---------------------------------------------------------------------------------------- answers

Logits = Float[Tensor, "batch wanted n_vocab"]
Where = Bool[Tensor, "batch wanted"]


def differing(a: Logits, b: Logits, output: Output) -> Where:
    """The places where two answers are not the same."""
    return differ_at(predictions(a, output), predictions(b, output))


def alike(reference: Logits, other: Logits, output: Output) -> tuple[Where, Where, Where]:
    """The places where the other answers as the reference does, where by a tie, and where its answer is open.

    A tie of two tokens, one of them the reference's, counts for it. Of more than two, it is no answer at all.
    """
    tolerance = TIE * other.abs().amax(-1, keepdim=True)
    same = ~differing(reference, other, output)
    if output == "sigmoid":
        near = other.abs() <= tolerance
        fits = (((reference > 0) == (other > 0)) | near).all(-1)
        tied = ~same & fits & (near.sum(-1) <= 2)
        return same | tied, tied, torch.zeros_like(same)
    near = other >= other.amax(-1, keepdim=True) - tolerance
    among, count = near.gather(-1, reference.argmax(-1, keepdim=True))[..., 0], near.sum(-1)
    tied, unsaid = ~same & among & (count == 2), among & (count > 2)
    return (same & ~unsaid) | tied, tied, unsaid
