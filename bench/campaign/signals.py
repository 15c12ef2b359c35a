"""Signals at every call that changes files, and in the middle of long work.

The same command again, or with `--resume`, must end with the program files of a run that was not interrupted.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path

from campaign.commands import (
    FINDING,
    LEARNING,
    SIGNALS,
    Tally,
    anew,
    called,
    interrupted,
    left_behind,
    located,
    program_files,
)
from drasp.training import session

SHORT = (
    "translate TINY --task bin_majority --out OUT", "translate TINY --task bin_majority --out PLACE/found",
    "decompile TINY --out PLACE/found --pick 3", "compile SMALL --out OUT", "figures SMALL --format svg",
    "report SMALL", "explore PLACE", "certify SMALL --task bin_majority --length 2 --out OUT/certificate.json",
    "export SMALL --out OUT", "import PLACE/nano.pt --out OUT", "language (ab)* --out OUT/it.cr",
    "name SMALL TINY --task bin_majority --out OUT", "tables PLACE/study",
    "sweep PLACE/undone.toml --out PLACE/undone --quiet",
)  # fmt: skip
# At every moment before or after a move, or, where the same functions move the files of several searches, at some.
LONG = {f"{FINDING} --out OUT": 1, f"{LEARNING} --out OUT": 1, f"{FINDING} --seeds 2 --out OUT": 7}


def signals_at_moves(line: str, origin: Path, place: Path, most: int = 1000) -> Tally:
    """A signal before and after each call of a short command."""
    tally = Tally()
    arguments = located(line, place)
    anew(origin, place, line)
    old = program_files(place)
    called(arguments)
    whole = program_files(place)
    for number in range(most):
        call, after = number // 2 + 1, bool(number % 2)
        anew(origin, place, line)
        which = SIGNALS[number % 3]
        if not interrupted(arguments, which, call, after):
            break
        what = f"{line}, {'after' if after else 'before'} call {call}"
        tally.note(f"signal at a file move: {which.name}", what, _wrong_after(arguments, place, old, whole))
    return tally


def signals_in_long_work(line: str, origin: Path, place: Path, moves: int = 1000, moments: int = 12) -> Tally:
    """A signal at each call of a command that can go on with `--resume`, and at moments between."""
    session.SAVE_SECONDS = 0.0  # so that training has more moves than those of its end
    tally, rng = Tally(), random.Random(line)
    arguments = located(line, place)
    anew(origin, place, line)
    old = program_files(place)
    begun = time.monotonic()
    called(arguments)
    seconds = time.monotonic() - begun
    whole = program_files(place)
    for number in range(0, moves, LONG[line]):
        anew(origin, place, line)
        which, call, after = SIGNALS[number % 3], number // 2 + 1, number % 2 == 1
        if not interrupted(arguments, which, call, after):
            break
        what = f"{line}, {'after' if after else 'before'} call {call}"
        wrong = _wrong_after(arguments, place, old, whole, resume=rng.random() < 0.8)
        tally.note(f"signal at a file move: {which.name}", what, wrong)
    for number in range(moments):
        anew(origin, place, line)
        which, when = SIGNALS[number % 3], rng.uniform(0.05, 0.95) * seconds
        if interrupted(arguments, which, seconds=when):
            wrong = _wrong_after(arguments, place, old, whole, resume=rng.random() < 0.8)
            tally.note(f"signal in the middle of work: {which.name}", f"{line}, after {when:.2f} s", wrong)
    return tally


def _wrong_after(
    arguments: Sequence[str], place: Path, old: dict[str, bytes], whole: dict[str, bytes], resume: bool = True
) -> str | None:
    """Whether what is left is whole, and the command, run again, ends as it should."""
    if program_files(place) not in (old, whole):
        return "mixed"
    begun = [path for path in place.glob("out*") if path.suffix in (".decompiling", ".training")]
    if not resume:
        for path in begun:
            path.unlink()
    if called([*arguments, *(["--resume"] if begun and resume else [])]).code and program_files(place) != whole:
        return "cannot be run again"
    written = place / "out"
    if (written / "program.drasp").exists() and called(["check", str(written)]).code:
        return "not a correct program"
    if program_files(place) != whole:
        return "another end"
    unfinished = [*begun, *place.glob("undone/leases/*"), *place.glob("undone/work/*")]
    if left := [*left_behind(place), *(path.name for path in unfinished if path.exists())]:
        return f"left behind: {left}"
    return None
