"""Algebra that never costs agreement: what is double, constant or linear goes; equal programs get equal text."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from drasp.language import Interpreter
from drasp.language.bases import size
from drasp.language.checker import basis_of
from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Norm,
    Operand,
    PrimitiveFunction,
    Program,
    Project,
    Reference,
    Select,
    Statement,
    TensorName,
)
from drasp.passes import Pass
from drasp.rewriting.canonical import canonical, content, words_of
from drasp.rewriting.provenance import concise, explicit, handed_on, with_sites
from drasp.rewriting.rewrite import dense_ops, dtype_of, fresh_name, reexpress, with_op
from drasp.rewriting.tidy import SumsToOne, changed, fold_constants, renumbered, without_unused
from drasp.sequences import Sequences
from drasp.sites import Site, joined

_ONE_HOT = ("token", "pos")

Operation = TypeVar("Operation", Select, Project)


def simplify(program: Program) -> Program:
    """The same logits from fewer lines, in canonical order and with canonical names."""
    program = explicit(renumbered(without_unused(program)))  # after which no two lines share a tensor
    while (simpler := _simpler(program)) is not program:
        program = explicit(simpler)
    return concise(canonical(_with_centred_selects(program)))


def _simpler(program: Program) -> Program:
    """The program after the first of the exact passes that finds something to do; else the program itself."""
    results = (each.run(program, None) for each in EXACT)
    return next((result for result in results if result is not program), program)


# ---------------------------------------------------------------------------- variables that go


def _without_aliases(program: Program) -> Program | None:
    """`no_op` and `keep` give another variable once more; the mean of ones is one."""
    for statement in program.statements:
        match statement:
            case ElementWise(name, inputs, PrimitiveFunction("no_op")):
                same = inputs[0]
            case ElementWise(name, inputs, PrimitiveFunction("keep", (i,))):
                same = inputs[int(i) - 1]
            case Aggregate(name, value=value) if value == ONE:
                same = ONE
            case _:
                continue
        if same.norm is None:
            taken_in = handed_on(program, statement)
            renamed = [s.renamed({name: same.variable}) for s in program.statements]
            kept = (
                with_sites(new, taken_in) if name in old.reads else new
                for old, new in zip(program.statements, renamed, strict=True)
            )
            return without_unused(replace(program, statements=tuple(kept)))
    return None


def _without_tables(program: Program) -> Program | None:
    """An element-wise operation of one one-hot variable is a table, hence linear in it."""
    for statement in program.statements:
        if isinstance(statement, ElementWise) and (source := _only_one_hot(statement.inputs)) is not None:
            found = reexpress(program, statement.name, Operand(source), _table(program, statement.name, source))
            if found is not None:
                return found
    return None


def _without_tabled_norms(program: Program) -> Program | None:
    """A norm of one one-hot variable is a table too: what it divides, that variable or `one`, takes it in.

    A norm of `one` alone is a number: whatever it divides takes that in.
    """
    for norm in program.statements:
        source = _only_one_hot(norm.inputs) if isinstance(norm, Norm) else None
        if source is None:
            continue
        divided = dict.fromkeys(v for s in program.statements for v in s.operands if v.norm == norm.name)
        for read in divided:
            if source != "one" and read.variable not in (source, "one"):
                continue
            weights = 1 / _table(program, norm.name, source)
            if source == "one":
                new, matrix = Operand(read.variable), weights * torch.eye(_size(program, read.variable))
            else:
                new, matrix = Operand(source), weights.diag() if read.variable == source else weights[:, None]
            alias = fresh_name(program, "divided")
            wider = _with_alias(program, read, alias, handed_on(program, norm))
            found = reexpress(wider, alias, new, matrix)
            if found is not None:
                return found
    return None


def _size(program: Program, variable: str) -> int:
    return size(basis_of(program, Operand(variable)))


def _with_alias(program: Program, read: Operand, alias: str, sites: tuple[Site, ...]) -> Program:
    """A variable of its own for an operand, so that it can be expressed anew."""
    first = next(s for s in program.statements if read in s.operands)
    statements: list[Statement] = []
    for statement in program.statements:
        if statement is first:
            statements.append(ElementWise(alias, (read,), PrimitiveFunction("no_op"), sites=sites))
        statements.append(statement.map(lambda operand: Operand(alias) if operand == read else operand))
    return replace(program, statements=tuple(statements))


def _only_one_hot(inputs: tuple[Operand, ...]) -> str | None:
    """The one-hot variable that is the only thing read, besides `one`."""
    if any(operand.norm for operand in inputs):
        return None
    names = {operand.variable for operand in inputs} - {"one"}
    if not names:
        return "one"
    return names.pop() if len(names) == 1 and names <= set(_ONE_HOT) else None


@torch.no_grad()
def _table(program: Program, name: str, source: str) -> Tensor:
    """The variable's value for each direction of the one-hot variable it depends on: [directions, …]."""
    count = {"token": len(program.vocabulary), "pos": program.n_positions, "one": 1}[source]
    each, first = torch.arange(count)[:, None], torch.zeros(count, 1, dtype=torch.long)
    inputs = Sequences(first, each) if source == "pos" else Sequences(each, first)
    return Interpreter.of(program, torch.float64).run(inputs, record=[name]).values[name][:, 0]


