"""Compiles programs, decompiles their models with default settings, and says how often the program is found again.

    python bench/ground_truth.py --seed S --out DIR [--part a|b|c|quick] [--limit N] [--jobs 2] [--table FILE]

`truth/specs.py` says what the parts are, `truth/score.py` what "right" means. "False" is what was called decompiled and
is not right, "held back" what is right and was not called so. DIR keeps what was found for every model, so a run that
was stopped goes on where it was, and scores what is there anew; for another decompiler take another DIR. The table,
with a line of totals for every part, is printed and kept as DIR/table.md, all that is known of each model as
DIR/rows.json; `--table` writes of these what is the same in every run: bench/ground_truth_before.json is such a table.
One thread for each of the jobs.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from drasp.compiler import Disguise
from drasp.decompiler.pipeline import decompile
from drasp.language import load_program, program_files
from drasp.language.syntax import ElementWise, Program
from drasp.output_folder import MARK, write_file, write_files
from truth.differences import least_difference
from truth.families import families
from truth.graph import units
from truth.score import PASSING, Score, score
from truth.specs import PARTS, RUNGS, Spec, count, make, same_answers

COLUMNS = ("model", "layers", "lines", "verdict", "found", "agreement", "graph", "attention", "interchange", "strings")
COLUMNS += ("right", "seconds")

# What is the same in every run.
TABLE = ("part", "number", "model", "seed", "disguise", "layers", "heads", "mlp", "norm", "lines", "truth")
TABLE += ("verdict", "agreement", "found lines", "found", "missing", "extra")
TABLE += ("least attention", "least interchange", "strings", "right", "false")

Row = dict[str, Any]


def measured(part: str, number: int, seed: int, out: Path) -> Row:
    """The row of one model. What its decompilation gave is kept on disk, and read again where it is there."""
    torch.set_num_threads(1)
    spec = make(part, number, seed)
    folder = out / "found" / spec.digest
    if not (folder / MARK).exists():
        write_files(folder, decompiled(spec))
    return row_of(spec, number, load_program(folder), json.loads((folder / MARK).read_text()))


def decompiled(spec: Spec) -> dict[str, bytes]:
    """The files that keep a program as it was found, with default settings, and what is said of it."""
    start = time.perf_counter()
    result = decompile(spec.compiled.transformer, spec.task)
    told = {
        "verdict": result.verdict,
        "agreement": result.final.match.value,
        "seconds": round(time.perf_counter() - start, 1),
    }
    files = program_files(result.program)
    kept = {name: files[name] for name in ("program.drasp", "program.safetensors")}
    return {**kept, MARK: (json.dumps(told) + "\n").encode()}


def row_of(spec: Spec, number: int, found: Program, told: Row) -> Row:
    compiled = spec.compiled
    scored = score(compiled.program, found, compiled.transformer, spec.task, spec.seed)
    return {
        "part": spec.part,
        "number": number,
        "model": spec.name,
        "seed": spec.seed,
        "disguise": told_of(spec.disguise),
        "layers": compiled.shape.n_layers,
        "heads": len({c for unit in units(compiled.program) for c in unit if c.kind == "head"}),
        "d_model": compiled.shape.d_model,
        "mlp": any(isinstance(line, ElementWise) for line in spec.program.statements),
        "norm": spec.disguise.norms_matter,
        "model agrees": same_answers(spec),
        "truth": listing(compiled.program),
        "lines": spec.program.lines,
        **told,
        "found lines": found.lines,
        "found": listing(found),
        **scores(scored),
        "false": told["verdict"] == "decompiled" and not scored.right,
        "rejected": dict(spec.rejected),
    }


def told_of(disguise: Disguise) -> str:
    """All that a disguise does; the task that it is trained on is the model's own."""
    return ", ".join(f"{each.name} {getattr(disguise, each.name)}" for each in fields(disguise) if each.name != "task")


def listing(program: Program) -> list[str]:
    return str(program).splitlines()


def scores(found: Score) -> Row:
    return {
        "same graph": found.same_graph,
        "missing": found.missing,
        "extra": found.extra,
        "attention": found.attention,
        "least attention": found.least_attention,
        "interchange": {name: [share.hits, share.total] for name, share in found.interchange.items()},
        "least interchange": found.least_interchange,
        "strings": found.strings.value,
        "right": found.right,
    }


# ---------------------------------------------------------------------------------------- tables


