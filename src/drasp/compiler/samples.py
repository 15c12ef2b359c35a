"""Typical values of a plan's variables, on random inputs: how large the stream is where it is read.

They decide no more than scales: what is large is held smaller, and the number by which layer norms divide is known.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.activations import ACTIVATIONS
from drasp.compiler.functions import Affine, Stage, Units
from drasp.compiler.plan import CompilationPlan
from drasp.language.interpreter import Interpreter
from drasp.language.syntax import INITIAL_VARIABLES, Aggregate, ElementWise
from drasp.sequences import Sequences

INPUTS, LENGTH = 16, 32

Samples = Mapping[str, Float[Tensor, "n _"]]


@torch.no_grad()
def sample(plan: CompilationPlan) -> Samples:
    """The value of every variable, stages between included, at all positions of random inputs at random offsets."""
    program, generator = plan.program, torch.Generator().manual_seed(0)
    length = min(LENGTH, program.n_positions)
    ids = torch.randint(len(program.vocabulary), (INPUTS, length), generator=generator)
    offsets = torch.randint(program.n_positions - length + 1, (INPUTS, 1), generator=generator)
    names = [s.name for s in program.statements if isinstance(s, Aggregate | ElementWise)]
    inputs = Sequences(ids, offsets + torch.arange(length))
    found = Interpreter.of(program, torch.float64).run(inputs, record=(*INITIAL_VARIABLES, *names)).values
    values = {name: value.flatten(0, 1) for name, value in found.items()}
    for cell in plan.cells:
        if cell.variable not in values:
            values[cell.variable] = _apply(cell.stage, [values[name] for name in cell.inputs], plan.activation)
    return values


def _apply(stage: Stage, inputs: list[Tensor], activation: str) -> Float[Tensor, "n dims"]:
    total = sum(value @ matrix for value, matrix in zip(inputs, stage.maps, strict=True)) + stage.bias
    match stage:
        case Affine():
            return total
        case Units(out=out, out_bias=out_bias):
            return ACTIVATIONS[activation](total) @ out + out_bias
