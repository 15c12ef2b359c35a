"""Selects that compare positions: by their distance, as local and periodic predicates."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from drasp.crasp.syntax import CraspError

MAX_DISTANCES = 8  # single distances that a select may treat apart
MAX_PERIOD = 12


@dataclass(frozen=True)
class Distances:
    """A select of positions by their distance: single distances, and remainders of all others."""

    single: tuple[int, ...]
    period: int
    scores: tuple[float, ...]  # of the single ones, then of the remainders

    @property
    def classes(self) -> int:
        return len(self.single) + self.period

    def place(self, distance: int) -> int:
        """Which score a distance has."""
        singles = len(self.single)
        return self.single.index(distance) if distance in self.single else singles + distance % self.period


NO_DISTANCES = Distances((), 1, (0.0,))


def distances_of(matrix: Float[np.ndarray, "query key"]) -> Distances:
    """A tensor of two positions as a function of their distance; raises where it is none that C-RASP knows."""
    count = len(matrix)
    scores = matrix[-1, ::-1]
    for distance in range(count):
        if np.abs(np.diagonal(matrix, -distance) - scores[distance]).max() > 1e-9 * (1 + abs(scores[distance])):
            raise CraspError("it compares positions by more than their distance, so `pos` is used absolutely")
    for period in range(1, min(MAX_PERIOD, max(count // 3, 1)) + 1):
        far = [float(scores[d]) for d in range(count - period, count)]
        remainders = [far[(r - (count - period)) % period] for r in range(period)]
        single = [d for d in range(count) if abs(scores[d] - remainders[d % period]) > 1e-9]
        if len(single) <= MAX_DISTANCES and (not single or single[-1] < count - 2 * period):
            return Distances(tuple(single), period, (*(float(scores[d]) for d in single), *remainders))
    raise CraspError("it depends on distances in a way that is neither local nor periodic")


def merged(first: Distances, second: Distances) -> Distances:
    """The sum of two selects of distances."""
    period = int(np.lcm(first.period, second.period))
    single = tuple(sorted({*first.single, *second.single}))

    far = period * (1 + max(single, default=0))  # no single distance
    places = [*single, *(far + r for r in range(period))]
    return Distances(
        single, period, tuple(first.scores[first.place(d)] + second.scores[second.place(d)] for d in places)
    )
