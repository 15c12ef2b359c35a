"""How long commands take to answer that need no model, beside `python -c "import torch"`, which drasp is slow by.

    python bench/start.py [--rounds N]

Commands take turns, and the best of N rounds counts. The last row is a model of 12 layers and 768 dimensions with
random weights: how long until `drasp decompile` has said what it does and how long that may take. It is ended then.
"""

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from drasp.model_files import model_files
from drasp.transformer import Shape

COMMANDS = {
    'python -c "import torch"': [sys.executable, "-c", "import torch"],
    **{f"drasp {command}": command.split() for command in ("--version", "--help", "tasks", "zoo")},
}
DRASP = [sys.executable, "-c", "from drasp.cli import main; main()"]
LARGE = Shape(
    n_vocab=6,
    n_positions=154,
    d_model=768,
    n_layers=12,
    n_heads=12,
    d_hidden=3072,
    activation="gelu_new",
    eps=1e-5,
    scale_by_head=True,
    scale_by_layer=False,
    tied=True,
)


def save_large(folder: Path) -> None:
    """A model of GPT-2's size, of the tokens of bin_majority."""
    generator = torch.Generator().manual_seed(0)
    shapes = LARGE.weight_shapes()
    weights = {name: torch.randn(size, generator=generator).mul_(0.02) for name, size in shapes.items()}
    folder.mkdir()
    for name, content in model_files(LARGE, weights).items():
        (folder / name).write_bytes(content)


def seconds(command: list[str], until: str = "") -> tuple[float, float, str]:
    """Wall and processor time of a command, and the line that begins with `until`, at which it is ended."""
    before, start = _processor_time(), time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert child.stdout is not None
    found = next((line.rstrip() for line in child.stdout if until and line.startswith(until)), "")
    taken = time.perf_counter() - start
    if until:
        os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    return taken, _processor_time() - before, found


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def until_told(folder: Path) -> tuple[float, float, str]:
    """How long `decompile` takes to say how long a model may take."""
    out = str(folder.with_name("out"))
    return seconds([*DRASP, "decompile", str(folder), "--task", "bin_majority", "--out", out], "decompiling ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    taken: dict[str, list[tuple[float, float]]] = {}
    said = ""
    with tempfile.TemporaryDirectory() as place:
        large = Path(place) / "large"
        save_large(large)
        for _ in range(rounds):
            for name, command in COMMANDS.items():
                whole = command if command[0] == sys.executable else [*DRASP, *command]
                taken.setdefault(name, []).append(seconds(whole)[:2])
            wall, worked, said = until_told(large)
            taken.setdefault("drasp decompile large …", []).append((wall, worked))
    print("| | seconds | of the processor |\n|---|---|---|")
    for name, times in taken.items():
        wall, worked = (min(column) for column in zip(*times, strict=True))
        print(f"| `{name}` | {wall:.2f} | {worked:.2f} |")
    print(said.replace(str(large), "large"))


if __name__ == "__main__":
    main()
