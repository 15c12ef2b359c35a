"""Where text meets a terminal: what files, tasks and arguments hold is shown, and never obeyed.

Letters that a terminal would take for commands are shown as `\\u001b`, text is no markup, and what an output cannot
encode is escaped.
"""

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# Control characters beside tab and newline, marks that turn the direction of text around, and halves of letters.
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LONGEST = 2000  # letters of a message


def plain(text: object) -> str:
    """A text without anything that a terminal acts on; of JSON, it is JSON still."""
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text))


def one_line(text: object) -> str:
    """A message as one line, of a length that can be read."""
    line = plain(" ".join(str(text).split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def say(text: object, err: bool = False, nl: bool = True) -> None:
    """Prints a text."""
    typer.echo(plain(text), err=err, nl=nl)


class SafeConsole(Console):
    """A console whose text is no markup, and holds no commands but its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


def prepare_streams() -> None:
    """Lets nothing fail for where it goes: what was closed goes nowhere, what cannot be encoded is escaped."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # A file that is opened later would have this number, and be written to.
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
