"""Runs the `drasp` command inside the test's own process, which spares the seconds that torch takes to load."""

import contextlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path

from drasp.cli import main


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str


def drasp(*arguments: str | Path) -> Finished:
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["drasp", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code = 0
    except SystemExit as stop:
        # As Python does it: a text goes to the error stream, and the code is 1.
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            err.write(stop.code + "\n")
    finally:
        sys.argv = before
    return Finished(code, out.getvalue(), err.getvalue())


def fails(*arguments: str | Path) -> str:
    """The one line that a user sees where a command cannot do what it was asked."""
    result = drasp(*arguments)
    assert result.code != 0
    assert result.out == ""
    assert len(result.err.splitlines()) == 1, result.err
    return result.err.strip()
