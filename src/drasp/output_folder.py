"""Writes files and folders: each is there as a whole or not at all, and never over somebody else's.

A file or a folder is made under a hidden name beside its place, and put there by one move. Who writes holds a lock on
the place; what a run that was killed has left beside it is removed by the next one that has the lock.

    .NAME.drasp-lock    somebody writes NAME, as long as a process has this file locked
    .NAME.drasp-new     what will be NAME, or, after the move, what was
    .NAME.drasp-old     what was NAME, where a file system cannot exchange two folders by one move
"""

import ctypes
import errno
import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from drasp.errors import DraspError
from drasp.input_files import content_digest, found_at

# What marks a folder as one that drasp wrote, and may write again.
MARK = "result.json"
# What is a result's: it goes when another result takes its place. Other files stay.
_RESULT = re.compile(
    r"program\.(drasp|safetensors|py|tex|json)|pruned\.(drasp|safetensors)|frontier/\d+\.(drasp|safetensors)"
    r"|report\.html|result\.json|figures/(line-\d+-.+|frontier)\.(pdf|svg|png)|certificate\.json|check_certificate\.py"
)
_AT_CURRENT_FOLDER, _EXCHANGE = -100, 2  # of Linux's renameat2
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)

_held: set[Path] = set()


def check_output_folder(folder: Path, new: bool = False) -> None:
    """Refuses a folder, before long work, that no result may be written to. With `new`, nothing may be there yet."""
    place = _resolved(folder)
    with _said_of(folder):
        here = Path.cwd()
        if place == here or place in here.parents:
            raise DraspError(f"{folder}: is where you are; name a folder to be made or replaced, such as ./result")
        if new and (place.exists() or folder.is_symlink()):
            _tidy(place)
            raise DraspError(f"{folder}: exists already; choose another --out, or remove it")
        if place.exists() and not place.is_dir():
            raise DraspError(f"{folder}: expected a folder for the output, found a file")
        if place.is_dir() and any(place.iterdir()) and not (place / MARK).is_file():
            raise DraspError(f"{folder}: holds other files; name an empty or a new folder for the output")
        if place.is_mount():
            raise DraspError(f"{folder}: is a mount point, which cannot be replaced; name a folder in it")
        parent = next(parent for parent in place.parents if parent.exists())
        if not parent.is_dir():
            raise DraspError(f"{folder}: {parent} is not a folder")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise DraspError(f"{folder}: cannot write to {parent}; choose another --out")


def write_files(folder: Path, files: Mapping[str, bytes], new: bool = False) -> None:
    """Makes a folder of these files, in the place of a result that is there; with `new`, where nothing is.

    Of an older result, programs of the frontier stay which the new record lists; and so does what is not drasp's.
    """
    with reserved(folder):
        check_output_folder(folder, new)
        record = json.loads(files[MARK]) if MARK in files else {}
        listed = {f"frontier/{point['lines']}" for point in record.get("frontier") or ()}

        def stays(name: str) -> bool:
            return not _RESULT.fullmatch(name) or name.partition(".")[0] in listed

        _write_folder(folder, files, stays)


def write_into(folder: Path, files: Mapping[str, bytes], replaced: re.Pattern[str]) -> None:
    """Writes files to a folder that may hold others: those with names of the pattern go, in the same move."""
    with reserved(folder):
        _write_folder(folder, files, lambda name: not replaced.fullmatch(name))


def write_file(file: Path, content: bytes) -> None:
    """Writes a file, in the place of one that may be there."""
    with reserved(file) as place, _said_of(file):
        if place.exists() and not place.is_file():
            raise DraspError(f"{file}: expected a place for a file, found {found_at(place)}")
        made = _beside(place, "new")
        try:
            _write(made, content)
            made.replace(place)
        finally:
            _remove(made)


def write_tensors_and_facts(file: Path, tensors: Mapping[str, Tensor], key: str, facts: Mapping[str, Any]) -> None:
    """Writes what `read_tensors_and_facts` reads: tensors, JSON in their header under a key, and a digest of both."""
    text = json.dumps(facts)
    write_file(file, save(dict(tensors), {key: text, "digest": content_digest(text, tensors)}))


