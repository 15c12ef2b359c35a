"""Every command of the documentation: those in blocks are run as they stand, or a reason says why not.

Commands of a document run in their order in one folder, so that what an earlier one writes is there for a later one.
Words in the text, such as `drasp explain PROGRAM LINE`, are held to the commands and options that there are.
"""

import contextlib
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer.main

from cases import PAPER_CASES
from command import drasp
from drasp.cli import app
from drasp.compiler import compile_program
from drasp.language import parse, program_files

ROOT = Path(__file__).parents[1]
TEXTS = {
    file.name: file.read_text("utf-8")
    for file in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md")))
}
_BLOCK = re.compile(r"^ *(?:\$ )?((?:drasp|python|make|pip|source) .*?)(?: +#.*)?$")
_INLINE = re.compile(r"`(drasp [^`\n]+)`")

MAKE = "sets up an environment, which is what runs this test"
INSTALLS = "installs packages"
NOT_RUN = {
    "drasp sweep studies/seeds.toml --out studies/results/seeds --jobs N": "takes hours",
    "drasp sweep studies/checkpoints.toml --out studies/results/checkpoints --jobs 2": "takes half an hour",
    "make demo": "its own test is test_the_demo_ends_with_the_program_in_words",
    **dict.fromkeys(("make setup", "make test", "make test-long", "make lint", "make docs"), MAKE),
    "source .venv/bin/activate": MAKE,
    "python -m pip wheel --no-deps --wheel-dir dist . ./zoo": "its own test is tests/test_wheel.py",
    "pip install 'drasp[figures]'": INSTALLS,
    "drasp import FILE --out MODEL [--activation A] [--norm N] [--heads H]": "a synopsis; test_importing.py runs it",
    "drasp sweep studies/paper.toml --out /shared/paper --worker --quiet": "needs Slurm; test_study.py runs workers",
}
# What a command is run with beside what stands there, so that it takes seconds.
SHORTENED = {
    "drasp train sort --out my-sort": "--steps 20 --quiet",
    "drasp train bin_majority --dropout 0.1 --out my-majority": "--steps 20 --quiet",
}
# Commands that are there to show what is refused.
REFUSED = {"drasp certify majority bin_majority --length 60 --out certificate.json": "--length 20 has 2,097,150"}


@dataclass(frozen=True)
class Prepared:
    """What a document's reader has before its commands: results of these models, and these files."""

    results: dict[str, str]  # folder: zoo model
    programs: dict[str, str]  # file: name of a case


PREPARED = {
    "README.md": Prepared({}, {"program.drasp": "binary majority"}),
    "causal.md": Prepared({"result": "D3"}, {}),
    "certificates.md": Prepared({"result": "tomita2", "majority": "bin_majority"}, {}),
    "compiler.md": Prepared({}, {"copy.drasp": "unique copy", "majority.drasp": "binary majority"}),
    "language.md": Prepared({}, {"program.drasp": "binary majority"}),
    "report.md": Prepared({"result": "bin_majority", "results/one": "tomita2"}, {}),
    "theory.md": Prepared({"majority": "bin_majority", "result": "D2"}, {}),
}
NOTHING = Prepared({}, {})


def commands(text: str) -> list[str]:
    """The commands in blocks of a document, in their order."""
    found: list[str] = []
    fenced = ""
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = "" if fenced else line.removeprefix("```") or "text"
        elif (fenced in ("text", "bash") or (not fenced and line.startswith("    "))) and (match := _BLOCK.match(line)):
            found.append(match[1].rstrip())
    return found


def is_run(command: str) -> bool:
    """Benchmarks take minutes to hours: that they have the options that are shown is tested instead."""
    return command not in NOT_RUN and not command.startswith("python bench/")


ALL = {name: found for name, text in TEXTS.items() if (found := commands(text))}


def test_commands_are_found():
    text = "x\n\n    $ drasp run p a  # says\n    said\n\n```python\ndrasp zoo\n```\n\n```\ndrasp zoo\n```\n"
    assert commands(text) == ["drasp run p a", "drasp zoo"]
    assert sum(len(found) for found in ALL.values()) > 50


def test_what_is_not_run_is_there_to_be_run():
    there = {command for found in ALL.values() for command in found}
    assert set(SHORTENED) | set(REFUSED) <= there
    assert set(NOT_RUN) <= there | {"source .venv/bin/activate"}


