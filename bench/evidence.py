"""Evaluates programs that were decompiled, and prints what each measure says of them.

    python bench/evidence.py RESULTS [NAME...] [--effort full|quick] [--no-cost] [--json FILE]

RESULTS holds folders that `drasp decompile` wrote; the model of each is the one that its result.json names. The model
cut down is `pruned.drasp`, or in results without one the program of the frontier that was named. "Cost" is the
evaluation's time over that of one training step of the paper's first stage, as in bench/decompile.py, timed in the
same run; one thread. `--json` keeps all evidence, line by line.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from decompile import step_seconds
from drasp.causal import FULL, QUICK_LOOK, Evidence, Measure, evaluate
from drasp.language import Program, load_program, load_pruned
from drasp.loading import load_model_and_task, resolve_model
from drasp.records import Record, read_record

COLUMNS = ("model", "lines", "cut down", "agreement", "edited", "attention", "replaced", "in the model")
COLUMNS += ("splice", "complement", "at means", "verdict", "seconds", "cost")


def cut_down_of(folder: Path, record: Record) -> Program | None:
    pruned = load_pruned(folder)
    stored = folder / "frontier" / f"{record.pruned_lines}.drasp"
    return pruned if pruned is not None or not stored.is_file() else load_program(stored)


def evaluated(folder: Path, effort: str, with_cost: bool) -> tuple[dict[str, object], Evidence]:
    record = read_record(folder)
    assert record is not None, f"{folder}: no result"
    assert record.model is not None, f"{folder}: a result without its model"
    transformer, task = load_model_and_task(record.model, record.task)
    assert task is not None
    program, cut_down = load_program(folder), cut_down_of(folder, record)
    step = step_seconds(resolve_model(record.model)) if with_cost else None
    start = time.process_time()
    evidence = evaluate(program, transformer, task, cut_down, {"full": FULL, "quick": QUICK_LOOK}[effort])
    seconds = time.process_time() - start
    return {
        "model": folder.name,
        "lines": program.lines,
        **cells(evidence),
        "seconds": round(seconds, 1),
        "cost": None if step is None else round(seconds / step),
    }, evidence


def cells(evidence: Evidence) -> dict[str, object]:
    """What a table says of the evidence for one program."""
    replaced = [line.interchange_cut_down for line in evidence.lines if line.interchange_cut_down is not None]
    return {
        "cut down": shown(evidence.model_cut_down),
        "agreement": shown(evidence.program),
        "edited": shown(evidence.edited),
        "attention": by_line(evidence, "attention_cut_down"),
        "replaced": " ".join(map(shown, replaced)),
        "in the model": by_line(evidence, "interchange"),
        "splice": by_line(evidence, "splice"),
        "complement": shown(evidence.complement),
        "at means": "" if evidence.mean_ablated is None else shown(evidence.mean_ablated),
        "verdict": evidence.grade or "not causal",
    }


def shown(measure: Measure) -> str:
    """Two digits, in brackets where there are too few cases, bold where it fails."""
    if measure.value is None:
        return {"untested": "idle", "not_applicable": "n/a"}[measure.status]
    text = f"{measure.value:.2f}"
    return f"**{text}**" if measure.failed else f"({text})" if measure.status == "untested" else text


def by_line(evidence: Evidence, measure: str) -> str:
    found = (getattr(line, measure) for line in evidence.lines)
    return " ".join(shown(m) for m in found if m is not None and m.status != "not_applicable")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--effort", choices=("full", "quick"), default="full")
    parser.add_argument("--no-cost", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folders = sorted(f for f in arguments.results.iterdir() if (f / "result.json").exists())
    chosen = [f for f in folders if not arguments.names or f.name.startswith(tuple(arguments.names))]
    rows: list[dict[str, object]] = []
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    for folder in chosen:
        row, evidence = evaluated(folder, arguments.effort, not arguments.no_cost)
        print("| " + " | ".join("" if row[c] is None else str(row[c]) for c in COLUMNS) + " |", flush=True)
        rows.append({**row, "evidence": evidence.to_json()})
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
