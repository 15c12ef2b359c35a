"""How the cost of decompiling grows with the model: from 1 to 4 layers, and from 16 to 256 dimensions.

    python bench/scaling.py FOLDER [TASK] [--steps N]

Trains a model of each size, until it has learnt its task or N steps are over, decompiles it, and prints a table.
Models are kept in FOLDER; those that are there already are not trained again. "Right" is the model's own accuracy
at lengths 101-150 and random offsets. "Unfolded" is the number of lines of the exact program with split MLPs, which
is never built. The rest is as in decompile.py.
"""

import argparse
from pathlib import Path

import torch

from decompile import bench
from drasp.tasks import load_task
from drasp.training.files import read_metrics, state_file
from drasp.training.recipe import Recipe
from drasp.training.session import train
from drasp.translation import theorem_lines

SHAPES = [(1, 4, 64), (2, 4, 64), (3, 4, 64), (4, 4, 64), (2, 4, 16), (2, 4, 256), (4, 4, 256)]
COLUMNS = ("model", "right", "unfolded", "verdict", "grade", "match", "lines", "seconds", "cost", "peak MB")


def row(folder: Path, recipe: Recipe) -> dict[str, object]:
    task = load_task(recipe.task)
    model = folder / recipe.name(task)
    if not model.exists():
        train(task, recipe, model, resume=state_file(model).exists())
    right = f"{read_metrics(model).longest('random offsets'):.3f}"
    unfolded = f"{theorem_lines(recipe.layers, recipe.heads, split_mlps=True):,}"
    return {"right": right, "unfolded": unfolded, **bench(model)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("task", nargs="?", default="tomita7")
    parser.add_argument("--steps", type=int, default=3000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    for shape in SHAPES:
        recipe = Recipe(arguments.task, *shape, dropout=0.1, steps=arguments.steps, patience=5)
        figures = row(arguments.folder, recipe)
        print("| " + " | ".join(str(figures[column]) for column in COLUMNS) + " |", flush=True)


if __name__ == "__main__":
    main()
