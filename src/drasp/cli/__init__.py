"""The command `drasp`. Commands import what they need when they run, so that `--help` answers at once."""

import os
import sys

import typer

from drasp.cli import certifying, compiling, decompiling, importing, naming, programs, reporting, theory, training
from drasp.errors import DraspError

app = typer.Typer(
    name="drasp",
    help="Decompile a trained transformer into the short D-RASP program that it computes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
certifying.register(app)
compiling.register(app)
decompiling.register(app)
importing.register(app)
naming.register(app)
programs.register(app)
reporting.register(app)
theory.register(app)
training.register(app)


def main() -> None:
    """What is the user's to mend ends in one line; anything else is a bug and keeps its traceback."""
    try:
        app()
    except DraspError as error:
        sys.exit(f"drasp: {error}")
    except BrokenPipeError:
        # The reader (`| head`) has gone: what is still buffered goes nowhere instead of failing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        sys.exit(f"drasp: {error.filename or 'output'}: {error.strerror}")
