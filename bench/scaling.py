"""How the cost of decompiling grows with the model: from 1 to 4 layers, and from 16 to 256 dimensions.

    python bench/scaling.py [TASK] [--steps N]

Trains a model of each size for N steps, decompiles it, and prints a table. "Unfolded" is the number of lines of the
exact program with split MLPs, which is never built. The rest is as in decompile.py.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from decompile import bench
from drasp.tasks import load_task
from drasp.training.files import write_model
from drasp.training.loop import Run
from drasp.training.recipe import Metrics, Recipe
from drasp.translation import theorem_lines

SHAPES = [(1, 1, 16), (1, 4, 64), (1, 4, 256), (2, 4, 64), (4, 4, 64), (4, 4, 256)]
COLUMNS = ("model", "unfolded", "verdict", "pruned", "pruned lines", "seconds", "cost", "peak MB")


def row(task_name: str, shape: tuple[int, int, int], steps: int) -> dict[str, object]:
    task = load_task(task_name)
    recipe = Recipe(task_name, *shape, steps=steps)
    run = Run(task, recipe, None)
    while not run.state.done:
        run.advance()
    metrics = Metrics(recipe, run.state.step, run.state.seconds, run.final_accuracies())
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / recipe.name(task)
        write_model(folder, run.shape, run.state.weights, metrics)
        return {"unfolded": f"{theorem_lines(*shape[:2], split_mlps=True):,}", **bench(folder)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", default="bin_majority")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    for shape in SHAPES:
        figures = row(arguments.task, shape, arguments.steps)
        print("| " + " | ".join(str(figures[column]) for column in COLUMNS) + " |", flush=True)


if __name__ == "__main__":
    main()
