"""The forward pass for training and testing: logits where they count, and little work anywhere else.

Rows are laid two to a lane, the longest beside the shortest, so that lanes of one width hold inputs of many
lengths with hardly any padding; a mask keeps the two apart. In the last layer only the counted positions
are asked: keys and values are needed everywhere, queries and the MLP are not.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor

from drasp.tasks import Inputs
from drasp.transformer import Attention, Linear, Transformer

# Added to a score, it or a multiple of it makes softmax exactly 0.
_NOWHERE = -1e9


@dataclass(frozen=True)
class Batch:
    """Inputs laid out for `counted_logits`. `targets` and `owner` are of the counted positions, in its order."""

    ids: Int[Tensor, "lane width"]
    positions: Int[Tensor, "lane width"]
    part: Float[Tensor, "lane width"] | None  # 2 for a lane's first row, 1 for its second, 0 for padding
    asked: Int[Tensor, "lane asked"] | None  # columns, column 0 past a lane's own; None where all count
    counted: Int[Tensor, " counted"]  # among all that are asked
    owner: Int[Tensor, " counted"]  # the row of the inputs
    targets: Tensor
    n_rows: int

    def bias(self, asked: bool) -> Float[Tensor, "any 1 query width"]:
        """Added to attention scores, of all positions or those asked: 0 where one is seen, very negative elsewhere."""
        columns = torch.arange(self.ids.shape[1])
        queries = self.asked if asked and self.asked is not None else columns[None]
        # In floats throughout: comparing would be clearer, and takes four times as long.
        ahead = (columns.float() - queries[..., None].float()).clamp_(min=0)
        if self.part is None:
            return ahead.mul_(_NOWHERE)[:, None]
        apart = self.part.take_along_dim(queries, 1)[..., None] - self.part[:, None]
        return apart.mul_(apart).add_(ahead).mul_(_NOWHERE)[:, None]


def lay_out(inputs: Inputs) -> Batch:
    """One batch, each row in a lane of its own: for rows of like size."""
    rows = torch.arange(len(inputs))
    (batch,) = _lay_out(inputs, rows, None, len(inputs))
    return batch


def lay_out_pairs(inputs: Inputs, size: int) -> list[Batch]:
    """Batches of `size` rows, an even number: in each, the longest shares a lane with the shortest, and so on."""
    order = (inputs.sizes.view(-1, size).argsort(dim=1, stable=True) + torch.arange(0, len(inputs), size)[:, None]).T
    first, second = order[size // 2 :].T.flatten(), order[: size // 2].flip(0).T.flatten()
    return _lay_out(inputs, first, second, size // 2)


def _lay_out(
    inputs: Inputs, first: Int[Tensor, " lane"], second: Int[Tensor, " lane"] | None, n_lanes: int
) -> list[Batch]:
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
            Batch(
                ids=ids[lanes, :width],
                positions=positions[lanes, :width],
                part=None if part is None else part[lanes, :width],
                asked=None if asked is None else asked[lanes, :n_asked],
                counted=(lane[places] - lanes.start) * n_asked + rank[places],
                owner=owner[places],
                targets=targets[places],
                n_rows=n_lanes if second is None else 2 * n_lanes,
            )
        )
    return batches


def counted_logits(model: Transformer, batch: Batch, dropout: float = 0.0) -> Float[Tensor, "counted n_vocab"]:
    """What `model` says at the counted positions, in the order of `batch.targets`."""
    x = _rows(model.token_embedding, batch.ids) + _rows(model.position_embedding, batch.positions)
    x = _drop(x, dropout)
    bias: Tensor | None = None
    for layer in model.layers:
        last = layer is model.layers[-1]
        if bias is None or (last and batch.asked is not None):
            bias = batch.bias(asked=last)
        asked = batch.asked if last else None
        mixed = _attend(layer.attention, layer.attention_norm(x), asked, bias, dropout)
        if asked is not None:
            x = _at(x, asked)
        x = x + _drop(mixed, dropout)
        x = x + _drop(layer.mlp(layer.mlp_norm(x)), dropout)
    return model.final_norm(x.flatten(0, 1).index_select(0, batch.counted)) @ model.unembedding.T


def _at(x: Float[Tensor, "lane width d"], columns: Int[Tensor, "lane asked"]) -> Float[Tensor, "lane asked d"]:
    lanes, width, d = x.shape
    return _rows(x.reshape(-1, d), torch.arange(lanes)[:, None] * width + columns)


def _rows(table: Float[Tensor, "n d"], which: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch d"]:
    """What `F.embedding` gives; the gradient is summed in the same order, in half the time."""
    return table.index_select(0, which.flatten()).view(*which.shape, -1)


def _attend(attention: Attention, x: Tensor, asked: Tensor | None, bias: Tensor, dropout: float) -> Tensor:
    d = x.shape[-1]
    if asked is None:
        q, k, v = attention.qkv(x).split(d, dim=-1)
    else:
        weight, qkv_bias = attention.qkv.weight, attention.qkv.bias
        q = Linear(weight[:, :d], qkv_bias[:d])(_at(x, asked))
        k, v = Linear(weight[:, d:], qkv_bias[d:])(x).split(d, dim=-1)
    if attention.n_heads == 1:
        # The same without an axis for heads, and without the time it takes to set one up.
        shares = ((q * attention.scale) @ k.mT).add_(bias[:, 0]).softmax(-1)
        return attention.output(_drop(shares, dropout) @ v)
    q, k, v = (part.unflatten(-1, (attention.n_heads, -1)).transpose(1, 2) for part in (q, k, v))
    shares = ((q * attention.scale) @ k.mT).add_(bias).softmax(-1)
    mixed = _drop(shares, dropout) @ v
    return attention.output(mixed.transpose(1, 2).flatten(2))


def _drop(x: Tensor, rate: float) -> Tensor:
    """Dropout from the global generator, with 16 random bits an element: much cheaper than `F.dropout`."""
    if not rate:
        return x
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    keep = bits.view(torch.int16)[: x.numel()].view(x.shape) >= round(rate * 2**16) - 2**15
    return x * keep.to(x.dtype).mul_(1 / (1 - rate))
