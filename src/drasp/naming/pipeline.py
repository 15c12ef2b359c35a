"""From a pruned program to one that a person reads: the passes, in order."""

from collections.abc import Callable

from drasp.fitting.oracle import Oracle, answering
from drasp.language.syntax import ElementWise, Network, Program, Select
from drasp.naming.elementwise import name_function
from drasp.naming.judge import Judge, in_turn
from drasp.naming.rounding import round_projects, round_selects
from drasp.naming.shorten import shorten
from drasp.naming.tensors import name_projects, name_select
from drasp.rewriting.simplify import simplify

_TRUE_ENOUGH = 0.99

# Hears which pass begins, with what program, and how often that agrees with the model.
Report = Callable[[str, Program, float], None]


def _silent(_name: str, _program: Program, _match: float) -> None:
    pass


def name_program(program: Program, fit: Oracle, check: Oracle, least: float = 0.0, report: Report = _silent) -> Program:
    """The same answers, but for a hundredth of the inputs, from lines that say what they do.

    Tensors are fitted on `fit` and judged on `check`; agreement does not fall below `least` if it is above.
    """
    program = simplify(program)
    match = check.match(answering(program)).value
    judge = Judge.of(match, fit, check, least)
    for step in (shorten, name_lines, settle_rest, shorten, name_projects, round_projects, round_selects):
        report(step.__name__.replace("_", " "), program, match)
        program = simplify(step(program, judge))
        match = judge.match(program)
        judge = judge.raised(match)
    return program


def settle_rest(program: Program, judge: Judge) -> Program:
    """What has no name yet, fitted to what has one now; where that makes the program truer."""
    match = judge.match(program)
    if match > _TRUE_ENOUGH:
        return program
    settled = judge.settled(program)
    return settled if judge.match(settled) > match else program


def name_lines(program: Program, judge: Judge) -> Program:
    """Selects and functions from the lowest layer up; once more where a function has gone, since that frees selects."""
    while True:
        after = _name_each_line(program, judge)
        if _count_networks(after) == _count_networks(program):
            return after
        program = after


def _count_networks(program: Program) -> int:
    return sum(isinstance(s, ElementWise) and isinstance(s.function, Network) for s in program.statements)


def _name_each_line(program: Program, judge: Judge) -> Program:
    def attempt(now: Program, line: Select | ElementWise) -> Program | None:
        return name_select(now, line, judge) if isinstance(line, Select) else name_function(now, line, judge)

    return in_turn(program, (Select, ElementWise), attempt)
