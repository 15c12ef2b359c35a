"""What goes into a run of a model or a program, and what comes out of it."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from drasp.attention import NOWHERE, causal_bias

Place = TypeVar("Place", bound=Hashable, covariant=True)


@dataclass(frozen=True)
class Sequences:
    """Inputs side by side. Padding is on the right: causal attention never looks there.

    `where` are the positions at which logits are wanted, and `counted`, of these in one row after the other, those that
    matter. A lane may hold two inputs: `part` is 2 for its first, 1 for its second and 0 for padding, and keeps them
    from seeing each other.
    """

    ids: Int[Tensor, "batch pos"]
    positions: Int[Tensor, "batch pos"]
    where: Int[Tensor, "batch wanted"] | None = None
    part: Float[Tensor, "batch pos"] | None = None
    counted: Int[Tensor, " counted"] | None = None

    @property
    def everywhere(self) -> "Sequences":
        """The same inputs, with logits at all positions."""
        return Sequences(self.ids, self.positions)

    @cached_property
    def wants_first(self) -> bool:
        """Whether logits are wanted at the first positions of each row, in their order: these need no looking up."""
        if self.where is None:
            return False
        return torch.equal(
            self.where, torch.arange(self.where.shape[1], device=self.where.device).expand_as(self.where)
        )

    def bias(self, narrow: bool) -> Float[Tensor, "any query pos"]:
        """Added to attention scores, of all queries or those wanted: 0 where a key is seen, else very negative."""
        length = self.ids.shape[1]
        if narrow and self.where is not None and not self.wants_first:
            queries, bias = self.where, self._bias_of_wanted
        else:
            count = self.where.shape[1] if narrow and self.where is not None else length
            queries, bias = (each[:, :count] for each in _everywhere(length, self.ids.device))
        if self.part is None:
            return bias
        apart = self.part.take_along_dim(queries, 1)[..., None] - self.part[:, None]
        return apart.mul_(apart).mul_(NOWHERE).add_(bias)

    @cached_property
    def _bias_of_wanted(self) -> Float[Tensor, "batch wanted pos"]:
        """As large as attention weights are: made once, where one batch is asked about again and again."""
        assert self.where is not None
        return causal_bias(self.where, self.ids.shape[1])


@lru_cache(maxsize=32)  # the lengths of the batches that are asked about again and again
def _everywhere(length: int, device: torch.device) -> tuple[Int[Tensor, "1 pos"], Float[Tensor, "1 pos pos"]]:
    """All positions, and the bias of queries at each; nobody writes over these."""
    queries = torch.arange(length, device=device)[None]
    return queries, causal_bias(queries, length)


@dataclass(frozen=True, eq=False)
class Run(Generic[Place]):
    """The logits, at all positions or where they were wanted, and the values at the recorded places.

    Places are the sites of a model or the variables of a program. Values are as others read them: after an edit.
    """

    logits: Float[Tensor, "*places n_vocab"]
    values: Mapping[Place, Tensor]
