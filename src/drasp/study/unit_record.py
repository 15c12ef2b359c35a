"""What the record of a finished unit must be: looked at when it is read, since a study's folder may be anybody's."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

from drasp.decompiler.result import Verdict
from drasp.errors import DraspError
from drasp.records import NormsRecord, WrongFieldError, typed
from drasp.study.units import Unit
from drasp.tasks import TASKS
from drasp.training.recipe import OFFSETS, Recipe


@dataclass(frozen=True)
class _Outcome:
    id: str
    kind: str
    label: str
    spec: dict[str, Any]
    status: str
    reason: str | None
    result: dict[str, Any] | None
    seconds: float
    drasp_version: str
    code: str


@dataclass(frozen=True)
class _Measured:
    """What a unit took that was finished."""

    seconds: float
    processor_seconds: float
    peak_memory_mb: int


@dataclass(frozen=True)
class _Trained:
    checkpoints: tuple[int, ...]


@dataclass(frozen=True)
class _Counts:
    named: int
    total: int


@dataclass(frozen=True)
class _Primitives:
    select: _Counts
    project: _Counts
    elementwise: _Counts


@dataclass(frozen=True)
class _Found:
    """What tables read of a decompilation."""

    accuracy: dict[str, dict[str, float]]
    steps: int | None
    verdict: str
    grade: str | None
    match_accuracy: float
    lines: int
    pruned_match_accuracy: float | None
    task_accuracy: float | None
    norms: NormsRecord
    primitives: _Primitives
    evidence: dict[str, str]
    frontier: tuple[tuple[int, float, bool | None], ...]
    stages: dict[str, float]
    graph: tuple[str, ...]
    program: tuple[str, ...]


@dataclass(frozen=True)
class _Searched:
    """How a model was decompiled."""

    task: str
    model: dict[str, Any]
    method: str
    seed: int
    quick: bool
    longest: int


@dataclass(frozen=True)
class _Existing:
    name: str
    digest: str


@dataclass(frozen=True)
class _Grown:
    """A model that the study has trained."""

    task: str
    layers: int
    heads: int
    dim: int
    lr: float
    dropout: float
    seed: int
    training: str
    step: int | None


def check_outcome(content: Mapping[str, Any], unit_id: str) -> None:
    """What a sweep goes by: is this the record of the unit that its folder says, and what became of it?"""
    found = typed(_Outcome, content)
    if Unit(found.kind, found.spec, found.label).id != unit_id or found.id != unit_id:  # type: ignore[arg-type]
        raise WrongFieldError(f"kind, spec and id are not those of unit {unit_id}")
    if found.status == "failed":
        if found.reason is None:
            raise WrongFieldError("reason is missing")
    elif found.status != "done" or found.result is None:
        raise WrongFieldError("expected a result with status 'done', or a reason with status 'failed'")
    elif found.kind == "training":
        typed(_Trained, found.result)


def check_tabled(content: Mapping[str, Any]) -> None:
    """What tables go by, in the record of a unit that was finished."""
    typed(_Measured, content)
    if content["kind"] == "training":
        _check_recipe(lambda: typed(Recipe, content["spec"].get("recipe")), "spec.recipe")
    else:
        _check_decompilation(typed(_Searched, content["spec"]), typed(_Found, content["result"]))


def _check_decompilation(spec: _Searched, result: _Found) -> None:
    if spec.task not in TASKS:
        raise WrongFieldError(f"spec.task: {spec.task!r} is not a task of drasp's own")
    if "name" in spec.model:
        typed(_Existing, spec.model)
    else:
        known = asdict(typed(_Grown, spec.model))
        _check_recipe(
            lambda: Recipe(**{name: known[name] for name in known if name not in ("training", "step")}), "spec.model"
        )
    if not all(result.accuracy.get(offsets) for offsets in OFFSETS):
        raise WrongFieldError(f"result.accuracy: expected {' and '.join(OFFSETS)}")
    if result.verdict not in get_args(Verdict):
        raise WrongFieldError(f"result.verdict: expected one of {', '.join(get_args(Verdict))}")
    if result.verdict == "decompiled" and result.pruned_match_accuracy is None:
        raise WrongFieldError("result.pruned_match_accuracy is missing")


def _check_recipe(read: Callable[[], Recipe], where: str) -> None:
    try:
        task = read().task
    except (DraspError, WrongFieldError) as error:
        raise WrongFieldError(f"{where}: {error}") from None
    if task not in TASKS:
        raise WrongFieldError(f"{where}.task: {task!r} is not a task of drasp's own")
