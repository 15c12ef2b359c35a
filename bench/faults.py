"""Bad inputs for every command, signals at every file move, and bad surroundings: what fails is counted.

    python bench/faults.py --out faults.jsonl              20,000 inputs, and the rest; goes on where it was stopped
    python bench/faults.py --inputs 500 --only inputs      so many inputs, from seed 0
    python bench/faults.py --only "signals: train"         portions whose names begin so

An input is a folder with one file damaged or replaced, or an odd argument; the command is run in this process through
`main`, and every 32nd by a process of its own. A failure is an exception that gets out or ends with 70 (a fault of
drasp's own), a hang, more than one line on the error stream of a command that ends otherwise than with 0, a control
character on a stream, code run that a folder holds, files left beside the output, and an end with 0 without the work.
A signal is sent before or after a call that changes files, or in the middle of work. Then a folder must be whole, the
old or the new, and the command again, or with --resume, must end with the program files of one that was not
interrupted. TMPDIR=/dev/shm makes all of it faster; so do two processes with other portions and the same --out.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch

import drasp
from campaign.commands import Tally, asked_to_end, prepared
from campaign.inputs import bad_inputs
from campaign.signals import LONG, SHORT, signals_at_moves, signals_in_long_work
from campaign.surroundings import surroundings

PORTION = 250  # inputs


def code_digest() -> str:
    """Of drasp's own files: counts are of the code that was tried."""
    made = sha256()
    for file in sorted(Path(drasp.__file__).parent.rglob("*.py")):
        made.update(file.read_bytes())
    return made.hexdigest()[:12]


def portions(inputs: int, seed: int, place: Path) -> Mapping[str, Callable[[], Tally]]:
    """Everything that is tried, by names under which it is noted as done."""
    origin, work = place / "origin", place / "work"
    drawn = {
        f"inputs {begin}-{end - 1} of seed {seed}": partial(bad_inputs, origin, place, range(begin, end), seed)
        for begin in range(0, inputs, PORTION)
        for end in [min(begin + PORTION, inputs)]
    }
    moves = {f"signals: {line}": partial(signals_at_moves, line, origin, work) for line in SHORT}
    middle = {f"signals: {line}": partial(signals_in_long_work, line, origin, work) for line in LONG}
    around = {f"surroundings: {name}": tried for name, tried in surroundings(origin, work, seed).items()}
    return {**around, **moves, **middle, **drawn}


def _processor_seconds() -> float:
    """What this process has taken, and those that it has begun and that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def campaign(inputs: int, seed: int, out: Path | None = None, only: str = "") -> Tally:
    """Tries what has not been tried yet, according to the file `out`; gives the sum of all of it."""
    torch.set_num_threads(1)
    done: dict[str, Tally] = {}
    code = code_digest()
    if out is not None and out.exists():
        for line in out.read_text().splitlines():
            noted = json.loads(line)
            done[noted["portion"]] = Tally(Counter(noted["tried"]), noted["failed"], {noted["code"]})
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary).resolve()
        prepared(place / "origin")
        wanted = {name: tried for name, tried in portions(inputs, seed, place).items() if name.startswith(only)}
        for name, tried in wanted.items():
            if name not in done:
                begun, worked = time.monotonic(), _processor_seconds()
                done[name] = tried()
                done[name].code.add(code)
                seconds = f"{time.monotonic() - begun:.0f} s ({_processor_seconds() - worked:.0f} s of a processor)"
                print(f"{name}: {done[name].tried.total():,} in {seconds}, {len(done[name].failed)} failed", flush=True)
                if out is not None:
                    tally = done[name]
                    noted = {"portion": name, "code": code, "tried": tally.tried, "failed": tally.failed}
                    with out.open("a") as file:
                        file.write(json.dumps(noted) + "\n")
                        file.flush()
                        os.fsync(file.fileno())
    summed = [done[name] for name in wanted]
    failed = [one for each in summed for one in each.failed]
    return Tally(sum((each.tried for each in summed), Counter()), failed, set().union(*(each.code for each in summed)))


def table(tally: Tally) -> str:
    rows = [f"| {kind} | {count:,} |" for kind, count in sorted(tally.tried.items())]
    codes = ", ".join(sorted(tally.code))
    return "\n".join(
        ["| tried | times |", "|---|---|", *rows, "", f"{len(tally.failed)} failures; code {codes}.", *tally.failed]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="portions whose names begin so: inputs, signals, surroundings")
    parser.add_argument("--out", type=Path, help="what was tried; those portions are not tried again")
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, asked_to_end)
    try:
        found = campaign(given.inputs, given.seed, given.out, given.only)
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on behind the last portion that was noted")
    print(table(found))
    sys.exit(bool(found.failed))
