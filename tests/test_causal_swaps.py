"""What lines stand for, and lines from a source: in exact programs the same as in the model, to the last digit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from causal_models import ANSWERS, SETS, lively, lively_gpt2, trials_of
from drasp.causal import Amount, EvidenceEffort, Mechanism, evaluate
from drasp.causal.origins import origin_of
from drasp.causal.program_swaps import ProgramSwap, SwappedProgram, program_swap
from drasp.causal.swaps import SwappedModel, known_swaps, model_swap
from drasp.causal.trials import at_once
from drasp.decompiler.components import Components, Means
from drasp.edits import Replaced
from drasp.errors import DraspError
from drasp.language import Interpreter, parse
from drasp.language.syntax import Aggregate, ElementWise, Project, Select
from drasp.model_files import load_model
from drasp.rewriting.simplify import simplify
from drasp.sites import Anatomy, Component, Receiver
from drasp.transformer import Shape, assemble, initial_weights
from drasp.translation import translate
from drasp.wiring import write_program
from effort import examples
from swapping import hooked_swap, naive_swap, split_program

SIZES = st.tuples(st.integers(0, 2**20), st.integers(1, 2), st.integers(1, 2))
HEADER = "vocab = [a, b, BOS]\nspecial = [BOS]\npositions = 8\n"
SHAPES = {"A": (3, 3), "B": (1, 3), "C": (8, 3), "R": (3, 3), "S": (3, 3), "D": (1, 3), "E": (2, 3), "Q": (3, 8)}
SHAPES |= {"F.0": (3, 2), "F.1": (3, 2), "F.hidden": (2, 4), "F.hidden_bias": (4,), "F.out": (4, 2), "F.out_bias": (2,)}


def mechanism(text: str) -> Mechanism:
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    return Mechanism.of(parse(HEADER + text, tensors))


def in_model(of: Mechanism, line: str) -> list[str]:
    swap = model_swap(of, line)
    through = [
        f"{t.mlp} of {', '.join(map(str, t.inputs))} to {', '.join(map(str, t.receivers))}" for t in swap.through
    ]
    return [*map(str, swap.sites), *through]


TWO_HEADS = """s1 = select(q=token, k=pos, op=Q)  # layer 0 head 0
a1 = aggregate(s=s1, v=token)  # layer 0 head 0
s2 = select(q=a1, k=token, op=A)  # layer 1 head 1
a2 = aggregate(s=s2, v=a1)  # layer 1 head 1
a3 = aggregate(s=s2, v=token)  # layer 1 head 1
logits1 = project(inp=a2, op=R)  # layer 1 head 1 -> out
logits2 = project(inp=a3, op=S)  # layer 1 head 1 -> out
prediction = softmax(logits1+logits2)  # out
"""


def test_a_path_through_two_heads_and_a_head_with_two_lines():
    found = mechanism(TWO_HEADS)
    assert [str(s) for s in found.senders["a2"]] == ["token > layer 0 head 0 > layer 1 head 1"]
    assert in_model(found, "a1") == ["layer 0 head 0"]  # which it alone carries
    assert in_model(found, "a2") == ["token > layer 0 head 0 > layer 1 head 1 -> out"]
    assert in_model(found, "logits2") == ["token > layer 1 head 1 -> out"]
    # Key-only selects that have no line are in the select of the same key whose query adds up to one.
    assert in_model(found, "s2") == [
        "token > layer 0 head 0 * token -> layer 1 head 1 pattern",
        "one * token -> layer 1 head 1 pattern",
    ]


def test_merged_heads_go_together():
    found = mechanism(
        "a1 = aggregate(s=[], v=token)  # layer 0 head 0, layer 0 head 1\n"
        "logits1 = project(inp=a1, op=R)  # layer 0 head 0 -> out, layer 0 head 1 -> out\n"
        "prediction = softmax(logits1)  # out"
    )
    assert in_model(found, "a1") == ["layer 0 head 0", "layer 0 head 1"]
    assert in_model(found, "logits1") == ["layer 0 head 0 -> out", "layer 0 head 1 -> out"]


def test_a_table_is_heard_by_way_of_what_it_is_folded_into():
    found = mechanism(
        "s1 = select(q=token, k=token, op=A)  # layer 1 head 0, layer 0 mlp -> layer 1 head 0 query, "
        "token -> layer 0 mlp input\n"
        "a1 = aggregate(s=s1, v=token)  # layer 1 head 0\n"
        "logits1 = project(inp=a1, op=R)  # layer 1 head 0 -> out\n"
        "logits2 = project(inp=token, op=S)  # layer 0 mlp -> out, token -> layer 0 mlp input\n"
        "prediction = softmax(logits1+logits2)  # out"
    )
    assert "layer 0 mlp * token -> layer 1 head 0 pattern" in in_model(found, "s1")
    assert in_model(found, "logits2") == ["layer 0 mlp -> out"]
    assert found.edges[Receiver(1, "query")] == {Component("mlp", 0)}


def test_parts_of_a_split_mlp_are_the_mlp_with_a_part_of_its_input():
    found = mechanism(
        "a1 = aggregate(s=[], v=token)  # layer 0 head 0\n"
        "m1 = element_wise_op(a1, func=mlp(F, gelu))  # layer 0 mlp\n"
        "logits1 = project(inp=m1, op=E)  # layer 0 mlp -> out\n"
        "logits2 = project(inp=token, op=S)  # layer 0 mlp -> out, token -> layer 0 mlp input, token -> out\n"
        "prediction = softmax(logits1+logits2)  # out"
    )
    assert in_model(found, "m1") == ["layer 0 mlp of token > layer 0 head 0 to out"]
    assert in_model(found, "logits1") == ["layer 0 mlp of token > layer 0 head 0 to out"]
    assert in_model(found, "logits2") == ["token -> out", "layer 0 mlp of token to out"]


def test_a_program_of_another_model_is_refused_by_the_line():
    with pytest.raises(DraspError, match=r"line a1: the model has no layer 0 head 1; expected the model that the"):
        mechanism(
            "a1 = aggregate(s=[], v=token)  # layer 0 head 1\n"
            "logits1 = project(inp=a1, op=R)  # layer 0 head 1 -> out\n"
            "prediction = softmax(logits1)  # out"
        ).check(Anatomy(1, 1))


# ---------------------------------------------------------------------------------- against the model, exactly


def largest_difference(program, transformer, trials, lines) -> float:
    """Of the logits of program and model, over all lines taken from the sources."""
    found, worst = Mechanism.of(program), 0.0
    for pairs in trials.batches:
        model = SwappedModel(transformer, pairs, {line: model_swap(found, line) for line in lines})
        own = SwappedProgram(program, pairs, {line: ProgramSwap(found.groups[line]) for line in lines})
        worst = max(worst, *(float((own.after(line) - model.after(line)).abs().max()) for line in lines))
    return worst


@pytest.mark.parametrize("task", [ANSWERS, SETS], ids=["answers", "sets"])
@pytest.mark.parametrize("simplified", [False, True])
def test_a_line_of_an_exact_program_is_the_same_in_the_model(task, simplified):
    @examples(30)
    @given(SIZES)
    def check(size):
        seed, layers, heads = size
        heads = 1 if simplified and layers > 1 else heads  # there are hundreds of lines to simplify otherwise
        transformer = lively(seed, layers, heads, task)
        program = translate(transformer, task.vocabulary, task.output)
        program = simplify(program) if simplified else program
        lines = Mechanism.of(program).lines
        chosen = np.random.default_rng(seed).choice(len(lines), min(len(lines), 8), replace=False)
        # The interpreter's single precision is what is left.
        assert largest_difference(program, transformer, trials_of(transformer, task), [lines[i] for i in chosen]) < 1e-2

    check()


@examples(30)
@given(SIZES, st.integers(0, 2**20))
def test_lines_of_a_pruned_graph_are_those_of_the_model_cut_down(size, which):
    """The model with the graph's edits is another model; its program stands for the same in it."""
    seed, layers, heads = size
    transformer = lively(seed, layers, heads)
    components = Components(transformer)
    rng = np.random.default_rng(which)
    edges = [edge for edge in components.anatomy.edges if rng.random() < 0.4]
    means: Means = {
        sender: torch.zeros(transformer.d_model, dtype=torch.float64) for sender in components.anatomy.senders
    }
    graph = components.whole().cut(edges, means)
    program = simplify(write_program(transformer, graph.edits, ANSWERS.vocabulary, ANSWERS.output))
    trials = trials_of(transformer)
    found = Mechanism.of(program)
    found.check(transformer.anatomy)
    for pairs in trials.batches:
        for line in found.lines[:8]:
            own = SwappedProgram(program, pairs, {line: ProgramSwap(found.groups[line])}).after(line)
            same = SwappedProgram(program, pairs, {line: program_swap(found, line, Mechanism(program))}).after(line)
            torch.testing.assert_close(own, same, rtol=1e-4, atol=1e-4)


