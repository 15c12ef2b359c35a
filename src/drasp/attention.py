"""Attention weights from scores."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def future_of(length: int, device: torch.device | None = None) -> Bool[Tensor, "query key"]:
    """Which keys a query does not see: those behind its own position."""
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


def causal_weights(
    scores: Float[Tensor, "*#queries key"], future: Bool[Tensor, "*#queries key"] | None = None
) -> Float[Tensor, "*queries key"]:
    """Softmax over the keys that each query sees. Without `future`, queries and keys are the same positions."""
    hidden = future_of(scores.shape[-1], scores.device) if future is None else future
    return scores.masked_fill(hidden, -math.inf).softmax(-1)
