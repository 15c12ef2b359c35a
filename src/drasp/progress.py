"""What the decompiler is doing, in a terminal: in colour where there is one, plain text where not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from drasp.estimate import Estimate, duration
from drasp.records import PassRecord


@contextmanager
def pass_progress(console: Console, expected: Estimate | None = None) -> Iterator[Callable[[PassRecord], None]]:
    """A function that shows each step of a pass: on a terminal in a line a pass, which changes; else a line a step.

    Where it is known how long such runs take, the line says how long it usually takes from here.
    """

    def line(record: PassRecord) -> str:
        # What comes once lines are left is short beside the search.
        return pass_line(record) + (time_left(expected, record.seconds) if expected and record.unit == "edges" else "")

    if not console.is_terminal:
        yield lambda record: console.print(line(record), highlight=False, soft_wrap=True)
        return
    last: PassRecord | None = None

    def close_pass() -> None:
        if last is not None:
            console.print(Text.assemble(("✓", "green"), pass_line(last)[1:]), highlight=False)

    def report(record: PassRecord) -> None:
        nonlocal last
        if last is not None and last.name != record.name:
            close_pass()
        last = record
        status.update(Text(line(record)))

    with console.status(Text("reading the model's answers")) as status:
        yield report
        close_pass()


def time_left(expected: Estimate, seconds: float) -> str:
    """What is left of the usual time; once that has gone, of the longest; then nothing is known."""
    for words, whole in (("usually about", expected.usual), ("at most about", expected.longest)):
        if seconds < whole:
            return f"; {words} {duration(whole - seconds)} left"
    return ""


def pass_line(record: PassRecord) -> str:
    """What a pass has done so far, in one line: seconds, what is left, agreement, and its name, which may be long."""
    left = f"{record.left:4} {record.unit} left, agreement {record.match_accuracy:.3f}"
    return f"{record.seconds:7.1f} s {left}  {record.name}"
