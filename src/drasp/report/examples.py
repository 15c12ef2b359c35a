"""Inputs that a report carries along, with the model's answers where the model is at hand."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from drasp.errors import DraspError
from drasp.language import Interpreter, Program
from drasp.measure import agreeing, predict, predictions
from drasp.records import Record
from drasp.tasks import TASKS, Inputs, Task
from drasp.transformer import Transformer
from drasp.vocabulary import Output

_SIZES = (6, 4, 8, 10, 12, 15, 20, 25, 30, 35, 40, 50, 60, 70, 80, 90, 100, 120, 135, 150)
_SHORT_DRAWS, _DRAWS, _SHORT = 100, 60, 20
_TRIED, _DISAGREEMENTS, _MEASURED = 300, 8, 60


@dataclass(frozen=True)
class Example:
    """`counted` are runs of positions, the ends not included, at which answers count.

    `model` holds the tokens that the model says at each position: one (softmax), or a set (sigmoid).
    """

    ids: list[int]
    offset: int
    counted: list[tuple[int, int]]
    model: list[list[int]] | None = None

    def to_json(self, with_answers: bool) -> dict[str, Any]:
        plain = {"ids": self.ids, "offset": self.offset, "counted": self.counted}
        return plain | {"model": self.model} if with_answers else plain


@dataclass(frozen=True)
class Examples:
    """`steps` go from short to long, `draws` are more of them, `differing` those on which program and model differ.

    The model whose answers they hold is `transformer`; `pool` are more inputs to measure on.
    """

    steps: list[Example]
    draws: list[Example]
    differing: list[Example]
    about_task: str = ""
    transformer: Transformer | None = None
    pool: Inputs | None = None

    @property
    def about_model(self) -> str:
        return "" if self.transformer is None else self.transformer.size

    def answered_alike(self, model: Transformer, output: Output) -> bool:
        """Whether another model, of as many tokens, says what this one does wherever that is recorded."""
        return all(
            example.model is None or said(model, example, output) == example.model
            for example in (*self.steps, *self.draws, *self.differing)
        )


def draw_examples(program: Program, task: Task | None, transformer: Transformer | None = None) -> Examples:
    """The examples of a page. Without a task, inputs are random tokens; a task must fit the program."""
    if task is None:
        return Examples(*_random_tokens(program, transformer), [], transformer=transformer)
    task = fitted_to_program(task, program)
    rng = np.random.default_rng(0)
    lengths = _nearest(task.lengths, _SIZES)
    at_zero = _examples(task.inputs(lengths, rng, random_offsets=False), task, transformer)
    anywhere = _examples(task.inputs(lengths, rng), task, transformer)
    first = _examples(task.inputs(lengths[:1].repeat(12), rng, random_offsets=False), task, transformer)
    # What a reader sees first should show something: of several inputs, one with many different tokens.
    varied = max(first, key=lambda example: len(set(example.ids)))
    steps = [varied, *((at_zero if i % 3 == 0 else anywhere)[i] for i in range(1, len(lengths)))]
    short = task.pool(_SHORT_DRAWS, rng, longest=max(_SHORT, task.lengths[0]))
    draws = [*_examples(short, task, transformer), *_examples(task.pool(_DRAWS, rng), task, transformer)]
    differing = _disagreements(program, task, transformer, rng) if transformer else []
    pool = task.pool(_MEASURED, rng) if transformer else None
    return Examples(steps, draws, differing, task.about, transformer, pool)


def fitted_to_program(task: Task, program: Program, name: object = "the program") -> Task:
    """The task with names for all the program's tokens; the first token that differs is named."""
    ours, theirs = program.vocabulary, task.vocabulary.widened(len(program.vocabulary))
    for number, (own, other) in enumerate(zip_longest(ours.tokens, theirs.tokens, fillvalue="not there")):
        if own != other:
            raise DraspError(
                f"{name}: its tokens are not those of task {task.name}: token {number} is {own}, the task's is {other}"
            )
    return task.fitted(len(ours), program.n_positions)


def task_on_record(program: Program, record: Record | None) -> tuple[Task | None, str | None]:
    """The task of a result, of which inputs are drawn; or a remark on why none is known.

    A record may come from somebody else: of the tasks that it names, only drasp's own are taken, and no file is run.
    """
    if record is None or record.task is None:
        return None, None
    if record.task not in TASKS:
        return None, (
            f"task {record.task} is not one of drasp's own, "
            f"and no file is run because a folder says so; name it with --task file.py:name"
        )
    try:
        return fitted_to_program(TASKS[record.task], program), None
    except DraspError as error:
        return None, str(error)


def _nearest(there: Sequence[int], wanted: Sequence[int]) -> np.ndarray:
    return np.array([min(there, key=lambda n: abs(n - length)) for length in wanted])


def _random_tokens(program: Program, transformer: Transformer | None) -> tuple[list[Example], list[Example]]:
    rng = np.random.default_rng(0)
    longest = min(24, program.n_positions)

    def draw(length: int) -> Example:
        example = Example(rng.integers(len(program.vocabulary), size=length).tolist(), 0, [(0, length)])
        return replace(example, model=said(transformer, example, program.output)) if transformer else example

    return [draw(min(n, longest)) for n in (6, 3, 8, 12, 16, 24)], [
        draw(int(rng.integers(1, longest + 1))) for _ in range(40)
    ]


def _examples(inputs: Inputs, task: Task, transformer: Transformer | None) -> list[Example]:
    said = predict(transformer, inputs, task.output) if transformer else None
    return [_example(inputs, row, None if said is None else said[row]) for row in range(len(inputs))]


def _example(inputs: Inputs, row: int, said: Tensor | None) -> Example:
    size = int(inputs.sizes[row])
    answers = None if said is None else [_tokens(answer) for answer in said[:size]]
    return Example(inputs.ids[row, :size].tolist(), int(inputs.offsets[row]), _runs(inputs.counted[row]), answers)


def _runs(counted: Bool[Tensor, " pos"]) -> list[tuple[int, int]]:
    """The runs of positions where answers count without a break."""
    changes = torch.nn.functional.pad(counted.int(), (1, 1)).diff().nonzero()[:, 0].tolist()
    return list(zip(changes[::2], changes[1::2], strict=True))


@torch.no_grad()
def said(model: Transformer, example: Example, output: Output) -> list[list[int]]:
    """What a model says at each position of an example."""
    positions = example.offset + torch.arange(len(example.ids))
    logits = model(torch.tensor([example.ids]), positions[None])
    return [_tokens(answer) for answer in predictions(logits, output)[0]]


def _tokens(answer: Tensor) -> list[int]:
    return [int(answer)] if answer.ndim == 0 else answer.nonzero()[:, 0].tolist()


@torch.no_grad()
def _disagreements(program: Program, task: Task, transformer: Transformer, rng: np.random.Generator) -> list[Example]:
    """The shortest inputs of those tried on which the program does not answer as the model does."""
    inputs = task.pool(_TRIED, rng)
    said = predict(transformer, inputs, task.output)
    same = agreeing(said, predict(Interpreter.of(program), inputs, task.output), inputs.counted)
    rows = sorted((~same).nonzero()[:, 0].tolist(), key=lambda row: int(inputs.sizes[row]))
    return [_example(inputs, row, said[row]) for row in rows[:_DISAGREEMENTS]]
