"""The two doors: what is read is checked, and what is written is there as a whole or not at all."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from drasp.errors import DraspError
from drasp.input_files import read_bytes, read_json, read_tensors, read_text, read_together
from drasp.output_folder import check_output_folder, remove_file, reserved, write_file, write_files, write_into


def result(number: int, frontier: tuple[int, ...] = (), **more: str) -> dict[str, bytes]:
    record = {"number": number, "frontier": [{"lines": lines} for lines in frontier]}
    files = {"program.drasp": f"program {number}", "result.json": json.dumps(record)}
    return {name: text.encode() for name, text in (files | more).items()}


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -------------------------------------------------------------------------------------- reading


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, found in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a folder")):
        with pytest.raises(DraspError, match=f"{path}: expected a text, found {found}"):
            read_text(path)
    with pytest.raises(DraspError, match="no such file; expected a text"):
        read_text(tmp_path / "nothing")
    with pytest.raises(DraspError, match="no such file"):
        read_text(Path("a\0b"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(DraspError, match="loop: cannot be read"):
        read_text(tmp_path / "loop")


def test_what_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**11)
    with pytest.raises(DraspError, match="larger than 64,000,000 bytes"):
        read_text(tmp_path / "sparse")
    (tmp_path / "exact").write_bytes(b"12345")
    assert read_bytes(tmp_path / "exact", 5) == b"12345"
    with pytest.raises(DraspError, match="larger than 4 bytes"):
        read_bytes(tmp_path / "exact", 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xff", "not a UTF-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"[" * 101 + b"]" * 101 + b"}", "nested more than 100 deep"),
        (b'{"a": 1' + b"0" * 50 + b"}", "more than 128 bits"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "not readable as JSON"),
        (b'{"a": "\\ud800"}', "not readable as JSON"),
        (b"[]", "expected a JSON object, found a list"),
        (b"", "not readable as JSON"),
    ],
)
def test_json_that_is_refused(tmp_path, text, message):
    (tmp_path / "file.json").write_bytes(text)
    with pytest.raises(DraspError, match=message) as error:
        read_json(tmp_path / "file.json")
    assert str(error.value).startswith(f"{tmp_path}/file.json: ")
    assert "\n" not in str(error.value)


def test_tensors_of_kinds_that_torch_does_not_have_are_refused(tmp_path):
    header = json.dumps({"x": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}).encode()
    (tmp_path / "file").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with pytest.raises(DraspError, match="not a whole safetensors file"):
        read_tensors(tmp_path / "file")


def test_tensors_are_read_in_one_order(tmp_path):
    """Else what is written after them, such as `program.json`, would differ from run to run."""
    names = [f"t{number}" for number in range(30)]
    save_file({name: torch.zeros(1) for name in names}, tmp_path / "file")
    assert list(read_tensors(tmp_path / "file")) == sorted(names)


def test_files_of_a_folder_that_is_replaced_are_read_together(tmp_path):
    write_files(tmp_path / "out", result(0))
    turns = iter((1, 2))

    def read() -> tuple[bytes, bytes]:
        program = (tmp_path / "out/program.drasp").read_bytes()
        if (number := next(turns, None)) is not None:
            write_files(tmp_path / "out", result(number))
        return program, (tmp_path / "out/result.json").read_bytes()

    assert read_together(tmp_path / "out", read) == tuple(result(2).values())


# -------------------------------------------------------------------------------------- writing


def test_a_result_takes_the_place_of_another_and_what_is_not_drasps_stays(tmp_path):
    out, old = tmp_path / "out", {"report.html": "old", "pruned.drasp": "old"}
    write_files(out, result(1, (2, 3), **old, **{f"frontier/{i}.drasp": "" for i in (2, 3)}))
    (out / "notes").mkdir()
    (out / "notes/mine.txt").write_text("mine")
    (out / "link").symlink_to(tmp_path)
    write_files(out, result(2, (3,)))
    there = content(out)
    assert there == result(2, (3,)) | {"frontier/3.drasp": b"", "notes/mine.txt": b"mine"}
    assert (out / "link").readlink() == tmp_path
    assert names(tmp_path) == ["out"]


def test_figures_of_lines_that_are_gone_go(tmp_path):
    write_into(tmp_path / "figures", {"line-1.pdf": b"1", "line-2.pdf": b"2"}, re.compile(r"line-\d\.pdf"))
    (tmp_path / "figures/mine.pdf").write_bytes(b"mine")
    write_into(tmp_path / "figures", {"line-1.pdf": b"3"}, re.compile(r"line-\d\.pdf"))
    assert content(tmp_path / "figures") == {"line-1.pdf": b"3", "mine.pdf": b"mine"}


def test_modes_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_files(tmp_path / "out", result(1))
        write_file(tmp_path / "file", b"")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("out", "out/result.json", "file")}
    assert modes == {"out": 0o750, "out/result.json": 0o640, "file": 0o640}


def test_places_where_nothing_can_be_put(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    for place, message in (
        (".", "is where you are"),
        ("..", "is where you are"),
        ("/", "expected a name for the output"),
        ("file", "found a file"),
        ("file/out", "could not be written|is not a folder"),
        ("loop", "no such place|could not be written"),
        ("n" * 300, "could not be written"),
    ):
        with pytest.raises(DraspError, match=message) as error:
            write_files(Path(place), result(1))
        assert "\n" not in str(error.value)
    assert names(tmp_path) == ["file", "loop"]
    with pytest.raises(DraspError, match="exists already"):
        check_output_folder(tmp_path / "file", new=True)


@pytest.mark.parametrize("name", ["../beside", "a/../../beside", "/dev/shm/beside"])
def test_names_that_lead_out_of_a_folder_are_refused(tmp_path, name):
    write_files(tmp_path / "out", result(1))
    with pytest.raises(DraspError, match="would not lie in it"):
        write_files(tmp_path / "out", result(2) | {name: b""})
    assert content(tmp_path / "out") == result(1)
    assert names(tmp_path) == ["out"]


def test_a_full_disk_is_named_and_leaves_what_was(tmp_path, monkeypatch):
    write_files(tmp_path / "out", result(1))
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(DraspError, match=f"{tmp_path}/out: could not be written .No space left on device."):
        write_files(tmp_path / "out", result(2))
    with pytest.raises(DraspError, match=f"{tmp_path}/new/file: could not be written .No space left on device."):
        write_file(tmp_path / "new/file", b"1")
    assert content(tmp_path / "out") == result(1)
    assert names(tmp_path) == ["out"]


_WRITER = """
import sys, os, signal
from pathlib import Path
from drasp import output_folder
die, how = int(sys.argv[2]), sys.argv[3]
calls = 0
def counted(name, real):
    def call(*arguments, **more):
        global calls
        calls += 1
        if calls == die and how == "before": os.kill(os.getpid(), signal.SIGKILL)
        mine = calls
        try: return real(*arguments, **more)
        finally:
            if mine == die and how == "after": os.kill(os.getpid(), signal.SIGKILL)
    return call
