"""Decompiles models with each pass left out, and prints what that does to lines, evidence and cost.

    python bench/ablation.py FOLDER [NAME...] [--out FILE]

FOLDER holds GPT-2 folders, NAME picks models whose names begin so. "Named" are the operations with a name, of all of
them. "Cost" is the processor time over that of the whole search on the same model, in the same run; where a pass had
nothing to do, that is noise. `--out` keeps every row as it is measured, one JSON object a line: what is there already,
of the same code, is not decompiled again, so a run that was stopped goes on.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from decompile import apart, shown, task_of
from drasp.decompiler.pipeline import CUTS, decompile
from drasp.model_files import load_model
from drasp.naming.pipeline import PASSES
from drasp.primitives import count_primitives
from drasp.settings import DEFAULT, Settings
from drasp.study.engine import code_digest

WHOLE = "nothing"
MEASURES = ("edited", "attention", "interchange", "complement")
COLUMNS = ("model", "without", "verdict", "lines", "named", "match", *MEASURES, "cost")


def settings_without() -> Iterator[tuple[str, Settings]]:
    """The default search, and one for each pass that can be left out."""
    yield WHOLE, DEFAULT
    for name in CUTS:
        yield name, replace(DEFAULT, without=(name,))
    for step in PASSES:
        yield step.name, replace(DEFAULT, naming=replace(DEFAULT.naming, without=(step.name,)))


def row_of(folder: Path, without: str, settings: Settings) -> dict[str, Any]:
    torch.set_num_threads(1)
    transformer, task = load_model(folder), task_of(folder)
    start = time.process_time()
    found = decompile(transformer, task, settings=settings)
    seconds = time.process_time() - start
    evidence = found.final.evidence
    operations = count_primitives(found.final.program).values()
    return {
        "model": folder.name,
        "without": without,
        "code": code_digest(),
        "verdict": ", ".join(filter(None, (found.verdict, found.grade))),
        "lines": found.final.lines,
        "named": "/".join(str(sum(each[count] for each in operations)) for count in ("named", "total")),
        "match": f"{found.final.match.value:.3f}",
        **{name: shown(getattr(evidence, name)) if evidence else "" for name in MEASURES},
        "seconds": round(seconds, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=[""])
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    out: Path | None = arguments.out
    known = [json.loads(line) for line in out.read_text().splitlines()] if out and out.exists() else []
    rows = {(row["model"], row["without"]): row for row in known if row["code"] == code_digest()}
    print("|", " | ".join(COLUMNS), "|\n|" + "---|" * len(COLUMNS), flush=True)
    for folder in sorted(f for f in arguments.folder.iterdir() if f.name.startswith(tuple(arguments.names))):
        for name, settings in settings_without():
            if (folder.name, name) not in rows:
                row = rows[folder.name, name] = apart(row_of, folder, name, settings)
                if out:
                    with out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
            row = rows[folder.name, name]
            cost = f"{row['seconds'] / rows[folder.name, WHOLE]['seconds']:.2f}"
            print("|", " | ".join(str({**row, "cost": cost}[column]) for column in COLUMNS), "|", flush=True)


if __name__ == "__main__":
    main()
