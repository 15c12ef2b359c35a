"""A study's folder: one folder for each finished unit, and leases on those that somebody works on.

    study.json          what the study is, and which drasp made the store
    units/ID/           a finished unit: unit.json, and its model or its result; there as a whole or not at all
    leases/ID.json      who works on a unit; the time of the file is the owner's last sign of life
    work/ID/OWNER/      what an owner has of a unit that is not finished

Who holds a lease may finish its unit, and nobody else: taking a lease, taking it over and finishing the unit happen
under one lock. So what a worker does that was cut off, and comes back, changes nothing.
"""

import json
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from drasp.errors import DraspError
from drasp.input_files import found_at, is_folder, is_there, read_json, read_json_if_there
from drasp.output_folder import reserved, write_file, write_files
from drasp.records import WrongFieldError, drasp_version
from drasp.study.unit_record import check_outcome
from drasp.study.units import Unit

STORE_FILE, UNIT_FILE = "study.json", "unit.json"
SCHEMA_VERSION = 1
LEASE_SECONDS = 60.0  # without a sign of life; then a lease can be taken over
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Lease:
    """The right to finish a unit, as long as its file names this token."""

    unit: Unit
    file: Path
    token: str
    work: Path  # a folder of its own, with what an earlier owner has left

    @property
    def held(self) -> bool:
        try:
            found = read_json_if_there(self.file)
        except DraspError:
            return False
        return found is not None and found.get("token") == self.token

    def renew(self) -> bool:
        """Shows that the owner is alive; whether the lease is still its own."""
        if not self.held:
            return False
        os.utime(self.file)
        return True


