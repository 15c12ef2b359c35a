"""What has no name becomes whole numbers, as few and small as the answers allow; a small table is written out.

Signs of logits do not depend on their scale, so with a sigmoid each token's column has a scale of its own.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from drasp.fitting.head import Head, Rows
from drasp.language.bases import Basis, Space, labels
from drasp.language.checker import op_bases
from drasp.language.syntax import DEFAULT_SCALE, Norm, PrimitiveTensor, Program, Project, Select, TensorName
from drasp.language.tables import write_followers, write_table
from drasp.naming.judge import Judge, in_turn
from drasp.naming.tensors import select_usage
from drasp.rewriting.rewrite import dense_ops, dtype_of
from drasp.rewriting.tidy import changed

LEAST_ROUNDED = 0.97  # share alike under interchange: more numbers cost nothing but looks
_LARGEST = range(1, 31)  # what a tensor's largest entry is rounded to
_MARGIN = 1e-3  # of the largest entry: nearer to 0, a logit's sign is an accident of rounding
_SLACK = 2e-4  # of the answers, that rounding a column may change
_MOST_ENTRIES = 40  # of a table that is written out
_STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 30)  # the same, where the whole program must be run
_MOST_TRIED = 200  # entries that are tried one by one whether they can be 0


def round_projects(program: Program, judge: Judge) -> Program:
    """All projects at once where none has a name yet, or else those that have none, at their present scale."""
    fit, check = Head.of(program, judge.fit), Head.of(program, judge.check)
    # A constant beside what a norm divides is as fine as the norm: rounded, it would make the norm do something else.
    normed = any(isinstance(s, Norm) for s in program.statements)
    stored = [p for p in fit.projects if isinstance(p.op, TensorName) and not (normed and p.input.variable == "one")]
    if not stored:
        return program
    ops = _without_unseen_rows(fit, fit.stacked(dense_ops(program)))
    if len(stored) == len(fit.projects):

        def written(whole: Rows) -> Program:
            return _written(program, fit, whole, scale=DEFAULT_SCALE)

        def passes(whole: Rows) -> bool:
            return check.agreement(whole) >= judge.floor and judge.passes(program, written(whole), LEAST_ROUNDED)

        for whole in _all_at_once(fit, check, ops, judge.floor):
            if passes(whole):
                return written(whole)
        level = ops - ops.median(1, keepdim=True).values if fit.output == "softmax" else ops
        fewest = _fewest(lambda largest: passes(_rounded(level, largest)))
        if fewest is not None:
            return written(_rounded(level, fewest))
    for project in stored:
        program = _rounded_alone(program, project, judge)
    return program


def _all_at_once(fit: Head, check: Head, ops: Rows, floor: float) -> Iterator[Rows]:
    """Signs where they are enough; else the smallest whole numbers."""
    if (signs := _signs(fit, ops, check, floor)) is not None:
        yield signs
    if fit.output == "sigmoid":
        yield _by_column(fit, ops)
    elif (whole := _by_step(check, ops, floor)) is not None:
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


def _by_column(head: Head, ops: Rows) -> Rows:
    """For each token the smallest whole numbers that decide on it as before."""
    return torch.stack([_whole_column(head, ops[:, token], token) for token in range(ops.shape[1])], 1)


def _whole_column(head: Head, column: Tensor, token: int) -> Tensor:
    said = head.said[:, token]
    if not said.any():
        return torch.zeros_like(column)

    def misses(tried: Tensor) -> int:
        logits = head.features @ tried
        clear = logits.abs() > _MARGIN * tried.abs().amax()
        return int((((logits > 0) != said) | ~clear).sum())

    allowed = misses(column) + int(_SLACK * len(said))
    rounded = (_rounded(column, largest) for largest in _LARGEST)
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


def _by_step(check: Head, ops: Rows, floor: float) -> Rows | None:
    """One step for the whole tensor; a row may be raised as a whole, so that most of it is 0."""
    level = ops - ops.median(1, keepdim=True).values
    rounded = (_rounded(level, largest) for largest in _STEPS)
    whole = next((tried for tried in rounded if check.agreement(tried) >= floor), None)
    if whole is None:
        return None
    entries = whole.nonzero()
    for row, column in entries.tolist() if len(entries) <= _MOST_TRIED else ():
        fewer = whole.clone()
        fewer[row, column] = 0
        whole = fewer if check.agreement(fewer) >= floor else whole
    return whole


def _rounded_alone(program: Program, project: Project, judge: Judge) -> Program:
    fit, check = Head.of(program, judge.fit), Head.of(program, judge.check)
    place = fit.slices()[project.name]
    ops = _without_unseen_rows(fit, fit.stacked(dense_ops(program)))
    mine = ops[place] - (ops[place].median(1, keepdim=True).values if fit.output == "softmax" else 0)

    def step(largest: int) -> float:
        return max(float(f"{float(mine.abs().amax()) / largest:.2g}"), 1e-30)

    def rounded(largest: int) -> Program:
        return _with_table(program, project, (mine / step(largest)).round(), step(largest))

    def passes(largest: int) -> bool:
        tried = ops.clone()
        tried[place] = (mine / step(largest)).round() * step(largest)
        return check.agreement(tried) >= judge.floor and judge.passes(program, rounded(largest), LEAST_ROUNDED)

    fewest = _fewest(passes)
    return program if fewest is None else rounded(fewest)


def _fewest(passes: Callable[[int], bool]) -> int | None:
    """The smallest of the steps that passes: what does with few numbers does with more of them, as a rule."""
    found = bisect_left(_STEPS, True, key=passes)
    return _STEPS[found] if found < len(_STEPS) else None


def _written(program: Program, head: Head, whole: Rows, scale: float) -> Program:
    for project in head.projects:
        program = _with_table(program, project, whole[head.slices()[project.name]], scale)
    return program


def _with_table(program: Program, statement: Select | Project, whole: Tensor, scale: float) -> Program:
    """A small table stands in the text; of a larger one, or one whose rows mean nothing, the numbers are kept."""
    table = _table(whole, *op_bases(program, statement), scale)
    if table is not None:
        return changed(program, {statement.name: replace(statement, op=table, special_op=None)}, {})
    assert isinstance(statement.op, TensorName)
    plain = 1.0 if scale == DEFAULT_SCALE else scale
    return changed(program, {}, {statement.op.name: whole.to(dtype_of(program)) * plain})


def _table(whole: Tensor, rows: Basis, columns: Basis, scale: float) -> PrimitiveTensor | None:
    matrix = whole.round().long().cpu().numpy()
    if isinstance(rows, Space) or isinstance(columns, Space) or not np.array_equal(matrix, whole.cpu().numpy()):
        return None
    if not matrix.any():
        return PrimitiveTensor("zeros")
    if set(np.unique(matrix).tolist()) == {-1, 1}:
        text = write_followers(matrix, labels(rows), labels(columns))
        return PrimitiveTensor("followers", (text,), scale) if len(text.split()) <= _MOST_ENTRIES else None
    text = write_table(matrix, labels(rows), labels(columns))
    return PrimitiveTensor("table", (text,), scale) if text.count("=") <= _MOST_ENTRIES else None


def round_selects(program: Program, judge: Judge) -> Program:
    """A query's row may be raised as a whole, so that most of it is 0."""
    return in_turn(program, (Select,), lambda now, select: _rounded_select(now, select, judge))


def _rounded_select(program: Program, select: Select, judge: Judge) -> Program | None:
    tensor = dense_ops(program)[select.name].float()
    used = torch.as_tensor(select_usage(program, select, judge.fit)) > 0
    usual = torch.where(used, tensor, torch.nan).nanmedian(1, keepdim=True).values.nan_to_num()
    level = torch.where(used, tensor - usual, 0.0)

    def rounded(largest: int) -> Program:
        step = float(f"{float(level.abs().amax()) / largest:.2g}")
        return _with_table(program, select, (level / max(step, 1e-30)).round(), step)

    fewest = _fewest(lambda largest: judge.passes(program, rounded(largest), LEAST_ROUNDED))
    return None if fewest is None else rounded(fewest)