# -------------------------------------------------------------------------- lines that are one


def _without_copies(program: Program) -> Program | None:
    """Statements that say the same of the same variables are one."""
    seen: dict[Any, Statement] = {}
    often = Counter(map(words_of, program.statements))
    for statement in program.statements:
        if often[words_of(statement)] == 1:  # whatever is in its tensors, which may be large
            continue
        same = seen.setdefault(content(program, statement), statement)
        if same is not statement:
            renamed = (s.renamed({statement.name: same.name}) for s in program.statements if s != statement)
            comment = _joined(same.comment, statement.comment)
            both = replace(with_sites(same, statement.sites), comment=comment)
            kept = tuple(both if s.name == same.name else s for s in renamed)
            return _logits_once(program, replace(program, statements=kept), same.name)
    return None


def _logits_once(before: Program, after: Program, name: str) -> Program | None:
    """Logits that would be added twice are doubled instead."""
    prediction = after.prediction
    count = sum(r.variable == name for r in prediction.logits)
    if count < 2:
        return without_unused(after)
    kept = tuple(r for r in prediction.logits if r.variable != name)
    project = next(s for s in after.statements if s.name == name)
    assert isinstance(project, Project)
    return _with_tensor(
        replace(after, statements=(*after.statements[:-1], replace(prediction, logits=(*kept, Reference(name))))),
        project,
        count * dense_ops(before)[name],
    )


def _joined(*comments: str) -> str:
    """The comments of lines that became one, each once."""
    parts = [part for comment in comments for part in comment.split(", ") if part]
    return ", ".join(dict.fromkeys(parts))


def _with_merged_inputs(program: Program) -> Program | None:
    """A norm or an MLP reads no variable twice."""
    for statement in program.statements:
        if not isinstance(statement, Norm | ElementWise) or statement.stored is None:
            continue
        by_operand: dict[Operand, list[Tensor]] = {}
        for operand, name in zip(statement.inputs, statement.source_names, strict=True):
            by_operand.setdefault(operand, []).append(program.tensors[name])
        if len(by_operand) < len(statement.inputs):
            sums = (torch.stack(terms).sum(0) for terms in by_operand.values())
            new = replace(statement, inputs=tuple(by_operand))
            return changed(program, {new.name: new}, dict(zip(new.source_names, sums, strict=True)))
    return None


def _with_merged_projects(program: Program) -> Program | None:
    """Two projects of the same variable are one."""
    prediction = program.prediction
    projects = [s for s in program.statements if isinstance(s, Project)]
    for first, second in _pairs(projects):
        if first.input == second.input and _may_merge(first, second):
            ops = dense_ops(program)
            kept = tuple(r for r in prediction.logits if r.variable not in (first.name, second.name))
            new = replace(prediction, logits=(*kept, Reference(first.name)))
            merged = _merged(first, second)
            statements = [merged if s is first else s for s in program.statements[:-1] if s is not second]
            counts = [sum(r.variable == p.name for r in prediction.logits) for p in (first, second)]
            total = counts[0] * ops[first.name] + counts[1] * ops[second.name]
            return _with_tensor(replace(program, statements=(*statements, new)), merged, total)
    return None


