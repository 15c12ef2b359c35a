"""The last step of every program is linear: what its projects read, and the model's answers, at positions that count.

Given what is read, the projects' tensors can be judged and fitted without running the program again, and fitting
them to the answers (not to the logits) is convex: answers are what agreement counts, and a sharp boundary
between them needs no likeness of logits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from drasp.fitting.descent import minimise
from drasp.fitting.oracle import Oracle
from drasp.language import Interpreter
from drasp.language.syntax import Program, Project, TensorName
from drasp.measure import predictions
from drasp.rewriting.rewrite import dense_ops, dtype_of
from drasp.vocabulary import Output

_ANSWERS = 12_000  # that a fit looks at
_SAMPLE = 4000  # of them, those that it begins with
_MOST_PRECISE = 64  # rows up to which a fit is made in double precision; large ones are slow and need it less
_ROUNDS = 3  # fits, each with the answers that the last one missed
_JUDGES = 4  # every so-many-th input
_STEPS = 60
_HOPELESS = 0.3  # agreement after the first fit, below which there is no second
_FLAT = 1e-9  # of the largest square: a direction in which so little varies says nothing
_DECAY = 1e-7  # holds back what the answers do not need

Rows = Float[Tensor, "rows n_vocab"]


@dataclass(frozen=True)
class Head:
    """What the projects read, side by side (one answer a row); the model's answers; and whose answers they are."""

    output: Output
    projects: tuple[Project, ...]
    widths: tuple[int, ...]
    features: Float[Tensor, "answers rows"]
    said: Int[Tensor, " answers"] | Bool[Tensor, "answers n_vocab"]
    inputs: Int[Tensor, " answers"]
    n_inputs: int

    @classmethod
    @torch.no_grad()
    def of(cls, program: Program, oracle: Oracle) -> "Head":
        projects = projects_of(program)
        operands = [project.input for project in projects]
        interpreter = Interpreter.of(program)
        features: list[Tensor] = []
        said: list[Tensor] = []
        inputs: list[Tensor] = []
        count = 0
        for batch in oracle.batches:
            read = torch.cat(interpreter.values(batch.inputs.ids, batch.inputs.positions, operands), -1)
            features.append(batch.at_counted(read)[batch.valid])
            said.append(_answers(batch.logits[batch.valid], oracle.output))
            whose = torch.arange(count, count + len(batch.valid))[:, None].expand_as(batch.valid)
            inputs.append(whose[batch.valid])
            count += len(batch.valid)
        widths = tuple(len(op) for op in (dense_ops(program)[p.name] for p in projects))
        return cls(oracle.output, projects, widths, torch.cat(features), torch.cat(said), torch.cat(inputs), count)

    def stacked(self, ops: Mapping[str, Tensor]) -> Rows:
        """All projects' tensors as one."""
        return torch.cat([ops[project.name].float() for project in self.projects])

    def slices(self) -> dict[str, slice]:
        ends = list(accumulate(self.widths))
        return {p.name: slice(end - width, end) for p, width, end in zip(self.projects, self.widths, ends, strict=True)}

    def right(self, logits: Rows, said: Int[Tensor, " some"] | Bool[Tensor, "some n_vocab"]) -> Bool[Tensor, " some"]:
        same = _answers(logits, self.output) == said
        return same if same.ndim == 1 else same.all(-1)

    @torch.no_grad()
    def agreement(self, ops: Rows) -> float:
        """The share of inputs on which all answers are the model's."""
        return self._agreement(ops, torch.ones_like(self.inputs, dtype=torch.bool))

    def _agreement(self, ops: Rows, among: Bool[Tensor, " answers"]) -> float:
        wrong = ~self.right(self.features[among] @ ops, self.said[among])
        inputs = self.inputs[among]
        return 1 - len(inputs[wrong].unique()) / len(inputs.unique())

    @torch.no_grad()
    def fitted(self, start: Rows, free: Bool[Tensor, " rows"], rounds: int = _ROUNDS) -> Rows:
        """The rows marked free fitted to the answers; a fit is repeated with the answers it missed.

        Some inputs are kept out of the fits, and say which of them is best: many rows find accidents in few answers.
        """
        judging = self.inputs % _JUDGES == 0
        own = (~judging).nonzero()[:, 0]
        chosen = own[
            torch.randperm(len(own), generator=torch.Generator(torch.get_default_device()).manual_seed(0))[:_SAMPLE]
        ]
        best, ops, most = start, start, self._agreement(start, judging)
        for _ in range(rounds):
            with torch.enable_grad():
                ops = self._fit(chosen, ops, free)
            reached = self._agreement(ops, judging)
            if reached > most:
                best, most = ops, reached
            missed = own[~self.right(self.features[own] @ ops, self.said[own])]
            if not len(missed) or reached < _HOPELESS:
                break
            chosen = torch.cat([chosen, missed[:_SAMPLE]]).unique()
        return best

    def _fit(self, chosen: Int[Tensor, " chosen"], start: Rows, free: Bool[Tensor, " rows"]) -> Rows:
        kind = torch.float64 if int(free.sum()) <= _MOST_PRECISE else torch.float32
        x, said = self.features[chosen].to(kind), self.said[chosen]
        fixed = x[:, ~free] @ start[~free].to(kind)
        scales, directions = _principal(x[:, free])
        read = x[:, free] @ directions / scales

        def loss(values: Sequence[Tensor]) -> Tensor:
            logits = read @ values[0] + fixed
            if self.output == "softmax":
                miss = F.cross_entropy(logits, said)
            else:
                miss = F.binary_cross_entropy_with_logits(logits, said.to(kind))
            return miss + _DECAY * values[0].square().mean()

        whole = start[free].to(kind)
        seen = directions.T @ whole
        [rows] = minimise(loss, [seen * scales[:, None]], _STEPS)
        rows = whole + directions @ (rows / scales[:, None] - seen)
        ops = start.clone()
        ops[free] = rows.float()
        return ops


def _principal(x: Float[Tensor, "answers rows"]) -> tuple[Float[Tensor, " few"], Float[Tensor, "rows few"]]:
    """Spreads and directions: measured in these, everything varies alike, and a fit takes far fewer steps."""
    squares, directions = torch.linalg.eigh(x.T @ x / len(x))
    kept = squares > _FLAT * squares[-1]
    return squares[kept].sqrt(), directions[:, kept]


def _answers(logits: Rows, output: Output) -> Tensor:
    return predictions(logits[None], output)[0]


def projects_of(program: Program) -> tuple[Project, ...]:
    prediction = program.prediction
    used = {r.variable for r in prediction.logits}
    return tuple(s for s in program.statements if isinstance(s, Project) and s.name in used)


def refitted(program: Program, oracle: Oracle, rounds: int = _ROUNDS) -> Program:
    """The program with all its stored project tensors fitted to the model's answers."""
    every = max(1, round(oracle.answers_each * len(oracle) / _ANSWERS))
    head = Head.of(program, oracle.part(every))
    free = torch.zeros(sum(head.widths), dtype=torch.bool)
    for project in head.projects:
        free[head.slices()[project.name]] = isinstance(project.op, TensorName)
    ops = head.stacked(dense_ops(program))
    return with_ops(program, head, head.fitted(ops, free, rounds)) if free.any() else program


def with_ops(program: Program, head: Head, ops: Rows) -> Program:
    """The program with its stored project tensors taken from the stacked ones."""
    slices = head.slices()
    new = {
        project.op.name: ops[slices[project.name]].to(dtype_of(program)).clone()
        for project in head.projects
        if isinstance(project.op, TensorName)
    }
    return program.with_tensors(new)
