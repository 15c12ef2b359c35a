"""What a terminal shows: colours and a changing line where there is one, plain lines where not."""

import io

from rich.console import Console

from cases import CASES
from drasp.cli.show import print_frontier, print_program, statement_line
from drasp.decompiler.result import Point
from drasp.language import parse
from drasp.measure import Share
from drasp.progress import pass_progress
from drasp.records import PassRecord

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


def frontier_rows(points: list[Point], pick: Point, final: Point) -> list[list[str]]:
    made = console(False)
    print_frontier(made, points, pick, final)
    return [line.split() for line in text_of(made).splitlines()][1:]


def test_the_frontier_has_an_arrow_at_the_pick():
    points = [Point(parse_lines(n), Share(hits, 2000)) for n, hits in ((2, 900), (3, 1990))]
    rows = frontier_rows(points, points[1], points[1])
    assert rows[0][:2] == ["2", "0.450"]
    assert rows[1][:3] == ["→", "3", "0.995"]


def test_the_arrow_is_at_the_program_that_naming_made_of_the_pick():
    points = [Point(parse_lines(n), Share(hits, 2000)) for n, hits in ((2, 900), (4, 1990))]
    rows = frontier_rows(points, points[1], Point(parse_lines(3), Share(1980, 2000)))
    assert [row[0] for row in rows] == ["2", "4", "→"]
    assert rows[1][-4:] == ["the", "pick,", "before", "naming"]
    assert rows[2][:3] == ["→", "3", "0.990"]
    assert rows[2][-2:] == ["with", "names"]


def parse_lines(count: int):
    projects = "".join(f"logits{i} = project(op=(out==x))\n" for i in range(1, count))
    total = "+".join(f"logits{i}" for i in range(1, count))
    return parse(f"vocab = [x]\nspecial = []\npositions = 1\n{projects}prediction = softmax({total})")


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
