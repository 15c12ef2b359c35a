"""The notebooks: stored with their outputs, and run from top to bottom."""

import json

import pytest

import notebooks

READ = {file.stem: json.loads(file.read_text("utf-8")) for file in notebooks.NOTEBOOKS}
by_name = pytest.mark.parametrize("name", ["own_model", "write_and_find"])


def test_there_are_no_others():
    assert list(READ) == ["own_model", "write_and_find"]


@by_name
def test_every_cell_was_run_in_its_order(name: str):
    code = [cell for cell in READ[name]["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(output["output_type"] != "error" for cell in code for output in cell["outputs"])


@pytest.mark.long
@by_name
def test_it_runs(name: str):
    ran, variables = notebooks.run(READ[name])
    found = variables["result" if name == "own_model" else "found"]
    assert (found.verdict, found.grade) == ("decompiled", "complete")
    kinds = [
        [[output["output_type"] for output in cell.get("outputs", [])] for cell in each["cells"]]
        for each in (ran, READ[name])
    ]
    assert kinds[0] == kinds[1]


def test_a_command_that_fails_ends_the_run():
    cell = {"cell_type": "code", "source": ["!drasp explain nothing"], "outputs": []}
    with pytest.raises(RuntimeError, match="cell 1: !drasp explain nothing: drasp: nothing"):
        notebooks.run({"cells": [cell]})


def test_the_last_expression_is_shown():
    source = "print('said')\nx = 2\nx + 1"
    ran, variables = notebooks.run({"cells": [{"cell_type": "code", "source": [source], "outputs": []}]})
    printed, shown = ran["cells"][0]["outputs"]
    assert printed["text"] == ["said\n"]
    assert shown["data"] == {"text/plain": ["3"]}
    assert variables["x"] == 2
