"""What a Python user gives: models, tasks and programs, themselves or by path or name; and what is asked of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drasp import causal, translation
from drasp.causal import Evidence
from drasp.decompiler import verify as verification
from drasp.decompiler.verify import Verification
from drasp.edits import Edit
from drasp.errors import DraspError
from drasp.language import Program, load_program, load_pruned
from drasp.loading import load_model_and_task, resolve_model
from drasp.model_files import ModelSource
from drasp.report.examples import fitted_to_program
from drasp.sites import Site
from drasp.tasks import Task
from drasp.transformer import Transformer
from drasp.vocabulary import Output, Vocabulary


def model_and_task(model: Any, task: Task | str | Path | None) -> tuple[Transformer, Task, str]:
    """A model, its task and its folder (empty for a model in memory); a folder may name its task itself."""
    folder = str(resolve_model(model)) if isinstance(model, str | Path) else ""
    transformer, found = load_model_and_task(model, task)
    if found is None:
        raise DraspError(f"{folder or 'the model'}: does not say what it was trained on; give a task")
    return transformer, found, folder


def verify(
    program: Program | str | Path,
    model: ModelSource,
    task: Task | str | Path | None = None,
    samples: int = 2000,
    seed: int = 1,
    show: int = 3,
) -> Verification:
    """Agreement of a program with a model on fresh inputs, length by length, and the first that they differ on."""
    given, transformer, its_task = _all_three(program, model, task)
    return verification.verify(given, transformer, its_task, samples, seed, show)


def evaluate(
    program: Program | str | Path,
    model: ModelSource,
    task: Task | str | Path | None = None,
    cut_down: Program | str | Path | None = None,
    seed: int = 0,
) -> Evidence:
    """The causal evidence for a program of a model; a result's folder holds the model cut down itself."""
    given, transformer, its_task = _all_three(program, model, task)
    if cut_down is not None:
        pruned = _program(cut_down)
    else:
        pruned = load_pruned(program) if isinstance(program, str | Path) else None
    return causal.evaluate(given, transformer, its_task, pruned, seed=seed)


def translate(
    model: ModelSource,
    vocabulary: Vocabulary | None = None,
    output: Output | None = None,
    edits: Mapping[Site, Edit] | None = None,
) -> Program:
    """The program that gives the logits of a model; names of tokens and output are those of its task, if it has one."""
    transformer, task = load_model_and_task(model)
    vocabulary = vocabulary or (task.vocabulary if task else None)
    return translation.translate(transformer, vocabulary, output or (task.output if task else "softmax"), edits)


def _program(given: Program | str | Path) -> Program:
    return load_program(given) if isinstance(given, str | Path) else given


def _all_three(
    program: Program | str | Path, model: ModelSource, task: Task | str | Path | None
) -> tuple[Program, Transformer, Task]:
    given = _program(program)
    transformer, its_task, _ = model_and_task(model, task)
    name = program if isinstance(program, str | Path) else "the program"
    return given, transformer, fitted_to_program(its_task, given, name)
