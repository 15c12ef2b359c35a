"""From a pruned program to one that a person reads: the passes, in order."""

from collections.abc import Callable
from dataclasses import dataclass

from drasp.causal.trials import Trials
from drasp.fitting.oracle import Oracle
from drasp.language.syntax import ElementWise, Program, Select
from drasp.naming.elementwise import name_function
from drasp.naming.heads import merge_heads
from drasp.naming.judge import Judge, in_turn
from drasp.naming.negligible import drop_negligible
from drasp.naming.rounding import round_projects, round_selects
from drasp.naming.tensors import name_projects, name_select, name_tables
from drasp.passes import Pass
from drasp.rewriting.simplify import simplify
from drasp.settings import DEFAULT, NamingSettings

# Hears which pass begins, with what program, and how often that agrees with the model.
Report = Callable[[str, Program, float], None]


@dataclass(frozen=True)
class NamingPass(Pass[Program, Judge]):
    """A step to a simpler program that the judge lets pass; after one that drops lines, it judges afresh."""

    drops_lines: bool = False


def _silent(_name: str, _program: Program, _match: float) -> None:
    pass


def name_program(
    program: Program,
    fit: Oracle,
    check: Oracle,
    trials: Trials,
    least: float = 0.0,
    report: Report = _silent,
    settings: NamingSettings = DEFAULT.naming,
) -> Program:
    """The program with names, simplified; it answers as before by the same means, but on a hundredth of the inputs.

    Agreement on `check` does not fall below `least` if it is above.
    """
    program = simplify(program)
    judge = Judge.of(program, fit, check, trials, least, settings)
    for step in PASSES:
        if step.name not in settings.without:
            report(step.name, program, judge.match(program))
            program = simplify(step.run(program, judge))
            judge = judge.afresh(program) if step.drops_lines else judge
    return program


def name_lines(program: Program, judge: Judge) -> Program:
    """The program with names for selects and functions, from the lowest line up, again as long as any is found."""
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

    return in_turn(program, (Select, ElementWise), attempt, judge.settings.patience)


PASSES = (
    NamingPass("drop negligible lines", "lines", drop_negligible, drops_lines=True),
    NamingPass("merge heads", "lines", merge_heads),
    NamingPass("name lines", "lines", name_lines),
    NamingPass("name projects", "lines", name_projects),
    NamingPass("round projects", "lines", round_projects),
    NamingPass("name tables", "lines", name_tables),
    NamingPass("round selects", "lines", round_selects),
)
