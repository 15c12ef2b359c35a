"""Recomputes a certificate from what it holds, and says in what it is wrong.

A certificate is a JSON object: a program (its text, its lines and tensors), a model (its weights), a task (its
automaton, or its inputs with their answers), what was looked at, what was found, and digests. Nothing in it is run.
"""

import base64
import hashlib
import json
import math
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from drasp.certificates.bounds import Array, Matrix
from drasp.certificates.findings import Progress, findings, silent
from drasp.certificates.functions import FUNCTIONS
from drasp.certificates.model_levels import ModelLevels
from drasp.certificates.program_levels import ProgramLevels
from drasp.certificates.tree import MOST_WORDS, Inputs, Listed, Side, Words

SCHEMA_VERSION = 2
ASSUMPTIONS = (
    "Exact arithmetic on the stored numbers. Its distance from float64 is bounded for any order of summation, with "
    "operations and square roots rounded to nearest, and exp, tanh, erf and powers within 4 units in the last place."
)
_TYPES = {"<f4": "float32", "<f8": "float64", "<i4": "int32", "|b1": "bool"}
MOST_POSITIONS = 1_000_000
_CLOSE = 1e-6  # how far margins and errors of two computers may be apart, as a share


class CertificateError(ValueError):
    """Says what is wrong with a certificate."""


def packed(array: Array) -> dict[str, Any]:
    """An array as JSON has it. Columns lie together, which makes sorted rows much shorter."""
    kind = array.dtype.newbyteorder("<").str
    data = base64.b64encode(zlib.compress(array.astype(kind).tobytes("F"), 6)).decode()
    return {"type": kind, "shape": list(array.shape), "data": data}


def unpacked(content: Mapping[str, Any]) -> Array:
    kind, shape = content["type"], tuple(content["shape"])
    if kind not in _TYPES or not all(type(n) is int and n >= 0 for n in shape):
        raise CertificateError(f"expected an array of {', '.join(_TYPES)}, found {kind!r} of shape {list(shape)}")
    size = int(np.prod(shape, dtype=object)) * np.dtype(kind).itemsize
    data = zlib.decompressobj().decompress(base64.b64decode(content["data"], validate=True), size + 1)
    if len(data) != size:
        raise CertificateError(f"an array of shape {list(shape)} has not as many numbers as it says")
    return np.frombuffer(data, kind).reshape(shape, order="F")


# -------------------------------------------------------------------------------------- digests


