"""Naming as a whole: a program and its model in, the named program out, with its agreement measured afresh."""

import time
from dataclasses import dataclass, replace

import numpy as np

from drasp.causal import Amount, Trials
from drasp.fitting.oracle import Oracle, answering
from drasp.language import Program, program_files
from drasp.measure import Share
from drasp.model_files import digest
from drasp.naming.pipeline import Report, name_program
from drasp.output_folder import MARK
from drasp.primitives import count_primitives
from drasp.records import Record, drasp_version
from drasp.settings import DEFAULT
from drasp.tasks import Task
from drasp.transformer import Transformer, in_single_precision


@dataclass(frozen=True)
class NamedProgram:
    program: Program
    model_digest: str
    task: str
    seed: int
    match: Share
    pruned_match: Share
    seconds: float

    def files(self, model: str) -> dict[str, bytes]:
        record = Record(
            model=model,
            model_digest=self.model_digest,
            task=self.task,
            seed=self.seed,
            settings={"search": DEFAULT.to_json()},
            drasp_version=drasp_version(),
            method="name",
            match_accuracy=self.match.value,
            match_interval=self.match.interval,
            samples=self.match.total,
            lines=self.program.lines,
            primitives=count_primitives(self.program),
            pruned_match_accuracy=self.pruned_match.value,
            seconds=round(self.seconds, 2),
        )
        return program_files(self.program) | {MARK: record.to_text().encode()}


def name_and_measure(program: Program, transformer: Transformer, task: Task, seed: int, report: Report) -> NamedProgram:
    """The named program with its agreement; names are found on two pools of inputs, agreement on a third."""
    start = time.perf_counter()
    original, transformer = transformer, in_single_precision(transformer)
    program = replace(program, tensors={name: tensor.float() for name, tensor in program.tensors.items()})
    rng = np.random.default_rng(seed)
    fit = Oracle.draw(transformer, task, DEFAULT.inputs, rng, batch_size=24)
    check = Oracle.draw(transformer, task, DEFAULT.inputs, rng, batch_size=60)
    amount = Amount(DEFAULT.trials_from_task, DEFAULT.trials_of_each_edit)
    named = name_program(program, fit, check, Trials.draw(transformer, task, amount, rng), report=report)
    fresh = Oracle.draw(transformer, task, DEFAULT.fresh_inputs, rng, batch_size=100)
    match, before = (fresh.match(answering(p)) for p in (named, program))
    return NamedProgram(named, digest(original), task.name, seed, match, before, time.perf_counter() - start)
