"""The commands that are tried, the files that they read, and what is wrong with how one ended."""

import contextlib
import functools
import io
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import IO, NoReturn, TextIO
from unittest.mock import patch

import torch
import typer
from safetensors.torch import load_file, save_file

from drasp import output_folder
from drasp.cli import main
from drasp.study import engine, work
from drasp.study.engine import _files_in, model_of, record_of
from drasp.study.spec import read_study
from drasp.study.store import Store
from drasp.zoo import ZOO_FOLDER

MODEL = "tomita1"
FINDING = "decompile TINY --task bin_majority --quick --quiet"
LEARNING = "train own.py:mine --steps 300 --dim 8 --quiet"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
HANG = 600  # seconds of the clock: on a busy machine, a command that takes one second has taken more than sixty
TASK = "from drasp import answer_task\nmine = answer_task('m', 'ab', lambda x: x[:, :1])\n"
# A study that is finished in seconds: what is damaged afterwards is its file, its store or its units.
STUDY = """name = "small"
[limits]
minutes = 0.05
memory_gb = 4
[[train]]
tasks = ["tomita1"]
dims = [8]
steps = 1
[[models]]
names = ["tiny"]
task = "bin_majority"
[[decompile]]
quick = true
tasks = ["bin_majority"]
"""
# A study that has everything to do, which takes less than that.
UNDONE = """name = "undone"
[[train]]
tasks = ["tomita1"]
dims = [8]
steps = 1
"""
# A program that can be compiled and exported, with a tensor of its own; a translation cannot.
SMALL = """vocab = [0, 1, BOS, SEP, EOS, PAD]
special = [BOS, SEP, EOS, PAD]
positions = 154

1. a1 = aggregate(s=[], v=token)
2. logits1 = project(inp=a1, op=w)
3. prediction = softmax(logits1)
"""
# Whoever runs or unpickles one of these leaves a trace.
SPRUNG = "sprung"
TRAP = f"from pathlib import Path\nPath(__file__).with_name({SPRUNG!r}).touch()\nmine = None\n"
PROGRAM = re.compile(
    r"program\.(drasp|safetensors|py|tex|json)|(pruned|\d+)\.(drasp|safetensors)|model\.safetensors|.+\.cr"
)
_CALLS = ("mkdir", "rename", "replace", "unlink", "rmdir", "link", "fsync")
_LEFT = re.compile(r"\..+\.drasp-(lock|new|old)")
_MAKING = re.compile(r"\.drasp-|undone/work/")
_PROGRESS = re.compile(r"\[\d+/\d+, ")  # of a study that is not quiet
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# What each command that writes must have written when it ends with 0.
_WRITTEN = {
    "translate": "program.drasp", "compile": "model.safetensors", "export": "*.cr", "train": "model.safetensors",
    "import": "model.safetensors", "name": "program.drasp", "decompile": "program.drasp", "report": "report.html",
    "figures": "figures/*.svg", "explore": "index.html", "sweep": "study.json", "tables": "tables/tables.md",
}  # fmt: skip
_WITHOUT_WORDS = ("diff", "decompile", "sweep")  # may say nothing where all is well
_asked_to_end: list[int] = []  # signals that this process got, and not a command in a process of its own
# The commands are the same in all calls; to build them takes longer than many of them take.
typer.main.get_command = functools.cache(typer.main.get_command)


@dataclass
class Tally:
    """How many of each kind were tried, what failed, and digests of the code that was tried."""

    tried: Counter[str] = field(default_factory=Counter[str])
    failed: list[str] = field(default_factory=list[str])
    code: set[str] = field(default_factory=set[str])

    def note(self, kind: str, what: str, wrong: str | None) -> None:
        """Counts a trial, unless the campaign itself was asked to end in its course, which says nothing of drasp."""
        if _asked_to_end:
            raise KeyboardInterrupt
        self.tried[kind] += 1
        if wrong:
            self.failed.append(f"{kind}: {what[:300]!r}: {wrong}")
            print(self.failed[-1], flush=True)


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


class _Pickled:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.place / SPRUNG),)


def trap_pickle(folder: Path) -> bytes:
    """A pickle that makes a folder when it is loaded."""
    return pickle.dumps(_Pickled(folder))


