"""How drasp bears much at once: an index over many results, and a model with many tokens and positions.

    python bench/load.py

Each command is a process of its own, whose time and largest memory are printed.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from drasp.model_files import model_files
from drasp.output_folder import write_files
from drasp.transformer import Shape, initial_weights

RESULTS = 500
# One layer, one head, as many tokens and positions as the issue of memory is about; narrow, so that it takes minutes.
LARGE = Shape(n_vocab=5000, n_positions=2000, d_model=16, n_layers=1, n_heads=1, d_hidden=64)
TASK = """from drasp.tasks import sequence_task

def draw(rng, count):
    for _ in range(count):
        yield rng.integers(0, 5000, rng.integers(2, 51)).tolist(), None

large = sequence_task("large", [f"t{i}" for i in range(5000)], draw, offsets=range(1950))
"""


def measured(place: Path, *words: str) -> None:
    """Runs a command of drasp's; prints how it ended, its seconds and its largest memory."""
    begun = time.monotonic()
    command = [sys.executable, "-P", "-c", "from drasp.cli import main; main()", *words]
    child = os.posix_spawn(sys.executable, command, os.environ | {"PWD": str(place)})
    _, status, used = os.wait4(child, 0)
    print(
        f"drasp {' '.join(words)}: ended with {os.waitstatus_to_exitcode(status)}, "
        f"{time.monotonic() - begun:.1f} s ({used.ru_utime + used.ru_stime:.1f} s of a processor), "
        f"{used.ru_maxrss / 2**20:.2f} GB",
        flush=True,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        os.chdir(place)
        measured(place, "translate", "tomita1", "--out", "results/0")
        for number in range(1, RESULTS):
            shutil.copytree("results/0", f"results/{number}")
        measured(place, "explore", "results")
        Path("large.py").write_text(TASK)
        write_files(place / "model", model_files(LARGE, initial_weights(LARGE, seed=0)))
        measured(place, "translate", "model", "--task", "large.py:large", "--out", "translated")
        measured(place, "decompile", "model", "--task", "large.py:large", "--quick", "--quiet", "--out", "decompiled")
