"""Every hand-written program, through every part of the language."""

import types

import numpy as np
import pytest
import torch

from cases import CASES, PAPER_CASES, ProgramCase
from drasp.language import Interpreter, check, load_program, parse, program_files, to_python, to_text
from drasp.measure import task_accuracy
from drasp.tasks import load_task

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def positions(case: ProgramCase) -> torch.Tensor:
    return torch.arange(case.offset, case.offset + len(case.ids))[None]


@every_case
def test_variables_have_the_values_worked_out_by_hand(case):
    trace = Interpreter(case.program, torch.float64).trace(torch.tensor([case.ids]), positions(case))
    for name, rows in case.expected.items():
        found = trace[name][0].tolist()
        for position, row in enumerate(rows):
            value = found[position][: len(row)] if isinstance(found[position], list) else [found[position]]
            assert value == pytest.approx(row, abs=1e-6), f"{name} at position {position}"


@every_case
def test_answers(case):
    if case.answers is None:
        pytest.skip("the case names no answers")
    logits = Interpreter(case.program)(torch.tensor([case.ids]), positions(case))[0]
    said = [case.vocabulary.tokens[i] for i in logits.argmax(-1).tolist()]
    wanted = [s if a == "-" else a for a, s in zip(case.answers, said, strict=True)]
    assert said == wanted


@every_case
def test_text_reads_back_as_the_same_program(case):
    assert parse(to_text(case.program)) == case.program


@every_case
def test_checker_finds_nothing(case):
    assert check(case.program) == []


@every_case
def test_standalone_python_gives_the_interpreters_logits(case):
    module = types.ModuleType("program")
    exec(to_python(case.program), module.__dict__)
    ours = Interpreter(case.program, torch.float64)(torch.tensor([case.ids]), positions(case))[0]
    assert list(case.vocabulary.tokens) == module.VOCAB
    assert case.program.output == module.OUTPUT
    np.testing.assert_allclose(module.logits(case.ids, case.offset), ours, atol=1e-6)


@every_case
def test_files_read_back_as_the_same_program(case, tmp_path):
    for name, content in program_files(case.program).items():
        (tmp_path / name).write_bytes(content)
    loaded = load_program(tmp_path)
    assert loaded == case.program
    assert loaded.tensors.keys() == case.tensors.keys()
    assert all(torch.equal(loaded.tensors[name], tensor) for name, tensor in case.tensors.items())


@pytest.mark.parametrize("case", [case for case in CASES if case.task], ids=lambda case: case.name)
def test_programs_solve_their_tasks(case):
    """1,000 random inputs of lengths up to 150, at random offsets: all of them right."""
    task = load_task(case.task)
    assert task.vocabulary == case.vocabulary
    assert task.n_positions == case.positions
    inputs = task.pool(1000, np.random.default_rng(5))
    accuracy = task_accuracy(Interpreter(case.program), inputs, task.output)
    assert accuracy.hits == accuracy.total == 1000


def test_the_papers_programs_are_among_the_cases():
    assert {case.task for case in PAPER_CASES} == {
        "majority",
        "bin_majority",
        "unique_copy",
        "abcde",
        "tomita2",
        "ab_d_bc",
    }