def _options(command: str) -> set[str]:
    """The options of a command of drasp, with `--help`."""
    found = typer.main.get_command(app)
    for name in command.split()[1:2]:
        group = getattr(found, "commands", {})
        assert name in group or name.startswith("-"), f"`{command}`: no such command"
        found = group.get(name, found)
    return {option for parameter in found.params for option in parameter.opts} | {"--help"}


@pytest.mark.parametrize("name", TEXTS)
def test_commands_in_the_text_exist(name: str):
    for command in (*_INLINE.findall(TEXTS[name]), *(c for c in ALL.get(name, []) if c.startswith("drasp"))):
        if "…" not in command and "COMMAND" not in command and not command.split()[1].startswith("-"):
            unknown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", command)) - _options(command)
            assert not unknown, f"{name}: `{command}` has {unknown}"


@pytest.mark.parametrize(
    "name", sorted({c.split()[1] for found in ALL.values() for c in found if c.startswith("make ")})
)
def test_targets_exist(name: str):
    assert re.search(rf"^{name}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def _benchmarks() -> Iterator[str]:
    for text in TEXTS.values():
        found = [*commands(text), *re.findall(r"`(python bench/[^`\n]+)`", text)]
        yield from (command for command in found if command.startswith("python bench/"))


@pytest.mark.long
@pytest.mark.parametrize("script", sorted({command.split()[1] for command in _benchmarks()}))
def test_benchmarks_take_the_options_that_are_shown(script: str, monkeypatch, capsys):
    if "ArgumentParser" not in (ROOT / script).read_text():
        assert not any("--" in command for command in _benchmarks() if command.split()[1] == script)
        return
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert ended.value.code == 0
    known = capsys.readouterr().out
    for command in _benchmarks():
        if command.split()[1] == script:
            assert all(option in known for option in re.findall(r"--[a-z-]+", command)), command


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in ALL if any(map(is_run, ALL[name]))])
def test_commands_run(name: str, tmp_path, monkeypatch):
    prepare(name, tmp_path)
    monkeypatch.chdir(tmp_path)
    for command in ALL[name]:
        if is_run(command):
            run(command)


def prepare(name: str, folder: Path) -> None:
    """Makes what a document takes for granted."""
    prepared = PREPARED.get(name, NOTHING)
    for result, model in prepared.results.items():
        (folder / result).parent.mkdir(exist_ok=True)
        done = drasp("decompile", model, "--quick", "--quiet", "--out", folder / result)
        assert done.code == 0, done.err
    for file, case in prepared.programs.items():
        files = program_files(next(each for each in PAPER_CASES if each.name == case).program)
        for suffix in ("drasp", "safetensors"):
            (folder / file).with_suffix(f".{suffix}").write_bytes(files[f"program.{suffix}"])
    if name == "study.md":
        (folder / "studies").mkdir()
        (folder / "studies/smoke.toml").write_text(STUDY)
        shutil.copytree(ROOT / "studies/results", folder / "studies/results")
    if name == "README.md":
        [source] = [block for block in python_blocks(TEXTS[name]) if "two_back = sequence_task" in block]
        (folder / "mine.py").write_text(source)
        compile_program(parse(TWO_BACK)).save(folder / "path/to/gpt2-folder")


# The study of the documentation takes minutes; this one has its name.
STUDY = """name = "smoke"
[[models]]
names = ["tomita2"]
[[decompile]]
quick = true
"""
# A program of the README's task, so that its model need not be trained.
TWO_BACK = """vocab = [a, b, c, d]
positions = 20
s1 = select(q=pos, k=pos, op=(k==q-2)*20)
a1 = aggregate(s=s1, v=token)
logits1 = project(inp=a1, op=(inp==out))
prediction = softmax(logits1)
"""


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run(command: str) -> None:
    first, *arguments = shlex.split(f"{command} {SHORTENED.get(command, '')}")
    if first == "python":
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(SystemExit):
            patch.setattr(sys, "argv", arguments)
            runpy.run_path(arguments[0], run_name="__main__")
        return
    assert first == "drasp", f"{command}: expected to be run, or a reason why not"
    done = drasp(*arguments)
    if command in REFUSED:
        assert done.code != 0
        assert REFUSED[command] in done.err
    else:
        assert done.code == 0, f"{command}: {done.err}"
