"""The last step of every program is linear: what its projects read, and the model's answers, at positions that count.

Given what is read, the projects' tensors can be tried without running the program again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from drasp.fitting.oracle import Oracle
from drasp.language import Interpreter
from drasp.language.syntax import Program, Project
from drasp.measure import TIE, predictions
from drasp.rewriting.rewrite import dense_ops
from drasp.vocabulary import Output

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
        return cls(oracle.output, projects, widths, torch.cat(features), torch.cat(said), torch.cat(inputs))

    def stacked(self, ops: Mapping[str, Tensor]) -> Rows:
        """All projects' tensors as one."""
        return torch.cat([ops[project.name].float() for project in self.projects])

    def slices(self) -> dict[str, slice]:
        ends = list(accumulate(self.widths))
        return {p.name: slice(end - width, end) for p, width, end in zip(self.projects, self.widths, ends, strict=True)}

    def right(self, logits: Rows, said: Int[Tensor, " some"] | Bool[Tensor, "some n_vocab"]) -> Bool[Tensor, " some"]:
        """Which answers are the model's; a tie of two tokens counts for it, of more it is an accident."""
        if self.output == "sigmoid":
            return (_answers(logits, self.output) == said).all(-1)
        first = logits.amax(-1, keepdim=True)
        near = logits >= first - TIE * logits.abs().amax(-1, keepdim=True)
        return near.gather(-1, said[:, None])[:, 0] & (near.sum(-1) <= 2)

    @torch.no_grad()
    def agreement(self, ops: Rows) -> float:
        """The share of inputs on which all answers are the model's."""
        wrong = ~self.right(self.features @ ops, self.said)
        return 1 - len(self.inputs[wrong].unique()) / len(self.inputs.unique())


def _answers(logits: Rows, output: Output) -> Tensor:
    return predictions(logits[None], output)[0]


def projects_of(program: Program) -> tuple[Project, ...]:
    prediction = program.prediction
    used = {r.variable for r in prediction.logits}
    return tuple(s for s in program.statements if isinstance(s, Project) and s.name in used)
