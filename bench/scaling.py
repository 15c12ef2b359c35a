"""How the cost of decompiling grows with the model: from 1 to 4 layers, and from 16 to 256 dimensions.

    python bench/scaling.py [TASK] [--steps N]

Trains a model of each size for N steps, decompiles it, and prints a table. "Unfolded" is the number of lines of the
exact program with split MLPs, which is never built. One thread.
"""

import argparse
import resource

import torch

from decompile import step_seconds
from drasp.decompiler.pipeline import decompile
from drasp.tasks import load_task
from drasp.training.loop import Run
from drasp.training.recipe import Recipe
from drasp.translation import theorem_lines

SHAPES = [(1, 1, 16), (1, 4, 64), (1, 4, 256), (2, 4, 64), (4, 4, 64), (4, 4, 256)]
COLUMNS = ("layers", "heads", "dimensions", "unfolded", "verdict", "match", "lines", "seconds", "cost", "peak MB")


def row(task_name: str, shape: tuple[int, int, int], steps: int) -> list[object]:
    task = load_task(task_name)
    run = Run(task, Recipe(task_name, *shape, steps=steps), None)
    while not run.state.done:
        run.advance()
    step = step_seconds(run.model, task)
    result = decompile(run.model, task)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    pick, seconds = result.pick, result.seconds - result.naming_seconds
    unfolded = f"{theorem_lines(shape[0], shape[1], split_mlps=True):,}"
    return [*shape, unfolded, result.verdict, pick.match, pick.lines, f"{seconds:.1f}", round(seconds / step), peak]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", default="bin_majority")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    for shape in SHAPES:
        print("| " + " | ".join(map(str, row(arguments.task, shape, arguments.steps))) + " |", flush=True)


if __name__ == "__main__":
    main()
