"""Parts of a program: where they are, and how they go."""

from dataclasses import replace
from math import prod

from drasp.language.syntax import (
    Aggregate,
    ElementWise,
    Norm,
    Operand,
    PrimitiveTensor,
    Program,
    Project,
    Select,
    Statement,
)
from drasp.rewriting.rewrite import dense_ops, with_op
from drasp.rewriting.tidy import changed, without_unused
from drasp.sites import Component, Edge, last_of


def without_select(program: Program, name: str) -> Program:
    new: dict[str, Statement | None] = {name: None}
    for user in program.readers(name):
        if isinstance(user, Aggregate):
            new[user.name] = replace(user, selectors=tuple(r for r in user.selectors if r.variable != name))
    return changed(program, new, {})


def divided_by_constant(program: Program, norm: str, inverse: float) -> Program:
    """The program in which a norm is a number; the number goes into the tensors.

    A function of the library has none: what it reads is then not divided at all.
    """
    ops = dense_ops(program)
    tensors = dict(program.tensors)
    statements: list[Statement] = []
    scaled: dict[str, float] = {}  # variables that have become larger, since they aggregate what is no more divided

    def factor(operand: Operand) -> float:
        return (inverse if operand.norm == norm else 1.0) * scaled.get(operand.variable, 1.0)

    def plain(operand: Operand) -> Operand:
        return Operand(operand.variable) if operand.norm == norm else operand

    for s in program.statements:
        factors = [factor(operand) for operand in s.operands]
        if s.name == norm:
            continue
        if all(f == 1.0 for f in factors):
            statements.append(s)
            continue
        match s:
            case Select() | Project():
                tensors[f"scaled_{s.name}"] = ops[s.name] * prod(factors)
                s = with_op(s, f"scaled_{s.name}")
            case Aggregate():
                scaled[s.name] = factors[0]
            case Norm() | ElementWise():
                tensors |= {name: tensors[name] * f for name, f in zip(s.source_names, factors, strict=False)}
            case _:
                pass
        statements.append(s.map(plain))
    return without_unused(replace(program, statements=tuple(statements), tensors=tensors))


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
