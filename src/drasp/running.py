"""Models and programs are run alike: the same inputs, the same edits, the same records."""

from collections.abc import Collection, Mapping
from typing import overload

from drasp.edits import Edit
from drasp.forward import Forward
from drasp.language import Interpreter, Program
from drasp.sequences import Run, Sequences
from drasp.sites import Site
from drasp.transformer import Transformer


@overload
def run(
    subject: Transformer, inputs: Sequences, edits: Mapping[Site, Edit] = ..., record: Collection[Site] = ...
) -> Run[Site]: ...
@overload
def run(
    subject: Program, inputs: Sequences, edits: Mapping[str, Edit] = ..., record: Collection[str] = ...
) -> Run[str]: ...
def run(subject, inputs, edits=None, record=()):  # pyright: ignore
    """The logits of a model or a program, and the values at recorded sites or variables, under edits of these.

    A program is run at the precision of its tensors. `Forward` and `Interpreter` are what it takes for many batches.
    """
    match subject:
        case Transformer():
            return Forward(subject, edits or {}, record)(inputs)
        case Program():
            return Interpreter.of(subject).run(inputs, edits or {}, record)