def table(rows: Sequence[Row]) -> str:
    """One line a model, and behind every part its totals."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for part in dict.fromkeys(row["part"] for row in rows):
        of_part = [row for row in rows if row["part"] == part]
        lines += ["| " + " | ".join(cells(row)) + " |" for row in of_part]
        rungs = [name for name in RUNGS if any(row["model"].endswith(f"/ {name}") for row in of_part)]
        for name in rungs:
            of_rung = [row for row in of_part if row["model"].endswith(f"/ {name}")]
            lines.append(f"| {name}: {totals(of_rung)} |" + " |" * (len(COLUMNS) - 1))
        lines.append(f"| **{part}**: {totals(of_part)} |" + " |" * (len(COLUMNS) - 1))
    return "\n".join(lines)


def cells(row: Row) -> list[str]:
    graph = "same" if row["same graph"] else f"{len(row['missing'])} missing, {len(row['extra'])} extra"
    shares = (row["least attention"], row["least interchange"], row["strings"])
    judged = "right" if row["right"] else "FALSE" if row["false"] else "not right"
    told = (
        row["model"],
        row["layers"],
        row["lines"],
        row["verdict"],
        row["found lines"],
        f"{row['agreement']:.3f}",
        graph,
    )
    return [*map(str, told), *(f"{share:.2f}" for share in shares), judged, str(row["seconds"])]


def totals(rows: Sequence[Row]) -> str:
    right, false = (sum(row[name] for row in rows) for name in ("right", "false"))
    verdicts = counted(row["verdict"] for row in rows)
    faults = counted(fault(row) for row in rows if row["false"])
    times = sorted(row["seconds"] for row in rows)
    held_back = sum(row["right"] and row["verdict"] != "decompiled" for row in rows)
    said = f"{len(rows)} models, right {right} (held back {held_back}), false {false}"
    return f"{said}{f' ({faults})' if faults else ''}; {verdicts}; median {times[len(times) // 2]} s"


def counted(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in Counter(names).most_common())


def fault(row: Row) -> str:
    """The first thing that is wrong with a program, from the coarsest to the finest."""
    missing, extra = row["missing"], row["extra"]
    if any(" takes " in said for said in missing):
        return "another head, or none"
    if any("mlp reads " in said for said in missing):
        return "an MLP left out"
    if any(" looks " in said for said in missing):
        return "a select left out"
    if missing or extra:
        return "other reads"
    if row["least attention"] < PASSING:
        return "attention"
    return "interchange" if row["least interchange"] < PASSING else "strings"


def distribution(rows: Sequence[Row]) -> str:
    """What the random programs are, and what was drawn and rejected on the way."""
    n = len(rows)
    layers = Counter(row["layers"] for row in rows)
    shares = {name: sum(bool(row[name]) for row in rows) / n for name in ("mlp", "norm")}
    rejected = sum((Counter(row["rejected"]) for row in rows), Counter[str]())
    return (
        f"{n} programs of {min(r['lines'] for r in rows)} to {max(r['lines'] for r in rows)} lines; layers "
        + ", ".join(f"{number}: {layers[number] / n:.0%}" for number in sorted(layers))
        + f"; {min(r['heads'] for r in rows)} to {max(r['heads'] for r in rows)} heads; an MLP {shares['mlp']:.0%}; "
        + f"a norm that matters {shares['norm']:.0%}.\nRejected draws: "
        + counted(rejected.elements())
    )


def write_table(file: Path, rows: Sequence[Row]) -> None:
    """One line a model, so that a change shows where it is."""
    lines = (json.dumps({name: row[name] for name in TABLE}, ensure_ascii=False) for row in rows)
    write_file(file, ("[\n" + ",\n".join(lines) + "\n]\n").encode())


def differences() -> str:
    """How far apart the families' programs are."""
    found = [(family.name, *least_difference(family)) for family in families()]
    said = ", ".join(f"{name} {share:.2f} ({pair})" for name, share, pair in found)
    return f"Answers in which the two most alike of a family differ under some intervention: {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--limit", type=int, help="of each part, so many models")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_args()
    parts = [arguments.part] if arguments.part else [part for part in PARTS if part != "quick"]
    asked = [(part, i) for part in parts for i in range(count(part))[: arguments.limit]]
    arguments.out.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    rows: list[Row] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("spawn")) as pool,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        bar = progress.add_task("decompiling", total=len(asked))
        runs = [pool.submit(measured, part, i, arguments.seed, arguments.out) for part, i in asked]
        try:
            for run in as_completed(runs):
                rows.append(run.result())
                right, false = (sum(row[name] for row in rows) for name in ("right", "false"))
                progress.update(bar, advance=1, description=f"right {right}, false {false}")
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            sys.exit("stopped; the same command goes on from here")
    rows.sort(key=lambda row: (parts.index(row["part"]), row["number"]))
    text = table(rows)
    if random := [row for row in rows if row["part"] == "a"]:
        text += f"\n\n{distribution(random)}"
    if "b" in parts:
        text += f"\n\n{differences()}"
    print(text)
    write_file(arguments.out / "table.md", (text + "\n").encode())
    write_file(arguments.out / "rows.json", (json.dumps(rows, indent=1) + "\n").encode())
    if arguments.table:
        write_table(arguments.table, rows)


if __name__ == "__main__":
    main()
