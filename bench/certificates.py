"""Up to which length decompiled language models can be certified in so many seconds.

    python bench/certificates.py SECONDS --out DIR [--models FOLDER] [--table FILE] [NAME…]

The models of the zoo, and those of FOLDER (GPT-2 folders named TASK-…), whose tasks are languages; or those whose
names are given, of any task whose inputs can be listed. Each is decompiled with `--quick`, and its result kept in
DIR/NAME: a model whose result is there is not decompiled again, so that programs of another search can be put there,
and a run that was stopped goes on. What was found in so many seconds is kept beside it. Seconds are those that the
processor spends. Prints a row of a Markdown table for each model, and `--table` writes all rows as JSON.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from drasp.certificates import certified
from drasp.decompiler.pipeline import decompile
from drasp.loading import load_model_and_task
from drasp.results.files import save_decompiled
from drasp.results.result import load_result
from drasp.settings import QUICK
from drasp.tasks import Task, load_task
from drasp.tasks.framed import language_of
from drasp.transformer import Transformer
from drasp.zoo import zoo_models

Row = dict[str, Any]
HEADINGS = ("model", "lines", "verdict", "program against model", "margin", "shortest counterexample")
HEADINGS += ("program against task", "largest error bound", "seconds")
_LONG = 12  # tokens of a counterexample that are written out


def found(out: Path, transformer: Transformer, task: Task, model: str, seconds: float) -> Row:
    """One model's row: from its file, where it is of the same program and time, or made anew."""
    if not (out / "result.json").is_file():
        save_decompiled(decompile(transformer, task, settings=QUICK), out, model)
    result, file = load_result(out), out / f"certified in {seconds:g} s.json"
    text = str(result.program)
    if file.is_file() and (row := json.loads(file.read_text()))["program"] == text:
        return row
    begun = time.process_time()
    made = certified(result.program, transformer, task, seconds, time.process_time)
    row: Row = {
        "model": out.name,
        "digest": result.record.model_digest,
        "verdict": ", ".join(filter(None, (result.verdict, result.grade))),
        "lines": result.program.lines,
        "match": result.record.match_accuracy,
        "program": text,
        "limit": seconds,
        "seconds": round(time.process_time() - begun, 1),
        "found": None if made is None else made.content["found"],
        "tokens": task.vocabulary.tokens,
    }
    file.write_text(json.dumps(row, indent=1))
    return row


def cells(row: Row) -> list[str]:
    """A row as the table shows it."""
    first = [row["model"], str(row["lines"]), row["verdict"].removeprefix("decompiled, ")]
    if row["found"] is None:
        return [*first, "no certificate", "", "", "", "", f"{row['seconds']:.0f}"]
    model, task = row["found"]["against_model"], row["found"]["against_task"]
    margin = "" if model["margin"] is None else f"{model['margin']:.2g}"
    same = {**task, "margin": None, "counterexample": None} == {**model, "margin": None, "counterexample": None}
    against_task = "the same" if same and _case(row, task) == _case(row, model) else _said(task)
    if against_task != "the same" and task["counterexample"]:
        against_task += f", then {_case(row, task)}"
    error = f"{row['found']['largest_error']:.0e}"
    return [*first, _said(model), margin, _case(row, model), against_task, error, f"{row['seconds']:.0f}"]


def _said(result: Row) -> str:
    alike = f"{result['inputs']:,} strings up to {result['length']}" if result["inputs"] else "none"
    return alike + (f", {result['undecided']:,} undecided" if result["undecided"] else "")


def _case(row: Row, result: Row) -> str:
    if result["counterexample"] is None:
        return ""
    tokens = [row["tokens"][t] for t in result["counterexample"]["tokens"]][1:] or ["BOS alone"]
    return " ".join(tokens) if len(tokens) <= _LONG else f"{' '.join(tokens[:_LONG])} … ({len(tokens)} tokens)"


def models(folder: Path | None, names: list[str]) -> list[tuple[str, str]]:
    """Names and places: the zoo's first, and small ones before large ones."""
    places = {model.name: model.name for model in zoo_models()}
    published = sorted(folder.glob("*-*")) if folder else []
    places |= {place.name: str(place) for place in sorted(published, key=lambda p: ("h256" in p.name, p.name))}
    unknown = [name for name in names if name not in places]
    if unknown:
        raise SystemExit(f"no model is called {unknown[0]}; there are {', '.join(places)}")
    return [(name, places[name]) for name in names or places if names or _is_language(name)]


def _is_language(name: str) -> bool:
    return language_of(load_task(name.split("-")[0])) is not None


def main() -> None:
    """Prints the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=float)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--table", type=Path)
    arguments = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    rows: list[Row] = []
    for name, place in models(arguments.models, arguments.names):
        transformer, task = load_model_and_task(place, name.split("-")[0])
        assert task is not None
        rows.append(found(arguments.out / name, transformer, task, place, arguments.seconds))
        print(f"| {' | '.join(cells(rows[-1]))} |", flush=True)
        if arguments.table:
            arguments.table.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
