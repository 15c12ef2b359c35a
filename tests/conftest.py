"""Settings for all tests."""

import os
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import Phase, settings
from jaxtyping import install_import_hook

from browser import chromium

# Shapes are checked at every call, in the modules that state some. What the others state of their types is for Pyright
# to check: at every call, that takes longer than the tests themselves.
SOURCE = Path(__file__).parents[1] / "src"
SHAPED = [
    ".".join(file.relative_to(SOURCE).with_suffix("").parts)
    for file in sorted((SOURCE / "drasp").rglob("*.py"))
    if "from jaxtyping import" in file.read_text()
]
install_import_hook(SHAPED, "beartype.beartype")

# What tests start writes as it does for most users: buffered, so that it may fail late.
os.environ.pop("PYTHONUNBUFFERED", None)
# Where a shell's job runs the tests in the background it has them ignore Ctrl-C, and so would what they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

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