@contextmanager
def reserved(place: Path) -> Iterator[Path]:
    """Keeps other processes from writing to a place; gives the place itself, where it is a link.

    What a run that was killed has left beside it is removed. Folders that it will lie in are made, and go again if
    nothing is written.
    """
    target = _resolved(place)
    if target in _held:  # by a caller
        yield target
        return
    made: list[Path] = []
    lock = -1
    try:
        with _said_of(place):
            for parent in reversed(target.parents):
                if not parent.is_dir():
                    parent.mkdir()
                    made.append(parent)
            lock = _locked(target, place)
            _held.add(target)
            _recover(target)
        yield target
    finally:
        if lock >= 0:
            _beside(target, "lock").unlink(missing_ok=True)
            os.close(lock)
            _held.discard(target)
        for parent in reversed(made):
            if not any(parent.iterdir()):
                parent.rmdir()


def _resolved(place: Path) -> Path:
    try:
        found = place.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links, or a current folder that is gone
        raise DraspError(f"{place}: no such place ({getattr(error, 'strerror', None) or error})") from None
    if not found.name:
        raise DraspError(f"{place}: expected a name for the output")
    return found


def _beside(place: Path, kind: str) -> Path:
    return place.with_name(f".{place.name}.drasp-{kind}")


@contextmanager
def _said_of(place: Path) -> Iterator[None]:
    """What the system refuses, in one line that names the place."""
    try:
        yield
    except (OSError, shutil.Error) as error:
        reason = getattr(error, "strerror", None) or "some of its files cannot be kept"
        raise DraspError(f"{place}: could not be written ({reason}); nothing has changed there") from None


def _locked(target: Path, place: Path) -> int:
    """The number of an open file that only this process has locked: the system opens it when the process ends."""
    file = _beside(target, "lock")
    while True:
        number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Who had it before may have removed the file, and another may have made one anew.
            if file.exists() and os.path.samestat(file.stat(), os.fstat(number)):
                return number
        except BlockingIOError:
            os.close(number)
            raise DraspError(f"{place}: another drasp is writing there; wait for it, or name another place") from None
        except BaseException:
            os.close(number)
            raise
        os.close(number)


def _recover(place: Path) -> None:
    """Removes what a run has left that was killed while it wrote here; no other can be writing now."""
    old = _beside(place, "old")
    if old.exists() and not place.exists():
        old.rename(place)
    for left in (_beside(place, "new"), old):
        _remove(left)


def _tidy(place: Path) -> None:
    """Removes what a run has left that was killed when its work was done, beside a place where none writes again."""
    if any(_beside(place, kind).exists() for kind in ("lock", "new", "old")):
        with suppress(DraspError), reserved(place):  # another may be writing
            pass


def _write_folder(folder: Path, files: Mapping[str, bytes], stays: Callable[[str], bool]) -> None:
    with reserved(folder) as place, _said_of(folder):
        made = _beside(place, "new")
        try:
            made.mkdir()
            if place.is_dir():
                _keep(place, made, stays)
            for name, content in files.items():
                if ".." in Path(name).parts or Path(name).is_absolute():  # of what foreign text gave the name
                    raise DraspError(f"{folder}: {name!r} would not lie in it; nothing has changed there")
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                (made / name).unlink(missing_ok=True)
                _write(made / name, content)
            _put(made, place)
        finally:
            _remove(made)


def _keep(place: Path, made: Path, stays: Callable[[str], bool]) -> None:
    """Links what stays of a folder into the one that will take its place."""
    shutil.copymode(place, made)
    for top, folders, names in os.walk(place):
        for name in (*names, *(folder for folder in folders if (Path(top) / folder).is_symlink())):
            file = Path(top) / name
            relative = file.relative_to(place)
            if stays(relative.as_posix()):
                (made / relative).parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(file, made / relative, follow_symlinks=False)
                except OSError:  # a file system without links, or a file of somebody else's
                    shutil.copy2(file, made / relative, follow_symlinks=False)


def _put(made: Path, place: Path) -> None:
    """Moves a folder to its place. Where another is there, the two change names, so that there always is one."""
    try:
        made.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not _exchange(made, place):
            old = _beside(place, "old")
            place.rename(old)
            made.rename(place)
            _remove(old)


def _exchange(one: Path, other: Path) -> bool:
    """Whether two folders have changed names by one move, which not every system can do."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    places = (_AT_CURRENT_FOLDER, os.fsencode(one), _AT_CURRENT_FOLDER, os.fsencode(other))
    if rename(*places, _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code not in _NO_EXCHANGE:
        raise OSError(code, os.strerror(code), str(other))
    return False


def _write(file: Path, content: bytes) -> None:
    """A new file, which is on the disk when this ends."""
    with file.open("xb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())


def _remove(place: Path) -> None:
    try:
        is_folder = stat.S_ISDIR(place.lstat().st_mode)
    except FileNotFoundError:
        return
    if is_folder:
        shutil.rmtree(place)
    else:
        place.unlink()