def _with_merged_selects(program: Program) -> Program | None:
    """Two selects of the same query and key in one aggregate are one."""
    selects = {s.name: s for s in program.statements if isinstance(s, Select)}
    for aggregate in program.statements:
        if not isinstance(aggregate, Aggregate):
            continue
        places = range(len(aggregate.selectors))
        for i, j in _pairs(list(places)):
            first, second = (selects[aggregate.selectors[place].variable] for place in (i, j))
            if (first.query, first.key) == (second.query, second.key) and _may_merge(first, second):
                ops = dense_ops(program)
                both = fresh_name(program, f"{first.name}_{second.name}")
                merged = replace(_merged(first, second), name=both)
                kept = tuple(aggregate.selectors[place] for place in places if place not in (i, j))
                new = replace(aggregate, selectors=(*kept, Reference(both)))
                statements: list[Statement] = []
                for s in program.statements:
                    statements += [merged, new] if s is aggregate else [s]
                wider = replace(program, statements=tuple(statements))
                return _with_tensor(wider, merged, ops[first.name] + ops[second.name])
    return None


def _merged(first: Operation, second: Operation) -> Operation:
    """The first, with what both stand for; its tensor has yet to become the sum."""
    return replace(first, sites=joined(first.sites, second.sites), comment=_joined(first.comment, second.comment))


def _may_merge(first: Select | Project, second: Select | Project) -> bool:
    """Two that have names stay apart: their sum would have none."""
    return bool(first.tensor_names or second.tensor_names)


def _pairs(items: list[Any]) -> Iterator[tuple[Any, Any]]:
    return ((first, second) for i, first in enumerate(items) for second in items[i + 1 :])


def _with_tensor(program: Program, statement: Select | Project, tensor: Tensor) -> Program:
    """The statement reads a new stored tensor instead of what it named."""
    name = fresh_name(program, f"T_{statement.name}")
    new = with_op(statement, name)
    statements = tuple(new if s.name == statement.name else s for s in program.statements)
    tensors = {**program.tensors, name: tensor.to(dtype_of(program))}
    return without_unused(replace(program, statements=statements, tensors=tensors))


# ----------------------------------------------------------------------------- lines without effect


def _without_idle_selects(program: Program) -> Program | None:
    """A selector that adds the same to every key changes nothing."""
    ops, sums = dense_ops(program), SumsToOne.of(program)
    idle = {s.name for s in program.statements if isinstance(s, Select) and _is_idle(s, ops[s.name], sums)}
    if not idle:
        return None
    statements = [
        replace(s, selectors=tuple(r for r in s.selectors if r.variable not in idle)) if isinstance(s, Aggregate) else s
        for s in program.statements
        if s.name not in idle
    ]
    return without_unused(replace(program, statements=tuple(statements)))


def _is_idle(select: Select, op: Tensor, sums: SumsToOne) -> bool:
    flat = bool((op == op[:, :1]).all())
    return not op.any() or (flat and sums.holds(select.key))


def _with_centred_selects(program: Program) -> Program:
    """What a query's row of a tensor adds to all keys alike is taken out of it, where keys add up to one."""
    sums = SumsToOne.of(program)
    centred = {
        s.op.name: program.tensors[s.op.name] - program.tensors[s.op.name].mean(1, keepdim=True)
        for s in program.statements
        if isinstance(s, Select) and isinstance(s.op, TensorName) and sums.holds(s.key)
    }
    return program.with_tensors(centred)


def _without_idle_projects(program: Program) -> Program | None:
    """Logits that are 0 need no line, unless there are no others."""
    prediction = program.prediction
    ops = dense_ops(program)
    kept = tuple(r for r in prediction.logits if ops[r.variable].any()) or prediction.logits[:1]
    if len(kept) == len(prediction.logits):
        return None
    statements = (*program.statements[:-1], replace(prediction, logits=kept))
    return without_unused(replace(program, statements=statements))


def _exact(name: str, rewrite: Callable[[Program], Program | None]) -> Pass[Program, None]:
    """A rewrite that finds one thing to do, or None, as a pass."""
    return Pass(name, "lines", lambda program, _: rewrite(program) or program, exact=True)


EXACT = (
    _exact("variables once more", _without_aliases),
    _exact("functions that are tables", _without_tables),
    _exact("norms that are tables", _without_tabled_norms),
    _exact("lines that say the same", _without_copies),
    _exact("inputs read twice", _with_merged_inputs),
    _exact("projects of one variable", _with_merged_projects),
    _exact("selects of one query and key", _with_merged_selects),
    _exact("selects without effect", _without_idle_selects),
    _exact("projects without effect", _without_idle_projects),
    _exact("constants that another line carries", fold_constants),
)
