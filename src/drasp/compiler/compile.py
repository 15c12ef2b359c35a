"""From a D-RASP program to the weights of a GPT-2: refuse, plan, lay out, write, disguise."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from drasp.compiler.disguise import PLAIN, Disguise, Dressed, directions, dress, trained, with_twins
from drasp.compiler.layout import lay_out
from drasp.compiler.plan import make_plan
from drasp.compiler.truth import with_norms, with_sites
from drasp.compiler.weights import Frame, Writer, model_shape
from drasp.language import program_files
from drasp.language.syntax import Place, Program, ProgramError
from drasp.model_files import model_files
from drasp.output_folder import write_files
from drasp.tasks import TASKS, Task
from drasp.tasks.loading import TASK_FILE
from drasp.training.files import task_json
from drasp.transformer import Shape, Transformer, assemble

MAX_WEIGHTS = 30_000_000
"""What still compiles and loads in seconds."""
PROGRAM_FILES = ("program.drasp", "program.safetensors")


@dataclass(frozen=True)
class Compiled:
    """A model, by Hugging Face's names, and its program: the known truth, whose lines say what they stand for."""

    shape: Shape
    weights: dict[str, Tensor]
    program: Program

    @cached_property
    def transformer(self) -> Transformer:
        return assemble(self.shape, self.weights)

    def summary(self) -> str:
        """What kind of model it is, in a line."""
        return _size(self.shape)

    def save(self, folder: str | Path, task: Task | None = None) -> None:
        """Writes a GPT-2 folder with the model's program beside it: all of it, or nothing.

        With a task of drasp's own, the folder says that the model is for it.
        """
        its_program = program_files(self.program)
        files = model_files(self.shape, self.weights) | {name: its_program[name] for name in PROGRAM_FILES}
        if task is not None and TASKS.get(task.name) is task:
            files[TASK_FILE] = task_json(task.name)
        write_files(Path(folder), files, new=True)


def compile_program(program: Program, disguise: Disguise = PLAIN, seed: int = 0) -> Compiled:
    """A GPT-2 that computes the program; raises a `ProgramError` with the line where there is none.

    The seed is that of the disguise; without one, there is nothing random in a model.
    """
    plan = with_twins(make_plan(program), disguise.twin_heads, seed)
    layout = lay_out(plan)
    blocks = directions(layout.width, disguise.superposition, seed)
    shape = model_shape(
        layout, blocks.shape[1], plan.n_heads + disguise.idle_heads, layout.d_hidden + disguise.idle_mlps
    )
    _check_size(shape)
    frame = Frame.of(blocks, shape.d_model, disguise.norm_size)
    writer = Writer(layout, shape, frame)
    dressed = dress(Dressed(shape, writer.weights(), frame.constant), disguise, seed)
    weights = {name: weight.to(torch.get_default_dtype()).contiguous() for name, weight in dressed.items()}
    if disguise.task is not None and disguise.training_steps:
        weights = trained(shape, weights, disguise.task, disguise.training_steps, seed)
    return Compiled(shape, weights, with_norms(writer) if disguise.norms_matter else with_sites(plan))


def _size(shape: Shape) -> str:
    parts = ((shape.n_layers, "layer"), (shape.n_heads, "head"), (shape.d_hidden, "hidden unit"))
    layers, heads, units = (f"{count:,} {name}{'s' * (count > 1)}" for count, name in parts)
    form = f"{layers} of {heads} and {units} ({shape.activation}), d_model {shape.d_model:,}"
    return f"{form}, {shape.n_weights:,} weights"


def _check_size(shape: Shape) -> None:
    if shape.n_weights > MAX_WEIGHTS:
        raise ProgramError(Place(), f"the model would have {_size(shape)}; expected at most {MAX_WEIGHTS:,} weights")
