"""The paper's whole method beside `fast`, on published models: every run of every stage, and what came of them.

    python bench/paper_method.py FOLDER WORK NAME... [--runs N] [--seed S]

FOLDER holds the published models, NAME picks one by how its name begins. N is how many coefficients are tried in each
stage; without, it is the paper's 20. WORK keeps what is finished: a stopped bench goes on at the run that it was in.
The table, bench/paper_method.json, is written after every run, also of models that are not finished; rows of other
models and settings stay as they are. One thread. Seconds are of processor time.
"""

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

import torch

from decompile import EVIDENCE, PAPER, shown, task_of
from drasp.decompiler.pipeline import decompile
from drasp.decompiler.result import Decompiled
from drasp.language import Program
from drasp.language.syntax import ONE, PrimitiveFunction
from drasp.model_files import load_model
from drasp.records import PassRecord
from drasp.rewriting.canonical import canonical
from drasp.settings import PAPER_SETTINGS, UgsSettings

TABLE = Path(__file__).with_name("paper_method.json")
_RUN = re.compile(
    r"(?P<stage>stage \d[^:]*): λ (?P<ours>\S+), the paper's (?P<paper>\S+); (?P<ending>.*) after (?P<steps>\d+) steps"
)
Row = dict[str, Any]


class Passes:
    """Finished passes of a decompilation, with their processor time, kept in a file as they end."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: list[Row] = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        self.since = time.process_time()

    def add(self, record: PassRecord) -> None:
        now = time.process_time()
        row = {"name": record.name, "left": record.left, "unit": record.unit, "match": record.match_accuracy}
        self.found.append(row | {"seconds": round(now - self.since, 2)})
        self.since = now
        with self.file.open("a") as file:
            file.write(json.dumps(self.found[-1]) + "\n")

    def runs(self) -> list[Row]:
        """Those of the stages; one that was made again, since it was not stored, counts once."""
        found: dict[str, Row] = {}
        for each in self.found:
            if told := _RUN.fullmatch(each["name"]):
                run = {"stage": told["stage"], "λ": float(told["ours"]), "paper's λ": float(told["paper"])}
                run |= {"ending": told["ending"], "steps": int(told["steps"]), "edges": each["left"]}
                found[each["name"]] = run | {"match": each["match"], "seconds": each["seconds"]}
        return list(found.values())


def by_stage(runs: list[Row]) -> dict[str, Row]:
    """For each stage how many runs there were, how they ended, and the best agreement, and the fewest edges at 0.9."""
    stages: dict[str, list[Row]] = {}
    for run in runs:
        stages.setdefault(run["stage"].split(", from")[0], []).append(run)
    told: dict[str, Row] = {}
    for name, each in stages.items():
        good = [run for run in each if run["match"] >= 0.9]
        endings = [run["ending"] for run in each]
        told[name] = {
            "runs": len(each),
            "endings": {ending: endings.count(ending) for ending in dict.fromkeys(endings)},
            "best match": max(run["match"] for run in each),
            "fewest edges at 0.9": min((run["edges"] for run in good), default=None),
            "steps": sum(run["steps"] for run in each),
            "seconds": round(sum(run["seconds"] for run in each), 1),
        }
    return told


def outcome(result: Decompiled) -> Row:
    evidence = result.final.evidence
    return {
        "verdict": result.verdict,
        "grade": result.grade,
        "pruned lines": result.pick.lines,
        "pruned match": str(result.pick.match),
        "lines": result.final.lines,
        "match": str(result.final.match),
        "reasons": result.reasons[:3],
        **{name: shown(getattr(evidence, name)) if evidence else None for name in EVIDENCE},
        "pruned": str(result.pick.program),
        "program": str(result.program),
    }


def shape(program: Program) -> list[tuple[str, ...]]:
    """What a program's lines read, without their tensors and the names of functions; a bias is no line of it."""
    lines = [s for s in canonical(program).statements if not (s.kind == "project" and s.operands == (ONE,))]
    numbers = {s.name: f"${i}" for i, s in enumerate(lines)}
    return [
        (s.kind, *("named" for part in s.parts.values() if isinstance(part, PrimitiveFunction)),
         *(numbers.get(name, name) for name in s.reads if name in numbers or name in ("token", "pos", "one")))
        for s in lines
    ]  # fmt: skip


def bench(folder: Path, work: Path, runs: int | None, seed: int) -> None:
    settings = UgsSettings(runs=(runs, runs, runs, runs), continued=min(runs, 4)) if runs else PAPER_SETTINGS
    model, task = load_model(folder), task_of(folder)
    name = f"{folder.name}.{runs or 'full'}.{seed}"
    file, passes = work / f"{name}.decompiling", Passes(work / f"{name}.passes")
    row: Row = {"model": folder.name, "runs a stage": runs or 20, "seed": seed, "finished": False}
    row["paper"] = dict(zip(("match", "lines"), PAPER[folder.name], strict=True)) if folder.name in PAPER else None

    def report(record: PassRecord) -> None:
        passes.add(record)
        if record.name.startswith("stage"):
            keep(row | {"stages": by_stage(passes.runs()), "all runs": passes.runs()})

    result = decompile(
        model, task, seed, 0.9, 40, report, checkpoint=file, resume=file.exists(), method="ugs", ugs=settings,
        accept="answers", naming="paper",
    )  # fmt: skip
    naming = {p["name"]: [p["left"], p["match"]] for p in passes.found if p["name"].startswith("paper's names")}
    begun = time.process_time()
    fast = decompile(model, task, seed)
    row |= {
        "finished": True,
        "stages": by_stage(passes.runs()),
        "naming": naming,
        "seconds": round(sum(each["seconds"] for each in passes.found), 1),
        "ugs": outcome(result),
        "fast seconds": round(time.process_time() - begun, 1),
        "fast": outcome(fast),
        "same lines, pruned": shape(result.pick.program) == shape(fast.pick.program),
        "same lines, named": shape(result.program) == shape(fast.program),
        "all runs": passes.runs(),
    }
    keep(row)


def keep(row: Row) -> None:
    """Puts a row into the table, in the place of an older one."""
    rows = json.loads(TABLE.read_text()) if TABLE.exists() else []
    same = ("model", "runs a stage", "seed")
    rows = [each for each in rows if any(each[key] != row[key] for key in same)]
    TABLE.write_text(json.dumps([*rows, row], indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.work.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        [folder] = [f for f in sorted(arguments.folder.iterdir()) if f.name.startswith(name)]
        bench(folder, arguments.work, arguments.runs, arguments.seed)


if __name__ == "__main__":
    main()
