"""Study files: what is to be trained, which models are taken as they are, and how all of them are decompiled.

A file is TOML. Its tables are products: every task with every size with every seed. Tasks are drasp's own, so that no
file makes drasp run another one.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from drasp.decompiler.picking import Accept, check_accept
from drasp.decompiler.pipeline import check_method
from drasp.errors import DraspError
from drasp.input_files import MAX_TENSORS, read_bytes_if_there, read_text
from drasp.loading import ZOO_FOLDER, resolve_model
from drasp.study.units import Unit
from drasp.tasks import TASKS, load_task, task_of_model
from drasp.training.recipe import Recipe

MOST_UNITS = 1_000_000
LONGEST = 150  # of the inputs that drasp's own tasks draw
_MODEL_FILES = ("config.json", "model.safetensors")


@dataclass(frozen=True)
class Limits:
    """The limits of one unit: it fails when it takes longer, or more memory."""

    minutes: float = 240.0
    memory_gb: float = 8.0


@dataclass(frozen=True)
class Decompiling:
    """How models are decompiled; `longest`: inputs up to that length are drawn."""

    method: str = "fast"
    seed: int = 0
    quick: bool = False
    accept: Accept = "causal"
    min_match: float = 0.9
    max_lines: int = 40
    longest: int = LONGEST


@dataclass(frozen=True)
class Chosen:
    """Settings, and the tasks whose models they are for; none: for all."""

    settings: Decompiling
    tasks: frozenset[str]


@dataclass(frozen=True)
class Model:
    """A model of a study: of a training, or in a folder. `about` is what identifies it."""

    task: str
    label: str
    about: Mapping[str, Any]
    training: Unit | None = None
    place: str | None = None


@dataclass(frozen=True)
class Study:
    name: str
    limits: Limits
    models: tuple[Model, ...]
    chosen: tuple[Chosen, ...]
    text: str

    def units(self) -> list[Unit]:
        """All units that can be told before any has been run, in the order in which they are begun.

        Seed by seed, and then as in the file, each training followed by its decompilations: whenever a study is
        stopped, its tables are of whole models, and of about as many of each kind.
        """
        found: dict[str, Unit] = {}
        for model in sorted(self.models, key=lambda model: model.about.get("seed", 0)):
            if model.training:
                found[model.training.id] = model.training
            found |= {unit.id: unit for unit in self._decompilations(model, None)}
        return list(found.values())

    def after(self, training: Unit, steps: Sequence[int]) -> list[Unit]:
        """The decompilations of a training's checkpoints, once it is known which there are."""
        if not steps:
            return []
        models = [model for model in self.models if model.training and model.training.id == training.id]
        return [unit for model in models for step in steps for unit in self._decompilations(model, step)]

    def _decompilations(self, model: Model, step: int | None) -> Iterator[Unit]:
        for chosen in self.chosen:
            if not chosen.tasks or model.task in chosen.tasks:
                yield _decompilation(model, step, chosen.settings)


def _decompilation(model: Model, step: int | None, settings: Decompiling) -> Unit:
    told = [f"seed {settings.seed}"]
    told += [settings.method] if settings.method != "fast" else []
    told += [f"lengths to {settings.longest}"] if settings.longest != LONGEST else []
    at = "" if step is None else f" at step {step}"
    spec = {"task": model.task, "model": {**model.about, "step": step}, **asdict(settings)}
    label = f"decompile {model.label}{at} ({', '.join(told)})"
    needs = model.training.id if model.training else None
    return Unit("decompilation", spec, label, needs, model.place)


# ------------------------------------------------------------------------------------- reading


def read_study(file: Path) -> Study:
    """A study from its file; what is wrong there is one line that names the key."""
    text = read_text(file, "a study in TOML")
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DraspError(f"{file}: not readable as TOML ({error})") from None
    try:
        study = _study(content, file, text)
    except DraspError as error:
        raise DraspError(f"{file}: {error}") from None
    except RecursionError:
        raise DraspError(f"{file}: nested too deeply") from None
    return study


def _study(content: Mapping[str, Any], file: Path, text: str) -> Study:
    _only(content, {"name", "limits", "train", "models", "decompile"}, "")
    given = _mapping(content.get("limits", {}), "limits")
    _only(given, {field.name for field in fields(Limits)}, "limits")
    limits = Limits(**{key: _of_type(value, float, f"limits.{key}") for key, value in given.items()})
    if limits.minutes <= 0 or limits.memory_gb <= 0:
        raise DraspError("limits: expected numbers above 0")
    models: list[Model] = []
    for where, table in _tables(content, "train"):
        models += _trained(table, where)
    for where, table in _tables(content, "models"):
        models += _existing(table, where, file.parent)
    if not models:
        raise DraspError("no model in it; expected a table [[train]] or [[models]]")
    chosen = [each for where, table in _tables(content, "decompile") for each in _chosen(table, where)]
    known = {model.task for model in models}
    for each in chosen:
        if each.tasks and not each.tasks & known:
            raise DraspError(f"decompile.tasks: no model of {', '.join(sorted(each.tasks))} in the study")
    if not chosen and not any(model.training for model in models):
        raise DraspError("nothing to do: models, but no table [[decompile]]")
    name = _of_type(content.get("name", file.stem), str, "name")
    return Study(name, limits, tuple(models), tuple(chosen), text)