def prepared(origin: Path) -> None:
    """What commands read: results, models, checkpoints, a study, a certificate, a task file; and traps beside them.

    All is made in `work` beside its place, and then moved: a run that was begun knows its task by the file's path.
    """
    place = origin.with_name("work")
    shutil.copytree(ZOO_FOLDER / MODEL, place / "model")
    (place / "own.py").write_text(TASK)
    (place / "study.toml").write_text(STUDY)
    (place / "undone.toml").write_text(UNDONE)
    (place / "small").mkdir()
    (place / "small/program.drasp").write_text(SMALL)
    save_file({"w": torch.eye(6)}, place / "small/program.safetensors")
    for line in (
        "translate MODEL --out RESULT",
        "certify RESULT --length 2 --out PLACE/certificate.json",
        "compile SMALL --out TINY",
    ):
        ended = called(located(line, place))
        assert ended.code == 0, (line, ended.err)
    shutil.copytree(place / "tiny", place / "tiny2")
    found = _studied(place / "study.toml", place / "study")
    shutil.copytree(found, place / "found", ignore=shutil.ignore_patterns("unit.json"))
    _nanogpt(place / "model", place / "nano.pt")
    for line, suffix in (
        (f"{FINDING} --out PLACE/begun", "decompiling"),
        (f"{LEARNING} --out PLACE/begun", "training"),
    ):
        _begun(located(line, place), place / f"begun.{suffix}")
    (place / "result/frontier").mkdir()
    for name in ("program.drasp", "program.safetensors"):
        shutil.copy(place / "result" / name, place / "result/frontier" / name.replace("program", "3"))
    record = json.loads((place / "result/result.json").read_text())
    frontier = [{"lines": 3, "match_accuracy": 1.0, "match_interval": [0.9, 1.0], "causal": True, "grade": None}]
    record |= {"frontier": frontier, "min_match": 0.9, "max_lines": 40}
    (place / "result/result.json").write_text(json.dumps(record))
    for folder in (place / "model", place / "result"):
        (folder / "trap.py").write_text(TRAP)
        (folder / "pytorch_model.bin").write_bytes(trap_pickle(folder))
    place.rename(origin)


def _studied(file: Path, folder: Path) -> Path:
    """Fills a study's store, by the functions that its units' processes call; gives the folder of a decompilation."""
    study, store = read_study(file), Store(folder)
    store.open(study.name, study.text)
    place = folder
    for unit in study.units():
        lease = store.claim(unit)
        assert lease is not None
        order = {"unit": unit.to_json(), "model": model_of(store, unit)}
        result = work._WORK[unit.kind](order, lease.work)
        measured = {"seconds": 1.0, "processor_seconds": 1.0, "peak_memory_mb": 1}
        outcome = {"status": "done", "reason": None, "result": result, **measured}
        store.commit(lease, record_of(unit, outcome), _files_in(lease.work / work.FILES))
        place = store.units / unit.id
    return place


def _begun(arguments: Sequence[str], file: Path) -> None:
    """What a run leaves that is killed in its middle, which `--resume` reads."""
    for call in range(1, 40):
        file.unlink(missing_ok=True)
        interrupted(arguments, signal.SIGKILL, call, after=True)
        if file.exists():
            break
    assert file.exists(), arguments
    for left in file.parent.glob(".*.drasp-lock"):
        left.unlink()


def _nanogpt(folder: Path, file: Path) -> None:
    """Writes the tensors of a GPT-2 folder as a checkpoint of nanoGPT, whose matrices are transposed."""
    matrices = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
    tensors = load_file(folder / "model.safetensors")
    named = {name: t.T.contiguous() if name.endswith(matrices) else t for name, t in tensors.items()}
    heads = json.loads((folder / "config.json").read_text())["n_head"]
    torch.save({"model": named, "model_args": {"n_head": heads}}, file)


def anew(origin: Path, place: Path, line: str = "PLACE") -> None:
    """Makes `place` a copy of `origin`, or of what a command names there."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    named = line.replace("PLACE/study.toml", "/study.toml TINY").replace("PLACE/", "/").lower()  # which has its model
    for entry in os.scandir(origin):
        if "place" in named or entry.name.partition(".")[0] in named:
            copy = shutil.copytree if entry.is_dir() else shutil.copy2
            copy(entry, place / entry.name)


def located(line: str, place: Path) -> list[str]:
    """The words of a command, with the folders that they name."""
    names = {
        "RESULT": "/result",
        "SMALL": "/small",
        "TINY": "/tiny",
        "MODEL": "/model",
        "OUT": "/out",
        "PLACE": "",
        "own.py": "/own.py",
    }
    return [re.sub("|".join(names), lambda found: f"{place}{names[found[0]]}", word) for word in line.split()]


def called(arguments: Sequence[str]) -> Ended:
    """A command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _main(arguments)
    return Ended(code, out.getvalue(), err.getvalue())


def asked_to_end(number: int, _frame: object) -> NoReturn:
    """What INT and TERM do here. A command that runs in this process ends by them as it would in one of its own."""
    _asked_to_end.append(number)
    raise KeyboardInterrupt


