"""How many operations of a program have names."""

from drasp.language.syntax import ElementWise, PrimitiveTensor, Program, Project, Select
from drasp.sites import Component, Edge, last_of


def count_primitives(program: Program) -> dict[str, dict[str, int]]:
    """How many of the program's operations have a name, and how many of these are tables or linear maps.

    An MLP that is a table or a linear map has no line of its own: other lines say that they stand for it too.
    """
    counts = {kind: {"named": 0, "tables": 0, "total": 0} for kind in ("select", "project", "elementwise")}
    for statement in program.statements:
        table = False
        match statement:
            case Select(op=op) | Project(op=op):
                kind = statement.kind
                table = isinstance(op, PrimitiveTensor) and op.primitive in ("table", "followers")
            case ElementWise():
                kind = "elementwise"
            case _:
                continue
        counts[kind]["named"] += statement.stored is None
        counts[kind]["tables"] += table
        counts[kind]["total"] += 1
    folded = len(_folded_mlps(program))
    counts["elementwise"] = {name: number + folded for name, number in counts["elementwise"].items()}
    return counts


def _folded_mlps(program: Program) -> set[Component]:
    """MLPs that lines stand for along their edges, and none as an element-wise operation."""
    sites = [(statement, site) for statement in program.statements for site in statement.sites]
    heard = {last_of(site.sender) for _, site in sites if isinstance(site, Edge)}
    written = {site for statement, site in sites if isinstance(statement, ElementWise)}
    return {sender for sender in heard if sender.kind == "mlp" and sender not in written}
