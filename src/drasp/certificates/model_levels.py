"""A GPT-2 on one level of a tree of inputs after the other, with error bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from drasp.certificates.bounds import (
    GROW,
    Array,
    BoundedLogits,
    BoundedRows,
    Matrix,
    U,
    activated,
    add,
    centred,
    linear,
    normalised,
    scaled,
    side_by_side,
    to_logits,
)
from drasp.certificates.level import (
    Kept,
    LevelValue,
    Own,
    RunningSum,
    Scores,
    Seen,
    Tables,
    Wanted,
    grown,
    mixed,
    scores,
)


@dataclass
class ModelLevels:
    """A model's weights by Hugging Face's names, its form, and what of it depends on token and position alone.

    `forms` has the number of heads, the factor of scores, and the activation, layer by layer.
    """

    weights: Mapping[str, Matrix]
    eps: float
    forms: Sequence[Mapping[str, Any]]
    tokens: Sequence[int]
    offset: int
    tables: dict[str, Tables] = field(default_factory=dict)

    @cached_property
    def unembedding(self) -> Matrix:
        return Matrix(np.ascontiguousarray(self.weights["lm_head.weight"].value.T))

    def extend(self, kept: Kept, parent: Array, codes: Array, wanted: Wanted) -> tuple[Kept, BoundedLogits]:
        """What children keep for their own children, and the logits of those that are wanted; see `ProgramLevels`."""
        wte, wpe = self.weights["wte.weight"].value, self.weights["wpe.weight"].value
        here = BoundedRows.exact(wpe[self.offset + codes.shape[1] - 1][None])
        x = LevelValue(add(BoundedRows.exact(wte[list(self.tokens)]), here), True)
        keep: dict[str, Own | RunningSum] = {}
        for number, form in enumerate(self.forms):
            name, count = f"h.{number}", form["heads"]
            inner = self.linear(self.norm(x.rows, f"{name}.ln_1"), f"{name}.attn.c_attn")
            parts = [LevelValue(part, x.local) for part in _parts(inner, 3 * count)]
            seen = [self.seen(f"{name} {i}", part, codes, kept, parent, keep) for i, part in enumerate(parts[count:])]
            if number + 1 == len(self.forms):  # what nobody looks at is computed where logits are wanted
                x, parts, codes = x.only(wanted), [part.only(wanted) for part in parts], codes[wanted]
                seen = [each if isinstance(each, Tables) else each.only(wanted) for each in seen]
            heads = [self.head(parts[i], seen[i], seen[count + i], codes, form["scale"]) for i in range(count)]
            rows = add(x.at(codes[:, -1]), self.linear(side_by_side(heads), f"{name}.attn.c_proj"))
            hidden = activated(self.linear(self.norm(rows, f"{name}.ln_2"), f"{name}.mlp.c_fc"), form["activation"])
            x = LevelValue(add(rows, self.linear(hidden, f"{name}.mlp.c_proj")), False)
        last = x.rows if self.forms else x.at(codes[wanted, -1])
        return keep, to_logits(self.norm(last, "ln_f"), self.unembedding)

    def seen(
        self, name: str, part: LevelValue, codes: Array, kept: Kept, parent: Array, keep: dict[str, Own | RunningSum]
    ) -> Seen:
        """The keys or values of a head, of nodes and their ancestors."""
        if part.local:
            return self.tables.setdefault(name, Tables()).up_to(codes.shape[1] - 1, part.rows)
        own = keep[name] = grown(kept.get(name), parent, part.rows)
        return own

    def head(self, query: LevelValue, keys: Seen, values: Seen, codes: Array, scale: float) -> BoundedRows:
        """What a head mixes. The factor of scores is a rounded root, and its product is rounded again."""
        found = scores(query, keys, codes, len(self.tokens))
        value = found.value * scale
        delta = (found.delta * abs(scale) + 4 * U * np.abs(value).max(1)) * GROW
        return mixed(Scores(value, delta), values, codes, len(self.tokens))

    def norm(self, x: BoundedRows, name: str) -> BoundedRows:
        rows = scaled(normalised(centred(x), self.eps), self.vector(f"{name}.weight"))
        return add(rows, BoundedRows.exact(self.vector(f"{name}.bias")[None]))

    def linear(self, x: BoundedRows, name: str) -> BoundedRows:
        return add(linear(x, self.weights[f"{name}.weight"]), BoundedRows.exact(self.vector(f"{name}.bias")[None]))

    def vector(self, name: str) -> Array:
        return self.weights[name].value


def _parts(x: BoundedRows, count: int) -> list[BoundedRows]:
    """Columns in so many equal parts; each is at most as far off as all."""
    return [BoundedRows(part, x.error) for part in np.split(x.value, count, axis=1)]
