"""The forward pass for training and testing: logits where they count, and little work anywhere else.

Rows of like size are put into groups, each padded to its own widest row and laid end to end, so that
everything but attention runs on one long list of tokens with hardly any padding. In the last layer only
the counted positions are asked: keys and values are needed everywhere, queries and the MLP are not.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from drasp.tasks import Inputs
from drasp.transformer import Attention, Transformer


@dataclass(frozen=True)
class _Group:
    """Rows of like size: `tokens` of the long list, `queries` of those that are asked in the last layer."""

    rows: int
    width: int
    tokens: slice
    queries: slice
    causal: Bool[Tensor, "width width"]
    seen: Bool[Tensor, "rows 1 asked width"]


@dataclass(frozen=True)
class Batch:
    """Inputs laid out for `counted_logits`. `targets` are those of the counted positions, in the same order."""

    ids: Int[Tensor, " tokens"]
    positions: Int[Tensor, " tokens"]
    asked: Int[Tensor, " queries"]
    counted: Int[Tensor, " counted"]
    owner: Int[Tensor, " counted"]
    targets: Tensor
    groups: tuple[_Group, ...]
    n_rows: int


def lay_out(inputs: Inputs, n_groups: int) -> Batch:
    """`owner[i]` is the row of `inputs` that counted position i belongs to."""
    order = inputs.sizes.argsort(stable=True)
    ids, positions, asked, counted, owner, targets, groups = [], [], [], [], [], [], []
    n_tokens = n_asked = 0
    all_positions = inputs.positions
    for rows in order.chunk(n_groups):
        # The last token of a row predicts nothing, so no model needs to read it.
        width = int(inputs.sizes[rows].max()) - 1
        columns = torch.arange(width)
        counts = inputs.counted[rows, :width]
        first, number = counts.int().argmax(1), counts.sum(1)
        # Counted positions follow one another; shorter rows ask at their last position again.
        place = torch.arange(int(number.max()))
        column = (first[:, None] + place).minimum((first + number - 1)[:, None])
        base = n_tokens + torch.arange(len(rows))[:, None] * width
        ids.append(inputs.ids[rows, :width].flatten())
        positions.append(all_positions[rows, :width].flatten())
        asked.append((base + column).flatten())
        real = place < number[:, None]
        counted.append(n_asked + real.flatten().nonzero()[:, 0])
        owner.append(rows[:, None].expand(real.shape)[real])
        targets.append(inputs.targets[rows, :width][counts])
        groups.append(
            _Group(
                rows=len(rows),
                width=width,
                tokens=slice(n_tokens, n_tokens + len(rows) * width),
                queries=slice(n_asked, n_asked + real.numel()),
                causal=columns <= columns[:, None],
                seen=(columns <= column[..., None])[:, None],
            )
        )
        n_tokens += len(rows) * width
        n_asked += real.numel()
    return Batch(
        torch.cat(ids),
        torch.cat(positions),
        torch.cat(asked),
        torch.cat(counted),
        torch.cat(owner),
        torch.cat(targets),
        tuple(groups),
        len(inputs),
    )


def counted_logits(model: Transformer, batch: Batch, dropout: float = 0.0) -> Float[Tensor, "counted n_vocab"]:
    """What `model` says at the counted positions, in the order of `batch.targets`."""
    x = F.embedding(batch.ids, model.token_embedding) + F.embedding(batch.positions, model.position_embedding)
    x = _drop(x, dropout)
    for layer in model.layers:
        last = layer is model.layers[-1]
        normed = layer.attention_norm(x)
        mixed = _attend(layer.attention, normed, batch, last, dropout)
        if last:
            x = x.index_select(0, batch.asked)
        x = x + _drop(mixed, dropout)
        x = x + _drop(layer.mlp(layer.mlp_norm(x)), dropout)
    if not model.layers:
        x = x.index_select(0, batch.asked)
    return model.final_norm(x.index_select(0, batch.counted)) @ model.unembedding.T


def _attend(attention: Attention, x: Tensor, batch: Batch, last: bool, dropout: float) -> Tensor:
    d = x.shape[1]
    weight, bias = attention.qkv.weight, attention.qkv.bias
    if last:
        q = x.index_select(0, batch.asked) @ weight[:, :d] + bias[:d]
        k, v = (x @ weight[:, d:] + bias[d:]).split(d, dim=1)
    else:
        q, k, v = attention.qkv(x).split(d, dim=1)
    mixed = []
    for group in batch.groups:

        def heads(part: Tensor, rows: int = group.rows) -> Tensor:
            return part.view(rows, -1, attention.n_heads, d // attention.n_heads).transpose(1, 2)

        here = q[group.queries if last else group.tokens]
        out = _mix(
            heads(here),
            heads(k[group.tokens]),
            heads(v[group.tokens]),
            group.seen if last else None,
            group.causal,
            attention.scale,
            dropout,
        )
        mixed.append(out.transpose(1, 2).reshape(-1, d))
    return attention.output(torch.cat(mixed))


def _mix(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: Tensor, scale: float, dropout: float) -> Tensor:
    if not dropout:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=seen is None, scale=scale)
    hidden = ~(causal if seen is None else seen)
    scores = (q * scale) @ k.mT
    return _drop(scores.masked_fill(hidden, -torch.inf).softmax(-1), dropout) @ v


def _drop(x: Tensor, rate: float) -> Tensor:
    """Dropout from the global generator, with 16 random bits an element: much cheaper than `F.dropout`."""
    if not rate:
        return x
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    keep = bits.view(torch.int16)[: x.numel()].view(x.shape) >= round(rate * 2**16) - 2**15
    return x * keep.to(x.dtype).mul_(1 / (1 - rate))
