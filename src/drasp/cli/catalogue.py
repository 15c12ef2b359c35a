"""The tables of `drasp tasks` and `drasp zoo`, kept in a file: making them needs torch, reading them does not.

`python -m drasp.cli.catalogue` writes the file anew; a test holds it to what is made.
"""

import json
from pathlib import Path

FILE = Path(__file__).with_name("catalogue.json")

Rows = list[list[str]]


def catalogue() -> dict[str, Rows]:
    """The rows of both tables, as they were written."""
    return json.loads(FILE.read_text("utf-8"))


def made() -> dict[str, Rows]:
    """The rows of both tables, from the tasks and the models themselves."""
    from drasp.tasks import TASKS
    from drasp.training.recipe import OFFSETS
    from drasp.zoo import zoo_models

    tasks = [[task.name, task.about, _lengths(task.lengths), task.example()] for task in TASKS.values()]
    zoo: Rows = []
    for model in zoo_models():
        recipe = model.metrics.recipe
        shares = [
            " ".join(f"{100 * share.value:5.1f}" for share in model.metrics.accuracies[offsets].values())
            for offsets in OFFSETS
        ]
        size = f"{recipe.layers} × {recipe.heads} × {recipe.dim}"
        zoo.append([model.name, size, f"{model.n_weights:,}", *shares, "yes" if model.generalises else "no"])
    return {"tasks": tasks, "zoo": zoo}


def _lengths(lengths: tuple[int, ...]) -> str:
    """`2, 4, … 150`, or `1-150` where none is missing."""
    if lengths == tuple(range(lengths[0], lengths[-1] + 1)):
        return f"{lengths[0]}-{lengths[-1]}"
    return f"{lengths[0]}, {lengths[1]}, … {lengths[-1]}"


if __name__ == "__main__":
    FILE.write_text(json.dumps(made(), indent=1, ensure_ascii=False) + "\n", "utf-8")
