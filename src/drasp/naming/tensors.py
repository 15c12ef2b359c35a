"""Names for the tensors of selects and projects: the nearest of the library, as far as the answers stay the same."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from drasp.decompiler.oracle import Oracle
from drasp.decompiler.tidy import without_logits
from drasp.language import Interpreter
from drasp.language.bases import Basis, Tokens
from drasp.language.interpreter import basis_of
from drasp.language.syntax import Program, Project, Select, Statement, TensorName
from drasp.naming.families import Candidate, candidates
from drasp.naming.head import Head, Rows, projects_of
from drasp.naming.judge import Judge
from drasp.naming.rewrite import dense_ops
from drasp.naming.shorten import without_select

_CLOSE = 0.15  # of agreement: a candidate further off on the probe is not tried on the whole pool
_ATTEMPTS = 6
_REFITS = 2


def name_selects(program: Program, judge: Judge) -> Program:
    """One after the other, from the lowest layer."""
    for select in [s for s in program.statements if isinstance(s, Select) and isinstance(s.op, TensorName)]:
        program = _named_select(program, select, judge) or program
    return program


def _named_select(program: Program, select: Select, judge: Judge) -> Program | None:
    options = list(_select_options(program, select, judge.fit))
    closeness = {id(p): judge.closeness(p) + bonus for p, bonus in options}
    ranked = sorted((p for p, _ in options), key=lambda p: -closeness[id(p)])
    close = [p for p in ranked if closeness[id(p)] >= judge.floor - _CLOSE][:_ATTEMPTS]
    found = next((p for p in close if judge.passes(p)), None)
    return found or next((m for p in ranked[:_REFITS] if (m := judge.mended(p)) is not None), None)


def _select_options(program: Program, select: Select, oracle: Oracle) -> Iterator[tuple[Program, float]]:
    """Programs with a candidate in place, and a bonus for what is simpler."""
    types = Interpreter(program).types
    rows, columns = basis_of(types, select.query), basis_of(types, select.key)
    tensor = dense_ops(program)[select.name].double().numpy()
    usage = select_usage(program, select, oracle)
    yield without_select(program, select.name), 0.02
    for candidate in candidates(tensor, usage, rows, columns, "select", shift=True):
        if not candidate.is_nothing:
            simple = 0.01 if candidate.special is None else 0.0
            yield with_candidate(program, select, candidate.hard()), simple + 0.005
            yield with_candidate(program, select, candidate), simple
            yield with_candidate(program, select, candidate.times(3)), simple


@torch.no_grad()
def select_usage(program: Program, select: Select, oracle: Oracle) -> Float[np.ndarray, "rows columns"]:
    """How much of each entry the pairs of a query and a key that it may see make use of."""
    interpreter = Interpreter(program)
    total: Tensor | None = None
    for batch in oracle.part(max(1, len(oracle.batches) // 2)).batches:
        query, key = interpreter.values(batch.inputs.ids, batch.inputs.positions, [select.query, select.key])
        query = query.abs() * batch.real[..., None]
        seen = key.abs().cumsum(1)
        part = torch.einsum("bpi,bpj->ij", query, seen)
        total = part if total is None else total + part
    assert total is not None, "a pool holds at least one input"
    return total.double().numpy()


def with_candidate(program: Program, statement: Select | Project, candidate: Candidate) -> Program:
    new = replace(statement, op=candidate.op, special_op=candidate.special)
    return _with_statement(program, new)


def _with_statement(program: Program, new: Statement) -> Program:
    from drasp.decompiler.tidy import changed

    return changed(program, {new.name: new}, {})


# ------------------------------------------------------------------------------------------------ projects


def name_projects(program: Program, judge: Judge) -> Program:
    """The simplest candidate that keeps the answers; what is not named yet is fitted to it where that is needed."""
    for project in projects_of(program):
        if isinstance(project.op, TensorName):
            program = _named_project(program, project, judge) or program
    return program


def _named_project(program: Program, project: Project, judge: Judge) -> Program | None:
    fit, check = Head.of(program, judge.fit), Head.of(program, judge.check)
    ops = fit.stacked(dense_ops(program))
    free = stored_rows(fit)
    free[fit.slices()[project.name]] = False
    from drasp.naming.head import with_ops

    options = list(_project_options(program, project, fit))
    for refit in (False, True) if free.any() else (False,):
        for candidate in options:
            tried = ops.clone()
            tried[fit.slices()[project.name]] = built(program, project, candidate)
            if refit:
                tried = fit.fitted(tried, free)
            if check.agreement(tried) >= judge.floor:
                return _with_named_project(with_ops(program, fit, tried), project, candidate)
    return None


def _with_named_project(program: Program, project: Project, candidate: Candidate) -> Program:
    from drasp.decompiler.tidy import changed

    if candidate.is_nothing and len(projects_of(program)) > 1:
        return changed(program, {project.name: None, "prediction": without_logits(program, project.name)}, {})
    return with_candidate(program, project, candidate)


def stored_rows(head: Head) -> Tensor:
    """Which rows of the stacked tensors belong to projects without a name."""
    marks = [isinstance(p.op, TensorName) for p in head.projects for _ in range(head.widths[head.projects.index(p)])]
    return torch.tensor(marks)


def built(program: Program, project: Project, candidate: Candidate) -> Rows:
    return dense_ops(with_candidate(program, project, candidate))[project.name].float()


def _project_options(program: Program, project: Project, head: Head) -> Iterator[Candidate]:
    """Simple ones first; where it is the only project, its scale means nothing and is the usual one."""
    rows, columns = project_bases(program, project)
    tensor = dense_ops(program)[project.name].double().numpy()
    used = head.features[:, head.slices()[project.name]].abs().mean(0).double().numpy()
    usage = np.broadcast_to(used[:, None], tensor.shape) + 1e-9
    found = candidates(tensor, usage, rows, columns, "project", shift=head.output == "softmax")
    for candidate in sorted(found, key=lambda c: c.special is not None):
        if len(head.projects) > 1:
            yield candidate
        yield candidate.hard()


def project_bases(program: Program, project: Project) -> tuple[Basis, Basis]:
    return basis_of(Interpreter(program).types, project.input), Tokens(program.vocabulary)
