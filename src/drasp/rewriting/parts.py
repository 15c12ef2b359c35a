"""Parts of a program: where they are, and how they go."""

from dataclasses import replace

from drasp.language.syntax import (
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    PrimitiveTensor,
    Program,
    Project,
    Select,
    Statement,
    TensorName,
)
from drasp.rewriting.rewrite import dense_ops
from drasp.rewriting.tidy import changed, operands_of, variables_read


def find(program: Program, name: str) -> Statement | None:
    return next((statement for statement in program.statements if statement.name == name), None)


def stored_selects(program: Program) -> list[str]:
    """The tensors of selects that have no name."""
    return [s.op.name for s in program.statements if isinstance(s, Select) and isinstance(s.op, TensorName)]


def without_select(program: Program, name: str) -> Program:
    new: dict[str, Statement | None] = {name: None}
    for user in program.statements:
        if isinstance(user, Aggregate) and name in variables_read(user):
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
        factors = [factor(operand) for operand in operands_of(s)]
        if s.name == norm:
            continue
        if all(f == 1.0 for f in factors):
            statements.append(s)
            continue
        match s:
            case Select(query=query, key=key):
                tensors[f"scaled_{s.name}"] = ops[s.name] * factors[0] * factors[1]
                s = replace(s, query=plain(query), key=plain(key), op=TensorName(f"scaled_{s.name}"), special_op=None)
            case Project(input=source):
                tensors[f"scaled_{s.name}"] = ops[s.name] * factors[0]
                s = replace(s, input=plain(source), op=TensorName(f"scaled_{s.name}"), special_op=None)
            case Aggregate(value=value):
                scaled[s.name] = factors[0]
                s = replace(s, value=plain(value))
            case Norm(inputs=inputs, op=TensorName(tensor)) | ElementWise(inputs=inputs, function=Network(tensor)):
                tensors |= {f"{tensor}.{i}": tensors[f"{tensor}.{i}"] * f for i, f in enumerate(factors)}
                s = replace(s, inputs=tuple(map(plain, inputs)))
            case ElementWise(inputs=inputs):
                s = replace(s, inputs=tuple(map(plain, inputs)))
            case _:
                pass
        statements.append(s)
    names = replace(program, statements=tuple(statements), tensors=tensors)
    return changed(names, {}, {})


def count_primitives(program: Program) -> dict[str, dict[str, int]]:
    """How many of the program's operations have a name, and how many of these are small tables written out."""
    counts = {kind: {"named": 0, "tables": 0, "total": 0} for kind in ("select", "project", "elementwise")}
    for statement in program.statements:
        table = False
        match statement:
            case Select(op=op) | Project(op=op):
                kind = "select" if isinstance(statement, Select) else "project"
                named = isinstance(op, PrimitiveTensor)
                table = isinstance(op, PrimitiveTensor) and op.primitive in ("table", "followers")
            case ElementWise(function=function):
                kind, named = "elementwise", not isinstance(function, Network)
            case _:
                continue
        counts[kind]["named"] += named
        counts[kind]["tables"] += table
        counts[kind]["total"] += 1
    return counts
