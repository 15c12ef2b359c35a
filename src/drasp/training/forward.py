"""The forward pass for training and testing: logits where they count, and little work anywhere else.

Rows are laid two to a lane, the longest beside the shortest, so that lanes of one width hold inputs of many
lengths with hardly any padding; a mask keeps the two apart. In the last layer only the counted positions
are asked: keys and values are needed everywhere, queries and the MLP are not.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from drasp.tasks import Inputs
from drasp.transformer import Attention, Transformer


@dataclass(frozen=True)
class Batch:
    """Inputs laid out for `counted_logits`. `targets` and `owner` are of the counted positions, in its order."""

    ids: Int[Tensor, "lane width"]
    positions: Int[Tensor, "lane width"]
    part: Int[Tensor, "lane width"] | None  # 2 for a lane's first row, 1 for its second, 0 for padding
    asked: Int[Tensor, "lane asked"] | None  # columns, column 0 past a lane's own; None where all count
    counted: Int[Tensor, " counted"]  # among all that are asked
    owner: Int[Tensor, " counted"]  # the row of the inputs
    targets: Tensor
    n_rows: int

    def bias(self, asked: bool) -> Float[Tensor, "any 1 query width"]:
        """Added to attention scores, of all positions or those asked: 0 where one is seen, -inf where it is not."""
        columns = torch.arange(self.ids.shape[1])
        queries = self.asked if asked and self.asked is not None else columns[None]
        hidden = columns > queries[..., None]
        if self.part is not None:
            hidden = hidden | (self.part.take_along_dim(queries, 1)[..., None] != self.part[:, None])
        return torch.zeros(hidden.shape).masked_fill_(hidden, -torch.inf)[:, None]


def lay_out(inputs: Inputs, paired: bool) -> Batch:
    """Without `paired`, each row gets a lane of its own: better where all are of like size."""
    n, wide = inputs.ids.shape
    # The last token of a row predicts nothing, so no model needs to read it.
    sizes = inputs.sizes - 1
    if paired:
        order = sizes.argsort(stable=True)
        first, second = order[n // 2 :], order[: n // 2].flip(0)
        if n % 2:
            # The shortest of the first half stays alone: its partner takes no columns.
            second = torch.cat([second.new_tensor([0]), second])
        alone = n % 2
    else:
        first = second = torch.arange(n)
        alone = n
    a, b = sizes[first], sizes[second]
    b[:alone] = 0

    columns = torch.arange(int((a + b).max()))
    in_first, inside = columns < a[:, None], columns < (a + b)[:, None]
    row = torch.where(in_first, first[:, None], second[:, None])
    column = torch.where(in_first, columns, columns - a[:, None])
    source = torch.where(inside, row * wide + column, first[:, None] * wide)
    counts = inputs.counted.flatten()[source] & inside
    lanes, where = counts.nonzero(as_tuple=True)
    if torch.equal(counts, inside):
        asked, counted = None, lanes * len(columns) + where
    else:
        rank = counts.cumsum(1)[lanes, where] - 1
        asked = torch.zeros(len(counts), int(rank.max()) + 1, dtype=torch.int64)
        asked[lanes, rank] = where
        counted = lanes * asked.shape[1] + rank
    chosen = source[lanes, where]
    return Batch(
        ids=inputs.ids.flatten()[source],
        positions=inputs.positions.flatten()[source],
        part=in_first.int() + inside.int() if paired else None,
        asked=asked,
        counted=counted,
        owner=chosen // wide,
        targets=inputs.targets.flatten(0, 1)[chosen],
        n_rows=n,
    )


def counted_logits(model: Transformer, batch: Batch, dropout: float = 0.0) -> Float[Tensor, "counted n_vocab"]:
    """What `model` says at the counted positions, in the order of `batch.targets`."""
    x = F.embedding(batch.ids, model.token_embedding) + F.embedding(batch.positions, model.position_embedding)
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
    flat = torch.arange(lanes)[:, None] * width + columns
    return x.reshape(-1, d).index_select(0, flat.flatten()).view(*columns.shape, d)


def _attend(attention: Attention, x: Tensor, asked: Tensor | None, bias: Tensor, dropout: float) -> Tensor:
    d = x.shape[-1]
    if asked is None:
        q, k, v = attention.qkv(x).split(d, dim=-1)
    else:
        weight, qkv_bias = attention.qkv.weight, attention.qkv.bias
        q = _at(x, asked) @ weight[:, :d] + qkv_bias[:d]
        k, v = (x @ weight[:, d:] + qkv_bias[d:]).split(d, dim=-1)
    q, k, v = (part.unflatten(-1, (attention.n_heads, -1)).transpose(1, 2) for part in (q, k, v))
    shares = ((q * attention.scale) @ k.mT + bias).softmax(-1)
    mixed = _drop(shares, dropout) @ v
    return attention.output(mixed.transpose(1, 2).flatten(2))


def _drop(x: Tensor, rate: float) -> Tensor:
    """Dropout from the global generator, with 16 random bits an element: much cheaper than `F.dropout`."""
    if not rate:
        return x
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    keep = bits.view(torch.int16)[: x.numel()].view(x.shape) >= round(rate * 2**16) - 2**15
    return x * keep.to(x.dtype).mul_(1 / (1 - rate))
