"""How much the tests try: all of it in `make test-long`, a part that takes minutes in `make test`."""

import os
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., object])

LONG = bool(os.environ.get("LONG"))


def in_both(test: Test) -> Test:
    """Marks a test that `make test-long` runs once more, with the larger of its `part`s."""
    return pytest.mark.long(test) if LONG else test


def part(count: int) -> int:
    """Of the things that a test tries, how many it tries this time."""
    return count if LONG else -(-count // 10)


def examples(count: int) -> Callable[[Test], Test]:
    """Marks a property test that tries so many examples in `make test-long`, and a part of them in `make test`."""
    return lambda test: in_both(settings(max_examples=part(count))(test))
