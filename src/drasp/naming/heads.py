"""Heads that do the same become one line, which stands for all of them."""

from dataclasses import replace
from itertools import combinations

import torch
from torch import Tensor

from drasp.fitting.oracle import Oracle
from drasp.language import Interpreter
from drasp.language.bases import size
from drasp.language.checker import basis_of
from drasp.language.interpreter import pattern_of
from drasp.language.syntax import Aggregate, Operand, Program, Select, Statement
from drasp.naming.judge import Judge
from drasp.rewriting.provenance import explicit, with_sites
from drasp.rewriting.rewrite import dtype_of, reexpress, where_it_matters
from drasp.rewriting.simplify import simplify


def merge_heads(program: Program, judge: Judge) -> Program:
    """The program in which aggregates of one variable that attend alike are one."""
    while (fewer := _merged(program, judge)) is not None:
        program = simplify(fewer)
    return program


def _merged(program: Program, judge: Judge) -> Program | None:
    aggregates = [s for s in program.statements if isinstance(s, Aggregate)]
    pairs = [(a, b) for a, b in combinations(aggregates, 2) if a.value == b.value and a.selectors != b.selectors]
    if not pairs:
        return None
    likeness = _overlaps(program, pairs, judge.fit)
    for alike, (kept, gone) in sorted(zip(likeness, pairs, strict=True), key=lambda each: -each[0]):
        if alike < judge.settings.alike:
            break
        merged = _as_one(program, kept, gone)
        if merged is not None and judge.passes(program, merged):
            return merged
    return None


@torch.no_grad()
def _overlaps(program: Program, pairs: list[tuple[Aggregate, Aggregate]], oracle: Oracle) -> list[float]:
    """How much two aggregates attend alike, where either can play a part in answers."""
    names = {s.name for pair in pairs for s in pair}
    batch = oracle.batches[len(oracle.batches) // 2]
    inputs = batch.sequences.everywhere
    found = Interpreter.of(program).run(inputs, record=[pattern_of(name) for name in names]).values

    def overlap(a: str, b: str) -> float:
        matters = where_it_matters(program, [a, b], batch)
        weights: list[Tensor] = [
            found[pattern_of(name)].expand(*batch.inputs.ids.shape, -1)[matters] for name in (a, b)
        ]
        return float(torch.minimum(*weights).sum(-1).mean())

    return [overlap(a.name, b.name) for a, b in pairs]


def _as_one(program: Program, kept: Aggregate, gone: Aggregate) -> Program | None:
    """What read the one reads the other; that, and its selects, stand for the heads of both."""
    ends = {s.name: s for s in program.statements}
    selects = [ends[r.variable] for r in kept.selectors]
    others = [ends[r.variable].sites for r in gone.selectors]
    new: dict[str, Statement] = {kept.name: with_sites(kept, gone.sites)}
    new |= {s.name: with_sites(s, *others) for s in selects if isinstance(s, Select)}
    wider = replace(program, statements=tuple(new.get(s.name, s) for s in program.statements))
    width = size(basis_of(program, Operand(gone.name)))
    return reexpress(explicit(wider), gone.name, Operand(kept.name), torch.eye(width, dtype=dtype_of(program)))
