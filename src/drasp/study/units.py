"""Units of work: one training or one decompilation. What identifies a unit is the digest of what it is to do."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

Kind = Literal["training", "decompilation"]


@dataclass(frozen=True)
class Unit:
    """`spec` is all that the result depends on.

    `needs` is the training whose model is decompiled, and `place` the folder of a model that was there before.
    """

    kind: Kind
    spec: Mapping[str, Any]
    label: str
    needs: str | None = None
    place: str | None = None

    @cached_property
    def id(self) -> str:
        text = json.dumps({"kind": self.kind, "spec": self.spec}, sort_keys=True)
        return sha256(text.encode()).hexdigest()[:16]

    @property
    def group(self) -> tuple[str, ...]:
        """Units of one group take about the same time: same kind, task, size and effort."""
        model = self.spec["recipe"] if self.kind == "training" else self.spec["model"]
        told = [model.get(key) for key in ("task", "layers", "heads", "dim", "name")]
        return self.kind, *(str(each) for each in (*told, self.spec.get("quick"), self.spec.get("method")))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
