"""Makes certificates: what a program answers on all inputs up to a length, beside a model and a task."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from drasp.certificates.checker import (
    ASSUMPTIONS,
    SCHEMA_VERSION,
    CertificateError,
    check,
    checked_version,
    content_digest,
    named_once,
    recomputed,
    sentence,
    summary,
    unpacked,
)
from drasp.certificates.findings import Progress, silent
from drasp.certificates.inputs import all_inputs, how_many, most_inputs
from drasp.certificates.lowering import lowered_model, lowered_program, lowered_task
from drasp.certificates.standalone import CHECKER, standalone_checker
from drasp.certificates.tree import Listed
from drasp.errors import DraspError
from drasp.input_files import read_json
from drasp.language import Program, parse
from drasp.output_folder import write_file
from drasp.records import CertificateRecord, ComparisonRecord, drasp_version
from drasp.tasks import Task, recorded_task
from drasp.tasks.framed import WithinRoom
from drasp.transformer import Transformer

Status = Literal["proved", "undecided", "refuted"]


@dataclass(frozen=True)
class Certificate:
    """What was found for all inputs up to a length, with all that it takes to find it again."""

    content: Mapping[str, Any]

    @property
    def status(self) -> Status:
        """Refuted where any comparison is; else undecided where any is."""
        found: list[Status] = [result["status"] for result in self.results.values()]
        return max(found, key=("proved", "undecided", "refuted").index)

    @property
    def results(self) -> Mapping[str, Mapping[str, Any]]:
        """What was found beside the model, where there is one, and the task."""
        found = self.content["found"]
        keys = ("against_model", "against_task")
        return {key: found[key] for key in keys if found[key] is not None}

    @property
    def task_name(self) -> str:
        return self.content["task"]["name"]

    @property
    def sentence(self) -> str:
        """What was found beside the model, or, without one, the task: `proved for all 151 strings up to length 150`."""
        return sentence(self.content, next(iter(self.results)))

    @cached_property
    def lines(self) -> str:
        """A line for each comparison."""
        return summary(self.content)

    @cached_property
    def line(self) -> str:
        """All comparisons in one line, with what was proved of both said once."""
        first, *rest = self.lines.splitlines()
        if not rest:
            return first
        model, task = self.results.values()
        alike = all(each["status"] == "proved" for each in (model, task)) and model["inputs"] == task["inputs"]
        said = "the same" if alike else sentence(self.content, "against_task")
        return f"{first}; against task {self.task_name}: {said}"

    @property
    def record(self) -> CertificateRecord:
        """The record for `result.json`: what was found, in words and in numbers."""
        compared = {key: ComparisonRecord(**result) for key, result in self.results.items()}
        return CertificateRecord(self.status, self.sentence, self.line, self.content["claim"]["length"], **compared)

    def __str__(self) -> str:
        return self.lines

    def files(self, name: str) -> dict[str, bytes]:
        """The certificate under a name, and the checker that lies beside it."""
        text = json.dumps(self.content, indent=1, ensure_ascii=False) + "\n"
        return {name: text.encode(), CHECKER: standalone_checker().encode()}

    def save(self, file: Path) -> None:
        for name, content in self.files(file.name).items():
            write_file(file.parent / name, content)


def certify(
    program: Program,
    transformer: Transformer | None,
    task: Task,
    length: int,
    all_strings: bool = False,
    all_offsets: bool = False,
    progress: Progress = silent,
) -> Certificate:
    """Compares a program's answers with a model's and a task's on all inputs up to a length, with error bounds."""
    if program.vocabulary.tokens != task.vocabulary.widened(len(program.vocabulary)).tokens:
        raise DraspError(f"the program's tokens are not those of task {task.name}")
    if program.output != task.output:
        raise DraspError(f"the program ends with {program.output}, and task {task.name} with {task.output}")
    if task.n_positions > program.n_positions:
        needed, there = task.n_positions, program.n_positions
        raise DraspError(f"task {task.name} needs {needed} positions, and the program has {there}")
    task = task.fitted(len(program.vocabulary), program.n_positions)
    inputs = all_inputs(task, length, all_strings)
    if transformer is None and isinstance(inputs, Listed) and not inputs.known.any():
        raise DraspError(f"task {task.name}: says of no input what is right; name a model to compare the program with")
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "drasp_version": drasp_version(),
        "assumptions": ASSUMPTIONS,
        "claim": {
            "length": length,
            "all_strings": all_strings,
            "offsets": _offsets(task, length) if all_offsets else [[0, length]],
        },
        "task": lowered_task(task, inputs),
        "program": lowered_program(program),
        "model": None if transformer is None else lowered_model(transformer),
    }
    # As it will be read again.
    content = json.loads(json.dumps(content))
    content["found"] = json.loads(json.dumps(recomputed(content, progress)))
    return Certificate({**content, "digest": content_digest(content)})