class Store:
    """A study's folder, which any number of processes may use at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.units = folder / "units"
        self._leases, self._work = folder / "leases", folder / "work"

    def open(self, name: str, text: str) -> None:
        """Makes the folder what it should be, or checks that it is: of this version, and of this or another spec.

        A spec may have grown or shrunk since: units are what they are, whichever file asked for them. The file that
        says so comes first, so that a folder which a killed run has left is known as a store.
        """
        file = self.folder / STORE_FILE
        with _patiently(file):
            content = self.about()
            others = [entry for entry in self.folder.iterdir() if entry.name != f".{STORE_FILE}.drasp-lock"]
            if content is None and others:
                raise DraspError(f"{self.folder}: holds other files; name an empty or a new folder for the study")
            if content is None or (content.get("name"), content.get("spec")) != (name, text):
                about = {
                    "schema_version": SCHEMA_VERSION, "drasp_version": drasp_version(), "name": name, "spec": text
                }  # fmt: skip
                write_file(file, _json(about))
        for folder in (self.units, self._leases, self._work):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DraspError(f"{folder}: cannot be made ({error.strerror}); choose another --out") from None

    def about(self) -> dict[str, Any] | None:
        """What the store says of itself; None where there is none yet."""
        file = self.folder / STORE_FILE
        content = read_json_if_there(file, "the file that `drasp sweep` writes")
        if content is None:
            return None
        for key in ("name", "spec"):
            if not isinstance(content.get(key), str):
                raise DraspError(f"{file}: {key}: expected a text; choose another folder")
        found = content.get("schema_version"), content.get("drasp_version")
        if found != (SCHEMA_VERSION, drasp_version()):
            raise DraspError(
                f"{file}: a store of version {found[0]} by drasp {found[1]}; this is {SCHEMA_VERSION} by drasp "
                f"{drasp_version()}, whose results may differ: choose another folder"
            )
        return content

    # ------------------------------------------------------------------------------- finished units

    def finished(self) -> set[str]:
        if not is_folder(self.units):
            raise DraspError(f"{self.units}: expected the folder of a study's units, found {found_at(self.units)}")
        return {entry.name for entry in os.scandir(self.units) if _ID.fullmatch(entry.name)}

    def record(self, unit_id: str) -> dict[str, Any]:
        file = self.units / unit_id / UNIT_FILE
        content = read_json(file, "the record of a unit")
        try:
            check_outcome(content, unit_id)
        except WrongFieldError as error:
            raise DraspError(f"{file}: {error}; remove the unit's folder, and `drasp sweep` runs it again") from None
        return content

    def tidy(self) -> None:
        """Removes what is left of units whose owner was killed right after finishing them."""
        there = self.finished()
        for folder in (self._leases, self._work):
            for left in folder.iterdir():
                if left.stem in there:
                    shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        for lock in self.units.glob(".*.drasp-lock"):
            unit_id = lock.name[1:].partition(".")[0]
            if unit_id in there:
                with suppress(DraspError), reserved(self.units / unit_id):
                    pass  # who takes a lock that nobody holds removes its file

    def forget(self, unit_id: str) -> None:
        """Takes a finished unit away, so that it will be run again."""
        with reserved(self.units / unit_id):
            shutil.rmtree(self.units / unit_id)

    # --------------------------------------------------------------------------------------- leases

    def claim(self, unit: Unit) -> Lease | None:
        """A lease on a unit; None where it is finished, or another works on it."""
        file = self._leases / f"{unit.id}.json"
        try:
            with reserved(self.units / unit.id):
                if is_there(self.units / unit.id) or not self._is_free(file):
                    return None
                token = uuid.uuid4().hex[:16]
                write_file(file, _json({"token": token, **_owner()}))
                return Lease(unit, file, token, self._take_over(unit, token))
        except DraspError:
            if is_there(self.units / f".{unit.id}.drasp-lock") or is_there(self.units / unit.id):
                return None  # somebody is at it in this moment
            raise

    def commit(self, lease: Lease, record: Mapping[str, Any], files: Mapping[str, bytes]) -> bool:
        """Makes a unit finished; False where the lease has gone to somebody else, and nothing is written then."""
        place = self.units / lease.unit.id
        with _patiently(place):
            if not lease.held:
                return False
            write_files(place, {**files, UNIT_FILE: _json(record)}, new=True)
            lease.file.unlink(missing_ok=True)
        shutil.rmtree(lease.work.parent, ignore_errors=True)
        return True

    def release(self, lease: Lease) -> None:
        """Gives a lease back with its unit unfinished; what there is of it stays for the next owner."""
        with _patiently(self.units / lease.unit.id):
            if lease.held:
                lease.file.unlink(missing_ok=True)

    def _is_free(self, file: Path) -> bool:
        try:
            found = read_json_if_there(file)
            age = self._now(file) - file.stat().st_mtime if found else 0.0
        except (DraspError, FileNotFoundError):
            return True  # damaged, or gone in this moment
        if found is None or age > LEASE_SECONDS:
            return True
        here = _owner()
        same_place = found.get("machine") == here["machine"]
        return same_place and _started(found.get("process")) != found.get("started")

    def _now(self, file: Path) -> float:
        """The time by the clock of the file system, which is the same for all who use it."""
        # Only who has the unit's lock asks; where one was killed here, the next who asks takes its file away.
        clock = file.with_suffix(".clock")
        clock.unlink(missing_ok=True)
        clock.touch(exist_ok=False)
        try:
            return clock.stat().st_mtime
        finally:
            clock.unlink(missing_ok=True)

    def _take_over(self, unit: Unit, token: str) -> Path:
        """The folder of a new owner, with what the one before has left. Who still writes to the old one is alone."""
        own = self._work / unit.id / token
        if own.parent.is_symlink():
            own.parent.unlink()
        own.parent.mkdir(parents=True, exist_ok=True)
        _unlink_links(own.parent)
        for left in sorted(own.parent.iterdir()):
            if not own.exists() and left.is_dir():
                left.rename(own)
            else:
                shutil.rmtree(left, ignore_errors=True)
        own.mkdir(exist_ok=True)
        return own


def _unlink_links(folder: Path) -> None:
    """Takes away links below a folder of work: drasp makes none, and what is written must stay in the store."""
    for top, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if (path := Path(top) / name).is_symlink():
                path.unlink(missing_ok=True)


@contextmanager
def _patiently(place: Path) -> Iterator[None]:
    """A lock that others hold for moments only."""
    for attempt in range(100):
        try:
            with reserved(place):
                yield
                return
        except DraspError as error:
            if "another drasp" not in str(error) or attempt == 99:
                raise
        time.sleep(0.05)


@cache
def _machine() -> str:
    """The name of this machine, since it was started, and of its process numbers: containers have their own."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    space = Path("/proc/self/ns/pid")
    parts = [socket.gethostname()]
    parts += [boot.read_text().strip()] if boot.exists() else []
    parts += [str(space.readlink())] if space.is_symlink() else []
    return " ".join(parts)


def _owner() -> dict[str, Any]:
    return {"machine": _machine(), "process": os.getpid(), "started": _started(os.getpid())}


def _started(process: Any) -> str | None:
    """The time when a process of this machine was started; None where there is none of that number."""
    try:
        # The name of a process, in brackets, may hold anything; the 20th field after it is its start.
        return Path(f"/proc/{int(process)}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, ValueError, TypeError, IndexError):
        return None


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
