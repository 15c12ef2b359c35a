"""Settings for all tests."""

import os

import torch
from hypothesis import settings

# Small tensors gain nothing from threads, and the tests run side by side.
torch.set_num_threads(1)

settings.register_profile("default", deadline=None, print_blob=True)
# Continuous integration draws the same examples every time, so that it fails only for what changed.
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
