"""The program of a compiled model: what every line stands for."""

from collections.abc import Mapping
from dataclasses import replace

from drasp.compiler.plan import Plan
from drasp.language.syntax import Aggregate, ElementWise, Norm, Prediction, Program, Project, Select, Statement
from drasp.sites import OUT, POSITION, TOKEN, Component, Edge, Site


def with_sites(plan: Plan) -> Program:
    """The source program, each of whose lines says which heads, MLPs or edges of the model compute it."""
    written = components(plan)

    def sites(statement: Statement) -> tuple[Site, ...]:
        match statement:
            case Select(name):
                return tuple(
                    Component("head", head.layer, place)
                    for head in plan.heads
                    if name in head.selectors
                    for place in head.places
                )
            case Project(_, source):
                return tuple(Edge(sender, OUT) for sender in written[source.variable]) or (OUT,)
            case Prediction():
                return (OUT,)
            case Aggregate(name) | ElementWise(name) | Norm(name):
                return written[name]

    program = plan.program
    return replace(program, statements=tuple(replace(s, sites=sites(s)) for s in program.statements))


def components(plan: Plan) -> Mapping[str, tuple[Component, ...]]:
    """What writes each variable to the residual stream; nothing for `one`, which is in every reader's bias."""
    written: dict[str, tuple[Component, ...]] = {"token": (TOKEN,), "pos": (POSITION,), "one": ()}
    for head in plan.heads:
        for aggregate, _ in head.values:
            written[aggregate] = tuple(Component("head", head.layer, place) for place in head.places)
    for cell in plan.cells:
        written[cell.line] = (*written.get(cell.line, ()), Component("mlp", cell.layer))
    return written
