"""The decompilations of a study, as its records have them, and how they are grouped."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drasp.tasks import TASKS
from drasp.training.recipe import GENERALISES, OFFSETS, Recipe

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Decompilation:
    """One decompilation that was finished, with the model that it is of."""

    record: Mapping[str, Any]

    @property
    def result(self) -> Mapping[str, Any]:
        return self.record["result"]

    @property
    def spec(self) -> Mapping[str, Any]:
        return self.record["spec"]

    @property
    def model(self) -> Mapping[str, Any]:
        return self.spec["model"]

    @property
    def architecture(self) -> str:
        """The paper's name for a model, which says all but its seed."""
        return self.model["name"] if "name" in self.model else architecture(self.model)

    @property
    def name(self) -> str:
        step = self.model.get("step")
        if "name" in self.model:
            return self.model["name"]
        return f"{self.architecture}{f'-{step}' if step else ''} seed {self.model['seed']}"

    @property
    def identity(self) -> tuple[Any, ...]:
        """Which model, to the weight."""
        return self.model.get("digest"), self.model.get("training"), self.model.get("step")

    @property
    def longest_right(self) -> float:
        return list(self.result["accuracy"][OFFSETS[0]].values())[-1]

    @property
    def generalises(self) -> bool:
        return self.longest_right >= GENERALISES

    @property
    def decompiled(self) -> bool:
        return self.result["verdict"] == "decompiled"


def architecture(recipe: Mapping[str, Any]) -> str:
    known = {key: recipe[key] for key in ("task", "layers", "heads", "dim", "lr", "dropout")}
    return Recipe(**known).name(TASKS[recipe["task"]])


def runs_of(records: Records) -> list[Decompilation]:
    """The decompilations that were finished, by name of model and seed of the search."""
    found = [Decompilation(r) for r in records if r["kind"] == "decompilation" and r["status"] == "done"]
    return sorted(found, key=lambda run: (run.spec["task"], run.name, run.spec["method"], run.spec["seed"]))


def first_of_each(runs: Iterable[Decompilation]) -> Iterable[Decompilation]:
    """The search with the smallest seed of each model, by the fast method where there is one."""
    found: dict[Any, Decompilation] = {}
    for run in sorted(runs, key=lambda run: (run.spec["method"] != "fast", run.spec["seed"])):
        found.setdefault(run.identity, run)
    return sorted(found.values(), key=lambda run: (run.spec["task"], run.name))


def alike_but_for(key: str, runs: Iterable[Decompilation]) -> list[list[Decompilation]]:
    """Decompilations of one model that differ in one setting alone, where there are several."""
    groups: dict[Any, list[Decompilation]] = defaultdict(list)
    for run in runs:
        others = {k: v for k, v in run.spec.items() if k not in (key, "model")}
        groups[run.identity, str(others)].append(run)
    return [group for group in groups.values() if len(group) > 1]


def grouped(runs: Iterable[Decompilation], key: Callable[[Decompilation], str]) -> dict[str, list[Decompilation]]:
    groups: dict[str, list[Decompilation]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return groups
