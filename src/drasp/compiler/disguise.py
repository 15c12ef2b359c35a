"""What can be done to a compiled model so that its weights do not show the program at a glance."""

from dataclasses import dataclass

NORM_SIZE = 1000.0
"""The pair ±B where nothing else is asked for: layer norms differ by a millionth from one input to another."""


@dataclass(frozen=True)
class Disguise:
    """Nothing by default."""

    norm_size: float = NORM_SIZE


PLAIN = Disguise()
