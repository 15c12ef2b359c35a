"""Attention, once for all: the weights of causal softmax over scores, and what they mix."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

# Added to a score, it or a multiple of it makes softmax exactly 0.
NOWHERE = -1e9


def attention_weights(scores: Float[Tensor, "*batch query key"], bias: Tensor) -> Float[Tensor, "*batch query key"]:
    """Softmax over keys of scores, which it writes over; `bias` is 0 where a key is seen, and `NOWHERE` elsewhere."""
    return scores.add_(bias).softmax(-1)


def attend(
    q: Float[Tensor, "*batch query d_head"],
    k: Float[Tensor, "*batch key d_head"],
    v: Float[Tensor, "*batch key d_head"],
    bias: Tensor,
    scale: float,
    dropout: float,
) -> Float[Tensor, "*batch query d_head"]:
    """What heads mix where nobody asks for their weights."""
    if torch.is_grad_enabled():
        # The fused kernel saves time only where nothing has to be remembered for the way back.
        return drop(attention_weights((q * scale) @ k.mT, bias), dropout) @ v
    if q.ndim == 3:
        return attend(q[:, None], k[:, None], v[:, None], bias[:, None], scale, dropout)[:, 0]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def drop(x: Tensor, rate: float) -> Tensor:
    """Dropout from the global generator, with 16 random bits an element: much cheaper than `F.dropout`."""
    if not rate:
        return x
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
    keep = bits.view(torch.int16)[: x.numel()].view(x.shape) >= round(rate * 2**16) - 2**15
    return x * keep.to(x.dtype).mul_(1 / (1 - rate))
