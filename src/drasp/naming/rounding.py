"""What has no name becomes a table of whole numbers in the text, as few and small as the answers allow.

Whole numbers in a tensor that is too large to be read would say no more than the model's own, which stay there.

Signs of logits do not depend on their scale, so with a sigmoid each token's column has a scale of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from drasp.fitting.head import Head, Rows
from drasp.language.bases import Basis, Space, labels
from drasp.language.checker import op_bases
from drasp.language.syntax import DEFAULT_SCALE, PrimitiveTensor, Program, Project, Select, TensorName
from drasp.language.tables import write_followers, write_table
from drasp.naming.judge import Judge, in_turn
from drasp.naming.tensors import select_usage
from drasp.rewriting.rewrite import dense_ops
from drasp.rewriting.tidy import changed
from drasp.settings import NamingSettings


def round_projects(program: Program, judge: Judge) -> Program:
    """The program with tables of whole numbers in projects: all at once where none has a name, or those without."""
    fit, check = Head.of(program, judge.fit), Head.of(program, judge.check)
    stored = [p for p in fit.projects if isinstance(p.op, TensorName)]
    if not stored:
        return program
    ops, chosen = _without_unseen_rows(fit, fit.stacked(dense_ops(program))), judge.settings
    if len(stored) == len(fit.projects):

        def passing(whole: Rows) -> Program | None:
            if check.agreement(whole) < judge.floor:
                return None
            return _if_it_passes(program, _written(program, fit, whole, DEFAULT_SCALE, chosen.most_entries), judge)

        for whole in _all_at_once(fit, check, ops, judge):
            if (rounded := passing(whole)) is not None:
                return rounded
        level = ops - ops.median(1, keepdim=True).values if fit.output == "softmax" else ops
        if (rounded := _coarsest(chosen.steps, lambda largest: passing(_rounded(level, largest)))) is not None:
            return rounded
    written = [p for p in stored if not isinstance(op_bases(program, p)[0], Space)]
    together = _rounded_together(program, written, judge) if len(written) > 1 else None
    if together is not None:
        return together
    for project in sorted(written, key=lambda p: p.input.variable == "one"):  # what is finest first
        program = _rounded_together(program, [project], judge) or program
    return program


def _if_it_passes(program: Program, rounded: Program | None, judge: Judge) -> Program | None:
    return rounded if rounded is not None and judge.passes(program, rounded, judge.settings.least_rounded) else None


def _all_at_once(fit: Head, check: Head, ops: Rows, judge: Judge) -> Iterator[Rows]:
    """Signs where they are enough; else the smallest whole numbers."""
    if (signs := _signs(fit, ops, check, judge.floor)) is not None:
        yield signs
    if fit.output == "sigmoid":
        yield _by_column(fit, ops, judge.settings)
    elif (whole := _by_step(check, ops, judge.floor, judge.settings)) is not None:
        yield whole


def _without_unseen_rows(head: Head, ops: Rows) -> Rows:
    """Directions that no input ever has, edited ones included."""
    used = head.features.abs().amax(0) > 0
    return torch.where(used[:, None], ops, 0.0)


def _signs(head: Head, ops: Rows, check: Head, floor: float) -> Rows | None:
    """1 and -1, where that is enough; for logits whose signs are the answer."""
    used = head.features.abs().amax(0) > 0
    signs = torch.where(ops > 0, 1.0, -1.0)
    signs[~used] = -1.0
    good = head.output == "sigmoid" and len(head.projects) == 1 and check.agreement(signs) >= floor
    return signs if good else None


def _by_column(head: Head, ops: Rows, chosen: NamingSettings) -> Rows:
    """The tensors with the smallest whole numbers, token by token, that decide on it as before."""
    return torch.stack([_whole_column(head, ops[:, token], token, chosen) for token in range(ops.shape[1])], 1)


def _whole_column(head: Head, column: Tensor, token: int, chosen: NamingSettings) -> Tensor:
    said = head.said[:, token]
    if not said.any():
        return torch.zeros_like(column)

    def misses(tried: Tensor) -> int:
        logits = head.features @ tried
        clear = logits.abs() > chosen.accident * tried.abs().amax()
        return int((((logits > 0) != said) | ~clear).sum())

    allowed = misses(column) + int(chosen.slack * len(said))
    rounded = (_rounded(column, largest) for largest in range(1, chosen.column_steps + 1))
    whole = next((tried for tried in rounded if misses(tried) <= allowed), None)
    if whole is None:
        return column
    for row in whole.abs().argsort().tolist():
        if whole[row]:
            fewer = whole.clone()
            fewer[row] = 0
            whole = fewer if fewer.any() and misses(fewer) <= allowed else whole
    return whole


def _rounded(tensor: Tensor, largest: int) -> Tensor:
    return (tensor * (largest / tensor.abs().amax().clamp(min=1e-30))).round()


def _by_step(check: Head, ops: Rows, floor: float, chosen: NamingSettings) -> Rows | None:
    """The tensors in whole steps, one step for all; a row may be raised as a whole, so that most of it is 0."""
    level = ops - ops.median(1, keepdim=True).values
    rounded = (_rounded(level, largest) for largest in chosen.steps)
    whole = next((tried for tried in rounded if check.agreement(tried) >= floor), None)
    if whole is None:
        return None
    entries = whole.nonzero()
    for row, column in entries.tolist() if len(entries) <= chosen.most_zeros else ():
        fewer = whole.clone()
        fewer[row, column] = 0
        whole = fewer if check.agreement(fewer) >= floor else whole
    return whole


def _rounded_together(program: Program, projects: Sequence[Project], judge: Judge) -> Program | None:
    """The program with tables of some projects, at the scale of each: as many steps to the largest number of each."""
    fit, check = Head.of(program, judge.fit), Head.of(program, judge.check)
    ops = _without_unseen_rows(fit, fit.stacked(dense_ops(program)))
    own = {p.name: ops[fit.slices()[p.name]] for p in projects}
    if fit.output == "softmax":
        own = {name: rows - rows.median(1, keepdim=True).values for name, rows in own.items()}

    def rounded(largest: int) -> Program | None:
        tried, written = ops.clone(), program
        for project in projects:
            mine = own[project.name]
            step = max(float(f"{float(mine.abs().amax()) / largest:.2g}"), 1e-30)
            whole = (mine / step).round()
            tried[fit.slices()[project.name]] = whole * step
            table = _with_table(written, project, whole, step, judge.settings.most_entries)
            if table is None:
                return None
            written = table
        return _if_it_passes(program, written, judge) if check.agreement(tried) >= judge.floor else None

    return _coarsest(judge.settings.steps, rounded)


def _coarsest(steps: Sequence[int], rounded: Callable[[int], Program | None]) -> Program | None:
    """What the smallest of the steps gives that passes: what does with few numbers does with more of them, as a rule.

    Where the finest does not pass, none is looked for.
    """
    found = rounded(steps[-1])
    low, high = 0, len(steps) - 1  # the finest that passes is at `high`
    while found is not None and low < high:
        middle = (low + high) // 2
        coarser = rounded(steps[middle])
        if coarser is None:
            low = middle + 1
        else:
            found, high = coarser, middle
    return found


def _written(program: Program, head: Head, whole: Rows, scale: float, most_entries: int) -> Program | None:
    """The program with tables for all of its projects; None where one of them is too large to be read."""
    written: Program | None = program
    for project in head.projects:
        written = written and _with_table(written, project, whole[head.slices()[project.name]], scale, most_entries)
    return written


def _with_table(
    program: Program, statement: Select | Project, whole: Tensor, scale: float, most_entries: int
) -> Program | None:
    """The program with a table that stands in the text; None where it is too large, or its rows mean nothing."""
    table = _table(whole, *op_bases(program, statement), scale, most_entries)
    return table and changed(program, {statement.name: replace(statement, op=table, special_op=None)}, {})


def _table(whole: Tensor, rows: Basis, columns: Basis, scale: float, most_entries: int) -> PrimitiveTensor | None:
    matrix = whole.round().long().cpu().numpy()
    if isinstance(rows, Space) or isinstance(columns, Space) or not np.array_equal(matrix, whole.cpu().numpy()):
        return None
    if not matrix.any():
        return PrimitiveTensor("zeros")
    if set(np.unique(matrix).tolist()) == {-1, 1}:
        text = write_followers(matrix, labels(rows), labels(columns))
        return PrimitiveTensor("followers", (text,), scale) if len(text.split()) <= most_entries else None
    text = write_table(matrix, labels(rows), labels(columns))
    return PrimitiveTensor("table", (text,), scale) if text.count("=") <= most_entries else None


def round_selects(program: Program, judge: Judge) -> Program:
    """The program with tables in selects; a query's row may be raised as a whole, so that most of it is 0."""
    return in_turn(program, (Select,), lambda now, select: _rounded_select(now, select, judge), judge.settings.patience)


def _rounded_select(program: Program, select: Select, judge: Judge) -> Program | None:
    tensor = dense_ops(program)[select.name].float()
    used = torch.as_tensor(select_usage(program, select, judge.fit)) > 0
    usual = torch.where(used, tensor, torch.nan).nanmedian(1, keepdim=True).values.nan_to_num()
    level = torch.where(used, tensor - usual, 0.0)

    def rounded(largest: int) -> Program | None:
        step = max(float(f"{float(level.abs().amax()) / largest:.2g}"), 1e-30)
        return _if_it_passes(
            program, _with_table(program, select, (level / step).round(), step, judge.settings.most_entries), judge
        )

    return _coarsest(judge.settings.steps, rounded)
