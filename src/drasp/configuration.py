"""Reads what models' configurations say: values of the kind that is asked for, or an error that names the field."""

from collections.abc import Mapping
from typing import Any, get_args

from drasp.activations import ACTIVATIONS
from drasp.errors import DraspError
from drasp.layers import NormKind

SAME_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_new", "gelu_fast": "gelu_new", "gelu_python": "gelu", "swish": "silu"}


class Fields:
    """The values of a configuration, each of the kind that is asked for, or refused by name."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.config, self.where = config, where

    def size(self, key: str, least: int = 1) -> int:
        value = self.config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise DraspError(f"{self.where}: expected a positive whole number for {key}, found {value!r}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise DraspError(f"{self.where}: expected true or false for {key}, found {value!r}")
        return value

    def eps(self, key: str) -> float:
        value = self.config.get(key, 1e-5)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
            raise DraspError(f"{self.where}: expected a small number for {key}, found {value!r}")
        return float(value)

    def norm(self, key: str) -> NormKind:
        match self.config.get(key):
            case "layer" | "rms" | "none" as kind:
                return kind
            case other:
                known = ", ".join(get_args(NormKind))
                raise DraspError(f"{self.where}: expected {key} to be one of {known}, found {other!r}")

    def check_sizes(self, **found: int) -> None:
        """Refuses sizes that are not those of the tensors, as far as the configuration says any."""
        for key, value in found.items():
            if self.config.get(key) not in (None, value):
                raise DraspError(f"{self.where}: {key} is {self.config[key]!r}, but by its tensors it is {value}")

    def activation(self, key: str) -> str:
        return known_activation(self.config.get(key, "gelu_new"), key, self.where)


def known_activation(name: object, key: str, where: str) -> str:
    """drasp's name of an activation that a configuration names; libraries have several for one function."""
    found = SAME_ACTIVATIONS.get(name, name) if isinstance(name, str) else name
    if not isinstance(found, str) or found not in ACTIVATIONS:
        raise DraspError(f"{where}: expected {key} to be one of {', '.join(ACTIVATIONS)}, found {name!r}")
    return found
