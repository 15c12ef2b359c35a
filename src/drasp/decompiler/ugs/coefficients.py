"""Which λ to try next, and which runs to go on with: as the paper has it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from drasp.decompiler.ugs.circuit import Circuit
from drasp.decompiler.ugs.gates import Ending
from drasp.settings import PAPER_SETTINGS, UgsSettings


@dataclass(frozen=True)
class GateRun:
    """What a coefficient led to; no circuit, and agreement 0, where the run was given up."""

    coefficient: float
    match: float = 0.0
    size: int = 0
    circuit: Circuit | None = None
    ending: Ending = "given up"
    steps: int = 0


def next_coefficient(
    tried: Sequence[tuple[float, float]], span: tuple[float, float], settings: UgsSettings = PAPER_SETTINGS
) -> float | None:
    """The coefficient to try after some pairs of agreement and coefficient; None where nothing is left to try.

    It aims at the highest interval of agreement that holds no run: between those on both sides, or a factor beyond.
    """
    (low, high), intervals = span, settings.intervals
    if high - low < 1e-9:
        return None
    places = [math.floor(intervals * (match - low) / (high - low)) for match, _ in tried]
    placed = [(min(place, intervals - 1), *pair) for place, pair in zip(places, tried, strict=True)]
    for i in reversed(range(intervals)):
        if any(place == i for place, *_ in placed):
            continue
        above = [(match, -coefficient) for place, match, coefficient in placed if place > i]
        below = [(match, -coefficient) for place, match, coefficient in placed if place < i]
        if above and below:
            new = math.sqrt(min(above)[1] * max(below)[1])
        elif above:
            new = max(-c for _, c in above) * settings.factor
        else:
            new = min(-c for _, c in below) / settings.factor
        known = any(abs(math.log(new / coefficient)) < settings.alike for _, coefficient in tried)
        if settings.smallest <= new <= settings.largest and not known:
            return new
    return None


def representative(runs: Sequence[GateRun], count: int) -> list[GateRun]:
    """Some runs, spread evenly, of those that no other beats in both size and agreement."""
    best: list[GateRun] = []
    for run in sorted((run for run in runs if run.circuit is not None), key=lambda run: (run.size, -run.match)):
        if not best or run.match > best[-1].match:
            best.append(run)
    if len(best) <= count:
        return best
    # The truest is always among them.
    return [best[-1 - round(i * (len(best) - 1) / max(1, count - 1))] for i in range(count)]
