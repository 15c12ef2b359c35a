"""Surroundings in which commands must end as they should: full disks, little memory, odd outputs, each other.

All of these are processes of their own. Full and read-only disks are small file systems that only the command's own
mount namespace has (`unshare`, Linux); where that is not allowed they are left out, and not counted.
"""

import ctypes
import html.parser
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from campaign.commands import (
    Ended,
    Tally,
    anew,
    begun,
    called,
    forked,
    left_behind,
    located,
    opened,
    program_files,
    spawned,
    wrong_end,
)

WRITERS = (
    "translate MODEL --out OUT", "translate MODEL --out RESULT", "compile SMALL --out OUT", "export SMALL --out OUT",
    "report RESULT", "explore PLACE", "certify RESULT --length 2 --out OUT/certificate.json",
    "train own.py:mine --steps 1 --out OUT", "decompile MODEL --out RESULT --pick 3",
)  # fmt: skip
# Of these, each process starts Python anew; others are copies of one that has loaded torch.
ANEW = ("check RESULT", "compile SMALL --out OUT", "figures SMALL --format svg")
READERS = ("check RESULT", "run RESULT BOS 1 1", "explain RESULT 1", "tasks", "zoo", "language (ab)*")
DRAWER = "figures SMALL --format svg"
NAMES = (
    "</script><script>x()</script>", "<img src=x onerror=x()>", '"onload="x()', "&lt;", "'''", '"""', "\\", "%", "$",
    "\\input{x}", "{", "}", "#", "\x1b[2J", "\x00", "\n", "\u202e", "[/red]", "__import__('os')", " ", "a b", "=", ",",
    "\ufeff",
)  # fmt: skip


def surroundings(origin: Path, place: Path, seed: int) -> Mapping[str, Callable[[], Tally]]:
    """All of them, by name."""
    return {
        "full disk": lambda: _small_disks(origin, place, full=True),
        "read-only disk": lambda: _small_disks(origin, place, full=False),
        "no home": lambda: _homeless(origin, place),
        "outputs": lambda: _outputs(origin, place),
        "low memory": lambda: _low_memory(origin, place),
        "two at once": lambda: _two_at_once(origin, place),
        "hostile names": lambda: _hostile_names(origin, place, seed),
    }


# A new file system at $2 with so many bytes ($1) and what is in $3.
_MOUNT = 'mount -t tmpfs -o size=$1 none "$2" && cp -a "$3/." "$2" && mount -o remount,$4 "$2"'
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000


def _on_small_disk(place: Path, origin: Path, size: int, mode: str) -> None:
    """Gives this process a small file system of its own at a place."""
    uid, gid, libc = os.getuid(), os.getgid(), ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")  # no file can be made for a group that is not mapped
    subprocess.run(["sh", "-c", _MOUNT, "sh", str(size), str(place), str(origin), mode], check=True)
    os.chdir("/")


