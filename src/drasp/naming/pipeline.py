"""From a pruned program to one that a person reads: the passes, in order."""

from collections.abc import Callable

from drasp.causal.trials import Trials
from drasp.fitting.oracle import Oracle
from drasp.language.syntax import ElementWise, Program, Select
from drasp.naming.elementwise import name_function
from drasp.naming.heads import merge_heads
from drasp.naming.judge import Judge, in_turn
from drasp.naming.negligible import drop_negligible
from drasp.naming.rounding import round_projects, round_selects
from drasp.naming.tensors import name_projects, name_select, name_tables
from drasp.rewriting.simplify import simplify

# Hears which pass begins, with what program, and how often that agrees with the model.
Report = Callable[[str, Program, float], None]


def _silent(_name: str, _program: Program, _match: float) -> None:
    pass


def name_program(
    program: Program, fit: Oracle, check: Oracle, trials: Trials, least: float = 0.0, report: Report = _silent
) -> Program:
    """The same answers by the same means, but for a hundredth of the inputs, from lines that say what they do.

    Agreement on `check` does not fall below `least` if it is above.
    """
    program = simplify(program)
    judge = Judge.of(program, fit, check, trials, least)
    report("drop negligible lines", program, judge.match(program))
    program = drop_negligible(program, judge)
    judge = judge.afresh(program)
    for step in (merge_heads, name_lines, name_projects, round_projects, name_tables, round_selects):
        report(step.__name__.replace("_", " "), program, judge.match(program))
        program = simplify(step(program, judge))
    return program


def name_lines(program: Program, judge: Judge) -> Program:
    """Selects and functions from the lowest layer up; again as long as that finds a name, which may free others."""
    while True:
        after = _name_each_line(program, judge)
        if _count_unnamed(after) == _count_unnamed(program):
            return after
        program = simplify(after)


def _count_unnamed(program: Program) -> int:
    return sum(isinstance(s, Select | ElementWise) and s.stored is not None for s in program.statements)


def _name_each_line(program: Program, judge: Judge) -> Program:
    def attempt(now: Program, line: Select | ElementWise) -> Program | None:
        return name_select(now, line, judge) if isinstance(line, Select) else name_function(now, line, judge)

    return in_turn(program, (Select, ElementWise), attempt)
