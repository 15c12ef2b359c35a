"""How long a decompilation may take, from how long the model itself takes on a few inputs."""

import time
from dataclasses import dataclass

import numpy as np
import torch

from drasp.measure import predict
from drasp.settings import DEFAULT
from drasp.tasks import Task
from drasp.transformer import Transformer

_ENOUGH = 0.3  # seconds of trying
_MOST = 64  # inputs
# Runs of the pool on which passes judge that a decompilation of the thirteen published models took: the least, the
# median, the most.
_LEAST, _USUAL, _LONGEST = 30, 180, 800


@dataclass(frozen=True)
class Estimate:
    """Seconds; the published models took between `least` and `longest`, half of them less than `usual`."""

    least: float
    usual: float
    longest: float

    def __str__(self) -> str:
        return f"may take {duration(self.least)} to {duration(self.longest)}"


@torch.no_grad()
def estimate(transformer: Transformer, task: Task) -> Estimate:
    """Runs a model on more and more inputs until that has taken long enough to tell."""
    count = 1
    while True:
        pool = task.pool(count, np.random.default_rng(0))
        start = time.perf_counter()
        predict(transformer, pool, task.output)
        taken = time.perf_counter() - start
        if taken >= _ENOUGH or count >= _MOST:
            seconds = taken * DEFAULT.inputs / len(pool)
            return Estimate(*(runs * seconds for runs in (_LEAST, _USUAL, _LONGEST)))
        count *= 4


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`, `5 days`: as much as an estimate can say."""
    for unit, size in (("s", 1), ("min", 60), ("h", 3600)):
        if seconds < {"s": 90, "min": 5400, "h": 172_800}[unit]:
            return f"{max(1, round(seconds / size))} {unit}"
    return f"{round(seconds / 86_400)} days"
