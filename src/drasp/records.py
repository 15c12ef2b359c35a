"""What a result says of itself: `result.json`, written and read here alone, and what identifies a run.

A record may be of an older drasp, or from anybody: reading checks the type of every field, and runs nothing.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from drasp.errors import DraspError
from drasp.input_files import is_folder, read_json_if_there
from drasp.output_folder import MARK

SCHEMA_VERSION = 3
# What a record has had since its version: those of version 1 do not say which weights and options led to them.
_SINCE = {"model_digest": 2, "settings": 2, "drasp_version": 2}
_EXPECTED = {int: "a whole number", float: "a number", str: "a text", tuple: "a list", dict: "an object"}
_INFINITE = 1e300  # numbers below are finite; JSON has no others, but Python reads some
_SHORT = 12  # letters of a digest that are shown

T = TypeVar("T")


@dataclass(frozen=True)
class Identity:
    """What a run depends on: two runs that are alike in all of it end with the same result."""

    model_digest: str
    task: str
    task_digest: str
    seed: int
    settings: dict[str, Any]
    drasp_version: str

    def differences(self, found: "Identity") -> Iterator[str]:
        """Two identities to `NAME VALUE, found OTHER` for each thing in which they differ."""
        # As JSON has them: a list that was stored was a tuple.
        mine, theirs = (json.loads(json.dumps({**asdict(each), **each.settings})) for each in (self, found))
        for name in mine | theirs:
            if name != "settings" and (a := mine.get(name)) != (b := theirs.get(name)):
                a, b = (str(each)[:_SHORT] if name.endswith("digest") else each for each in (a, b))
                yield f"{name} {a}, found {b}"


@dataclass(frozen=True)
class PassRecord:
    """What one step of a pass left: so many edges of the graph, or lines of the program."""

    name: str
    seconds: float
    left: int
    unit: str | None  # version 1 does not say it
    match_accuracy: float


@dataclass(frozen=True)
class FrontierRecord:
    """`causal` and `grade` are the verdict on its means; None in records before version 3."""

    lines: int
    match_accuracy: float
    match_interval: tuple[float, float] | None  # none where agreement is on all inputs that there are
    causal: bool | None = None
    grade: str | None = None


@dataclass(frozen=True)
class SeedRecord:
    """One of several searches; `program` is the same number for the same program."""

    seed: int
    verdict: str
    grade: str | None
    lines: int
    match_accuracy: float
    program: int


@dataclass(frozen=True)
class NormsRecord:
    constant: int
    kept: int


@dataclass(frozen=True)
class ComparisonRecord:
    """How a program's answers compare with others on all inputs: up to which `length` they are proved alike, for how
    many inputs, by which margin at least, how many answers are too close to call, and a shortest counterexample.
    """

    status: str
    length: int
    inputs: int
    undecided: int
    margin: float | None = None
    counterexample: dict[str, Any] | None = None


@dataclass(frozen=True)
class CertificateRecord:
    """What a certificate says, in words and in numbers; `length` is the greatest length that was looked at."""

    status: str
    sentence: str
    line: str
    length: int
    against_model: ComparisonRecord | None = None
    against_task: ComparisonRecord | None = None


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that any command writes to `result.json`, in that order; None is what does not apply or is not known."""

    schema_version: int = SCHEMA_VERSION
    model: str | None = None
    model_digest: str | None = None
    task: str | None = None
    seed: int | None = None
    settings: dict[str, Any] | None = None
    drasp_version: str | None = None
    method: str
    verdict: str | None = None
    grade: str | None = None
    reasons: tuple[str, ...] | None = None
    match_accuracy: float | None = None
    match_interval: tuple[float, float] | None = None
    samples: int | None = None
    task_accuracy: float | None = None
    positions: int | None = None
    lines: int
    primitives: dict[str, dict[str, int]] | None = None
    pruned_match_accuracy: float | None = None
    pruned_lines: int | None = None
    size: dict[str, int] | None = None
    largest_logit_difference: float | None = None
    seconds: float | None = None
    naming_seconds: float | None = None
    evidence_seconds: float | None = None
    peak_memory_mb: int | None = None
    causal: dict[str, Any] | None = None
    fitted_share: float | None = None
    certificate: CertificateRecord | None = None
    frontier: tuple[FrontierRecord, ...] | None = None
    seeds: tuple[SeedRecord, ...] | None = None
    passes: tuple[PassRecord, ...] | None = None
    norms: NormsRecord | None = None
    constants_out_of_range: tuple[str, ...] | None = None
    min_match: float | None = None
    max_lines: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_text(self) -> str:
        # Of a path that is no UTF-8, letters are lost: nothing else could be read again.
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False).encode("utf-8", "replace").decode() + "\n"


