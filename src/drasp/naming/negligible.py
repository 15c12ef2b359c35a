"""Lines that hardly matter: taken from another input they change next to no answer, and it goes without them too.

Pruning may keep them where it is short of agreement. Constants are often such: where a layer norm is kept, what is
constant in the stream is divided by it, and takes a select, an aggregate and a project of its own.
"""

from drasp.fitting.dropping import drop_line, with_bias
from drasp.fitting.means import operand_means
from drasp.language.syntax import ONE, Norm, Program, Project, Select
from drasp.naming.judge import Judge
from drasp.rewriting.simplify import simplify


def drop_negligible(program: Program, judge: Judge) -> Program:
    """The program without selects, projects and norms that can go, each mean-ablated; the bias stays.

    Each may cost some agreement, as a line that is cut of a graph may.
    """
    judge = judge.afresh(program)
    means = operand_means(program, judge.fit.part(judge.settings.means_by))
    for line in (s for s in program.statements if isinstance(s, Select | Project | Norm)):
        constant = ONE in line.operands and not isinstance(line, Norm)
        if constant or judge.matters(program, line.name):
            continue
        shorter = drop_line(with_bias(program), line.name, None, means)
        shorter = None if shorter is None else simplify(shorter)
        if (
            shorter is not None
            and _size(shorter) < _size(program)
            and judge.passes(program, shorter, overlap=judge.settings.overlap_without)
        ):
            return drop_negligible(shorter, judge)
    return program


def _size(program: Program) -> tuple[int, int]:
    """How many lines a program has, and how much they read: a bias is simpler than the project it was folded into."""
    return program.lines, sum(operand != ONE for line in program.statements for operand in line.operands)
