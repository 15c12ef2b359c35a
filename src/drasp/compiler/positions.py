"""Looking back a fixed distance, in a few dimensions.

`k==q-1` over 300 positions is a matrix of rank 299, and would need a head that wide. But attention only sees which keys
score best among those before the query. A sum of waves in the distance between query and key, high at the distances
that are looked for and lower at all others, does the same with two dimensions a frequency.

It must do the same where an input has only begun and nothing is yet as far back as is looked for: then all keys score
alike. So the wave has one height at the wanted distances, and one height at all that are nearer than these.
"""

import torch
from jaxtyping import Float
from torch import Tensor

FREQUENCIES = (4, 6, 8, 12, 16, 24)
TRIES = 30
"""Sets of random frequencies that are tried, of each number of them."""
CLEAR = 0.2
"""How far the wave must be above all else at the wanted distances, as a share of the most that it could be anywhere.

Scores are then at most five times the gap between them: errors of the norm do not grow beyond that.
"""


def in_few_dimensions(tensor: Float[Tensor, "pos pos"]) -> Float[Tensor, "pos pos"] | None:
    """A tensor of low rank that prefers, by at least 1, the same distances; None where it is not about distances."""
    count = len(tensor)
    by_distance = tensor[-1].flip(0)
    distance = torch.arange(count)[:, None] - torch.arange(count)
    past = distance >= 0
    if not torch.equal(torch.where(past, tensor, 0.0), torch.where(past, by_distance[distance.clamp(min=0)], 0.0)):
        return None
    levels = torch.unique(by_distance)
    if len(levels) != 2:
        return None
    wanted = by_distance == levels[1]
    nearer = torch.arange(count) < int(wanted.nonzero()[0])
    generator = torch.Generator().manual_seed(0)
    for n_frequencies in FREQUENCIES:
        if 2 * n_frequencies >= count:
            return None
        found = [_wave(torch.rand(n_frequencies, generator=generator), wanted, nearer) for _ in range(TRIES)]
        frequencies, weights, clear = max(found, key=lambda wave: wave[2])
        if clear >= CLEAR:
            return (_waves(frequencies, distance.flatten()) @ weights / clear).view(count, count)
    return None


def _waves(frequencies: Float[Tensor, " f"], distances: Tensor) -> Float[Tensor, "n waves"]:
    angles = torch.pi * distances[:, None].double() * frequencies.double()
    return torch.cat([angles.cos(), angles.sin()], 1)


def _wave(frequencies: Float[Tensor, " f"], wanted: Tensor, nearer: Tensor) -> tuple[Tensor, Tensor, float]:
    """The weights of waves, 1 in sum, that are high at wanted distances and low at others, and how clear that is."""
    waves = _waves(frequencies, torch.arange(len(wanted)))
    level = torch.cat([waves[group][1:] - waves[group][:1] for group in (wanted, nearer)])
    # What leaves both groups level, and of that the least squares.
    _, s, vt = torch.linalg.svd(level, full_matrices=True)
    free = vt[int((s > 1e-9).sum()) :].T
    if not free.shape[1]:
        return frequencies, torch.zeros(waves.shape[1], dtype=torch.float64), 0.0
    weights = free @ torch.linalg.lstsq(waves @ free, wanted.double()[:, None]).solution[:, 0]
    weights = weights / weights.abs().sum()
    heights = waves @ weights
    return frequencies, weights, float(heights[wanted].min() - heights[~wanted].max())