def _trained(table: Mapping[str, Any], where: str) -> Iterator[Model]:
    axes = {"tasks": str, "layers": int, "heads": int, "dims": int, "rates": float, "dropouts": float, "seeds": int}
    names = ("task", "layers", "heads", "dim", "lr", "dropout", "seed")
    _only(table, {*axes, "steps", "patience", "checkpoints"}, where)
    if "tasks" not in table:
        raise DraspError(f"{where}.tasks is missing; expected a list of tasks")
    chosen = {
        name: _list(table[key], kind, f"{where}.{key}")
        for name, (key, kind) in zip(names, axes.items(), strict=True)
        if key in table
    }
    others = {key: _of_type(table[key], int, f"{where}.{key}") for key in ("steps", "patience") if key in table}
    checkpoints = _of_type(table.get("checkpoints", False), bool, f"{where}.checkpoints")
    _check_tasks(chosen["task"], f"{where}.tasks")
    _check_number([len(values) for values in chosen.values()], where)
    for values in product(*chosen.values()):
        try:
            recipe = Recipe(**dict(zip(chosen, values, strict=True)), **others)
        except DraspError as error:
            raise DraspError(f"{where}: {str(error).removeprefix('--')}") from None
        label = f"{recipe.name(TASKS[recipe.task])} seed {recipe.seed}"
        unit = Unit("training", {"recipe": asdict(recipe), "checkpoints": checkpoints}, f"train {label}")
        yield Model(recipe.task, label, {**asdict(recipe), "training": unit.id}, training=unit)


def _existing(table: Mapping[str, Any], where: str, base: Path) -> Iterator[Model]:
    _only(table, {"names", "task"}, where)
    if "names" not in table:
        raise DraspError(f"{where}.names is missing; expected a list of zoo models or folders")
    names = _list(table["names"], str, f"{where}.names")
    task = _of_type(table["task"], str, f"{where}.task") if "task" in table else None
    _check_tasks([task] if task else [], f"{where}.task")
    for name in names:
        # A folder's path counts from where the file is, so that a study and its models can be moved together.
        folder = resolve_model(base / name if (base / name).is_dir() else name)
        its_task = TASKS[task] if task else task_of_model(folder)
        if its_task is None:
            raise DraspError(f"{where}: {name} does not say what it was trained on; name it with task = …")
        about = {"name": folder.name, "digest": _folder_digest(folder)}
        place = folder.name if folder.parent == ZOO_FOLDER else str(folder.resolve())
        yield Model(its_task.name, folder.name, about, place=place)


def _folder_digest(folder: Path) -> str:
    made = sha256()
    for name in _MODEL_FILES:
        made.update(read_bytes_if_there(folder / name, MAX_TENSORS) or b"")
    return made.hexdigest()


def _chosen(table: Mapping[str, Any], where: str) -> Iterator[Chosen]:
    single = {"quick": bool, "accept": str, "min_match": float, "max_lines": int}
    _only(table, {"methods", "seeds", "lengths", "tasks", *single}, where)
    given = {key: _of_type(table[key], kind, f"{where}.{key}") for key, kind in single.items() if key in table}
    if "accept" in given:
        given["accept"] = check_accept(given["accept"])
    if not 0 <= given.get("min_match", Decompiling.min_match) <= 1 or given.get("max_lines", Decompiling.max_lines) < 1:
        raise DraspError(f"{where}: expected min_match from 0 to 1 and max_lines of at least 1")
    methods = _list(table.get("methods", ["fast"]), str, f"{where}.methods")
    seeds = _list(table.get("seeds", [0]), int, f"{where}.seeds")
    lengths = _list(table.get("lengths", [LONGEST]), int, f"{where}.lengths")
    tasks = _list(table["tasks"], str, f"{where}.tasks") if "tasks" in table else []
    _check_tasks(tasks, f"{where}.tasks")
    for method in methods:
        check_method(method)
    if any(not 1 <= length <= LONGEST for length in lengths):
        raise DraspError(f"{where}.lengths: expected lengths from 1 to {LONGEST}")
    if any(seed < 0 for seed in seeds):
        raise DraspError(f"{where}.seeds: expected 0 or more")
    for method, seed, longest in product(methods, seeds, lengths):
        yield Chosen(Decompiling(method=method, seed=seed, longest=longest, **given), frozenset(tasks))


def _check_tasks(names: list[str], where: str) -> None:
    for name in names:
        if name not in TASKS:
            if ":" in name:
                raise DraspError(f"{where}: {name!r}: a study has drasp's own tasks only; `drasp tasks` lists them")
            try:
                load_task(name)
            except DraspError as error:
                raise DraspError(f"{where}: {str(error).partition(' (')[0]}") from None


def _check_number(sizes: list[int], where: str) -> None:
    total = prod(sizes)
    if total > MOST_UNITS:
        raise DraspError(f"{where}: {total:,} models; expected at most {MOST_UNITS:,}")


def _tables(content: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    found = content.get(key, [])
    if not isinstance(found, list):
        raise DraspError(f"{key}: expected tables, each under [[{key}]]")
    for number, table in enumerate(found, 1):
        where = key if len(found) == 1 else f"{key}[{number}]"
        yield where, _mapping(table, where)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DraspError(f"{where}: expected a table")
    return value


def _only(table: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = [key for key in table if key not in known]
    if unknown:
        place = f"{where}.{unknown[0]}" if where else unknown[0]
        raise DraspError(f"unknown key {place}; expected {', '.join(sorted(known))}")


def _list(value: Any, kind: type, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise DraspError(f"{where}: expected a list, found {value!r}")
    if not value:
        raise DraspError(f"{where}: an empty list leaves nothing to do; name at least one, or leave the key out")
    return [_of_type(each, kind, where) for each in value]


def _of_type(value: Any, kind: type, where: str) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind or (kind is int and abs(value) >= 2**32):
        names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
        raise DraspError(f"{where}: expected {names[kind]}, found {value!r}")
    return value