# -------------------------------------------------------------------------------------- against brute force


@examples(20)
@given(SIZES)
def test_a_swap_in_the_model_is_what_hooks_do(size):
    seed, layers, heads = size
    model = lively_gpt2(seed, layers, heads)
    transformer = load_model(model)
    program = translate(transformer, ANSWERS.vocabulary, ANSWERS.output)
    found = Mechanism.of(program)
    # What `one` carries beyond the first layer is a sum of sites, which the exact programs above have tested.
    lines = [line for line in found.lines if "one" not in found.stands_for(line)]
    lines = [lines[i] for i in np.random.default_rng(seed).choice(len(lines), min(len(lines), 10), replace=False)]
    [pairs, *_] = trials_of(transformer, seed=seed).batches
    swapped = SwappedModel(transformer, pairs, {line: model_swap(found, line) for line in lines})
    for line in lines:
        expected = hooked_swap(model, pairs, model_swap(found, line))
        torch.testing.assert_close(swapped.after(line), expected, rtol=1e-6, atol=1e-6)


def test_a_swap_in_a_program_is_what_the_definition_says():
    transformer = lively(3, 1, 2)
    program = simplify(translate(transformer, ANSWERS.vocabulary, ANSWERS.output))
    found = Mechanism.of(program)
    # A project over a norm takes its input along into the norm, which the exact programs above have tested.
    lines = [line for line in found.lines if not isinstance(program.find(line), Project)]
    [pairs, *_] = trials_of(transformer).batches
    own = SwappedProgram(program, pairs, {line: ProgramSwap(found.groups[line]) for line in lines})
    for line in lines[::3]:
        for row in range(2):
            expected = naive_swap(program, pairs, row, found.groups[line])[pairs.where[row].numpy()]
            valid = pairs.valid[row].numpy()
            np.testing.assert_allclose(own.after(line)[row].numpy()[valid], expected[valid], rtol=1e-3, atol=1e-3)


