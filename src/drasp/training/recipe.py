"""What a training run is made of, and what is known of it when it ends."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from drasp.errors import DraspError
from drasp.measure import Share
from drasp.records import WrongFieldError, typed
from drasp.tasks import Task
from drasp.transformer import Shape

BATCH = 64
WEIGHT_DECAY = 0.01
MAX_STEPS = 30_000
TEST_EVERY = 100
TEST_INPUTS = 2000

# More is a mistake, or a model that drasp is not for.
_MOST = {"layers": 100, "heads": 1000, "dim": 10_000, "steps": 10**9, "patience": 10**9}
LAYERS, HEADS, DIMS, RATES, DROPOUTS = (1, 2, 4), (1, 2, 4), (16, 64, 256), (1e-3, 1e-4), (0.0, 0.1)

# By length bin ("1-50"), at offset 0 and at random offsets.
Accuracies = dict[str, dict[str, Share]]
OFFSETS = ("offset 0", "random offsets")
GENERALISES = 0.9  # accuracy at the longest lengths and offset 0, from which on a model length-generalises


@dataclass(frozen=True)
class Recipe:
    """The defaults are those with which most tasks are learnt by a small model."""

    task: str
    layers: int = 1
    heads: int = 1
    dim: int = 16
    lr: float = 1e-3
    dropout: float = 0.0
    seed: int = 0
    steps: int = MAX_STEPS
    patience: int = 1  # tests without an error, in a row, that end the run

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "dim", "steps", "patience"):
            if getattr(self, name) < 1:
                raise DraspError(f"--{name} {getattr(self, name)}: expected at least 1")
            if getattr(self, name) > _MOST[name]:
                raise DraspError(f"--{name} {getattr(self, name)}: expected at most {_MOST[name]:,}")
        if self.dim % self.heads:
            raise DraspError(f"--dim {self.dim}: expected a multiple of --heads {self.heads}")
        if not 0 < self.lr < 1:
            raise DraspError(f"--lr {self.lr}: expected a rate between 0 and 1, such as 0.001")
        if not 0 <= self.dropout < 1:
            raise DraspError(f"--dropout {self.dropout}: expected at least 0 and less than 1")
        if self.seed < 0:
            raise DraspError(f"--seed {self.seed}: expected 0 or more")

    def name(self, task: Task) -> str:
        """`task-{layers}l{heads}h{dim}d{-log10 rate}lr{10 * dropout}drop`."""
        rate = f"{-math.log10(self.lr):.4g}"
        dropout = f"{self.dropout:.4g}".replace(".", "") if self.dropout else "00"
        return f"{task.name}-{self.layers}l{self.heads}h{self.dim}d{rate}lr{dropout}drop"

    def command(self) -> str:
        """The command that trains this model."""
        options = {k: v for k, v in asdict(self).items() if k != "task"}
        given = [f"--{k} {v:g}" if isinstance(v, float) else f"--{k} {v}" for k, v in options.items()]
        return f"drasp train {self.task} {' '.join(given)}"

    def shape(self, task: Task) -> Shape:
        return Shape(
            n_vocab=len(task.vocabulary),
            n_positions=task.n_positions,
            d_model=self.dim,
            n_layers=self.layers,
            n_heads=self.heads,
            d_hidden=4 * self.dim,
        )

    def n_weights(self, task: Task) -> int:
        return self.shape(task).n_weights


@dataclass(frozen=True)
class Metrics:
    """What a trained model's `metrics.json` holds."""

    recipe: Recipe
    steps: int
    seconds: float
    accuracies: Accuracies

    def longest(self, offsets: str) -> float:
        """Accuracy in the bin of the longest inputs."""
        return list(self.accuracies[offsets].values())[-1].value

    @property
    def generalisation(self) -> tuple[float, ...]:
        """Greater is better: accuracy from the longest bin to the shortest, the weaker kind of offset first."""
        bins = reversed(list(self.accuracies[OFFSETS[0]]))
        pairs = [sorted(self.accuracies[offsets][b].value for offsets in OFFSETS) for b in bins]
        return tuple(value for pair in pairs for value in pair)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": 1,
            "command": self.recipe.command(),
            "recipe": asdict(self.recipe),
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
            "accuracy": {
                offsets: {
                    name: {"accuracy": s.value, "interval": s.interval, "right": s.hits, "inputs": s.total}
                    for name, s in bins.items()
                }
                for offsets, bins in self.accuracies.items()
            },
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Metrics":
        """What `json` read of metrics; a field that is not what it should be is a WrongFieldError."""
        found = typed(_MetricsRecord, content)
        for offsets in OFFSETS:
            if not found.accuracy.get(offsets):
                raise WrongFieldError(f"accuracy[{offsets!r}] is missing")
            if list(found.accuracy[offsets]) != list(found.accuracy[OFFSETS[0]]):
                raise WrongFieldError(f"accuracy[{offsets!r}] has other lengths than accuracy[{OFFSETS[0]!r}]")
        accuracies = {
            offsets: {name: s.share(f"accuracy[{offsets!r}][{name!r}]") for name, s in bins.items()}
            for offsets, bins in found.accuracy.items()
        }
        return Metrics(found.recipe, found.steps, found.seconds, accuracies)


@dataclass(frozen=True)
class _ShareRecord:
    right: int
    inputs: int

    def share(self, name: str) -> Share:
        if not 0 <= self.right <= self.inputs or not self.inputs:
            raise WrongFieldError(f"{name}: expected right answers of some inputs, found {self.right} of {self.inputs}")
        return Share(self.right, self.inputs)


@dataclass(frozen=True)
class _MetricsRecord:
    """`metrics.json`, as far as it is read."""

    recipe: Recipe
    steps: int
    seconds: float
    accuracy: dict[str, dict[str, _ShareRecord]]


def grid(task: Task, given: dict[str, Any]) -> Iterator[Recipe]:
    """All combinations, small models first; what is `given` is kept fixed."""
    axes = {"layers": LAYERS, "heads": HEADS, "dim": DIMS, "lr": RATES, "dropout": DROPOUTS}
    choices = [(given[k],) if k in given else values for k, values in axes.items()]
    others = {k: v for k, v in given.items() if k not in axes}
    recipes = [Recipe(**dict(zip(axes, values, strict=True)), **others) for values in product(*choices)]
    return iter(sorted(recipes, key=lambda r: (r.n_weights(task), r.heads)))
