"""The models published with the paper, where the folder that holds them is there."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "shared" / "models"
MODELS = sorted(path for path in FOLDER.glob("*-*") if path.is_dir())

needs_published_models = pytest.mark.skipif(not MODELS, reason=f"no published models in {FOLDER}")
