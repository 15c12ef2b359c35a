"""Edited inputs: whether a program answers as the model does where a change of tokens changes an answer."""

import torch

from drasp.causal.program_swaps import said_before
from drasp.causal.trials import Answers, Outcome, Trials, outcome
from drasp.language import Interpreter, Program
from drasp.tasks import EDITS, EditKind


@torch.no_grad()
def edited(program: Program, trials: Trials) -> dict[EditKind, Outcome]:
    """The outcome for each kind of edit: on the base and on the edited input, which is the source as a whole."""
    interpreter = Interpreter.of(program)
    found: dict[EditKind, list[Outcome]] = {kind: [] for kind in EDITS}
    for batch, pairs in enumerate(trials.batches):
        model = Answers(pairs.base_logits, pairs.source_logits)
        before = said_before(program, trials, batch)
        ours = Answers(before, interpreter.run(pairs.source).logits)
        for number, kind in enumerate(EDITS, 1):
            rows = (pairs.kinds == number).nonzero()[:, 0]
            found[kind].append(outcome(trials, pairs, model, ours, trials.margin, rows=rows))
    return {kind: Outcome.joined(parts) for kind, parts in found.items()}
