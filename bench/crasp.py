"""Which of the decompiled language models are C-RASP, line by line or otherwise, and up to which length that is proved.

    python bench/crasp.py DIR [NAME…]

DIR holds results by the names of their models, as `bench/certificates.py` keeps them. Prints a row of a Markdown table
for each, or for those that are named: whether the language is in C-RASP without positions; the program's own lines in
C-RASP, or the first that is outside, and why; inequalities that say the same up to a length (`--fit`); and how far it
is proved to be the program of its language (`--task`).
"""

import argparse
from pathlib import Path

import torch

from drasp.crasp.automaton import decide, of_language
from drasp.crasp.export import Exported, export_fitted, export_language
from drasp.errors import DraspError
from drasp.language import Program
from drasp.results.result import load_result
from drasp.tasks import Task, load_task
from drasp.tasks.framed import language_of

HEADINGS = ("model", "lines", "in C-RASP without positions", "line by line", "`--fit`", "`--task`")


def row(model: str, program: Program, task: Task) -> list[str]:
    language = language_of(task)
    decided = "not regular" if language is None else "yes" if decide(of_language(language)).in_crasp else "no"
    own, fitted = _own_and_fitted(program)
    return [model, str(program.lines), decided, own, fitted, "" if decided != "yes" else _of_language(program, task)]


def _own_and_fitted(program: Program) -> tuple[str, str]:
    try:
        exported = export_fitted(program)
    except DraspError as error:
        return "refused", f"refused: {error}"
    if exported.fitted is None:
        return _said(exported), ""
    return f"refused: {exported.fitted.refusal}", f"{_said(exported)}, of {exported.fitted.detail}"


def _of_language(program: Program, task: Task) -> str:
    try:
        return _said(export_language(program, task))
    except DraspError as error:
        return f"refused: {error}"


def _said(exported: Exported) -> str:
    sizes = [len(found.definitions) for found in exported.programs.values()]
    depth = max((found.depth for found in exported.programs.values()), default=0)
    definitions = "–".join(map(str, sorted({min(sizes, default=0), max(sizes, default=0)})))
    return f"{len(sizes)} tokens, {definitions} definitions, depth {depth}; {exported.agreement}"


def main() -> None:
    """Prints the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", metavar="DIR", type=Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    for name in arguments.names or sorted(file.parent.name for file in arguments.results.glob("*/result.json")):
        program = load_result(arguments.results / name).program
        cells = row(name, program, load_task(name.split("-")[0]))
        print(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()
