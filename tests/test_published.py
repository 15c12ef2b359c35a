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
TABLE = json.loads((ROOT / "bench" / "published.json").read_text())
FIELDS = {
    "model": str,
    "digest": str,
    "command": str,
    "settings": dict,
    "verdict": str,
    "lines": int,
    "match": str,
    "hits": int,
    "samples": int,
    "program": str,
}
by_model = pytest.mark.parametrize("row", TABLE, ids=[row["model"] for row in TABLE])


@by_model
def test_a_row_is_well_formed(row):
    assert {name: type(value) for name, value in row.items()} == FIELDS
    assert len(bytes.fromhex(row["digest"])) == 32
    share = Share(row["hits"], row["samples"])
    assert row["match"] == str(share)
    assert len(row["program"].splitlines()) == row["lines"]
    settings = row["settings"]
    good = share.value >= settings["min_match"] and row["lines"] <= settings["max_lines"]
    assert row["verdict"] == ("decompiled" if good else "not_decompilable")
    task = row["model"].split("-")[0]
    assert task in TASKS
    assert row["command"] == f"drasp decompile {row['model']} --task {task} --method fast --out result"


def test_the_documentation_says_the_same():
    sections = (ROOT / "docs" / "benchmarks.md").read_text().split("\n## ")
    [text] = [section for section in sections if section.startswith("Fitted to answers, beside the paper")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    header, _, *rows = cells
    final = header.index("final")
    documented = {row[0]: (row[final], row[final + 1]) for row in rows}
    assert documented == {row["model"]: (row["match"].split(" of ")[0], str(row["lines"])) for row in TABLE}


@needs_published_models
def test_the_models_are_those_of_the_table():
    assert {model.name: digest(load_model(model)) for model in MODELS} == {row["model"]: row["digest"] for row in TABLE}


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