def _main(arguments: Sequence[str]) -> int:
    """The code with which a command ends. Units of a study are copies of this process."""
    with (
        patch.object(engine, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": CopiedUnit})),
        patch.object(signal, "default_int_handler", asked_to_end),  # which `main` lets answer TERM
    ):
        try:
            main(arguments)
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0


def spawned(
    arguments: Sequence[str], place: Path, around: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Ended:
    """A command by a process of its own, by way of another command (`around`) where one is given."""
    command = [*around, sys.executable, "-P", "-c", "from drasp.cli import main; main()", *arguments]
    # What is written is buffered, as a rule, and may fail late.
    around_it = {k: v for k, v in (environment or os.environ).items() if k != "PYTHONUNBUFFERED"}
    try:
        done = subprocess.run(command, capture_output=True, timeout=HANG, cwd=place, check=False, env=around_it)
    except subprocess.TimeoutExpired:
        return Ended(-1, "", "hang")
    return Ended(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


@dataclass(frozen=True)
class Begun:
    """A command that runs in a copy of this process, and need not load torch."""

    child: int
    out: IO[bytes]
    err: IO[bytes]

    def end(self) -> Ended:
        code = os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])
        said = []
        for stream in (self.out, self.err):
            with stream:
                stream.seek(0)
                said.append(stream.read().decode("utf-8", "replace"))
        return Ended(code, *said)


def _nothing() -> None:
    pass


def begun(
    arguments: Sequence[str],
    place: Path,
    before: Callable[[], object] = _nothing,
    after: Callable[[], object] = _nothing,
) -> Begun:
    """Begins a command in a process of its own, in which `before` and `after` are called."""
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
    child = os.fork()
    if not child:
        _become(arguments, place, (out.fileno(), err.fileno()), before, after)
    return Begun(child, out, err)


def forked(arguments: Sequence[str], place: Path, before: Callable[[], object] = _nothing) -> Ended:
    return begun(arguments, place, before).end()


def opened(number: int, encoding: str = "utf-8") -> TextIO:
    """A stream of this process as Python opens it; whoever puts another in its place does not close it by that."""
    return open(number, "w" if number else "r", encoding=encoding, closefd=False)


def _become(
    arguments: Sequence[str],
    place: Path,
    streams: tuple[int, int],
    before: Callable[[], object],
    after: Callable[[], object],
) -> NoReturn:
    """Lets this process, a copy, run a command as if it had been started for that; ends it."""
    code = 70
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANG)
        os.chdir(place)
        for number, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, streams[0]), (2, streams[1])):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = (opened(number) for number in range(3))
        before()
        code = _main(arguments)
        after()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # Python ends with that then
                code = 120
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


class CopiedUnit:
    """A unit's process as `subprocess.Popen` gives it to a study: a copy of this one, which need not load torch."""

    def __init__(self, _command: object, stdout: IO[bytes], **_more: object) -> None:
        reading, writing = os.pipe()
        self._code: int | None = None
        self._child = os.fork()
        if not self._child:
            os.close(writing)
            _become_unit((reading, stdout.fileno(), stdout.fileno()))
        os.close(reading)
        self.stdin = os.fdopen(writing, "wb")

    def poll(self) -> int | None:
        if self._code is None and (ended := os.waitpid(self._child, os.WNOHANG))[0]:
            self._code = os.waitstatus_to_exitcode(ended[1])
        return self._code

    def wait(self, _seconds: float = 0) -> int:
        while (code := self.poll()) is None:
            time.sleep(0.01)
        return code

    def send_signal(self, which: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self._child, which)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _become_unit(streams: tuple[int, int, int]) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in enumerate(streams):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = (opened(number) for number in range(3))
        work.main()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


class HungError(BaseException):
    """Raised by the clock."""


def failure(arguments: Sequence[str], place: Path, run: Callable[..., Ended] | None = None) -> str | None:
    """Runs a command, in this process where nothing else is said; says what is wrong with how it ended."""

    def hung(*_: object) -> None:
        raise HungError

    signal.signal(signal.SIGALRM, hung)
    signal.alarm(0 if run else HANG)
    try:
        ended = run(arguments, Path.cwd()) if run else called(arguments)  # odd arguments may be places in it
    except HungError:
        return "hang"
    except ValueError as error:
        if run is spawned and "null byte" in str(error):  # no process can be started with such an argument
            return None
        return f"exception: {error!r}"
    except BaseException as error:
        return f"exception: {error!r}"
    finally:
        signal.alarm(0)
    return wrong_end(arguments, ended, place)


