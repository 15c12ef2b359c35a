"""Runs notebooks from top to bottom, and stores what their cells print and show.

    python bench/notebooks.py [NOTEBOOK...]

Without names, those of docs/notebooks. Every notebook runs in an empty folder of its own, in this process and without
Jupyter: cells are plain Python, whose last expression is shown, or lines `!drasp …`.
"""

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drasp.cli import main as drasp

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

Json = dict[str, Any]


def run(notebook: Json) -> tuple[Json, dict[str, Any]]:
    """A notebook, read as JSON, to itself with new outputs, and the variables that it leaves."""
    variables: dict[str, Any] = {"__name__": "__main__"}
    cells: list[Json] = []
    code = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                code += 1
                outputs = [dict(output) for output in _outputs("".join(cell["source"]), variables, code)]
                cell = {**cell, "execution_count": code, "outputs": outputs}
            cells.append(cell)
    return {**notebook, "cells": cells}, variables


def _outputs(source: str, variables: dict[str, Any], number: int) -> Iterator[Json]:
    printed, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            value = _value(source, variables, f"<cell {number}>")
    except SystemExit:
        raise RuntimeError(f"cell {number}: {source}: {errors.getvalue()}") from None
    if text := printed.getvalue():
        yield {"output_type": "stream", "name": "stdout", "text": _lines(text)}
    if value is not None:
        yield {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": _shown(value)}


def _value(source: str, variables: dict[str, Any], name: str) -> Any:
    """Runs a cell; gives what its last expression is."""
    if source.startswith("!"):
        for line in source.splitlines():
            command, *arguments = shlex.split(line.removeprefix("!"))
            assert command == "drasp", f"{name}: expected !drasp, found {line}"
            drasp(arguments)
        return None
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        return exec(compile(tree, name, "exec"), variables)
    tree.body.pop()
    exec(compile(tree, name, "exec"), variables)
    return eval(compile(ast.Expression(last.value), name, "eval"), variables)


def _shown(value: Any) -> Json:
    """What a notebook stores of a value: its text, and a picture of a figure."""
    data: Json = {"text/plain": _lines(repr(value))}
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, format="png", dpi=80)
        data["image/png"] = base64.b64encode(picture.getvalue()).decode()
    return data


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, default=NOTEBOOKS)
    os.environ["COLUMNS"] = "120"  # as wide as tables are here, whatever the terminal
    for file in parser.parse_args().notebooks:
        notebook, _ = run(json.loads(file.read_text("utf-8")))
        file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
        print(file)


if __name__ == "__main__":
    main()
