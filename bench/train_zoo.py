"""Trains the zoo: for each task a short list of recipes, small first, until one length-generalises.

    python bench/train_zoo.py [TASK...]     goes on where it was stopped; trained models stay as they are

Every run is tried at most once (`build/zoo` remembers them); the best of a task goes into the package, and into
the table of docs/zoo.md.
"""

import shutil
import sys
import time
from itertools import zip_longest
from pathlib import Path

import torch

from drasp.tasks import load_task
from drasp.training.files import load_state, read_metrics, save_state, state_file, write_model
from drasp.training.loop import Run
from drasp.training.recipe import OFFSETS, Metrics, Recipe
from drasp.zoo import markdown_table

ROOT = Path(__file__).parents[1]
TRIED = ROOT / "build" / "zoo"
ZOO = ROOT / "src" / "drasp" / "zoo_models"
GOOD = 0.9  # in the longest bin, at offset 0
NOT_GENERALISING = ("parity", "addition", "repeat_copy")  # nor do the paper's


def recipes(
    task: str, *shapes: tuple[int, int, int], dropouts: tuple[float, ...] = (0.0, 0.1),
    rates: tuple[float, ...] = (1e-3,), seeds: int = 2, steps: int = 15_000, patience: int = 5,
) -> list[Recipe]:  # fmt: skip
    return [
        Recipe(task, *shape, rate, dropout, seed, steps, patience)
        for seed in range(seeds)
        for shape in shapes
        for rate in rates
        for dropout in dropouts
    ]


RECIPES = [
    recipes("tomita1", (1, 1, 16)),
    recipes("tomita2", (1, 1, 16)),
    recipes("abcde", (1, 1, 16)),
    recipes("ab_d_bc", (1, 1, 16), dropouts=(0.1,)),
    recipes("bin_majority", (1, 1, 16), dropouts=(0.1,)),
    recipes("aastar", (1, 2, 16), dropouts=(0.1, 0.0), seeds=4),
    recipes("D2", (1, 1, 16), (1, 2, 16), patience=100),
    recipes("D3", (1, 1, 16), (1, 2, 16), dropouts=(0.0,), rates=(1e-3, 1e-4), steps=30_000, patience=150),
    recipes("tomita7", (2, 1, 16), (2, 1, 64), dropouts=(0.1, 0.0)),
    recipes("012_0_2", (1, 1, 16), (2, 1, 16), (2, 2, 16)),
    recipes("tomita4", (1, 2, 16), (2, 2, 16), dropouts=(0.0,), seeds=4),
    recipes("ababstar", (1, 1, 64), (1, 2, 64), dropouts=(0.0, 0.1), steps=5000),
    recipes("aaaastar", (2, 1, 64), dropouts=(0.1,), rates=(1e-4, 1e-3), steps=10_000),
    recipes("bin_majority_interleave", (4, 1, 64), (2, 2, 64), dropouts=(0.1,), steps=10_000),
    recipes("unique_copy", (2, 1, 64), dropouts=(0.1, 0.0), steps=10_000, seeds=3),
    recipes("unique_reverse", (2, 1, 64), dropouts=(0.1, 0.0), steps=10_000, seeds=3),
    recipes("majority", (1, 4, 128), (1, 4, 256), dropouts=(0.1,), steps=8000),
    recipes("count", (2, 1, 64), (1, 4, 128), dropouts=(0.1, 0.0), steps=6000),
    recipes("sort", (1, 1, 128), (1, 1, 256), dropouts=(0.1,), steps=6000),
    recipes("D4", (1, 1, 16), (1, 2, 16), dropouts=(0.0,), steps=30_000, patience=150),
    recipes("D12", (1, 1, 16), (1, 2, 64), dropouts=(0.0,), steps=30_000, patience=150),
    recipes("unique_bigram_copy", (2, 4, 64), (2, 4, 128), dropouts=(0.1,), steps=6000),
    recipes("parity", (1, 1, 16), dropouts=(0.0,), seeds=1, steps=2000),
    recipes("addition", (2, 2, 64), dropouts=(0.0,), seeds=1, steps=10_000),
    recipes("repeat_copy", (2, 2, 64), dropouts=(0.0,), seeds=1, steps=10_000),
]
# The first recipe of every task, then the second of those that need one, and so on.
QUEUE = [recipe for turn in zip_longest(*RECIPES) for recipe in turn if recipe]


def attempt(recipe: Recipe) -> Path:
    """Trains one model, or goes on with it, and gives its folder."""
    task = load_task(recipe.task)
    out = TRIED / f"{recipe.name(task)}-seed{recipe.seed}"
    if out.exists():
        return out
    file = state_file(out)
    run = Run(task, recipe, load_state(file, recipe) if file.exists() else None)
    stored = time.monotonic()
    while not run.state.done:
        run.advance()
        if time.monotonic() - stored > 60:
            save_state(file, recipe, run.state)
            stored = time.monotonic()
    metrics = Metrics(recipe, run.state.step, run.state.seconds, run.final_accuracies())
    write_model(out, run.shape, run.state.weights, metrics)
    file.unlink(missing_ok=True)
    return out


def generalises(folder: Path) -> bool:
    return read_metrics(folder).longest(OFFSETS[0]) >= GOOD


def document() -> None:
    """Renews the table, which ends the page."""
    page = ROOT / "docs" / "zoo.md"
    text, *_ = page.read_text().partition("| model |")
    page.write_text(text + markdown_table())


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    tried: dict[str, list[Path]] = {}
    for recipe in QUEUE:
        kept = ZOO / recipe.task
        if names and recipe.task not in names:
            continue
        if kept.exists() and generalises(kept):
            continue
        folder = attempt(recipe)
        tried.setdefault(recipe.task, []).append(folder)
        best = max(tried[recipe.task], key=lambda f: read_metrics(f).generalisation)
        metrics = read_metrics(folder)
        shares = {k: [f"{s.value:.3f}" for s in v.values()] for k, v in metrics.accuracies.items()}
        print(
            time.strftime("%H:%M"), folder.name, f"{metrics.steps} steps, {metrics.seconds:.0f} s", shares, flush=True
        )
        if best == folder and (generalises(folder) or recipe.task in NOT_GENERALISING):
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder, kept)
            document()


if __name__ == "__main__":
    main(sys.argv[1:])