def wrong_end(arguments: Sequence[str], ended: Ended, place: Path) -> str | None:
    """What is wrong with how a command ended, and with what it left in a place."""
    command = arguments[0]
    if ended.code == 70 or ended.code < 0 or "Traceback" in ended.err:
        return f"fault: {ended.code} {ended.err.strip()[-300:]}"
    said = [line for line in ended.err.splitlines() if not _PROGRESS.match(line)]
    several = command in ("check", "explore")  # every mistake, and every result that is left out
    lines = len(said)
    finding = (
        command in ("diff", "certify") and bool(ended.out) and not lines
    )  # a difference, or what refutes a program
    if ended.code and lines != 1 and not several and not finding:
        return f"{lines} lines: {ended.err[-300:]!r}"
    if _CONTROL.search(ended.out) or _CONTROL.search(ended.err):
        return "a control character is printed"
    if left := left_behind(place):
        return f"left behind: {left}"
    if any(place.rglob(SPRUNG)):
        return "code of a folder was run"
    if not ended.code and (missing := _missing(arguments, ended)):
        return f"ended with 0 without {missing}"
    return None


def left_behind(place: Path) -> list[str]:
    return [path.name for path in place.rglob(".*") if _LEFT.fullmatch(path.name)]


def _missing(arguments: Sequence[str], ended: Ended) -> str | None:
    """What should be there of a command that ended with 0, and is not."""
    command, rest = arguments[0], [word for word in arguments[1:] if word != "--"]
    outs, words = [], iter(arguments[1:])  # the last one counts
    for word in words:
        if word == "--":  # behind which there are no options; `--out --` names a file
            break
        if word == "--out":
            outs.append(next(words, ""))
    if "-h" in rest and "-h" not in outs:
        return None if "Usage" in ended.out else "help"
    if command in ("certify", "language") and outs:
        place = Path(outs[-1])
        return None if place.is_file() or any(place.parent.glob("*.cr")) else str(place)
    if command not in _WRITTEN:
        return None if ended.out or command in _WITHOUT_WORDS else "output"
    if command == "decompile" and "--pick" not in rest and len(models := _models(rest)) > 1:
        missing = [m for m in models if not (Path(outs[-1]) / Path(m).resolve().name / "program.drasp").is_file()]
        return f"a program of {missing}" if missing else None
    place = Path(outs[-1] if outs else next(word for word in rest if not word.startswith("--")))
    return None if any(place.glob(_WRITTEN[command])) else f"{place}/{_WRITTEN[command]}"


def _models(rest: Sequence[str]) -> list[str]:
    """The models among what stands behind `decompile`: its options have a value each, but for these."""
    switches = ("--quick", "--quiet", "--resume", "--json", "--debug")
    valued = {number + 1 for number, word in enumerate(rest) if word.startswith("--") and word not in switches}
    return [word for number, word in enumerate(rest) if number not in valued and not word.startswith("--")]


def program_files(place: Path) -> dict[str, bytes]:
    """What must be the same however often a run was interrupted; without what is still in the making."""
    return {
        str(file.relative_to(place)): file.read_bytes()
        for file in sorted(place.rglob("*"))
        if PROGRAM.fullmatch(file.name) and not _MAKING.search(str(file.relative_to(place)))
    }


def interrupted(
    arguments: Sequence[str], which: signal.Signals, call: int = 0, after: bool = False, seconds: float | None = None
) -> bool:
    """Runs a command in a child, which gets a signal at one of its calls or after some seconds; whether it got it."""
    child = os.fork()
    if child:
        if seconds is not None:
            time.sleep(seconds)
            os.kill(child, which)
        status = os.waitpid(child, 0)[1]
        return not os.WIFEXITED(status) or os.WEXITSTATUS(status) != 0
    made, me = 0, os.getpid()

    def counted(real: Callable) -> Callable:
        def call_it(*given: object, **more: object) -> object:
            nonlocal made
            if os.getpid() != me:  # a unit of a study
                return real(*given, **more)
            made += 1
            mine = made
            if mine == call and not after:
                os.kill(os.getpid(), which)
            try:
                return real(*given, **more)
            finally:
                if mine == call and after:
                    os.kill(os.getpid(), which)

        return call_it

    for name in _CALLS:
        setattr(os, name, counted(getattr(os, name)))
    output_folder._exchange = counted(output_folder._exchange)
    try:
        sys.argv = ["drasp", *arguments]
        ended = called(arguments)
        os._exit(99 if 0 < call <= made else 70 if ended.code or "Traceback" in ended.err else 0)
    finally:
        os._exit(70)
