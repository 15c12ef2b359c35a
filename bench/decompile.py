"""Decompiles every model of a folder and prints a table beside the paper's figures.

    python bench/decompile.py FOLDER [NAME...] [--method fast|ugs] [--runs N] [--seed S] [--out DIR] [--table FILE]

FOLDER holds GPT-2 folders; a model's task is the one in its task.json, or the part of its name before the first dash.
NAME picks models whose names begin so. One thread. "Cost" is the processor time of the decompilation over that of one
training step of the paper's first stage (gates sampled for 120 rows, 10 inputs with 12 masks each; forward, backward,
and a step of the optimiser), timed in the same run. Each row is computed by itself, as there: `--method ugs` computes
but once what the rows of an input share, and takes a tenth to nine tenths of that time. N is how many coefficients it
tries in each stage, and at most how many it takes from one to the next; without, it is the paper's. Every model is
decompiled in a process of its own, whose peak memory is given, right after its step was timed in another. "Of it
evidence" is the share of the time that goes into the final measures. Interchange in the model is that of the worst
line.

`--out` keeps every result as `drasp decompile` writes it, with its row: what is there already is not decompiled again,
so a run that was stopped goes on. `--table` writes what can be checked without the models, and where they are with
them: bench/published.json is that of the models published with the paper.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from drasp.causal import Measure
from drasp.decompiler.pipeline import METHODS, decompile
from drasp.decompiler.ugs.circuit import whole
from drasp.decompiler.ugs.gates import Gates, Training
from drasp.decompiler.ugs.running import mean_log_variances
from drasp.fitting.oracle import Oracle
from drasp.model_files import load_model
from drasp.primitives import count_primitives
from drasp.results.files import save_decompiled
from drasp.settings import PAPER_SETTINGS, UgsSettings
from drasp.tasks import Task, load_task, task_of_model

T = TypeVar("T")
Row = dict[str, Any]
# Final match and lines in the paper's appendix, for the models published with it.
PAPER = {
    "bin_majority-1l1h16d3lr01drop": (1.00, 3),
    "majority-1l4h256d3lr01drop": (0.99, 3),
    "unique_copy-2l1h64d3lr01drop": (0.94, 7),
    "sort-1l1h256d3lr01drop": (0.90, 5),
    "bin_majority_interleave-4l1h64d3lr01drop": (0.97, 7),
    "D4-1l2h256d4lr00drop": (0.99, 4),
    "aastar-1l2h16d3lr01drop": (1.00, 5),
    "abcde-1l1h16d3lr00drop": (1.00, 2),
    "tomita2-1l1h16d3lr00drop": (1.00, 2),
}
# What is the same in every run, and says of which weights.
TABLE = ("model", "digest", "command", "settings", "verdict", "grade", "lines", "match", "hits", "samples")
EVIDENCE = ("edited", "attention", "interchange", "complement", "mean_ablated")
TABLE += (*EVIDENCE, "frontier", "program")
COLUMNS = (
    "model",
    "verdict",
    "lines",
    "match",
    *EVIDENCE,
    "named",
    "paper",
    "processor seconds",
    "evidence",
    "cost",
    "peak MB",
)
HEADINGS = {
    "interchange": "interchange in the model",
    "mean_ablated": "rest at its means",
    "named": "named (select, project, element-wise)",
    "evidence": "of it evidence",
}


def step_seconds(folder: Path, rounds: int = 8) -> float:
    """Processor time of one training step of the first stage, the best of several."""
    torch.set_num_threads(1)
    transformer, task = load_model(folder), task_of(folder)
    # No two rows may share what is computed of them.
    rows = task.pool(10, np.random.default_rng(0)).rows(torch.arange(10).repeat_interleave(12))
    pool = Oracle.of(transformer, task, rows, batch_size=120)
    real = whole(transformer, None)
    circuit = replace(real, log_variances=mean_log_variances(real, pool))
    training = Training(Gates(circuit, pool), 0.001, task.output)
    generator = torch.Generator().manual_seed(0)
    times: list[float] = []
    # The first step also imports and allocates.
    for _ in range(1 + rounds):
        start = time.process_time()
        training.step(pool.batches[0], 1, generator)
        times.append(time.process_time() - start)
    return min(times[1:])


def task_of(folder: Path) -> Task:
    return task_of_model(folder) or load_task(folder.name.split("-")[0])


def decompiled(folder: Path, seed: int, method: str, settings: UgsSettings, out: Path | None) -> Row:
    torch.set_num_threads(1)
    task = task_of(folder)
    start = time.process_time()
    result = decompile(load_model(folder), task, seed=seed, method=method, ugs=settings)
    worked = time.process_time() - start
    record = result.record(str(folder))
    if out is not None:
        save_decompiled(result, out, str(folder))
    evidence = result.final.evidence
    return {
        "model": folder.name,
        "digest": result.identity.model_digest,
        "command": f"drasp decompile {folder.name} --task {task.name} --seed {seed} --method {method} --out result",
        "settings": {
            "seed": seed,
            **{name: s for name, s in result.identity.settings.items() if name not in ("search", "evidence")},
        },
        "verdict": result.verdict,
        "grade": result.grade,
        "match": str(result.final.match),
        "hits": result.final.match.hits,
        "samples": result.final.match.total,
        "lines": result.final.lines,
        **{name: shown(getattr(evidence, name)) if evidence else None for name in EVIDENCE},
        "primitives": count_primitives(result.program),
        "seconds": record.seconds,
        "processor seconds": round(worked, 1),
        "evidence seconds": record.evidence_seconds,
        "naming seconds": record.naming_seconds,
        "peak MB": record.peak_memory_mb,
        "program": str(result.program),
        "frontier": [[point.lines, point.match.value, point.grade] for point in result.frontier],
    }


def shown(measure: Measure | None) -> str | None:
    """What was measured, and of how many cases."""
    return None if measure is None else str(measure)


def cells(row: Row) -> list[str]:
    """A row as the table shows it."""
    named = ", ".join(f"{count['named']}/{count['total']}" for count in row["primitives"].values())
    match, lines = PAPER.get(row["model"], (None, None))
    told = row | {
        "verdict": ", ".join(filter(None, (row["verdict"], row["grade"]))),
        "match": row["match"].split(" of ")[0],
        "named": named,
        "paper": "not decompiled" if match is None else f"{match:.2f}, {lines}",
        "evidence": f"{row['evidence seconds'] / row['seconds']:.0%}",
    }
    return ["" if told[column] is None else str(told[column]) for column in COLUMNS]


def apart(run: Callable[..., T], *arguments: object) -> T:
    """In a process of its own, so that one model's memory does not count for another."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(run, *arguments).result()


