"""How often a program answers as a model does, length by length, and where they first differ."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from drasp.language import Interpreter, Program
from drasp.measure import Share, agreeing, answer_text, differ_at, predictions, share
from drasp.tasks import Inputs, Task, bin_name
from drasp.transformer import Transformer


@dataclass(frozen=True)
class Disagreement:
    """The first position of an input at which the answers differ, and how sure each side was of its own."""

    tokens: tuple[str, ...]
    offset: int
    position: int
    model: str
    program: str
    model_margin: float
    program_margin: float

    def __str__(self) -> str:
        return (
            f"{' '.join(self.tokens)}   (offset {self.offset})\n"
            f"   after position {self.position} ({self.tokens[self.position]}) the model says {self.model} "
            f"(by {self.model_margin:.2f}), the program {self.program} (by {self.program_margin:.2f})"
        )


@dataclass(frozen=True)
class Verification:
    bins: tuple[tuple[str, Share], ...]
    overall: Share
    disagreements: tuple[Disagreement, ...]

    def __str__(self) -> str:
        rows = [
            f"{name:>12}: {share} inputs answered alike" for name, share in (*self.bins, ("all lengths", self.overall))
        ]
        return "\n".join([*rows, *(f"\n{number}. {case}" for number, case in enumerate(self.disagreements, 1))])

    __repr__ = __str__


@torch.no_grad()
def verify(
    program: Program, transformer: Transformer, task: Task, samples: int = 2000, seed: int = 1, show: int = 3
) -> Verification:
    """Agreement on fresh inputs, `samples` of them; or on all, where the task lists them."""
    inputs = task.measured(samples, np.random.default_rng(seed))
    interpreter = Interpreter.of(program)
    same = torch.zeros(len(inputs), dtype=torch.bool)
    differing: list[Disagreement] = []
    for rows, batch in inputs.batches():
        theirs, ours = transformer(batch.ids, batch.positions), interpreter(batch.ids, batch.positions)
        said, answered = predictions(theirs, task.output), predictions(ours, task.output)
        same[rows] = agreeing(said, answered, batch.counted)
        for row in (~same[rows]).nonzero()[:, 0].tolist()[: show - len(differing)]:
            differing.append(_disagreement(batch, row, theirs[row], ours[row], task))
    bins = tuple(
        (bin_name(low, high), share(same[(inputs.lengths >= low) & (inputs.lengths <= high)], inputs.every))
        for low, high in task.bins
    )
    return Verification(bins, share(same, inputs.every), tuple(differing))


def _disagreement(batch: Inputs, row: int, theirs: Tensor, ours: Tensor, task: Task) -> Disagreement:
    names = task.vocabulary.tokens
    said, answered = predictions(theirs[None], task.output)[0], predictions(ours[None], task.output)[0]
    position = int((differ_at(said, answered) & batch.counted[row]).nonzero()[0])

    def margin(logits: Tensor) -> float:
        """The margin by which the answer was preferred to the other side's."""
        if task.output == "softmax":
            mine, other = (said, answered) if logits is theirs else (answered, said)
            return float(logits[position, mine[position]] - logits[position, other[position]])
        return float(logits[position][said[position] != answered[position]].abs().max())

    tokens = tuple(names[i] for i in batch.ids[row, : int(batch.sizes[row])].tolist())
    return Disagreement(
        tokens,
        int(batch.offsets[row]),
        position,
        answer_text(said[position], names),
        answer_text(answered[position], names),
        margin(theirs),
        margin(ours),
    )
