"""The interpreter in the page computes what Python's does."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import drasp.report
from cases import CASES, PAPER_CASES, case
from drasp.edits import Edit, Replaced, Scaled, Shifted
from drasp.language import Interpreter, Program, parse
from drasp.language.function_primitives import function_primitives
from drasp.model_files import load_model
from drasp.report.data import packed, program_data, tensor_arrays
from drasp.report.page import MAX_LINES
from drasp.sequences import Sequences
from drasp.tasks import TASKS, load_task
from drasp.translation import translate, translation_size
from page_edits import in_page
from published import MODELS, needs_published_models
from random_programs import random_program

SCRIPTS = [Path(drasp.report.__file__).with_name(name) for name in ("edits.js", "matrices.js", "interpreter.js")]

SET_UP = """async ([program, packed]) => {
    globalThis.ready = new Interpreter(program, await unpackTensors(packed));
}"""
DIFFERENCES = """(cases) => cases.map(([ids, offset, logits]) => {
    const { data } = ready.run(ids, offset).values.get("prediction");
    return Math.max(...logits.map((x, i) => Math.abs(x - data[i])), Math.abs(logits.length - data.length));
})"""


@pytest.fixture(scope="module")
def interpreter_page(browser):
    page = browser.new_page()
    for script in SCRIPTS:
        page.add_script_tag(path=script)
    yield page
    page.close()


def random_inputs(program: Program, count: int, seed: int, longest: int = 40) -> list[tuple[list[int], int]]:
    rng = np.random.default_rng(seed)
    inputs = []
    for _ in range(count):
        length = int(rng.integers(1, min(longest, program.n_positions) + 1))
        ids = rng.integers(len(program.vocabulary), size=length).tolist()
        inputs.append((ids, int(rng.integers(0, program.n_positions - length + 1))))
    return inputs


@torch.no_grad()
def check_equal(page, program: Program, inputs: list[tuple[list[int], int]]) -> None:
    """The logits of the page's interpreter, from the tensors as a page packs them, against those of Python's."""
    page.evaluate(SET_UP, [program_data(program), packed(tensor_arrays(program))])
    # All inputs at once, padded on the right, where nothing looks.
    width = max(len(ids) for ids, _ in inputs)
    rows = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in inputs])
    positions = (torch.tensor([[offset] for _, offset in inputs]) + torch.arange(width)).clamp(
        max=program.n_positions - 1
    )
    logits = Interpreter(program, torch.float64)(rows, positions)
    cases = [[ids, offset, logits[i, : len(ids)].flatten().tolist()] for i, (ids, offset) in enumerate(inputs)]
    differences = page.evaluate(DIFFERENCES, cases)
    assert max(differences) <= 1e-4
    assert len(differences) == len(inputs)


@pytest.mark.parametrize("program", [case.program for case in CASES], ids=[case.name for case in CASES])
def test_the_page_computes_what_python_computes(interpreter_page, program):
    longest = 40 if len(program.vocabulary) < 100 else 16
    check_equal(interpreter_page, program, random_inputs(program, 50, seed=1, longest=longest))


@pytest.mark.parametrize("one", PAPER_CASES, ids=lambda case: case.name)
def test_the_page_computes_what_python_computes_on_inputs_of_the_tasks(interpreter_page, one):
    pool = load_task(one.task).pool(10, np.random.default_rng(3), longest=60)
    rows = [(pool.ids[i, : int(pool.sizes[i])].tolist(), int(pool.offsets[i])) for i in range(10)]
    check_equal(interpreter_page, one.program, rows)


def test_the_page_computes_what_python_computes_for_random_programs(interpreter_page):
    for seed in range(25):
        program = random_program(random.Random(seed))
        check_equal(interpreter_page, program, random_inputs(program, 6, seed))


@pytest.mark.long
@needs_published_models
@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_the_page_computes_what_python_computes_for_published_models(interpreter_page, folder):
    """Their exact programs, with every norm and MLP, as far as they are short enough for a page."""
    transformer = load_model(folder)
    if translation_size(transformer).total > MAX_LINES:
        pytest.skip("its exact program is too long for a page")
    task = TASKS[folder.name.split("-")[0]]
    program = translate(transformer, task.vocabulary, task.output)
    check_equal(interpreter_page, program, random_inputs(program, 50, seed=2, longest=12))


EDITED = """(cases) => cases.map(([ids, offset, edits]) => {
    for (const edit of Object.values(edits))
        for (const key of Object.keys(edit)) if (Array.isArray(edit[key])) edit[key] = Float64Array.from(edit[key]);
    return [...ready.run(ids, offset, edits).values.get("prediction").data];
})"""


@torch.no_grad()
def test_edits_of_variables_do_in_the_page_what_they_do_in_python(interpreter_page):
    for seed in range(8):
        program = random_program(random.Random(seed))
        interpreter_page.evaluate(SET_UP, [program_data(program), packed(tensor_arrays(program))])
        interpreter, rng = Interpreter(program, torch.float64), np.random.default_rng(seed)
        names = [s.name for s in program.statements if s.name != "prediction"]
        names += ["token", "pos", "one", *(f"{s.name} pattern" for s in program.statements if s.kind == "aggregate")]
        cases, expected = [], []
        for ids, offset in random_inputs(program, 8, seed, longest=10):
            inputs = Sequences(torch.tensor([ids]), torch.arange(offset, offset + len(ids))[None])
            chosen = rng.choice(names, size=min(2, len(names)), replace=False)
            shapes = {name: interpreter.run(inputs, record=[name]).values[name].shape for name in chosen}
            edits = {name: edit_of(shape, name.endswith(" pattern"), rng) for name, shape in shapes.items()}
            expected.append(interpreter.run(inputs, edits).logits.flatten())
            cases.append([ids, offset, {name: in_page(edit) for name, edit in edits.items()}])
        for found, logits in zip(interpreter_page.evaluate(EDITED, cases), expected, strict=True):
            torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), logits, rtol=1e-6, atol=1e-4)


def edit_of(shape: tuple[int, ...], is_pattern: bool, rng: np.random.Generator) -> Edit:
    value = torch.as_tensor(rng.random(shape) + 0.3)  # nothing can be divided by 0
    if is_pattern:
        value = value.tril() / value.tril().sum(-1, keepdim=True)
    return [Replaced(value), Scaled(0.3, value), Scaled(0.5, 1.0), Shifted(value)][int(rng.integers(4))]


def test_the_page_knows_every_function_of_the_library(interpreter_page):
    assert set(function_primitives()) <= set(interpreter_page.evaluate("Object.keys(FUNCTIONS)"))


def test_the_page_counts_remainders_as_python_does(interpreter_page):
    program = parse(
        """vocab = [x, y]\nspecial = []\npositions = 30
        a1 = aggregate(s=[], v=pos)
        h1 = element_wise_op(pos, a1, func=difference_mod(3))
        logits1 = project(inp=h1, op=R)
        prediction = softmax(logits1)""",
        {"R": torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 5.0]])},
    )
    check_equal(interpreter_page, program, random_inputs(program, 20, seed=4, longest=12))


def test_an_interpreter_that_differs_would_be_noticed(interpreter_page):
    program = case("layer norm")
    wrong = replace(program, tensors={**program.tensors, "R": program.tensors["R"] + 1e-3})
    interpreter_page.evaluate(SET_UP, [program_data(wrong), packed(tensor_arrays(wrong))])
    logits = Interpreter(program, torch.float64)(torch.tensor([[0, 1]]), torch.tensor([[0, 1]]))
    assert interpreter_page.evaluate(DIFFERENCES, [[[0, 1], 0, logits.flatten().tolist()]])[0] > 1e-4