def bench(
    folder: Path, seed: int = 0, method: str = "fast", settings: UgsSettings = PAPER_SETTINGS, out: Path | None = None
) -> Row:
    kept = out and out.with_suffix(f"{out.suffix}.json")
    if kept and kept.exists():
        return json.loads(kept.read_text())
    step = apart(step_seconds, folder)
    row = apart(decompiled, folder, seed, method, settings, out)
    row["cost"] = round(row["processor seconds"] / step)
    if kept:
        kept.write_text(json.dumps(row, indent=2) + "\n")
    return row


def write_table(file: Path, rows: list[Row]) -> None:
    """Rows as `bench` gives them to a file with what of them is the same in every run."""
    file.write_text(json.dumps([{name: row[name] for name in TABLE} for row in rows], indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--method", choices=METHODS, default="fast")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = arguments.runs
    settings = UgsSettings(runs=(runs, runs, runs, runs), continued=min(runs, 4)) if runs else PAPER_SETTINGS
    folders = sorted(path for path in arguments.folder.iterdir() if (path / "config.json").exists())
    chosen = [f for f in folders if not arguments.names or f.name.startswith(tuple(arguments.names))]
    rows: list[Row] = []
    print("| " + " | ".join(HEADINGS.get(c, c) for c in COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
    for folder in chosen:
        out = arguments.out and arguments.out / folder.name
        rows.append(bench(folder, arguments.seed, arguments.method, settings, out))
        print("| " + " | ".join(cells(rows[-1])) + " |", flush=True)
        if arguments.table:
            write_table(arguments.table, rows)


if __name__ == "__main__":
    main()
