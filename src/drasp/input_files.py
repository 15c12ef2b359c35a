"""Reads files: the one door through which foreign bytes come in.

What is read is a regular file of at most so many bytes: no pipe or device, which might never end. Texts are UTF-8. JSON
is nested only so deep, holds whole numbers of 128 bits, and texts that can be written again. What is refused is a
`DraspError` that names the file. Nothing is run, and nothing is unpickled.
"""

import errno
import json
import os
import stat
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from drasp.errors import DraspError

MAX_TEXT = 64_000_000
MAX_JSON = 256_000_000
MAX_TENSORS = 8_000_000_000
_SMALL = 1_000_000
_DEEPEST = 100  # lists and objects inside each other
_ATTEMPTS = 10  # to read several files of a folder while others write it

T = TypeVar("T")
Pairs = Callable[[list[tuple[str, Any]]], dict[str, Any]]


def read_bytes(file: Path, limit: int, expected: str = "a file") -> bytes:
    """What a regular file of at most `limit` bytes holds."""
    found = read_bytes_if_there(file, limit, expected)
    if found is None:
        raise DraspError(f"{file}: no such file; expected {expected}")
    return found


def read_bytes_if_there(file: Path, limit: int, expected: str = "a file") -> bytes | None:
    """What a regular file holds; None where there is none of that name."""
    try:
        # A pipe would not open before somebody writes to it.
        number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as opened:
            about = os.fstat(number)
            if not stat.S_ISREG(about.st_mode):
                raise DraspError(f"{file}: expected {expected}, found {_kind(about.st_mode)}")
            # No more room than the file takes: a process may have little memory. Some of the system's say 0.
            room = min(limit, max(about.st_size, _SMALL))
            content = opened.read(room + 1) if about.st_size <= limit else None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        if error.errno == errno.EISDIR:
            raise DraspError(f"{file}: expected {expected}, found a folder") from None
        raise DraspError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError:  # a zero byte in the name
        return None
    if content is None or len(content) > limit:
        raise DraspError(f"{file}: larger than {limit:,} bytes; expected {expected}")
    return content


def read_text(file: Path, expected: str = "a text") -> str:
    return decoded(read_bytes(file, MAX_TEXT, expected), file)


def decoded(content: bytes, file: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DraspError(f"{file}: not a UTF-8 text (byte {error.start})") from None


def read_json(file: Path, expected: str = "a JSON object", pairs: Pairs | None = None) -> dict[str, Any]:
    """The object that a JSON file holds; `pairs` makes each object of its names and values."""
    return json_object(read_bytes(file, MAX_JSON, expected), file, expected, pairs)


def read_json_if_there(file: Path, expected: str = "a JSON object") -> dict[str, Any] | None:
    content = read_bytes_if_there(file, MAX_JSON, expected)
    return None if content is None else json_object(content, file, expected)


def json_object(
    content: bytes | str, file: Path, expected: str = "a JSON object", pairs: Pairs | None = None
) -> dict[str, Any]:
    """A JSON text to its object; `pairs` makes each object of its names and values."""
    try:
        text = content if isinstance(content, str) else decoded(content, file)
        found = json.loads(text, object_pairs_hook=pairs)
        _check_json(found, 0)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DraspError(f"{file}: not readable as JSON ({why}); expected {expected}") from None
    if not isinstance(found, dict):
        raise DraspError(f"{file}: expected {expected}, found {_JSON_NAMES[type(found)]}")
    return found


_JSON_NAMES = {
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def _check_json(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise ValueError(f"nested more than {_DEEPEST} deep")
    match value:
        case str():
            value.encode()  # half of a surrogate pair cannot be written again
        case int() if abs(value) >= 2**128:  # the state of a generator has as many
            raise ValueError("a whole number of more than 128 bits")
        case list():
            for each in value:
                _check_json(each, depth + 1)
        case dict():
            for key, each in value.items():
                key.encode()
                _check_json(each, depth + 1)
        case _:
            pass


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, in the memory of the CPU."""
    return tensors_in(read_bytes(file, MAX_TENSORS, "a safetensors file"), file)


def read_tensors_if_there(file: Path) -> dict[str, Tensor] | None:
    content = read_bytes_if_there(file, MAX_TENSORS, "a safetensors file")
    return None if content is None else tensors_in(content, file)


def read_tensors_and_facts(file: Path, key: str) -> tuple[dict[str, Tensor], Mapping[str, Any]] | None:
    """The tensors of a file that drasp wrote, and the JSON object in its header under a key; None without a file."""
    content = read_bytes_if_there(file, MAX_TENSORS, "a safetensors file")
    if content is None:
        return None
    try:
        tensors = tensors_in(content, file)
        header = json_object(content[8 : 8 + int.from_bytes(content[:8], "little")], file)
        metadata = header.get("__metadata__", {})
        if metadata.get("digest") == content_digest(metadata.get(key, ""), tensors):
            return on_default_device(tensors), json_object(metadata[key], file)
    except (DraspError, KeyError):
        pass
    raise DraspError(f"{file}: not what drasp has written there, or damaged; remove it to begin again")


def on_default_device(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    place = torch.get_default_device()
    return {name: tensor.to(place) for name, tensor in tensors.items()}


def content_digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """A SHA-256 of a text and of the tensors that belong to it."""
    made = sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        made.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        made.update(tensor.detach().cpu().flatten().contiguous().view(torch.uint8).numpy().data)
    return made.hexdigest()


def tensors_in(content: bytes, file: Path) -> dict[str, Tensor]:
    try:
        return dict(sorted(load(content).items()))  # safetensors gives them in another order each time
    except (SafetensorError, KeyError, ValueError, TypeError, OverflowError, RuntimeError, AttributeError) as error:
        # Kinds of numbers that the file may name and torch does not have end as one of the others.
        raise DraspError(f"{file}: not a whole safetensors file ({error})") from None


def is_folder(path: Path) -> bool:
    return _mode(path, stat.S_ISDIR)


def is_there(path: Path) -> bool:
    return _mode(path, lambda _mode: True)


def found_at(path: Path) -> str:
    """What is at a place, for a message: `a folder`, `a file`, `a pipe`, `nothing`."""
    try:
        return _kind(path.stat().st_mode)
    except (OSError, ValueError):
        return "nothing"


def _mode(path: Path, wanted: Callable[[int], bool]) -> bool:
    try:
        return wanted(path.stat().st_mode)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return False
        raise DraspError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        return False


def _kind(mode: int) -> str:
    kinds = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def read_together(folder: Path, read: Callable[[], T]) -> T:
    """What `read` makes of several files of a folder that is replaced as a whole: all of them before, or all after."""
    for _ in range(_ATTEMPTS):
        before = _version(folder)
        try:
            found = read()
        except DraspError:
            if _version(folder) == before:
                raise
            continue
        if _version(folder) == before:
            return found
    raise DraspError(f"{folder}: is being written again and again; try later")


def _version(folder: Path) -> tuple[int, int] | None:
    try:
        about = folder.stat()
    except (OSError, ValueError):
        return None
    return about.st_ino, about.st_ctime_ns
