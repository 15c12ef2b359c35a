"""Interchange: a line from a source, in the program and in a reference, and whether both then answer alike.

The reference is the model (is the line all there is?) or the model cut down, which is a program (is what replaced the
line true?).
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar

import torch

from drasp.causal.mechanism import Mechanism
from drasp.causal.program_swaps import ProgramSwap, SwappedProgram, program_swap, said_before
from drasp.causal.swaps import SwappedModel, known_swaps, model_swap
from drasp.causal.trials import Answers, Outcome, Trials, median_margin, outcome
from drasp.language import Program
from drasp.language.syntax import once
from drasp.transformer import Transformer

Reference: TypeAlias = Transformer | Program
Key = TypeVar("Key", bound=str)


def interchange(program: Program, trials: Trials, reference: Reference, lines: Sequence[str]) -> dict[str, Outcome]:
    """The outcome of taking each line from the sources, in the program and in the reference."""
    return interchanges(program, trials, {"only": (reference, lines)})["only"]


@torch.no_grad()
def interchanges(
    program: Program, trials: Trials, asked: Mapping[Key, tuple[Reference, Sequence[str]]]
) -> dict[Key, dict[str, Outcome]]:
    """The same against several references, each for lines of its own: what the program does is found out once."""
    mechanism = Mechanism.of(program)
    every = dict.fromkeys(line for _, lines in asked.values() for line in lines)
    own = {line: ProgramSwap(mechanism.groups[line]) for line in every}
    margins = {key: _margin(reference, trials) for key, (reference, lines) in asked.items() if lines}
    found: dict[Key, dict[str, list[Outcome]]] = {
        key: {line: [] for line in lines} for key, (_, lines) in asked.items()
    }
    for number, pairs in enumerate(trials.batches if every else ()):
        ours = SwappedProgram(program, pairs, own, known_swaps(program, trials, number))
        for key, (margin, clear) in margins.items():
            reference, lines = asked[key]
            theirs = ours if reference is program else _swapped(mechanism, reference, trials, number, lines)
            for line in lines:
                after = Answers(theirs.before, theirs.after(line)), Answers(ours.before, ours.after(line))
                found[key][line].append(outcome(trials, pairs, *after, margin, clear))
    return {key: {line: Outcome.joined(parts) for line, parts in of_lines.items()} for key, of_lines in found.items()}


def _swapped(
    mechanism: Mechanism, reference: Reference, trials: Trials, number: int, lines: Sequence[str]
) -> SwappedModel | SwappedProgram:
    """A reference on a batch of the trials, with the counterparts of lines of a mechanism."""
    pairs, known = trials.batches[number], known_swaps(reference, trials, number)
    match reference:
        case Transformer():
            return SwappedModel(reference, pairs, {line: model_swap(mechanism, line) for line in lines}, known)
        case Program():
            other = Mechanism.of(reference)
            swaps = {line: program_swap(mechanism, line, other) for line in lines}
            return SwappedProgram(reference, pairs, swaps, known)


def _margin(reference: Reference, trials: Trials) -> tuple[float, float]:
    """The median margin of a reference's answers, and the share of it by which they are clear."""
    if isinstance(reference, Transformer):
        return trials.margin, trials.clear.in_model

    def found() -> float:
        return median_margin((said_before(reference, trials, n) for n in range(len(trials.batches))), trials)

    return once(reference.of_numbers, ("margin", trials), found), trials.clear.cut_down
