"""The short form of `bench/faults.py`."""

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

import faults
from campaign import commands, inputs, signals, surroundings
from campaign.commands import Ended, anew, called, failure, forked, located, prepared, wrong_end


@pytest.fixture(scope="module")
def origin(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("faults") / "origin"
    prepared(place)
    return place


def test_bad_inputs_signals_and_surroundings_end_as_they_should(origin):
    drawn = inputs.bad_inputs(origin, origin.parent, range(31, 131), seed=1)
    assert not drawn.failed
    assert (drawn.tried.total(), drawn.tried["of these, by a process of its own"]) == (104, 4)
    moved = signals.signals_at_moves("export SMALL --out OUT", origin, origin.parent / "work", most=6)
    assert not moved.failed
    assert moved.tried.total() == 6


@pytest.mark.long
def test_more_signals_and_surroundings(origin):
    work = origin.parent / "work"
    moved = signals.signals_at_moves("translate TINY --out RESULT", origin, work, most=24)
    trained = signals.signals_in_long_work(list(signals.LONG)[1], origin, work, moves=6, moments=3)
    assert (moved.failed, trained.failed) == ([], [])
    assert (moved.tried.total(), trained.tried.total() >= 8) == (24, True)
    for name in ("two at once", "full disk"):
        assert not surroundings.surroundings(origin, work, 0)[name]().failed


@pytest.mark.long
def test_what_the_campaign_tries_works_where_nothing_is_wrong(origin):
    """A command that is refused anyway would not meet what is wrong with its input."""
    work = origin.parent / "work"
    lines = {*inputs.COMMANDS, *signals.SHORT, *surroundings.WRITERS, *surroundings.READERS}
    for line in sorted(lines):
        anew(origin, work, line)
        arguments = located(line, work)
        ended = called(arguments)
        assert ended.code == (line == "diff SMALL PLACE/found"), (line, ended.err)
        assert wrong_end(arguments, ended, work) is None, line


def test_what_was_tried_is_not_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "prepared", Path.mkdir)
    monkeypatch.setattr(faults, "portions", lambda *_: {"one": lambda: faults.Tally(Counter({"kind": 3}), ["failed"])})
    first = faults.campaign(1, 0, tmp_path / "out")
    monkeypatch.setattr(faults, "portions", lambda *_: {"one": lambda: 1 // 0})
    assert faults.campaign(1, 0, tmp_path / "out") == first
    assert json.loads((tmp_path / "out").read_text())["code"] == faults.code_digest()
    assert "| kind | 3 |" in faults.table(first)


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_campaign_that_is_asked_to_end_notes_no_failure(origin, tmp_path, monkeypatch, which):
    """The command that is being tried gets the signal as well, which is not to be blamed for it."""
    monkeypatch.setattr(faults, "prepared", Path.mkdir)
    monkeypatch.setattr(commands, "_asked_to_end", [])
    monkeypatch.setattr("drasp.language.read_program", lambda _path: os.kill(os.getpid(), which))

    def tried() -> faults.Tally:
        tally = faults.Tally()
        tally.note("kind", "check", failure(["check", str(origin / "small")], tmp_path))
        return tally

    monkeypatch.setattr(faults, "portions", lambda *_: {"one": tried})
    before = signal.signal(signal.SIGINT, commands.asked_to_end)
    try:
        with pytest.raises(KeyboardInterrupt):
            faults.campaign(1, 0, tmp_path / "out")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "out").exists()


def test_a_process_of_its_own_ends_as_it_ends(origin, tmp_path):
    good = forked(["check", str(origin / "small")], tmp_path)
    assert (good.code, "correct" in good.out, good.err) == (0, True, "")
    bad = forked(["check", "nothing"], tmp_path)
    assert (bad.code, len(bad.err.splitlines())) == (1, 1)
    assert forked(["tasks"], tmp_path, lambda: os.kill(os.getpid(), signal.SIGKILL)).code == -signal.SIGKILL


def test_the_campaign_sees_a_fault(tmp_path, monkeypatch):
    monkeypatch.setattr("drasp.language.read_program", lambda _path: 1 // 0)
    assert "ZeroDivisionError" in (failure(["check", "x"], tmp_path) or "")
    monkeypatch.setattr("drasp.language.read_program", lambda path: (_ for _ in ()).throw(BaseException("out")))
    assert "exception" in (failure(["check", "x"], tmp_path) or "")


def test_the_campaign_sees_what_is_missing_left_or_run(tmp_path):
    done = Ended(0, "done", "")
    arguments = ["translate", "model", "--out", str(tmp_path / "out")]
    assert "without" in (wrong_end(arguments, done, tmp_path) or "")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/program.drasp").touch()
    assert wrong_end(arguments, done, tmp_path) is None
    assert "lines" in (wrong_end(arguments, Ended(1, "", "one\ntwo\n"), tmp_path) or "")
    (tmp_path / ".out.drasp-new").mkdir()
    assert "left behind" in (wrong_end(arguments, done, tmp_path) or "")
    (tmp_path / ".out.drasp-new").rmdir()
    (tmp_path / "out/sprung").touch()
    assert "was run" in (wrong_end(arguments, done, tmp_path) or "")


def test_the_campaign_looks_for_what_is_written_where_the_command_ran(tmp_path):
    done = Ended(0, "done", "")
    for name in ("0", "--"):
        arguments = ["language", "a", "--out", name]
        assert "without" in (wrong_end(arguments, done, tmp_path, tmp_path) or "")
        (tmp_path / name).touch()
        assert wrong_end(arguments, done, tmp_path, tmp_path) is None
