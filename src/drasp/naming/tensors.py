"""Names for the tensors of selects and projects: the nearest of the library, as far as the answers stay the same."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from drasp.attention import causal_weights
from drasp.fitting.dropping import without_select
from drasp.fitting.head import Head, Rows
from drasp.fitting.oracle import Oracle
from drasp.language import Interpreter
from drasp.language.checker import op_bases
from drasp.language.interpreter import pattern_of
from drasp.language.syntax import DEFAULT_SCALE, Operand, PrimitiveTensor, Program, Project, Select
from drasp.naming.families import Candidate, candidates, library
from drasp.naming.judge import Judge, in_turn
from drasp.rewriting.rewrite import dense_ops, where_it_matters
from drasp.rewriting.tidy import changed
from drasp.sequences import Sequences
from drasp.settings import NamingSettings


def name_select(program: Program, select: Select, judge: Judge) -> Program | None:
    """The program with a tensor of the library in the select; None where none will do.

    Hard candidates come first, then the best of them at the scales of the tensor they would replace; of those that
    pass, the one that looks most where the head does, with some advantage for the simpler.
    """
    chosen = judge.settings
    found = [c for c in _select_candidates(program, select, judge) if not c.is_nothing]
    hard = [_Tried.of(judge, program, select, c.hard()) for c in found]
    best = sorted(zip(hard, found, strict=True), key=lambda pair: -pair[0].closeness)[: chosen.softened]
    soft = [_Tried.of(judge, program, select, c.times(f)) for _, c in best for f in chosen.sharper]
    close = [tried for tried in hard + soft if tried.closeness >= judge.floor - chosen.close]
    looks = _Looks.of(program, select, judge)
    close.sort(key=lambda tried: (-looks.overlap(tried.program) - tried.bonus, -tried.closeness))
    alone = _without_others(program, select)
    alike = _looking_alike(program, select, looks, chosen)[: chosen.softened]
    others = [with_candidate(alone, select, c) for c in alike]
    tried = [*(each.program for each in close[: chosen.attempts]), *others]
    return next((each for each in tried if judge.passes(program, each)), None)


@dataclass(frozen=True, eq=False)
class _Looks:
    """Where a head looks, on some inputs, at the positions where that matters."""

    head: str
    inputs: Sequences
    matters: Bool[Tensor, "batch pos"]
    weights: Float[Tensor, "some key"]
    shades: int

    @classmethod
    @torch.no_grad()
    def of(cls, program: Program, select: Select, judge: Judge) -> "_Looks":
        head = program.readers(select.name)[0].name
        batch, count = judge.fit.batches[len(judge.fit.batches) // 2], judge.settings.looked_at
        inputs = Sequences(batch.inputs.ids[:count], batch.inputs.positions[:count])
        matters = where_it_matters(program, [head], batch)[:count]
        return cls(head, inputs, matters, _weights(program, head, inputs)[matters], judge.settings.shades)

    @torch.no_grad()
    def overlap(self, program: Program) -> float:
        """How much another program looks there, in steps: less of a difference is none."""
        ours = _weights(program, self.head, self.inputs)[self.matters]
        return round(self.shades * float(torch.minimum(ours, self.weights).sum(-1).mean())) / self.shades


def _weights(program: Program, head: str, inputs: Sequences) -> Float[Tensor, "batch pos key"]:
    pattern = pattern_of(head)
    found = Interpreter.of(program).run(inputs, record=[pattern]).values[pattern]
    return found.expand(*inputs.ids.shape, -1)


@torch.no_grad()
def _looking_alike(program: Program, select: Select, looks: _Looks, chosen: NamingSettings) -> list[Candidate]:
    """Candidates that, as the only one of a head, attend most like the head does; its tensors may hide what it does."""
    inputs = looks.inputs
    query, key = Interpreter.of(program).values(inputs.ids, inputs.positions, [select.query, select.key])
    found: list[Candidate] = []
    for op, matrix in library(*op_bases(program, select), "select", chosen):
        scores = query @ query.new_tensor(matrix) @ key.transpose(1, 2)
        for scale in chosen.scales:
            weights = causal_weights(scale * scores, inputs.bias(False))[looks.matters]
            overlap = torch.minimum(weights, looks.weights).sum(-1).mean()
            found.append(Candidate(replace(op, scale=scale), None, float(overlap)))
    return sorted(found, key=lambda c: -c.score)


def _without_others(program: Program, select: Select) -> Program:
    """The program in which heads that use a select use no other that has no name."""
    heard = {name for head in program.readers(select.name) for name in head.reads} - {select.name}
    for other in heard & {s.name for s in program.statements if isinstance(s, Select) and s.stored}:
        program = without_select(program, other)
    return program


@dataclass(frozen=True, eq=False)
class _Tried:
    """A program with a candidate in place; `bonus` is for what is simpler."""

    program: Program
    bonus: float
    closeness: float

    @classmethod
    def of(cls, judge: Judge, before: Program, select: Select, candidate: Candidate) -> "_Tried":
        usual, chosen = abs(candidate.op.scale) == DEFAULT_SCALE, judge.settings
        bonus = chosen.bonus_alone * (candidate.special is None) + chosen.bonus_hard * usual
        program = with_candidate(before, select, candidate)
        return cls(program, bonus, judge.closeness(program) + bonus)


def _select_candidates(program: Program, select: Select, judge: Judge) -> list[Candidate]:
    rows, columns = op_bases(program, select)
    tensor = dense_ops(program)[select.name].double().cpu().numpy()
    usage = select_usage(program, select, judge.fit)
    return candidates(tensor, usage, rows, columns, "select", shift=True, chosen=judge.settings)


@torch.no_grad()
def select_usage(program: Program, select: Select, oracle: Oracle) -> Float[np.ndarray, "rows columns"]:
    """How much of each entry the pairs of a query and a key that it may see make use of."""
    interpreter = Interpreter.of(program)
    users = [user.name for user in program.readers(select.name)]
    total: Tensor | None = None
    for batch in oracle.part(max(1, len(oracle.batches) // 2)).batches:
        query, key = interpreter.values(batch.inputs.ids, batch.inputs.positions, [select.query, select.key])
        query = query.abs() * where_it_matters(program, users, batch)[..., None]
        seen = key.abs().cumsum(1)
        part = torch.einsum("bpi,bpj->ij", query, seen)
        total = part if total is None else total + part
    assert total is not None, "a pool holds at least one input"
    return total.double().cpu().numpy()


def with_candidate(program: Program, statement: Select | Project, candidate: Candidate) -> Program:
    """The program with a tensor of the library; where that makes a hard choice, norms do not matter to it."""
    new = replace(statement, op=candidate.op, special_op=candidate.special)
    if isinstance(new, Select) and candidate.op.scale == DEFAULT_SCALE:
        new = new.map(lambda operand: Operand(operand.variable))
    return changed(program, {new.name: new}, {})


# ------------------------------------------------------------------------------------------------ projects


def name_projects(program: Program, judge: Judge) -> Program:
    """The program in which each project has the simplest tensor of the library that keeps the answers, if any does."""
    return in_turn(
        program, (Project,), lambda now, project: _named_project(now, project, judge), judge.settings.patience
    )


def name_tables(program: Program, judge: Judge) -> Program:
    """The program with names for projects that were written out and say the same, wherever that is used."""
    for project in [s for s in program.statements if isinstance(s, Project) and _is_table(s)]:
        program = _named_project(program, project, judge, least=judge.settings.the_same) or program
    return program


def _is_table(project: Project) -> bool:
    return isinstance(project.op, PrimitiveTensor) and project.op.primitive in ("table", "followers")


def _named_project(program: Program, project: Project, judge: Judge, least: float = 0.0) -> Program | None:
    check = Head.of(program, judge.check)
    ops = check.stacked(dense_ops(program))
    place = check.slices()[project.name]
    for candidate in _project_options(program, project, Head.of(program, judge.fit), judge.settings):
        tried = ops.clone()
        tried[place] = built(program, project, candidate)
        if candidate.score >= least and check.agreement(tried) >= judge.floor:
            named = with_candidate(program, project, candidate)
            if judge.passes(program, named):
                return named
    return None


def built(program: Program, project: Project, candidate: Candidate) -> Rows:
    return dense_ops(with_candidate(program, project, candidate))[project.name].float()


def _project_options(program: Program, project: Project, head: Head, chosen: NamingSettings) -> Iterator[Candidate]:
    """The candidates for a project: of those about as near as the nearest, simple ones first, then the others.

    Where it is the only project, its scale means nothing and is the usual one.
    """
    rows, columns = op_bases(program, project)
    tensor = dense_ops(program)[project.name].double().cpu().numpy()
    used = head.features[:, head.slices()[project.name]].abs().mean(0).double().cpu().numpy()
    usage = np.broadcast_to(used[:, None], tensor.shape) + 1e-9
    found = candidates(tensor, usage, rows, columns, "project", shift=head.output == "softmax", chosen=chosen)
    nearest = max((c.score for c in found), default=0.0)

    def order(candidate: Candidate) -> tuple[bool, bool]:
        return candidate.score < nearest - chosen.as_near, candidate.special is not None

    for candidate in sorted((c for c in found if not c.is_nothing), key=order):
        if len(head.projects) > 1:
            yield candidate
        yield candidate.hard()