# ----------------------------------------------------------------------------------------- programs of one model


@pytest.mark.parametrize("seed", range(3))
def test_a_part_of_a_split_mlp_is_in_the_whole_program_the_mlp_with_a_part_of_its_inputs(seed):
    transformer, program, parts, mlp = split_program(seed)
    whole, found = Mechanism.of(program), Mechanism.of(parts)
    functions = [s for s in parts.statements if isinstance(s, ElementWise)]
    assert functions
    [pairs, *_] = trials_of(transformer).batches
    for part in functions:
        swap = program_swap(found, part.name, whole)
        assert not swap.lines
        [one] = swap.partial
        assert one.line == mlp.name
        heard = {h.sender for h in found.heard[part.name] if h.receiver.kind == "mlp"}
        meant = {h.sender for i in one.inputs for h in whole.heard[mlp.name] if h.operand == mlp.inputs[i]}
        assert meant == {sender for sender in heard if str(sender) != "one"}
        # By hand: the MLP's own function of inputs from both sides.
        interpreter = Interpreter.of(program)
        sides = [interpreter.values(side.ids, side.positions, mlp.inputs) for side in (pairs.base, pairs.source)]
        mixed = [sides[i in one.inputs][i] for i in range(len(mlp.inputs))]
        value = interpreter.apply(mlp.function, [x.flatten(0, 1) for x in mixed]).unflatten(0, mixed[0].shape[:2])
        base = type(pairs.base)(pairs.base.ids, pairs.base.positions)
        expected = pairs.at_counted(interpreter.run(base, {mlp.name: Replaced(value)}).logits)
        own = SwappedProgram(program, pairs, {part.name: swap}).after(part.name)
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-4)


