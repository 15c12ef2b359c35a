"""Inputs laid out for training and testing, so that there is little work on padding.

Rows are laid two to a lane, the longest beside the shortest, so that lanes of one width hold inputs of many
lengths with hardly any padding; a mask keeps the two apart.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from drasp.sequences import Sequences
from drasp.tasks import Inputs


@dataclass(frozen=True)
class TrainingBatch:
    """`targets` and `owner`, the row of the inputs, are of the counted positions, in the order of their logits."""

    sequences: Sequences
    owner: Int[Tensor, " counted"]
    targets: Tensor
    n_rows: int


def lay_out(inputs: Inputs) -> TrainingBatch:
    """One batch, each row in a lane of its own: for rows of like size."""
    rows = torch.arange(len(inputs))
    (batch,) = _lay_out(inputs, rows, None, len(inputs))
    return batch


def lay_out_pairs(inputs: Inputs, size: int) -> list[TrainingBatch]:
    """Batches of `size` rows, an even number: in each, the longest shares a lane with the shortest, and so on."""
    order = (inputs.sizes.view(-1, size).argsort(dim=1, stable=True) + torch.arange(0, len(inputs), size)[:, None]).T
    first, second = order[size // 2 :].T.flatten(), order[: size // 2].flip(0).T.flatten()
    return _lay_out(inputs, first, second, size // 2)


def _lay_out(
    inputs: Inputs, first: Int[Tensor, " lane"], second: Int[Tensor, " lane"] | None, n_lanes: int
) -> list[TrainingBatch]:
    """All batches at once, since many small steps cost more than a few large ones; `n_lanes` to a batch."""
    wide = inputs.ids.shape[1]
    # The last token of a row predicts nothing, so no model needs to read it.
    sizes = inputs.sizes - 1
    split, end = sizes[first], sizes[first] if second is None else sizes[first] + sizes[second]
    columns = torch.arange(int(end.max()))
    in_first, inside = columns < split[:, None], columns < end[:, None]
    source = first[:, None] * wide + columns
    if second is not None:
        source = torch.where(in_first, source, second[:, None] * wide + columns - split[:, None])
    source = torch.where(inside, source, first[:, None] * wide)

    ids, positions = inputs.ids.flatten()[source], inputs.positions.flatten()[source]
    part = None if second is None else in_first.float() + inside.float()
    counts = inputs.counted.flatten()[source] & inside
    lane, column = counts.nonzero(as_tuple=True)
    chosen = source[lane, column]
    assert inputs.targets is not None, "a task that says what is right"
    owner, targets = chosen // wide, inputs.targets.flatten(0, 1)[chosen]
    everywhere = torch.equal(counts, inside)
    rank, asked = column, None
    if not everywhere:
        rank = counts.cumsum(1)[lane, column] - 1
        asked = torch.zeros(len(counts), int(rank.max()) + 1, dtype=torch.int64)
        asked[lane, rank] = column

    batches = []
    bounds = torch.searchsorted(lane, torch.arange(0, len(counts) + 1, n_lanes)).tolist()
    for i, (start, stop) in enumerate(pairwise(bounds)):
        lanes, places = slice(i * n_lanes, (i + 1) * n_lanes), slice(start, stop)
        width = int(end[lanes].max())
        n_asked = width if asked is None else int(rank[places].max()) + 1
        batches.append(
            TrainingBatch(
                Sequences(
                    ids=ids[lanes, :width],
                    positions=positions[lanes, :width],
                    where=None if asked is None else asked[lanes, :n_asked],
                    part=None if part is None else part[lanes, :width],
                    counted=(lane[places] - lanes.start) * n_asked + rank[places],
                ),
                owner=owner[places],
                targets=targets[places],
                n_rows=n_lanes if second is None else 2 * n_lanes,
            )
        )
    return batches
