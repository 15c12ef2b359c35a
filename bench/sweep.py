"""What a sweep costs beside its units: the same units by hand, one after another, and by `drasp sweep --jobs 1`.

    python bench/sweep.py [--rounds 3]

By hand is each unit's process alone, with what it writes in a folder. Both run turn by turn; the medians count.
Processor time says what the sweep does, time on the clock also how long it takes to see that a unit has ended.
"""

import argparse
import json
import os
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from drasp.study.engine import COMMAND, sweep
from drasp.study.spec import Study, read_study
from drasp.study.store import Store

SPEC = """
[[train]]
tasks = ["bin_majority"]
seeds = [0, 1]
steps = 100

[[decompile]]
quick = true
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    os.environ["OMP_NUM_THREADS"] = "1"
    with TemporaryDirectory() as name:
        place = Path(name)
        (place / "spec.toml").write_text(SPEC)
        study = read_study(place / "spec.toml")
        hand: list[tuple[float, float]] = []
        swept: list[tuple[float, float]] = []
        for number in range(rounds):
            hand.append(measured(lambda number=number: by_hand(study, place / f"hand{number}")))
            swept.append(measured(lambda number=number: by_sweep(study, place / f"sweep{number}")))
    print(f"{len(study.units())} units, {rounds} rounds")
    for index, what in enumerate(("on the clock", "processor")):
        alone, both = (median(each[index] for each in times) for times in (hand, swept))
        print(f"{what}: by hand {alone:.2f} s, by the sweep {both:.2f} s: {both / alone - 1:+.1%}")


def measured(run: Callable[[], None]) -> tuple[float, float]:
    """Seconds on the clock, and of the processor: of this process and of those that it started."""
    began, used = time.perf_counter(), processor()
    run()
    return time.perf_counter() - began, processor() - used


def processor() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def by_hand(study: Study, folder: Path) -> None:
    for unit in study.units():
        work = folder / unit.id
        work.mkdir(parents=True)
        model = str(folder / unit.needs / "files" / "model") if unit.needs else None
        order = {
            "unit": unit.to_json(), "work": str(work), "model": model, "memory_gb": study.limits.memory_gb,
            "parent": os.getpid(),
        }  # fmt: skip
        subprocess.run(COMMAND, input=json.dumps(order).encode(), check=True)
        assert json.loads((work / "outcome.json").read_text())["status"] == "done"


def by_sweep(study: Study, folder: Path) -> None:
    store = Store(folder)
    store.open(study.name, study.text)
    assert not sweep(study, store, 1).failed


if __name__ == "__main__":
    main()
