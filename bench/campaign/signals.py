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

# At every move, or, where a command takes long and the same functions move its files, at every so-many-th.
SHORT = {
    "translate TINY --task bin_majority --out OUT": 1, "translate TINY --task bin_majority --out PLACE/found": 1,
    "decompile TINY --out PLACE/found --pick 3": 1, "compile SMALL --out OUT": 1, "figures SMALL --format svg": 5,
    "report SMALL": 1, "explore PLACE": 1, "certify SMALL --task bin_majority --length 2 --out OUT/certificate.json": 1,
    "export SMALL --out OUT": 1, "import PLACE/nano.pt --out OUT": 1, "language (ab)* --out OUT/it.cr": 1,
    "name SMALL TINY --task bin_majority --out OUT": 1, "tables PLACE/study": 1,
    "sweep PLACE/undone.toml --out PLACE/undone --quiet": 1,
}  # fmt: skip
LONG = (f"{FINDING} --out OUT", f"{LEARNING} --out OUT", f"{FINDING} --seeds 2 --out OUT")


def signals_at_moves(line: str, origin: Path, place: Path, step: int = 1, most: int = 1000) -> Tally:
    """A signal before and after each call of a short command, or of each `step`-th of these moments."""
    tally = Tally()
    arguments = located(line, place)
    anew(origin, place, line)
    old = program_files(place)
    called(arguments)
    whole = program_files(place)
    for number in range(0, most, step):
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
    for number in range(moves):
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
    if left := [*left_behind(place), *(path.name for path in begun if path.exists())]:
        return f"left behind: {left}"
    return None
