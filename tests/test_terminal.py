"""What a terminal shows: colours and a changing line where there is one, plain lines where not."""

import io

from rich.console import Console

from cases import CASES
from drasp.cli.show import print_frontier, print_program, statement_line
from drasp.language import parse
from drasp.progress import pass_progress
from drasp.records import FrontierRecord, PassRecord
from drasp.results.frontier import Frontier

PROGRAM = next(case.program for case in CASES if case.name == "unique copy")
RECORDS = (
    PassRecord("cut something", 1.0, 9, "edges", 0.99),
    PassRecord("cut something", 2.0, 8, "edges", 0.98),
    PassRecord("cut edges", 3.0, 7, "lines", 0.97),  # the pass says what it counts, whatever it is called
)


def console(terminal: bool) -> Console:
    colours = "truecolor" if terminal else None
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=colours, highlight=False)


def text_of(made: Console) -> str:
    assert isinstance(made.file, io.StringIO)
    return made.file.getvalue()


def test_a_program_is_printed_in_colour_on_a_terminal_and_plain_elsewhere():
    plain, colour = console(False), console(True)
    print_program(plain, PROGRAM)
    print_program(colour, PROGRAM)
    assert text_of(plain) == f"{PROGRAM}\n"
    assert "\x1b[1;35mselect\x1b[0m" in text_of(colour)


def test_tokens_that_look_like_markup_are_printed_as_they_are():
    program = parse(
        'vocab = ["[red]", "[/]"]\nspecial = []\npositions = 2\n'
        'logits1 = project(op=(out=="[red]"))  # [bold]\nprediction = softmax(logits1)'
    )
    made = console(False)
    print_program(made, program)
    assert text_of(made) == '1. logits1 = project(op=(out=="[red]"))  # [bold]\n2. prediction = softmax(logits1)\n'
    assert statement_line(1, program.statements[0], comment=False).plain == '1. logits1 = project(op=(out=="[red]"))'


def test_the_frontier_has_an_arrow_at_the_pick():
    points = (FrontierRecord(2, 0.45, (0.43, 0.47), False), FrontierRecord(3, 1.0, None, True, "complete"))
    made = console(False)
    print_frontier(made, Frontier(points, {}, 3))
    header, *rows = [line.split() for line in text_of(made).splitlines()]
    assert header[0] == "lines"
    assert rows == [["2", "0.450", "[0.430,", "0.470]", "no"], ["→", "3", "1.000", "complete", "the", "pick"]]


def test_the_frontier_fits_a_narrow_terminal():
    point = FrontierRecord(1234, 0.5, (0.25, 0.75), True, "sufficient")
    made = console(False)
    made.width = 80
    print_frontier(made, Frontier((point,), {}, point.lines, FrontierRecord(7, 0.5, (0.25, 0.75), True, "sufficient")))
    assert len(text_of(made).splitlines()) == 3


def test_every_step_has_a_line_where_there_is_no_terminal():
    made = console(False)
    with pass_progress(made) as report:
        for record in RECORDS:
            report(record)
    assert text_of(made).splitlines() == [
        "    1.0 s    9 edges left, agreement 0.990  cut something",
        "    2.0 s    8 edges left, agreement 0.980  cut something",
        "    3.0 s    7 lines left, agreement 0.970  cut edges",
    ]


def test_on_a_terminal_a_pass_leaves_one_line():
    made = console(True)
    with pass_progress(made) as report:
        for record in RECORDS:
            report(record)
    done = [line for line in text_of(made).splitlines() if "✓" in line]
    assert len(done) == 2
    assert "8 edges left" in done[0]
    assert "7 lines left" in done[1]
