"""What a program would answer without one of its lines."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from drasp.edits import CUT, Edit, Replaced
from drasp.fitting.means import means_over
from drasp.language import Interpreter, Program
from drasp.language.syntax import Aggregate, ElementWise, Norm, Prediction, Project, Select, Statement
from drasp.measure import agreeing, answer_text, differ_at, predictions
from drasp.sequences import Sequences
from drasp.tasks import Task

_INPUTS = 300


@dataclass(frozen=True)
class Absence:
    """What a program answers without a line: `changed` of `inputs` otherwise; `how` says what takes the line's place.

    The shortest of these: its `tokens`, the `position` of the first answer that changes, and both answers there.
    """

    how: str
    inputs: int
    changed: int
    tokens: tuple[str, ...] = ()
    position: int = 0
    answer: str = ""
    without: str = ""

    def __str__(self) -> str:
        said = f"{self.how}, {self.changed / self.inputs:.0%} of {self.inputs} inputs are answered otherwise"
        if not self.changed:
            return said
        return f"{said}; after {' '.join(self.tokens[: self.position + 1])}: {self.without} instead of {self.answer}"


_HOW = {
    Select: "if it scores all keys alike",
    Aggregate: "with its mean in its place",
    ElementWise: "with its mean in its place",
    Norm: "with its mean in its place",
    Project: "if it says nothing",
}


@torch.no_grad()
def absence(program: Program, statement: Statement, task: Task) -> Absence | None:
    """Runs a program with and without a line on inputs of a task; None for the prediction, without which it is none."""
    if isinstance(statement, Prediction):
        return None
    inputs = task.pool(_INPUTS, np.random.default_rng(0))
    interpreter, name = Interpreter.of(program), statement.name
    edit: Edit = CUT
    if not isinstance(statement, Select | Project):
        edit = Replaced(_mean(interpreter, name, task))
    same = torch.ones(len(inputs), dtype=torch.bool)
    first: tuple[int, int, Tensor, Tensor] | None = None  # the size of an input, its row, and both answers
    for rows, batch in inputs.batches():
        sequences = Sequences(batch.ids, batch.positions)
        said = predictions(interpreter.run(sequences).logits, program.output)
        other = predictions(interpreter.run(sequences, {name: edit}).logits, program.output)
        same[rows] = alike = agreeing(said, other, batch.counted)
        for i in (~alike).nonzero()[:, 0].tolist():
            size = int(batch.sizes[i])
            if first is None or size < first[0]:
                first = (size, int(torch.as_tensor(rows)[i]), said[i], other[i])
    changed = int((~same).sum())
    if first is None:
        return Absence(_HOW[type(statement)], len(inputs), 0)
    size, row, said, other = first
    differs = differ_at(said, other) & inputs.counted[row, : len(said)]
    position = int(differs.nonzero()[0, 0])
    names = program.vocabulary.tokens
    tokens = tuple(names[i] for i in inputs.ids[row, :size].tolist())
    answers = (answer_text(each[position], names) for each in (said, other))
    return Absence(_HOW[type(statement)], len(inputs), changed, tokens, position, *answers)


def _mean(interpreter: Interpreter, name: str, task: Task) -> Tensor:
    """A variable's mean over all positions of other inputs, those behind their ends left out."""
    inputs = task.pool(_INPUTS, np.random.default_rng(1))
    runs = ((interpreter.run(Sequences(b.ids, b.positions), record=[name]), b.real) for _, b in inputs.batches())
    return means_over((run.values, real) for run, real in runs)[name]