for name in ("mkdir", "rename", "replace", "unlink", "rmdir", "link", "open", "fsync"):
    setattr(os, name, counted(name, getattr(os, name)))
if sys.argv[4] == "no exchange": output_folder._exchange = lambda *_: False
else: output_folder._exchange = counted("exchange", output_folder._exchange)
files = {"program.drasp": b"program 2", "result.json": b'{"number": 2, "frontier": []}'}
output_folder.write_files(Path(sys.argv[1]), files)
"""


@pytest.mark.parametrize("exchange", ["exchange", "no exchange"])
def test_killed_at_any_move_a_folder_is_the_old_or_the_new(tmp_path, exchange):
    """A run that is killed leaves one whole result, and the next one ends as if nothing had been."""
    out = tmp_path / "out"
    killed = 0
    for first in (True, False):
        for die in range(1, 60):
            how = "before" if die % 2 else "after"
            if out.exists():
                shutil.rmtree(out)
            if not first:
                write_files(out, result(1))
            child = os.fork()
            if not child:
                sys.argv = ["", str(out), str(die // 2 + 1), how, exchange]
                try:
                    exec(_WRITER, {"__name__": "child"})
                    os._exit(0)
                finally:
                    os._exit(1)
            status = os.waitpid(child, 0)[1]
            if not os.WIFSIGNALED(status):
                assert os.WEXITSTATUS(status) == 0
                break
            killed += 1
            found = content(out) if out.exists() else {}
            whole = [{}, result(2)] if first else [result(1), result(2)]
            if exchange == "no exchange" and not found:
                # Where two folders cannot change names by one move, the old one is beside its place for a moment.
                found = content(tmp_path / ".out.drasp-old") if (tmp_path / ".out.drasp-old").exists() else {}
            assert found in whole
            if out.exists():  # the next run may be one that writes to new places alone
                with pytest.raises(DraspError, match="exists already"):
                    check_output_folder(out, new=True)
                assert names(tmp_path) == ["out"]
            write_files(out, result(3))
            assert content(out) == result(3)
            assert names(tmp_path) == ["out"]
    assert killed > 20


def test_two_processes_do_not_write_to_one_place(tmp_path):
    code = "import sys; from pathlib import Path; from drasp.output_folder import reserved\n"
    code += f"with reserved(Path({str(tmp_path / 'out')!r})): print('here', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"here\n"
        with pytest.raises(DraspError, match="another drasp is writing there"):
            write_files(tmp_path / "out", result(1))
        other.send_signal(signal.SIGKILL)
    write_files(tmp_path / "out", result(1))
    assert names(tmp_path) == ["out"]


def test_a_file_is_taken_away_with_what_a_killed_run_has_left_beside_it(tmp_path):
    """A search that has nothing more to keep takes its lock no more."""
    file = tmp_path / "out.decompiling"
    for name in (file.name, ".out.decompiling.drasp-lock", ".out.decompiling.drasp-new"):
        (tmp_path / name).touch()
    for _ in range(2):
        remove_file(file)
        assert list(tmp_path.iterdir()) == []


def test_what_is_reserved_is_free_again(tmp_path):
    with pytest.raises(KeyboardInterrupt), reserved(tmp_path / "a/b/out"):
        raise KeyboardInterrupt
    assert not any(tmp_path.iterdir())
    begun = time.monotonic()
    with reserved(tmp_path / "a/out") as place:
        write_files(place, result(1))  # by the same process
    assert content(tmp_path / "a/out") == result(1)
    assert time.monotonic() - begun < 5
