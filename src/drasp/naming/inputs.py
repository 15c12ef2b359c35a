"""Inputs on which a program is looked at."""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from drasp.language import Program
from drasp.tasks import Task

_COUNT = 200


def inputs_for(program: Program, task: Task) -> tuple[Int[Tensor, "n pos"], Int[Tensor, "n pos"]]:
    """Ids and positions of a task's inputs, cut to one length so that there is no padding among them."""
    pool = task.pool(_COUNT, np.random.default_rng(0))
    width = int(pool.sizes.median())
    rows = (pool.sizes >= width).nonzero()[:, 0]
    part = pool.rows(rows)
    positions = part.positions[:, :width].clamp(max=program.n_positions - 1)
    return part.ids[:, :width], torch.as_tensor(positions)
