"""What once ended in a traceback, a hang or a wrong answer: each is one line now, and a code that is not 0."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from command import drasp, fails
from drasp.language import parse
from drasp.output_folder import write_files
from drasp.zoo import ZOO_FOLDER

PROGRAM = (
    "vocab = [a, b]\nspecial = []\npositions = 4\nlogits1 = project(inp=token, op=w)\nprediction = softmax(logits1)\n"
)
TASK = """
from drasp import answer_task, sequence_task
from drasp.tasks.framed import each_row
"""


def own_model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    write_files(folder, {file.name: file.read_bytes() for file in (ZOO_FOLDER / "bin_majority").iterdir()})
    return folder


def own_task(tmp_path: Path, code: str) -> str:
    (tmp_path / "own.py").write_text(TASK + code)
    return f"{tmp_path}/own.py:mine"


def own_program(tmp_path: Path, text: str = PROGRAM, dtype: torch.dtype = torch.float32) -> Path:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "program.drasp").write_text(text)
    save_file({"w": torch.ones(2, 2).to(dtype)}, folder / "program.safetensors")
    return folder


def run(*arguments: str | Path, **more) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", "from drasp.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, **{"stderr": subprocess.PIPE, "timeout": 60, "check": False, **more})


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys\nsys.exit(0)", "line 5: SystemExit: 0"),
        ("class Odd(BaseException): pass\nraise Odd('no')", "line 5: Odd: no"),
        ("mine = answer_task('m', [1, 2], lambda x: x)", "vocabulary= holds 1; expected the names of tokens"),
        ("mine = answer_task('m', 'ab', lambda x: x, lengths=[0])", "lengths= holds 0; expected whole numbers from 1"),
        ("mine = answer_task('m', 'ab', lambda x: x, lengths='abc')", "lengths= holds 'a'"),
        ("mine = answer_task('m', 'ab', lambda x: x, lengths=[1.5])", "lengths= holds 1.5"),
        ("mine = answer_task('m', 'ab', each_row(lambda x: [1.5]))", "its answer holds 1.5, expected ids of tokens"),
        ("mine = answer_task('m', 'ab', lambda x: exit(0))", "its answer failed in"),
    ],
)
def test_task_files(tmp_path, code, message):
    assert message in fails("train", own_task(tmp_path, code), "--out", tmp_path / "out", "--steps", "1")
    assert not (tmp_path / "out").exists()


def test_warnings_of_a_task_file_are_for_whoever_debugs(tmp_path):
    """Python quotes the line that it warns of, which would be printed as it is."""
    program = own_program(tmp_path)
    task = own_task(tmp_path, "mine = answer_task('m', 'ab', lambda x: x)\n1.5[0] # \x1b[2J")
    for debug in ((), ("--debug",)):
        code = "from drasp.cli import main; main()"
        words = [*debug, "verify", str(program), "tomita1", "--task", task]
        ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=False)
        assert b"\x1b" not in ended.stderr
        assert (b"SyntaxWarning" in ended.stderr) == bool(debug)
        assert debug or len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "train sort --dim 99999999999999",
        "train sort --seed 99999999999999999999999",
        "verify PROGRAM bin_majority --samples 99999999999999999",
        "decompile bin_majority --seed 99999999999999999999999",
    ],
)
def test_arguments_that_are_too_large(tmp_path, arguments):
    words = [str(tmp_path) if word == "PROGRAM" else word for word in arguments.split()]
    out = [] if "verify" in words else ["--out", tmp_path / "out"]
    assert re.search("expected at most|less than or equal|is not in the range", fails(*words, *out))


def test_out_is_where_one_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("decompile bin_majority", "translate bin_majority", "train sort"):
        assert re.search(r"\.: (is where you are|exists already)", fails(*command.split(), "--out", "."))


@pytest.mark.parametrize("value", [[], {}, None, 3, "tanh"])
def test_an_activation_that_is_none(tmp_path, value):
    folder = own_model(tmp_path)
    config = json.loads((folder / "config.json").read_text()) | {"activation_function": value}
    (folder / "config.json").write_text(json.dumps(config))
    assert "expected activation_function to be one of" in fails("translate", folder, "--out", tmp_path / "out")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float8_e4m3fn, torch.bfloat16, torch.int32])
def test_numbers_of_other_kinds(tmp_path, dtype):
    """Among those of a model, and in a program: computed with, or refused."""
    folder, program = own_model(tmp_path), own_program(tmp_path, dtype=dtype)
    tensors = load_file(folder / "model.safetensors")
    name = next(iter(tensors))
    save_file(tensors | {name: tensors[name].to(dtype)}, folder / "model.safetensors", {"format": "pt"})
    for result in (drasp("translate", folder, "--out", tmp_path / "out"), drasp("run", program, "a", "b")):
        assert result.code in (0, 1), result.err
        assert len(result.err.splitlines()) == result.code


def test_a_model_whose_numbers_are_too_large_is_blamed_itself(tmp_path):
    folder = own_model(tmp_path)
    tensors = {name: torch.full_like(each, 3e38) for name, each in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert f"{folder}" in fails("translate", folder, "--task", "bin_majority", "--out", tmp_path / "out")


def test_pipes_and_devices_in_place_of_files(tmp_path):
    for name in ("program.drasp", "program.safetensors", "result.json"):
        (tmp_path / name).mkdir()
        folder = own_program(tmp_path / name)
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        assert f"{folder}/{name}: expected" in fails("explain", folder, "1")
    (tmp_path / "zero.drasp").symlink_to("/dev/zero")
    assert "found a device" in fails("check", tmp_path / "zero.drasp")
    os.mkfifo(tmp_path / "task.py")
    assert "found a pipe" in fails("train", f"{tmp_path}/task.py:mine", "--out", tmp_path / "out")


def test_one_bad_result_does_not_stop_the_index(tmp_path):
    assert drasp("translate", "tomita1", "--out", tmp_path / "good").code == 0
    record = json.loads((tmp_path / "good/result.json").read_text())
    for number, change in enumerate(
        ({"causal": {"edits": 3}}, {"primitives": {"a": {"total": "x"}}}, {"model": "a\0b"}, {"model": "n" * 5000})
    ):
        bad = {"program.drasp": b"", "result.json": json.dumps(record | change).encode()}
        write_files(tmp_path / f"bad{number}", bad)
    result = drasp("explore", tmp_path)
    assert result.code == 0
    assert "an index of" in result.out
    assert len(result.err.splitlines()) >= 2


def test_markup_and_escapes_are_shown_and_not_obeyed(tmp_path):
    task = own_task(tmp_path, "mine = answer_task('[/red]', 'ab', each_row(lambda x: [0]))")
    assert drasp("train", task, "--out", tmp_path / "model", "--steps", "1").code == 0
    text = PROGRAM.replace("[a, b]", r'["\u001b[31m", "\u009b2J"]')
    program = own_program(tmp_path, text)
    result = drasp("run", program, "\x1b[31m", "\x9b2J")
    assert result.code == 0
    assert "\x1b" not in result.out
    assert "\x9b" not in result.out
    assert r"\u001b[31m" in result.out
    assert "\x1b" not in fails("run", program, "\x1b[2J")


def test_terminals_that_cannot_show_it(tmp_path):
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    shown = run("zoo", stdout=subprocess.PIPE, env=ascii_only)
    assert shown.returncode == 0, shown.stderr
    assert b"bin_majority" in shown.stdout
    odd = run("check", os.fsdecode(str(tmp_path).encode() + b"/\xff.drasp"), stdout=subprocess.PIPE)
    assert odd.returncode == 1
    assert len(odd.stderr.splitlines()) == 1


def test_an_output_that_is_full():
    """What is buffered must not fail once more when Python ends, which would say so, and end with 120."""
    with Path("/dev/full").open("wb") as full:
        broken = run("tasks", stdout=full)
        silent = run("check", "nothing", stdout=subprocess.PIPE, stderr=full)
    assert (broken.returncode, silent.returncode) == (1, 1)
    assert broken.stderr == b"drasp: output: No space left on device\n"


def test_an_output_that_is_closed(tmp_path):
    code = (
        f"exec {sys.executable} -c 'from drasp.cli import main; main()' translate tomita1 --out {tmp_path}/out >&- 2>&-"
    )
    assert subprocess.run(["sh", "-c", code], timeout=60, check=False).returncode == 0
    assert drasp("check", tmp_path / "out").code == 0


def test_a_memory_limit_is_one_line(tmp_path):
    code = "import resource, sys; from drasp.cli import main; pass\n"
    code += "from drasp.translation_result import translate_folder; translate_folder('tomita1', None); main(['zoo'])\n"
    code += "used = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
    code += "resource.setrlimit(resource.RLIMIT_AS, (used + 3_000_000, used + 3_000_000)); main()"
    command = [sys.executable, "-c", code, "translate", "repeat_copy", "--out", str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False, text=True)
    assert ended.returncode == 1, ended.stderr
    assert "not enough memory" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not any(tmp_path.iterdir())


def test_programs_without_their_tensors(tmp_path):
    program = own_program(tmp_path)
    (program / "program.safetensors").unlink()
    for line in ("diff P P", "run P a", "explain P 1", "compile P --out Q", "export P --out Q", "figures P"):
        words = [re.sub("^[PQ]$", lambda at: str(program if at[0] == "P" else tmp_path / "q"), w) for w in line.split()]
        assert "tensor `w` is not among the program's tensors" in fails(*words)


def test_programs_that_are_too_large(tmp_path):
    huge = own_program(tmp_path, PROGRAM.replace("positions = 4", "positions = 999999999"))
    assert "found 999999999, expected a whole number from 1 to 1,000,000" in fails("run", huge, "a")
    with pytest.raises(Exception, match="letters in a line"):
        parse(PROGRAM.replace("(logits1)", f"({'+'.join(['logits1'] * 150_000)})"))


def test_a_fault_of_drasps_own_is_one_line_and_debug_shows_where(tmp_path, monkeypatch):
    monkeypatch.setattr("drasp.language.read_program", lambda _path: 1 // 0)
    result = drasp("check", tmp_path)
    assert (result.code, len(result.err.splitlines())) == (70, 1)
    assert "a fault of drasp's own, ZeroDivisionError" in result.err
    assert "Traceback" in drasp("--debug", "check", tmp_path).err


def test_choices_that_there_are_not_are_named_as_options(tmp_path):
    for option, message in (
        ("--method", "--method x: no such method"),
        ("--accept", "--accept x: no such criterion"),
        ("--naming", "--naming x: no such naming"),
    ):
        assert message in fails("decompile", "tomita1", "--out", tmp_path / "out", option, "x")


def test_half_of_a_letter_in_a_token_is_one_line(tmp_path):
    task = own_task(tmp_path, "mine = answer_task('m', ['a', '\\ud800'], each_row(lambda x: [0]))")
    assert "half of a letter" in fails("train", task, "--out", tmp_path / "out", "--steps", "1")


def test_a_command_line_that_is_wrong_is_one_line():
    for line in ("translate", "nothing", "run --bits x a b", "check --what", "run"):
        assert "--help" in fails(*line.split())


def test_paths_that_are_no_utf_8(tmp_path):
    place = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    shutil.copytree(own_model(tmp_path), f"{place}/model")
    for line in ("translate P/model --out P/result", "explore P", "report P/result", "check P/result"):
        ended = drasp(*(re.sub("^P", lambda _: place, word) for word in line.split()))
        assert ended.code == 0, ended.err
