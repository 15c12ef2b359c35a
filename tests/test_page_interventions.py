"""Interventions in the page do what `run` does, in the program and in the model."""

from pathlib import Path

import numpy as np
import pytest
import torch

from browser import Opened, open_file
from causal_models import ANSWERS, lively, trials_of
from drasp.causal.mechanism import Mechanism
from drasp.causal.program_swaps import ProgramSwap, SwappedProgram
from drasp.causal.swaps import SwappedModel, model_swap
from drasp.causal.trials import Pairs
from drasp.edits import Edit, Replaced
from drasp.language import Interpreter, Program
from drasp.language.interpreter import pattern_of
from drasp.language.syntax import Aggregate
from drasp.report.examples import draw_examples
from drasp.report.page import report_page
from drasp.running import run
from drasp.sequences import Sequences
from drasp.sites import Component, Pattern, Site
from drasp.transformer import Transformer, converted
from drasp.translation import translate
from swapping import split_program

INTERVENE = """([ids, offset, wanted]) => {
    const { interventions } = drasp.report;
    interventions.clear();
    for (const set of ["off", "from", "patterns"]) interventions[set] = new Set(wanted[set] ?? []);
    interventions.source = wanted.source ?? null;
    const { program, model } = interventions.run(ids, offset);
    interventions.clear();
    return [[...program.values.get("prediction").data], [...model.logits]];
}"""


SHOWN = """(name) => {
    const { input: { ids, offset }, cards } = drasp.report;
    const { figures } = cards.find((card) => card.line.name === name);
    return [ids, offset, [...figures[1].heatmap.grid.values]];
}"""


def in_float(transformer: Transformer) -> Transformer:
    return converted(transformer, lambda weight: weight.float())


def opened_report(browser, folder: Path, program: Program, transformer: Transformer) -> Opened:
    examples = draw_examples(program, ANSWERS, transformer)
    file = folder / "report.html"
    file.write_bytes(report_page(program, {"task": "backwards"}, examples))
    return open_file(browser, file)


@pytest.fixture(scope="module", params=["one layer", "split", pytest.param("two layers", marks=pytest.mark.long)])
def subject(request, browser, tmp_path_factory):
    """A page, and the program and the model as Python has them."""
    match request.param:
        case "split":
            transformer, _, program, _ = split_program(0)
            transformer = in_float(transformer)
        case layers:
            transformer = in_float(lively(3, *((1, 2) if layers == "one layer" else (2, 1))))
            program = translate(transformer, ANSWERS.vocabulary, ANSWERS.output)
    opened = opened_report(browser, tmp_path_factory.mktemp("report"), program, transformer)
    yield opened, program, converted(transformer, lambda weight: weight.double())
    assert opened.problems == []
    opened.page.close()


def pairs_of(transformer: Transformer) -> list[Pairs]:
    """Single pairs of inputs, wanted at all of their positions."""
    found: list[Pairs] = []
    for pairs in trials_of(transformer).batches:
        for row in range(len(pairs)):
            size = int(pairs.sizes[row])
            one, where = slice(row, row + 1), torch.arange(size)[None]
            base, source = (
                Sequences(side.ids[one, :size], side.positions[one, :size], where)
                for side in (pairs.base, pairs.source)
            )
            rest = (torch.ones(1, size, dtype=torch.bool), pairs.kinds[one], pairs.lengths[one], pairs.sizes[one])
            logits = (run(transformer, side).logits for side in (base, source))
            found.append(Pairs(base, source, *rest, *logits))
    return found


def placed(inputs: Sequences) -> tuple[list[int], int]:
    return inputs.ids[0].tolist(), int(inputs.positions[0, 0])


def intervene(opened: Opened, inputs: Sequences, **wanted) -> tuple[torch.Tensor, torch.Tensor]:
    found = opened.page.evaluate(INTERVENE, [*placed(inputs), wanted])
    program, model = (torch.tensor(logits, dtype=torch.float64).view(inputs.ids.shape[1], -1) for logits in found)
    return program, model


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected[0].double(), rtol=0, atol=1e-4)


@torch.no_grad()
def test_a_line_from_another_input(subject):
    opened, program, transformer = subject
    mechanism = Mechanism.of(program)
    changed = 0
    for number, pairs in enumerate(pairs_of(transformer)[:4]):
        # Each pair with some of the lines, so that all have their turn.
        lines = mechanism.lines[number % 3 :: 3]
        model = SwappedModel(transformer, pairs, {line: model_swap(mechanism, line) for line in lines})
        own = SwappedProgram(program, pairs, {line: ProgramSwap(mechanism.groups[line]) for line in lines})
        ids, offset = placed(pairs.source)
        for line in lines:
            source = {"ids": ids, "offset": offset}
            of_program, of_model = intervene(opened, pairs.base, **{"from": [line], "source": source})
            close(of_program, own.after(line))
            close(of_model, model.after(line))
            changed += bool((of_model - model.before[0]).abs().max() > 0.01)
    assert changed > 3


@torch.no_grad()
def test_parts_switched_off_stay_at_their_means(subject):
    opened, program, transformer = subject
    pool = draw_examples(program, ANSWERS, in_float(transformer)).pool
    assert pool is not None
    real = torch.arange(pool.ids.shape[1]) < pool.sizes[:, None]
    everything = Sequences(pool.ids, pool.positions)
    mechanism, base = Mechanism.of(program), pairs_of(transformer)[0].base
    for component in (c for c in transformer.anatomy.senders if c.kind in ("head", "mlp")):
        mean = run(transformer, everything, record=[component]).values[component][real].mean(0)
        in_model: dict[Site, Edit] = {component: Replaced(mean)}
        lines = [s.name for s in program.statements if s.kind in ("aggregate", "element_wise_op")]
        lines = [name for name in lines if set(mechanism.components(name)) == {component}]
        values = run(program, everything, record=lines).values
        in_program: dict[str, Edit] = {name: Replaced(values[name][real].mean(0)) for name in lines}
        of_program, of_model = intervene(opened, base, off=[str(component)])
        close(of_program, run(program, base, in_program).logits)
        close(of_model, run(transformer, base, in_model).logits)


@torch.no_grad()
def test_a_lines_attention_in_the_place_of_its_heads(subject):
    opened, program, transformer = subject
    base = pairs_of(transformer)[1].base
    # An exact program looks where the heads do; the split one, whose norms are constants, does not.
    line = next(s for s in program.statements if isinstance(s, Aggregate))
    heads = [site for site in line.sites if isinstance(site, Component)]
    weights = Interpreter.of(program, torch.float64).run(base, record=[pattern_of(line.name)]).values
    edits: dict[Site, Edit] = {Pattern(head): Replaced(weights[pattern_of(line.name)]) for head in heads}
    of_program, of_model = intervene(opened, base, patterns=[line.name])
    close(of_program, run(program, base).logits)
    close(of_model, run(transformer, base, edits).logits)


def test_the_models_own_attention_is_shown_beside_a_lines(subject):
    opened, program, transformer = subject
    line = next(s for s in program.statements if isinstance(s, Aggregate))
    [head, *_] = [site for site in line.sites if isinstance(site, Component)]
    ids, offset, values = opened.page.evaluate(SHOWN, line.name)
    inputs = Sequences(torch.tensor([ids]), torch.arange(offset, offset + len(ids))[None])
    pattern = run(transformer, inputs, record=[Pattern(head)]).values[Pattern(head)]
    np.testing.assert_allclose(values, pattern.flatten(), atol=1e-4)
