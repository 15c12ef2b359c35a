"""What the compiler knows of a variable's values before it runs.

Some functions can be held exactly by one hidden layer only where their inputs are one-hot, or shares of a whole; and
scores between one-hot variables take few values, so that their scale can be lowered without changing attention.
"""

from enum import IntEnum


class Values(IntEnum):
    """What is known of a variable's values, in order: a minimum is what holds for several variables alike."""

    ANY = 0
    SHARES = 1
    """At least 0, and 1 in sum."""
    ONE_HOT = 2
    """A single 1."""