def drasp_version() -> str:
    return version("drasp")


def read_record(place: str | Path) -> Record | None:
    """A result's folder, or a program in it, to its record; None where there is none, as for one written by hand."""
    place = Path(place)
    file = (place if is_folder(place) else place.parent) / MARK
    content = read_json_if_there(file, "a JSON object, as drasp writes it")
    if content is None:
        return None
    found = content.get("schema_version")
    if type(found) is int and not 1 <= found <= SCHEMA_VERSION:
        known = f"is of {'a newer' if found > 0 else 'no'} drasp; this one reads 1 to {SCHEMA_VERSION}"
        raise DraspError(f"{file}: schema_version {found} {known}")
    try:
        record = typed(Record, content)
        for name, since in _SINCE.items():
            if record.schema_version >= since and getattr(record, name) is None:
                raise WrongFieldError(f"{name} is missing")
    except WrongFieldError as error:
        raise DraspError(f"{file}: {error}; make the result anew") from None
    return record


# ---------------------------------------------------------------------------------------- types


class WrongFieldError(ValueError):
    """Says which field is not what it should be."""


def typed(kind: type[T], content: Any) -> T:
    """What `json` read, as the dataclass `kind`: every field of its type, those that may be None left out or not.

    Fields that the dataclass does not have are passed over, as a newer drasp may have written them.
    """
    return _typed(kind, content, "")


def _typed(kind: Any, value: Any, name: str) -> Any:
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    match value:
        case _ if origin is Any:
            return value
        case _ if origin is UnionType:
            return None if value is None else _typed(arguments[0], value, name)
        case Mapping() if is_dataclass(kind):
            return _object(kind, value, name)
        case Mapping() if origin is dict:
            return {key: _typed(arguments[1], each, f"{name}[{key!r}]") for key, each in value.items()}
        case list() if origin is tuple and arguments[-1] is ...:
            return tuple(_typed(arguments[0], each, f"{name}[{i}]") for i, each in enumerate(value))
        case list() if origin is tuple and len(value) == len(arguments):
            return tuple(_typed(k, v, f"{name}[{i}]") for i, (k, v) in enumerate(zip(arguments, value, strict=True)))
        case int() | float() if origin is float and not isinstance(value, bool) and abs(value) < _INFINITE:
            return float(value)
        case int() | str() if type(value) is origin and (isinstance(value, str) or abs(value) < 2**63):
            return value
    found = repr(value) if len(repr(value)) < 40 else type(value).__name__
    raise WrongFieldError(f"expected {_EXPECTED.get(origin, 'an object')} for {name or 'the whole'}, found {found}")


def _object(kind: Any, content: Mapping[str, Any], parent: str) -> Any:
    hints, found = _hints(kind), dict[str, Any]()
    for field in fields(kind):
        name = f"{parent}.{field.name}".lstrip(".")
        if field.name not in content and get_origin(hints[field.name]) is not UnionType:
            raise WrongFieldError(f"{name} is missing")
        found[field.name] = _typed(hints[field.name], content.get(field.name), name)
    return kind(**found)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