def test_what_was_replaced_is_known_by_its_numbers():
    transformer = lively(0, 1, 1)
    program = simplify(translate(transformer, ANSWERS.vocabulary, ANSWERS.output))
    assert {origin_of(program, line, program) for line in Mechanism.of(program).lines} == {"own"}
    [select, *_] = [s for s in program.statements if isinstance(s, Select)]
    other = program.with_tensors({name: program.tensors[name] + 1e-3 for name in select.tensor_names})
    assert origin_of(other, select.name, program) == "approximated"
    assert {origin_of(other, s.name, program) for s in other.readers(select.name)} == {"approximated"}
    _, whole, parts, _ = split_program(0)
    assert {origin_of(parts, s.name, whole) for s in parts.statements if isinstance(s, ElementWise)} == {"approximated"}
    # An aggregate without its selects looks elsewhere, though none of its lines has other numbers.
    [aggregate, *_] = [s for s in program.statements if isinstance(s, Aggregate)]
    uniform = [replace(s, selectors=()) if s is aggregate else s for s in program.statements]
    assert origin_of(replace(program, statements=tuple(uniform)), aggregate.name, program) == "approximated"
    assert {origin_of(program, line, None) for line in Mechanism.of(program).lines} == {"unknown"}


def test_a_project_over_a_norm_that_stands_before_what_it_reads():
    """The norm does not hear a1, so that a1 from the source is the same for the project and for its input."""
    tokens, generator = ANSWERS.vocabulary.tokens, torch.Generator().manual_seed(0)
    count = len(tokens)
    text = f"vocab = [{', '.join(tokens)}]\nspecial = [BOS, SEP, EOS, PAD]\npositions = 40\n"
    text += "n1 = norm(token, one, op=N, eps=0.1)\na1 = aggregate(s=[], v=token)  # layer 0 head 0\n"
    text += "logits1 = project(inp=a1/n1, op=R)  # layer 0 head 0 -> out\nprediction = softmax(logits1)  # out\n"
    shapes = {"N.0": (count, 4), "N.1": (1, 4), "R": (count, count)}
    program = parse(text, {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()})
    for pairs in trials_of(lively(3, 1, 2)).batches:
        swaps = {line: ProgramSwap((line,)) for line in ("a1", "logits1")}
        own = SwappedProgram(program, pairs, swaps)
        assert not torch.equal(own.after("logits1"), own.before)
        torch.testing.assert_close(own.after("logits1"), own.after("a1"))


# ------------------------------------------------------------------------------------------ many tokens


def test_what_swaps_make_of_wide_logits_is_not_kept_and_the_same(monkeypatch):
    transformer = lively(1, 2, 1)
    program = simplify(translate(transformer, ANSWERS.vocabulary, ANSWERS.output))
    effort = EvidenceEffort(20, Amount(6, 4), Amount(0, 0))
    kept = evaluate(program, transformer, ANSWERS, program, effort)
    monkeypatch.setattr("drasp.causal.trials._MOST_KEPT", 0)
    trials = trials_of(transformer)
    assert known_swaps(transformer, trials, 0) is not known_swaps(transformer, trials, 0)
    again = replace(program, tensors=dict(program.tensors))  # which nothing is known of
    assert evaluate(again, transformer, ANSWERS, again, effort) == kept


@pytest.mark.parametrize(("n_vocab", "tokens"), [(2, 8192), (1000, 8192), (2000, 4096), (5000, 1638)])
def test_batches_are_smaller_where_logits_are_wide(n_vocab, tokens):
    shape = Shape(n_vocab, n_positions=4, d_model=2, n_layers=1, n_heads=1, d_hidden=2)
    assert at_once(8192, assemble(shape, initial_weights(shape, seed=0))) == tokens
