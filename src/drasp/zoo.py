"""Models that come with the package: one for each task that a small transformer can learn."""

from dataclasses import dataclass
from pathlib import Path

from drasp.loading import ZOO_FOLDER
from drasp.tasks import TASKS
from drasp.training.files import read_metrics
from drasp.training.recipe import GENERALISES, OFFSETS, Metrics


@dataclass(frozen=True)
class ZooModel:
    name: str
    folder: Path
    metrics: Metrics

    def __repr__(self) -> str:
        recipe = self.metrics.recipe
        return f"<ZooModel {self.name}: {recipe.layers} × {recipe.heads} × {recipe.dim}>"

    @property
    def n_weights(self) -> int:
        return self.metrics.recipe.n_weights(TASKS[self.name])

    @property
    def generalises(self) -> bool:
        return self.metrics.longest(OFFSETS[0]) >= GENERALISES


def zoo_models() -> list[ZooModel]:
    """All models of the zoo, in the order of the tasks."""
    names = [name for name in TASKS if (ZOO_FOLDER / name).is_dir()]
    return [ZooModel(name, ZOO_FOLDER / name, read_metrics(ZOO_FOLDER / name)) for name in names]


def markdown_table() -> str:
    """The zoo's models with how each was trained, for the documentation."""
    lines = [
        "| model | weights | accuracy at offset 0 | at random offsets | trained with | steps |",
        "|---|---|---|---|---|---|",
    ]
    for model in zoo_models():
        shares = [
            " / ".join(f"{100 * share.value:.1f}" for share in model.metrics.accuracies[offsets].values())
            for offsets in OFFSETS
        ]
        lines.append(
            f"| {model.name} | {model.n_weights:,} | {shares[0]} | {shares[1]} "
            f"| `{model.metrics.recipe.command()}` | {model.metrics.steps:,} |"
        )
    return "\n".join(lines) + "\n"