def _offsets(task: Task, length: int) -> list[list[int]]:
    """Every offset at which the task has inputs, with the greatest length that still fits there."""
    match task.offsets:
        case WithinRoom(room, spread):
            furthest = spread * (room - min(task.lengths))
            return [[offset, min(length, room + -offset // spread)] for offset in range(furthest + 1)]
        case tuple() as listed:
            return [[offset, length] for offset in listed]
        case _:
            raise DraspError(f"--offsets all: which offsets task {task.name} has is not known")


def check_certificate(file: Path, task: Task | None = None, progress: Progress = silent) -> Certificate:
    """Reads a certificate and recomputes it; raises a `DraspError` that says in what it is wrong.

    Unlike the checker beside it, this also reads the program's text anew, and has the task's inputs anew: the task is
    one of drasp's own, or the one that is given.
    """
    try:
        expected = f"a certificate with schema_version {SCHEMA_VERSION}"
        content = checked_version(read_json(file, expected, named_once))
        check(content, progress)
        claim, program = content["claim"], content["program"]
        stored = {name: torch.tensor(unpacked(each)) for name, each in program["stored"].items()}
        parsed = parse(program["text"], stored)
        again = lowered_program(parsed)
        if json.loads(json.dumps(again)) != program:
            raise CertificateError("the program's lines are not those of its text")
        task = task or recorded_task(content["task"]["name"], file)
        task = task.fitted(len(parsed.vocabulary), parsed.n_positions)
        inputs = all_inputs(task, claim["length"], claim["all_strings"])
        if json.loads(json.dumps(lowered_task(task, inputs))) != content["task"]:
            raise CertificateError(f"its inputs are not those of task {task.name}")
        at_0 = claim["offsets"] == [[0, claim["length"]]]
        if not at_0 and claim["offsets"] != _offsets(task, claim["length"]):
            raise CertificateError("its offsets are neither 0 alone nor all that the task has")
    except CertificateError as error:
        raise DraspError(f"{file}: refused: {error}") from None
    return Certificate(content)


class _OutOfTimeError(Exception):
    pass


def certified(
    program: Program,
    transformer: Transformer | None,
    task: Task,
    seconds: float = 5.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Certificate | None:
    """The certificate for the greatest length that can be looked at in so many seconds, at offset 0.

    None where there is none: for functions without error bounds, and for inputs that only the task's `draw` knows.
    Lengths grow while the time that the next one will take, judged by the last, is there. On a machine with much else
    to do, `clock` may be `time.process_time`.
    """
    deadline, best = clock() + seconds, None

    def watch(_count: int) -> None:
        if clock() > deadline:
            raise _OutOfTimeError

    length, few = 0, _FEW
    while True:
        try:
            longer = _longest_within(task, few)
        except DraspError:
            return None
        if longer is None or longer <= length:
            return best
        length, begun = longer, clock()
        try:
            best = certify(program, transformer, task, length, progress=watch)
        except (DraspError, _OutOfTimeError):
            return best
        if next(iter(best.results.values()))["status"] == "refuted":
            return best
        now = clock()
        few = int(best.content["found"]["inputs"] * (deadline - now) / (now - begun) * _CAREFUL)


_FEW = 500  # inputs to begin with
_CAREFUL = 0.7  # share of the time left that the next length may take, if each input takes what it took


def _longest_within(task: Task, inputs: int) -> int | None:
    """The greatest length up to which the task has at most so many inputs."""
    fits: int | None = None
    for length in task.lengths:
        if how_many(task, length) > min(inputs, most_inputs(task)):
            break
        fits = length
    return fits
