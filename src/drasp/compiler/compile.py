"""From a D-RASP program to the weights of a GPT-2: refuse, plan, lay out, write, disguise."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from drasp.compiler.disguise import PLAIN, Disguise
from drasp.compiler.layout import lay_out
from drasp.compiler.plan import make_plan
from drasp.compiler.truth import with_sites
from drasp.compiler.weights import Frame, Writer, model_shape
from drasp.language.syntax import Place, Program, ProgramError
from drasp.model_files import write_folder
from drasp.training.files import check_out, whole_folder
from drasp.transformer import Shape, Transformer, assemble

MAX_WEIGHTS = 30_000_000
"""What still compiles and loads in seconds."""


@dataclass(frozen=True)
class Compiled:
    """A model, by Hugging Face's names, and its program: the known truth, whose lines say what they stand for."""

    shape: Shape
    weights: dict[str, Tensor]
    program: Program

    @cached_property
    def transformer(self) -> Transformer:
        return assemble(self.shape, self.weights)

    def save(self, folder: Path) -> None:
        """Writes a GPT-2 folder: all of it, or nothing."""
        check_out(folder)
        with whole_folder(folder) as whole:
            write_folder(whole, self.shape, self.weights)


def compile_program(program: Program, disguise: Disguise = PLAIN, seed: int = 0) -> Compiled:  # noqa: ARG001
    """A GPT-2 that computes the program; raises a `ProgramError` with the line where there is none."""
    plan = make_plan(program)
    layout = lay_out(plan)
    shape = model_shape(layout, plan.n_heads, layout.d_hidden)
    count = sum(math.prod(size) for size in shape.weight_shapes().values())
    if count > MAX_WEIGHTS:
        raise ProgramError(
            Place(),
            f"the model would have {count:,} weights (d_model {shape.d_model:,}, {shape.d_hidden:,} hidden units, "
            f"{shape.n_layers} layers); expected at most {MAX_WEIGHTS:,}",
        )
    frame = Frame.orthogonal(layout.width, shape.d_model, disguise.norm_size)
    weights = Writer(layout, shape, frame).weights()
    weights = {name: weight.to(torch.get_default_dtype()) for name, weight in weights.items()}
    return Compiled(shape, weights, with_sites(plan))
