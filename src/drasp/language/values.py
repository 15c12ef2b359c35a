"""Values of variables while a program runs: one-hot ones are kept as indices and looked up, never multiplied."""

from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

# The query axis is 1 where all queries see the same, and the batch axis where all inputs do.
Scores: TypeAlias = Float[Tensor, "#batch #query key"]
MANY_ROWS = 1500  # of a table: an input reads few of so many


def at_positions(
    x: Shaped[Tensor, "batch pos *dims"], where: Int[Tensor, "batch wanted"]
) -> Shaped[Tensor, "batch wanted *dims"]:
    """What is at some positions of each input."""
    return x.gather(1, where if x.ndim == 2 else where[..., None].expand(-1, -1, x.shape[-1]))


@dataclass(frozen=True)
class OneHot:
    """A variable whose value at each position is one direction, times a weight where it was divided."""

    index: Int[Tensor, "batch pos"]
    size: int
    weight: Float[Tensor, "batch pos"] | None = None

    def at(self, where: Int[Tensor, "batch wanted"]) -> "OneHot":
        """The value at some positions, before it is divided."""
        return replace(self, index=at_positions(self.index, where))

    def divided(self, divisor: Float[Tensor, "batch pos"]) -> "OneHot":
        return replace(self, weight=1 / divisor)

    def dense(self, dtype: torch.dtype) -> Float[Tensor, "batch pos dims"]:
        ones = torch.nn.functional.one_hot(self.index, self.size).to(dtype)
        return ones if self.weight is None else ones * self.weight[..., None]

    def times(self, op: Float[Tensor, "rows columns"]) -> Float[Tensor, "batch pos columns"]:
        found = torch.nn.functional.embedding(self.index, op)
        return found if self.weight is None else found * self.weight[..., None]

    def scores(self, rows: Float[Tensor, "#batch #query dims"]) -> Scores:
        """Each query's row times the value at each key."""
        batch, length = self.index.shape
        found = rows.expand(batch, -1, -1).gather(2, self.index[:, None, :].expand(batch, rows.shape[1], length))
        return found if self.weight is None else found * self.weight[:, None, :]

    def mixed(self, weights: Float[Tensor, "#batch queries key"]) -> Float[Tensor, "batch queries dims"]:
        """The mean of the value over keys, by attention weights."""
        shares = weights if self.weight is None else weights * self.weight[:, None, :]
        batch, queries = self.index.shape[0], shares.shape[1]
        empty = shares.new_zeros(batch, queries, self.size)
        return empty.scatter_add(2, self.index[:, None, :].expand(batch, queries, -1), shares.expand(batch, -1, -1))


@dataclass(frozen=True)
class Dense:
    """A variable's value as numbers; its methods give what those of `OneHot` do."""

    value: Float[Tensor, "batch pos dims"]

    def at(self, where: Int[Tensor, "batch wanted"]) -> "Dense":
        return Dense(at_positions(self.value, where))

    def divided(self, divisor: Float[Tensor, "batch pos"]) -> "Dense":
        return Dense(self.value / divisor[..., None])

    def dense(self, _dtype: torch.dtype) -> Float[Tensor, "batch pos dims"]:
        return self.value

    def times(self, op: Float[Tensor, "rows columns"]) -> Float[Tensor, "batch pos columns"]:
        return self.value @ op if len(op) < MANY_ROWS else _few_times(self.value, op)

    def scores(self, rows: Float[Tensor, "#batch #query dims"]) -> Scores:
        return rows @ self.value.transpose(1, 2)

    def mixed(self, weights: Float[Tensor, "#batch queries key"]) -> Float[Tensor, "batch queries dims"]:
        return weights @ self.value


Value: TypeAlias = OneHot | Dense


def _few_times(
    value: Float[Tensor, "batch pos rows"], op: Float[Tensor, "rows columns"]
) -> Float[Tensor, "batch pos columns"]:
    """The product, by those rows alone that an input reads: what attention makes of tokens is 0 for all others."""
    read = (value != 0).any(1)
    most = int(read.sum(1).max()) if len(read) else 0
    if most > len(op) // 4:
        return value @ op
    rows = read.byte().topk(most, dim=1).indices
    return value.gather(2, rows[:, None, :].expand(-1, value.shape[1], -1)) @ op[rows]
