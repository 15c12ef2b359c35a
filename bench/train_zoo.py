"""Trains the models of the zoo, each by the recipe that is in the table of docs/zoo.md.

    python bench/train_zoo.py [TASK...]     goes on where it was stopped; models made by their recipe stay as they are

A trained model stays in `build/zoo` too, so that a recipe changed and changed back costs nothing.
"""

import shutil
import sys
from pathlib import Path

from drasp.tasks import load_task
from drasp.training.files import read_metrics, state_file
from drasp.training.recipe import Recipe
from drasp.training.session import train
from drasp.zoo import markdown_table

ROOT = Path(__file__).parents[1]
TRAINED = ROOT / "build" / "zoo"
ZOO = ROOT / "src" / "drasp" / "zoo_models"

# One for each model, small models first. Most need no more than the paper's early stop, five times over; some bracket
# languages generalise only long after it, and some only at the moment they first make no mistake.
RECIPES = (
    Recipe("tomita1", 1, 1, 16, 1e-3, 0.0, steps=15_000, patience=5),
    Recipe("tomita2", 1, 1, 16, 1e-3, 0.0, steps=15_000, patience=5),
    Recipe("abcde", 1, 1, 16, 1e-3, 0.0, steps=15_000, patience=5),
    Recipe("ab_d_bc", 1, 1, 16, 1e-3, 0.1, steps=15_000, patience=5),
    Recipe("012_0_2", 1, 1, 16, 1e-3, 0.0, steps=15_000, patience=5),
    Recipe("bin_majority", 1, 1, 16, 1e-3, 0.1, steps=15_000, patience=5),
    Recipe("D2", 1, 1, 16, 1e-3, 0.0, steps=15_000, patience=100),
    Recipe("D3", 1, 1, 16, 1e-3, 0.0, steps=30_000, patience=150),
    Recipe("D4", 1, 1, 16, 1e-4, 0.0, steps=30_000, patience=1),
    Recipe("aastar", 1, 2, 16, 1e-3, 0.1, steps=15_000, patience=5),
    Recipe("tomita7", 2, 1, 16, 1e-3, 0.1, steps=15_000, patience=5),
    Recipe("ababstar", 1, 1, 64, 1e-3, 0.0, steps=5000, patience=5),
    Recipe("tomita4", 1, 2, 64, 1e-3, 0.0, steps=10_000, patience=5),
    Recipe("aaaastar", 1, 4, 128, 3e-3, 0.1, steps=8000, patience=8),
    Recipe("D12", 1, 1, 64, 1e-3, 0.0, steps=30_000, patience=30),
    Recipe("majority", 1, 4, 128, 1e-3, 0.1, steps=8000, patience=5),
    Recipe("sort", 1, 1, 128, 1e-3, 0.03, steps=7000, patience=5),
    Recipe("count", 2, 1, 64, 1e-3, 0.1, steps=6000, patience=5),
    Recipe("unique_copy", 2, 1, 64, 1e-3, 0.1, steps=10_000, patience=5),
    Recipe("unique_reverse", 2, 1, 64, 1e-3, 0.1, steps=10_000, patience=5),
    Recipe("bin_majority_interleave", 4, 1, 64, 1e-3, 0.1, steps=10_000, patience=5),
    Recipe("unique_bigram_copy", 2, 4, 128, 1e-3, 0.02, steps=4000, patience=3),
    # These do not generalise, nor do the paper's.
    Recipe("parity", 1, 1, 16, 1e-3, 0.0, steps=2000, patience=5),
    Recipe("repeat_copy", 2, 1, 16, 1e-3, 0.0, steps=2000, patience=5),
    Recipe("addition", 2, 2, 64, 1e-3, 0.0, steps=10_000, patience=5),
)


def trained(recipe: Recipe) -> Path:
    """Trains one model, or goes on with it, and gives its folder."""
    task = load_task(recipe.task)
    out = TRAINED / f"{recipe.name(task)}-seed{recipe.seed}-{recipe.steps}steps-{recipe.patience}patience"
    if not out.exists():
        train(task, recipe, out, resume=state_file(out).exists())
    return out


def document() -> None:
    """Renews the table, which ends the page."""
    page = ROOT / "docs" / "zoo.md"
    text, *_ = page.read_text().partition("| model |")
    page.write_text(text + markdown_table())


def main(names: list[str]) -> None:
    for recipe in RECIPES:
        kept = ZOO / recipe.task
        if (names and recipe.task not in names) or (kept.exists() and read_metrics(kept).recipe == recipe):
            continue
        folder = trained(recipe)
        metrics = read_metrics(folder)
        shares = {k: [f"{s.value:.3f}" for s in v.values()] for k, v in metrics.accuracies.items()}
        print(recipe.task, f"{metrics.steps} steps, {metrics.seconds:.0f} s", shares, flush=True)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept)
        document()


if __name__ == "__main__":
    main(sys.argv[1:])
