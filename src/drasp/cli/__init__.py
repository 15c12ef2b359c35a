"""The command `drasp`. Commands import what they need when they run, so that `--help` answers at once."""

import contextlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from importlib.metadata import version
from typing import Annotated

import typer

from drasp.cli import (
    certifying,
    compiling,
    decompiling,
    explaining,
    importing,
    naming,
    programs,
    reporting,
    studying,
    theory,
    training,
)
from drasp.cli.options import release
from drasp.errors import DraspError
from drasp.terminal import one_line, prepare_streams, say

app = typer.Typer(
    name="drasp",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: Mapping[str, Callable[..., None]] = {
    "certify": certifying.certify,
    "check-certificate": certifying.check_certificate,
    "compile": compiling.compile_,
    "decompile": decompiling.decompile,
    "verify": decompiling.verify,
    "explain": explaining.explain,
    "import": importing.import_,
    "name": naming.name,
    "diff": naming.diff,
    "translate": programs.translate,
    "run": programs.run,
    "check": programs.check,
    "report": reporting.report,
    "figures": reporting.figures,
    "explore": reporting.explore,
    "sweep": studying.sweep,
    "tables": studying.tables,
    "export": theory.export,
    "language": theory.language,
    "tasks": training.tasks,
    "train": training.train,
    "zoo": training.zoo,
}
for _name, _command in _COMMANDS.items():
    # A token may begin with a dash: what is no option of `run` is one.
    app.command(_name, context_settings={"ignore_unknown_options": _name == "run"})(_command)

_EXITS = {"fault": 70, "interrupted": 130}
_debug = ContextVar("debug", default=False)


def _version(asked: bool) -> bool:
    if asked:
        say(f"drasp {version('drasp')}")
        raise typer.Exit
    return asked


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version, and end.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Where a command fails, show where in drasp.")] = False,
) -> None:
    """Decompile a trained transformer into the short D-RASP program that it computes."""
    _debug.set(debug)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line. What fails ends in one line and a code that is not 0; a fault of drasp's own, with 70.

    Being asked to end (SIGTERM) is the same as Ctrl-C.
    """
    prepare_streams()
    _debug.set(False)
    before, warned = signal.signal(signal.SIGTERM, signal.default_int_handler), warnings.showwarning
    warnings.showwarning = _warned
    try:
        try:
            code = app(arguments, prog_name="drasp", standalone_mode=False)  # also for `python -m drasp`
        finally:
            release()
        sys.stdout.flush()
    except Exception as error:
        if _debug.get():
            traceback.print_exc()
        code = _explained(error)
    except KeyboardInterrupt:
        code = _EXITS["interrupted"]
    finally:
        signal.signal(signal.SIGTERM, before)
        warnings.showwarning = warned
        _leave_streams()
    if isinstance(code, int) and code:
        sys.exit(code)


def _leave_streams() -> None:
    """Lets what cannot be written go nowhere, instead of failing once more when Python ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _warned(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
    """Shows a warning of Python or a library, which may quote lines of a foreign task file, to whoever debugs."""
    if _debug.get():
        say(one_line(f"{filename}:{lineno}: {category.__name__}: {message}"), err=True)


def _explained(error: Exception) -> int:
    """Says what went wrong; gives the code to end with."""
    code = 1
    match error:
        case DraspError():
            said = str(error)
        case BrokenPipeError():
            return code  # the reader (`| head`) has gone
        case OSError():
            said = f"{error.filename or 'output'}: {error.strerror or error}"
        case _ if hasattr(error, "format_message"):  # of typer: a wrong command line
            code = getattr(error, "exit_code", 2)
            wrong = getattr(error, "format_message")()  # noqa: B009
            if not wrong:  # nothing was asked for, and the help was shown
                return code
            said = f"{wrong} (--help says what there is)"
        case MemoryError():
            said = "not enough memory"
        case RuntimeError() | ImportError() if "memory" in str(error) or "failed to map" in str(error):  # torch's
            said = f"not enough memory ({str(error).splitlines()[0]})"
        case _:
            code = _EXITS["fault"]
            said = f"a fault of drasp's own, {type(error).__name__}: {error} (drasp --debug … shows where)"
    with contextlib.suppress(OSError):
        say(one_line(f"drasp: {said}"), err=True)
    return code