def _small_disks(origin: Path, place: Path, full: bool) -> Tally:
    """Writing to a disk that has no room, or little, or is read-only: refused in one line, and nothing has changed."""
    tally = Tally()
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        return tally
    used = sum((file.stat().st_size + 4095) // 4096 * 4096 for file in origin.rglob("*")) + 4096
    kind = "full disk" if full else "read-only disk"
    for line in WRITERS:
        arguments = located(line, place)
        anew(origin, place)
        called(arguments)
        whole = program_files(place)
        for room in (0, 8, 40, 160) if full else (1000,):
            anew(origin, place)
            old = program_files(place)
            kept = place.with_name("kept")
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir()
            mode, size = "rw" if full else "ro", used + room * 1024

            def mounted(size: int = size, mode: str = mode) -> None:
                _on_small_disk(place, origin, size, mode)

            def keep(kept: Path = kept) -> None:
                shutil.copytree(place, kept, symlinks=True, dirs_exist_ok=True)

            ended = begun(arguments, Path("/"), mounted, keep).end()
            if ended.code == 0 and line.startswith("train"):
                wrong = None
            elif ended.code not in (0, 1):
                wrong = f"ended with {ended.code}: {ended.err[-300:]}"
            elif program_files(kept) != (old if ended.code else whole):
                wrong = "mixed or half-written"
            elif ended.code and (str(place) not in ended.err or len(ended.err.splitlines()) != 1):
                wrong = f"says {ended.err[-300:]!r}"
            elif left := left_behind(kept):
                wrong = f"left behind: {left}"
            else:
                wrong = None
            tally.note(kind, f"{line}, {room} KB of room", wrong)
    return tally


def _expected(ended: Ended, arguments: list[str], place: Path) -> str | None:
    """What is wrong with how a command ended that should have done its work."""
    if ended.code:
        return f"ended with {ended.code}: {ended.err[-300:]}"
    return wrong_end(arguments, Ended(0, ended.out or "closed", ended.err), place)


def _homeless(origin: Path, place: Path) -> Tally:
    """Without HOME, with one that is not there, with one that cannot be written to: all is as ever."""
    tally = Tally()
    names = ("HOME", "USER", "LOGNAME", "MPLCONFIGDIR")
    bare = {name: value for name, value in os.environ.items() if name not in names}
    homes = {
        "none": {},
        "missing": {"HOME": "/nowhere"},
        "a file": {"HOME": "/dev/null"},
        "read-only": {"HOME": "/proc"},
    }
    for line in (*WRITERS, *READERS, DRAWER):
        for name, home in homes.items():
            anew(origin, place)
            arguments = located(line, place)
            found = bare | home

            def moved(found: Mapping[str, str] = found) -> None:
                os.environ.clear()
                os.environ.update(found)

            if line in ANEW:
                ended = spawned(arguments, place, environment=found)
            else:
                ended = forked(arguments, place, moved)
            wrong = _expected(ended, arguments, place)
            if not wrong and "home" in ended.err.lower():
                wrong = f"says {ended.err!r}"
            tally.note(f"home: {name}", line, wrong)
    return tally


def _directed(stdout: str, stderr: str) -> Callable[[], None]:
    """Sends a process's streams elsewhere: to a file, nowhere (`closed`) or to a reader that has gone (`gone`)."""

    def directed() -> None:
        for number, name, to in ((1, "stdout", stdout), (2, "stderr", stderr)):
            if to == "closed":
                os.close(number)
                setattr(sys, name, None)
            elif to:
                reading, writing = (
                    os.pipe() if to == "gone" else (os.open(os.devnull, os.O_RDONLY), os.open(to, os.O_WRONLY))
                )
                os.close(reading)
                os.dup2(writing, number)
                setattr(sys, name, opened(number))  # of which nothing is known from what it was before

    return directed


def _encoded(name: str) -> Callable[[], None]:
    def encoded() -> None:
        sys.stdout, sys.stderr = (opened(number, name) for number in (1, 2))

    return encoded


def _outputs(origin: Path, place: Path) -> Tally:
    """Outputs that are closed, full, gone or of another encoding."""
    tally = Tally()
    shells = {
        "closed output": ('"$@" >&-', _directed("closed", "")),
        "closed errors": ('"$@" 2>&-', _directed("", "closed")),
        "all closed": ('"$@" <&- >&- 2>&-', _directed("closed", "closed")),
        "full output": ('"$@" >/dev/full', _directed("/dev/full", "")),
        "full errors": ('"$@" 2>/dev/full', _directed("", "/dev/full")),
        "reader gone": ('"$@" | true', _directed("gone", "")),
    }
    plain = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for line in (*WRITERS, *READERS, "check PLACE/nothing", "run RESULT \u202e \u03c0"):
        arguments = located(line, place)
        fails = line.startswith(("check PLACE", "run RESULT \u202e"))
        for name, (shell, directed) in shells.items():
            anew(origin, place)
            if line in ANEW:
                ended = spawned(arguments, place, ["sh", "-c", shell, "sh"])
            else:
                ended = forked(arguments, place, directed)
            right = (1,) if fails else (0,)
            if name in ("full output", "reader gone"):  # matters to who has something to say
                right = (0, 1)
            if name == "full output" and line in READERS:
                right = (1,)
            wrong = None if ended.code in right else f"ended with {ended.code}: {ended.err[-300:]}"
            if len(ended.err.splitlines()) > 1 or "Traceback" in ended.err:
                wrong = f"says {ended.err[-300:]!r}"
            tally.note(f"output: {name}", line, wrong or (f"left {left}" if (left := left_behind(place)) else None))
        for name in ("ascii", "latin-1", "cp1252", "utf-16", "shift_jis", "no locale"):
            anew(origin, place)
            if name == "no locale":
                if line not in ANEW:
                    continue
                ended = spawned(arguments, place, environment=plain)
            elif line in ANEW:
                ended = spawned(arguments, place, environment=os.environ | {"PYTHONIOENCODING": name})
            else:
                ended = forked(arguments, place, _encoded(name))
            wrong = None if ended.code == fails and "Traceback" not in ended.err else f"{ended.code} {ended.err[-300:]}"
            tally.note(f"output: {name}", line, wrong)
    return tally


def _limited(megabytes: int) -> Callable[[], None]:
    """Lets a process have so much memory more than it has."""

    def limited() -> None:
        most = int(Path("/proc/self/statm").read_text().split()[0]) * 4096 + megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    return limited


def _low_memory(origin: Path, place: Path) -> Tally:
    """A limit to the memory, before drasp begins and when its imports are done: the work, or one line."""
    tally = Tally()
    for line in WRITERS:
        arguments = located(line, place)
        anew(origin, place)
        called(arguments)
        whole = program_files(place)
        early = [("before the imports", m) for m in (100, 300, 600, 1000, 2000) if line in ANEW]
        for name, megabytes in [*early, *(("after the imports", m) for m in (0, 1, 3, 10, 30, 100))]:
            anew(origin, place)
            old = program_files(place)
            if name.startswith("before"):
                ended = spawned(arguments, place, ["prlimit", f"--as={megabytes * 2**20}"])
            else:
                ended = forked(arguments, place, _limited(megabytes))
            wrong = wrong_end(arguments, ended, place)
            if not wrong and program_files(place) != (old if ended.code else whole) and not line.startswith("train"):
                wrong = "mixed or half-written"
            if not wrong and ended.code and "memory" not in ended.err:
                wrong = f"says {ended.err!r}"
            tally.note(f"low memory {name}", f"{line}, {megabytes} MB", wrong)
    return tally


def _two_at_once(origin: Path, place: Path) -> Tally:
    """Two processes with one place for their output: each does its work or is refused, and one result is there."""
    tally = Tally()
    for line in WRITERS:
        arguments = located(line, place)
        anew(origin, place)
        called(arguments)
        whole = program_files(place)
        for _ in range(4):
            anew(origin, place)
            both = [ran.end() for ran in [begun(arguments, place) for _ in "12"]]
            codes = sorted(ended.code for ended in both)
            errors = [ended.err for ended in both if ended.code]
            wrong = None
            if codes not in ([0, 0], [0, 1]):
                wrong = f"ended with {codes}: {errors}"
            elif any(not re.fullmatch(".*(another drasp|exists already|holds an interr).*\n", err) for err in errors):
                wrong = f"says {errors}"
            elif program_files(place) != whole and not line.startswith("train"):
                wrong = "mixed"
            elif left := left_behind(place):
                wrong = f"left behind: {left}"
            tally.note("two at once", line, wrong)
    return tally


class _Scripts(html.parser.HTMLParser):
    """Counts what a page could run."""

    def __init__(self) -> None:
        super().__init__()
        self.found = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += tag in ("script", "img", "iframe", "object") or any(name.startswith("on") for name, _ in attrs)


def _scripts(page: Path) -> int:
    parser = _Scripts()
    parser.feed(page.read_text())
    return parser.found


def _hostile_names(origin: Path, place: Path, seed: int) -> Tally:
    """Models whose tokens have hostile names: refused in one line, or shown and not obeyed."""
    tally = Tally()
    anew(origin, place)
    called(located("report RESULT", place))
    scripts = _scripts(place / "result/report.html")
    for number in range(60):
        rng = random.Random(f"{seed} names {number}")
        anew(origin, place)
        for file in (place / "model").glob("*.json"):
            text = file.read_text()
            if '"0"' in text:
                file.write_text(
                    text.replace('"0"', json.dumps(rng.choice(NAMES) + rng.choice(["", "x", rng.choice(NAMES)])))
                )
        for line in (
            "translate MODEL --out OUT",
            "check OUT",
            "report OUT",
            "explore PLACE",
            "export OUT --out PLACE/cr",
        ):
            arguments = located(line, place)
            ended = called(arguments)
            wrong = wrong_end(arguments, ended, place)
            page = place / "out/report.html"
            if not wrong and line == "report OUT" and not ended.code and _scripts(page) != scripts:
                wrong = f"a page with {_scripts(page)} scripts, not {scripts}"
            tally.note("hostile names", f"{number} {line}", wrong)
            if ended.code and line.startswith("translate"):
                break
    return tally
