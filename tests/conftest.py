"""Settings for all tests."""

import os

import pytest
import torch
from hypothesis import Phase, settings

from browser import chromium

# Small tensors gain nothing from threads, and the tests run side by side.
torch.set_num_threads(1)

settings.register_profile("default", deadline=None, print_blob=True)
# Continuous integration draws the same examples every time, so that it fails only for what changed, and spends no
# minutes on making a failing example smaller.
settings.register_profile(
    "ci", settings.get_profile("default"), derandomize=True, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="module")
def browser():
    """For the tests of one module."""
    with chromium() as running:
        yield running
