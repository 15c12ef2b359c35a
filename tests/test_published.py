"""What `bench/published.json` says of the published models: checked with the documentation, and with them if there."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from drasp.fitting.oracle import Oracle, answering
from drasp.language import parse
from drasp.measure import Share
from drasp.model_files import digest, load_model
from drasp.tasks import TASKS
from published import FOLDER, MODELS, needs_published_models

ROOT = Path(__file__).parents[1]
EVIDENCE = {
    "edited": "edited",
    "attention": "attention",
    "interchange": "interchange in the model",
    "complement": "complement",
    "mean_ablated": "rest at its means",
}
TABLE = json.loads((ROOT / "bench" / "published.json").read_text())
FIELDS = {
    "model": (str,),
    "digest": (str,),
    "command": (str,),
    "settings": (dict,),
    "verdict": (str,),
    "grade": (str, type(None)),
    "lines": (int,),
    "match": (str,),
    "hits": (int,),
    "samples": (int,),
    "edited": (str, type(None)),
    "attention": (str, type(None)),
    "interchange": (str, type(None)),
    "complement": (str, type(None)),
    "mean_ablated": (str, type(None)),
    "frontier": (list,),
    "program": (str,),
}
by_model = pytest.mark.parametrize("row", TABLE, ids=[row["model"] for row in TABLE])


@by_model
def test_a_row_is_well_formed(row):
    assert row.keys() == FIELDS.keys()
    assert all(isinstance(value, FIELDS[name]) for name, value in row.items())
    assert len(bytes.fromhex(row["digest"])) == 32
    share = Share(row["hits"], row["samples"])
    assert row["match"] == str(share)
    assert len(row["program"].splitlines()) == row["lines"]
    settings = row["settings"]
    good = share.value >= settings["min_match"] and row["lines"] <= settings["max_lines"]
    assert (row["verdict"] in ("decompiled", "answers_only")) == good
    assert (row["grade"] is not None) == (row["verdict"] == "decompiled")
    task = row["model"].split("-")[0]
    assert task in TASKS
    assert row["command"] == f"drasp decompile {row['model']} --task {task} --seed 0 --method fast --out result"


def test_the_documentation_says_the_same():
    sections = (ROOT / "docs" / "benchmarks.md").read_text().split("\n## ")
    [text] = [section for section in sections if section.startswith("Decompilation by evidence")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    header, _, *rows = cells
    where = [header.index(name) for name in ("model", "verdict", "lines", "match", *EVIDENCE.values())]
    documented = [[row[i] for i in where] for row in rows]
    expected = [
        [
            row["model"],
            ", ".join(filter(None, (row["verdict"], row["grade"]))),
            str(row["lines"]),
            row["match"].split(" of ")[0],
            *(row[name] or "" for name in EVIDENCE),
        ]
        for row in TABLE
    ]
    assert documented == expected


@needs_published_models
def test_the_models_are_those_of_the_table():
    found = {model.name: digest(load_model(model)) for model in MODELS}
    assert {row["model"]: row["digest"] for row in TABLE}.items() <= found.items()


@pytest.mark.long
@needs_published_models
@by_model
def test_a_program_agrees_as_often_as_is_said(row):
    """On the inputs that decompilation draws last; where every tensor has a name, so that the text is all there is."""
    if re.search(r"(op=|mlp\()[A-Z]\d", row["program"]):
        pytest.skip("the text names tensors that are not in the table")
    task, model = TASKS[row["model"].split("-")[0]], load_model(FOLDER / row["model"])
    tokens, special = (", ".join(names) for names in (task.vocabulary.tokens, task.vocabulary.special))
    lines = [line.split(". ", 1)[1] for line in row["program"].splitlines()]
    header = [f"vocab = [{tokens}]", f"special = [{special}]", f"positions = {model.n_positions}"]
    program = parse("\n".join([*header, *lines]))
    rng = np.random.default_rng([row["settings"]["seed"], *b"fresh"])
    found = Oracle.draw(model, task, row["samples"], rng, batch_size=100).match(answering(program))
    assert abs(found.hits - row["hits"]) <= 2, "sums in another order may tip a tie"