def content_digest(content: Mapping[str, Any]) -> str:
    """The digest of all that a certificate says."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def program_digest(text: str, tensors: Mapping[str, Array]) -> str:
    """The digest of a program's text and the numbers of its tensors, as drasp has it."""
    lines = [text]
    for name, tensor in sorted(tensors.items()):
        numbers = hashlib.sha256(np.ascontiguousarray(tensor, np.float64).tobytes()).hexdigest()
        lines.append(f"{name} {list(tensor.shape)} {numbers}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def model_digest(eps: float, layers: Sequence[Mapping[str, Any]], weights: Mapping[str, Array]) -> str:
    """The digest of a model's weights and form, as drasp has it."""
    forms = [(layer["heads"], layer["scale"], layer["activation"]) for layer in layers]
    made = hashlib.sha256(repr([eps, *forms]).encode())
    for name, tensor in weights.items():
        kind = f"torch.{_TYPES[tensor.dtype.newbyteorder('<').str]}"
        made.update(f"{name} {tuple(tensor.shape)} {kind}\n".encode())
        made.update(np.ascontiguousarray(tensor).tobytes())
    return made.hexdigest()


# ------------------------------------------------------------------------------------ computing


def task_inputs(task: Mapping[str, Any], length: int, everything: bool) -> Inputs:
    """The inputs that a certificate is about."""
    if task["kind"] == "words":
        after, allowed = (unpacked(task[key]) for key in ("after", "allowed"))
        words = Words(after.astype(int), allowed, task["start"], task["bos"], length, everything)
        if any(count > MOST_WORDS for count in words.counts()):
            raise CertificateError(f"there are more than {MOST_WORDS:,} strings up to length {length}")
        return words
    listed = Listed(*(unpacked(task[key]) for key in ("rows", "lengths", "counted", "targets", "known")))
    if listed.longest > length:
        raise CertificateError(f"an input is longer than {length}")
    if not listed.counted.any(1).all() or (listed.counted & (listed.rows < 0)).any():
        raise CertificateError("an input has no answer that counts, or one where it has no token")
    keys = np.concatenate([listed.rows, listed.counted.astype(np.int32)], axis=1)
    ahead = np.sign(keys[1:] - keys[:-1])
    if (np.take_along_axis(ahead, (ahead != 0).argmax(1)[:, None], axis=1) <= 0).any():
        raise CertificateError("the inputs are not in order, or one of them is there twice")
    return listed


def recomputed(content: Mapping[str, Any], progress: Progress = silent) -> dict[str, Any]:
    """What the certificate's program, model and task give."""
    program, model, claim = content["program"], content["model"], content["claim"]
    inputs = task_inputs(content["task"], claim["length"], claim["all_strings"])
    tensors = program_tensors(program)
    weights = {name: _matrix(each) for name, each in model["weights"].items()} if model else {}
    for step in program["steps"]:
        name = step.get("function", {}).get("primitive", "keep")
        if name not in FUNCTIONS:
            raise CertificateError(f"line {step['name']}: no error bounds are known for the function {name!r}")

    def sides(offset: int) -> list[Side]:
        tokens = inputs.tokens
        both: list[Side] = [program_levels(program, tensors, tokens, offset)]
        return [*both, ModelLevels(weights, model["eps"], model["layers"], tokens, offset)] if model else both

    offsets = [(int(offset), int(room)) for offset, room in claim["offsets"]]
    # Where a number cannot be known, its bound is no number, and nothing is decided by it.
    with np.errstate(all="ignore"):
        return findings(inputs, sides, program["output"], offsets, progress)


def program_tensors(program: Mapping[str, Any]) -> dict[str, Matrix]:
    """The tensors that the lines of a lowered program name."""
    return {name: _matrix(each) for part in ("stored", "library") for name, each in program[part].items()}


def program_levels(
    program: Mapping[str, Any], tensors: Mapping[str, Matrix], tokens: Sequence[int], offset: int
) -> ProgramLevels:
    return ProgramLevels(program["steps"], tensors, len(program["vocabulary"]), program["n_positions"], tokens, offset)


def _matrix(content: Mapping[str, Any]) -> Matrix:
    array = unpacked(content).astype(np.float64)
    if not np.isfinite(array).all():
        raise CertificateError("a tensor holds something else than finite numbers")
    return Matrix(np.ascontiguousarray(array))


# ------------------------------------------------------------------------------------- checking


def named_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON as a dictionary; a name that is there twice would mean one thing to us, another to others."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"an object names {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def read_certificate(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes(), object_pairs_hook=named_once)
    except FileNotFoundError:
        raise CertificateError("no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CertificateError(f"not a readable JSON file ({error})") from None
    return checked_version(content)


def checked_version(content: Any) -> dict[str, Any]:
    found = content.get("schema_version") if isinstance(content, dict) else None
    if type(found) is not int or found != SCHEMA_VERSION:
        raise CertificateError(f"expected a certificate with schema_version {SCHEMA_VERSION}, found {found!r}")
    return content


def check(content: Mapping[str, Any], progress: Progress = silent) -> None:
    """Raises what is wrong: a digest that is not that of what it is of, or a finding that is not found again."""
    try:
        if content_digest(content) != content["digest"]:
            raise CertificateError("it has been changed: the digest is not that of what it says")
        program, model = content["program"], content["model"]
        _check_form(content)
        stored = {name: unpacked(each) for name, each in program["stored"].items()}
        if program_digest(program["text"], stored) != program["digest"]:
            raise CertificateError("the program's digest is not that of its text and tensors")
        weights = {name: unpacked(each) for name, each in model["weights"].items()} if model else {}
        if model and model_digest(model["eps"], model["layers"], weights) != model["digest"]:
            raise CertificateError("the model's digest is not that of its weights")
        if content["assumptions"] != ASSUMPTIONS:
            raise CertificateError("its assumptions are not those under which it is checked")
        found = recomputed(content, progress)
        difference = _difference(content["found"], json.loads(json.dumps(found)), "found")
        summary(content)  # nothing is missing of what it says
    except CertificateError:
        raise
    except _WRONG as error:
        raise CertificateError(f"not a whole certificate ({type(error).__name__}: {error})") from None
    if difference:
        raise CertificateError(f"it does not hold: {difference}")


_WRONG = (KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError)
_WRONG += (ArithmeticError, MemoryError, RecursionError, zlib.error)
_NAMES: dict[str, set[str]] = {
    "claim": {"length", "all_strings", "offsets"},
    "program": {"digest", "text", "vocabulary", "n_positions", "output", "steps", "stored", "library"},
    "model": {"digest", "eps", "layers", "weights"},
    "words": {"name", "digest", "kind", "start", "bos", "after", "allowed"},
    "listed": {"name", "digest", "kind", *(column.name for column in fields(Listed))},
    "layer": {"heads", "scale", "activation"},
}
"""What each part says, and nothing else: what is not looked at would still be read."""


def _check_form(content: Mapping[str, Any]) -> None:
    """Raises where a part says more than is checked, or where what it says is not of its kind."""
    claim, program, model, task = (content[part] for part in ("claim", "program", "model", "task"))
    whole = {"schema_version", "drasp_version", "assumptions", "claim", "task", "program", "model", "found", "digest"}
    parts = [(content, whole), (claim, _NAMES["claim"]), (program, _NAMES["program"]), (task, _NAMES[task["kind"]])]
    if model is not None:
        parts += [(model, _NAMES["model"]), *((layer, _NAMES["layer"]) for layer in model["layers"])]
    for part, names in parts:
        if odd := sorted(part.keys() ^ names):
            raise CertificateError(f"it has {odd[0]!r}, which is not checked" if odd[0] in part else f"no {odd[0]!r}")
    texts = (content["drasp_version"], task["name"], program["text"], *program["vocabulary"])
    if not all(isinstance(text, str) for text in texts):
        raise CertificateError("a name, a token or the program's text is no text")
    if model is not None:
        _check_model_form(model)
    _check_claim(claim, program["n_positions"])


def _check_model_form(model: Mapping[str, Any]) -> None:
    if not 0 <= model["eps"] < math.inf:
        raise CertificateError("the model's eps is not 0 or more")
    for layer in model["layers"]:
        if not (type(layer["heads"]) is int and layer["heads"] > 0):
            raise CertificateError("the number of heads of a layer is not a whole number above 0")
        if not math.isfinite(layer["scale"]):
            raise CertificateError("the factor of a layer's scores is no finite number")


def _check_claim(claim: Mapping[str, Any], n_positions: int) -> None:
    """Inputs up to the length at the first offset; at each later one, as far as there is room."""
    length, offsets = claim["length"], claim["offsets"]
    if type(claim["all_strings"]) is not bool:
        raise CertificateError("all_strings is neither true nor false")
    numbers = [length, n_positions, *(number for offset, room in offsets for number in (offset, room))]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise CertificateError("a length, an offset or a number of positions is no whole number of 0 or more")
    if not length <= n_positions <= MOST_POSITIONS:
        raise CertificateError(f"length {length} does not fit {n_positions} positions (at most {MOST_POSITIONS:,})")
    first, rooms = [offset for offset, _ in offsets], [room for _, room in offsets]
    if first != sorted(set(first)) or rooms != sorted(rooms, reverse=True) or rooms[0] != length:
        raise CertificateError("its offsets are not in order, or have not room for inputs up to its length")


def _difference(said: Any, found: Any, name: str) -> str | None:
    """The first thing in which what is said is not what is found."""
    if isinstance(said, Mapping) and isinstance(found, Mapping) and said.keys() == found.keys():
        differences = (_difference(said[key], found[key], f"{name}.{key}") for key in found)
        return next((difference for difference in differences if difference), None)
    if isinstance(said, float) and isinstance(found, float):
        alike = abs(said - found) <= _CLOSE * max(abs(said), abs(found), 1e-6)
    else:
        alike = said == found and type(said) is type(found)
    return None if alike else f"{name} is {json.dumps(found)}, and it says {json.dumps(said)}"


OTHERS = {"against_model": "the model", "against_task": "task {task}"}


def summary(content: Mapping[str, Any]) -> str:
    """What a certificate says, in a line for each comparison."""
    where = _where(content["claim"])
    keys = [key for key in OTHERS if content["found"][key] is not None]
    return "\n".join(f"program against {_other(content, key)}, {where}: {sentence(content, key)}" for key in keys)


def _where(claim: Mapping[str, Any]) -> str:
    """At which offsets, and whether at some of them there is less room than for the length."""
    offsets = [offset for offset, _ in claim["offsets"]]
    if len(offsets) == 1:
        return f"at offset {offsets[0]}"
    is_range = offsets[-1] - offsets[0] == len(offsets) - 1
    which = f"offsets {offsets[0]} to {offsets[-1]}" if is_range else f"{len(offsets)} offsets from {offsets[0]} on"
    return f"at {which}" + (" as far as there is room" if claim["offsets"][-1][1] < claim["length"] else "")


def _other(content: Mapping[str, Any], key: str) -> str:
    return OTHERS[key].format(task=content["task"]["name"])


def sentence(content: Mapping[str, Any], key: str) -> str:
    """What was found beside the model or the task."""
    result, claim = content["found"][key], content["claim"]
    what = "strings" if content["task"]["kind"] == "words" else "inputs"
    alike = f"all {result['inputs']:,} {what} up to length {result['length']}"
    margin = ", without rounding" if result["margin"] is None else f", smallest margin {result['margin']:.3g}"
    match result["status"]:
        case "proved":
            return f"proved for {alike}{margin}"
        case "undecided":
            said = f"undecided: {result['undecided']:,} answers up to length {claim['length']} are too close to call"
            return said + (f"; proved for {alike}{margin}" if result["inputs"] else "")
        case _:
            said = _refutation(result["counterexample"], content["program"]["vocabulary"], _other(content, key))
            said += f"; {result['undecided']:,} shorter ones are too close to call" if result["undecided"] else ""
            return said + (f"; proved for {alike}" if result["inputs"] else "")


def _refutation(case: Mapping[str, Any], names: Sequence[str], other: str) -> str:
    tokens, program, expected = (
        " ".join(str(names[t]) for t in case[key]) or "nothing" for key in ("tokens", "program", "expected")
    )
    at = f" (offset {case['offset']})" if case["offset"] else ""
    return f"refuted: after {tokens}{at} the program says {program}, {other} {expected}"


def main() -> None:
    """Checks the certificates that are named, and ends with 1 where one of them does not hold."""
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} CERTIFICATE…")
    failed = False
    for file in map(Path, sys.argv[1:]):
        try:
            content = read_certificate(file)
            check(content)
        except CertificateError as error:
            failed = True
            print(f"{file}: refused: {error}")
            continue
        print(f"{file}: holds\n{summary(content)}")
    sys.exit(1 if failed else 0)
