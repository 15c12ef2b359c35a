"""Interchange: a line from a source, in the program and in a reference, and whether both then answer alike.

The reference is the model (is the line all there is?) or the model cut down, which is a program (is what replaced the
line true?).
"""

from collections.abc import Sequence

import torch

from drasp.causal.mechanism import Mechanism
from drasp.causal.swaps import ProgramSwap, SwappedModel, SwappedProgram, model_swap, program_swap
from drasp.causal.trials import Answers, Outcome, Trials, median_margin, outcome
from drasp.language import Interpreter, Program
from drasp.transformer import Transformer


@torch.no_grad()
def interchange(
    program: Program, trials: Trials, reference: Transformer | Program, lines: Sequence[str]
) -> dict[str, Outcome]:
    """For each line, what came of taking it from the sources, in the program and in the reference."""
    mechanism = Mechanism.of(program)
    own = {line: ProgramSwap(mechanism.groups[line]) for line in lines}
    found: dict[str, list[Outcome]] = {line: [] for line in lines}
    if isinstance(reference, Transformer):
        margin, clear = trials.margin, trials.clear.in_model
    else:
        margin, clear = _margin(reference, trials), trials.clear.cut_down
    for pairs in trials.batches:
        ours = SwappedProgram(program, pairs, own)
        match reference:
            case Transformer():
                swaps = {line: model_swap(mechanism, line) for line in lines}
                theirs = SwappedModel(reference, pairs, swaps)
            case Program():
                other = Mechanism.of(reference)
                theirs = SwappedProgram(
                    reference, pairs, {line: program_swap(mechanism, line, other) for line in lines}
                )
        for line in lines:
            after = Answers(theirs.before, theirs.after(line)), Answers(ours.before, ours.after(line))
            found[line].append(outcome(trials, pairs, *after, margin, clear))
    return {line: Outcome.joined(parts) for line, parts in found.items()}


def _margin(program: Program, trials: Trials) -> float:
    """By how much a program prefers its answers, as a rule."""
    interpreter = Interpreter.of(program)
    return median_margin((interpreter.run(pairs.base).logits for pairs in trials.batches), trials)
