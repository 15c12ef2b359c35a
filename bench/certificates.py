"""Up to which length results can be certified in so many seconds: `python bench/certificates.py SECONDS RESULT…`.

A RESULT is a folder that `drasp decompile` wrote; it says which model and task it is of. Prints a row of a Markdown
table for each. Seconds are those that the processor spends on it.
"""

import sys
import time
from pathlib import Path

from drasp.certificates import certified
from drasp.language import load_program
from drasp.loading import load_model_and_task
from drasp.records import read_record


def row(folder: Path, limit: float) -> str:
    """What was found for one result in a limited time."""
    record = read_record(folder)
    if record is None or record.model is None:
        return f"| {folder.name} | no result |"
    program = load_program(folder)
    transformer, task = load_model_and_task(record.model, record.task)
    assert task is not None, folder
    begun = time.process_time()
    made = certified(program, transformer, task, limit, time.process_time)
    seconds = time.process_time() - begun
    if made is None:
        return f"| {folder.name} | {program.lines} | no certificate |"
    cells = [Path(record.model).name, str(program.lines)]
    for result in made.results.values():
        cells += [result["status"], str(result["length"]), f"{result['inputs']:,}"]
        cells.append("none" if result["margin"] is None else f"{result['margin']:.2g}")
        case = result["counterexample"]
        cells.append("" if case is None else " ".join(task.vocabulary.tokens[t] for t in case["tokens"]))
        cells.append(str(result["undecided"] or ""))
    cells += [f"{made.content['found']['largest_error']:.0e}", f"{made.content['found']['inputs']:,}", f"{seconds:.0f}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for argument in sys.argv[2:]:
        print(row(Path(argument), float(sys.argv[1])), flush=True)
