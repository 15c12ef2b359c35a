"""What lines stand for, and lines from a source: in exact programs the same as in the model, to the last digit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import naive
from causal_models import ANSWERS, SETS, lively, lively_gpt2, trials_of
from drasp.causal import Mechanism
from drasp.causal.swaps import ProgramSwap, SwappedModel, SwappedProgram, model_swap, origin_of, program_swap
from drasp.decompiler.components import Components
from drasp.edits import Replaced, Scaled
from drasp.errors import DraspError
from drasp.fitting.oracle import Oracle
from drasp.language import Interpreter, parse
from drasp.language.syntax import Aggregate, ElementWise, Project, Select
from drasp.model_files import load_model
from drasp.naming.splitting import split
from drasp.rewriting.simplify import simplify
from drasp.sites import Anatomy, Component, Edge, NormSite, Path, Product, Receiver
from drasp.translation import translate
from drasp.wiring import write_program
from effort import examples
from hooked_model import HookedModel

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
    means = {sender: torch.zeros(transformer.d_model, dtype=torch.float64) for sender in components.anatomy.senders}
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


def hooked_swap(model, pairs, swap) -> torch.Tensor:
    """The model with hooks: what the source's run says at the sites of a swap, put into the base's."""

    def values(sites, side, edits=None):
        hooked = HookedModel(model, {**(edits or {}), **{s: Scaled(1.0) for s in sites}})
        hooked.logits(side.ids, side.positions)
        return hooked

    def of_site(hooked, site):
        match site:
            case Edge(Path() as path):
                return hooked.along(path)
            case NormSite(Receiver(layer, "attention")):
                return hooked.values[NormSite(Receiver(layer, "query"))]
            case Product():
                block = model.transformer.h[site.head.layer]
                read = [hooked.values[r] for r in site.head.receivers[:2]]
                sides = []
                for receiver, x in zip(site.head.receivers[:2], read, strict=True):
                    normed = (x - x.mean(-1, keepdim=True)) / hooked.roots[receiver] * block.ln_1.weight
                    sides.append(block.attn.c_attn(normed + block.ln_1.bias)[..., hooked.columns(receiver)])
                return hooked.product(site, block, *sides)
            case _:
                return hooked.values[site]

    source = values(swap.sites, pairs.source)
    edits = {site: Replaced(of_site(source, site)) for site in swap.sites}
    for through in swap.through:
        [receiver] = through.mlp.receivers
        inner = [Edge(sender, receiver) for sender in through.inputs]
        whole = values(inner, pairs.source)
        mixed = values([], pairs.base, {edge: Replaced(of_site(whole, edge)) for edge in inner})
        edits |= {Edge(through.mlp, r): Replaced(mixed.values[through.mlp]) for r in through.receivers}
    logits = HookedModel(model, edits).logits(pairs.base.ids, pairs.base.positions)
    return pairs.at_counted(logits)


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


def naive_swap(program, pairs, row: int, lines) -> np.ndarray:
    """A program's logits on one base, with lines as they are on its source, by the definition."""
    size = int(pairs.sizes[row])
    base, source = ((side.ids[row, :size].tolist(), int(side.positions[row, 0])) for side in (pairs.base, pairs.source))
    theirs = naive.run(program, *source)
    edits = {line: naive.Replacement(0.0, theirs[line]) for line in lines}
    return naive.run(program, *base, edits)["logits"]


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


def split_program(seed: int):
    """A program with an MLP of several variables, and the same with the MLP split."""
    transformer = load_model(lively_gpt2(seed, 1, 1).float())  # the passes' precision
    components = Components(transformer)
    graph = components.whole()
    graph = type(graph)(graph.anatomy, graph.kept, graph.constants, dict.fromkeys(graph.live_receivers(), 1.7))
    program = simplify(write_program(transformer, graph.edits, ANSWERS.vocabulary, ANSWERS.output))
    oracle = Oracle.draw(transformer, ANSWERS, 20, np.random.default_rng(0), batch_size=10)
    [mlp] = [s for s in program.statements if isinstance(s, ElementWise)]
    parts = split(program, mlp.name, oracle)
    assert parts is not None
    return transformer, program, simplify(parts), mlp


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
    other = program.with_tensors({select.op.name: program.tensors[select.op.name] + 1e-3})
    assert origin_of(other, select.name, program) == "approximated"
    assert {origin_of(other, s.name, program) for s in other.readers(select.name)} == {"approximated"}
    _, whole, parts, _ = split_program(0)
    assert {origin_of(parts, s.name, whole) for s in parts.statements if isinstance(s, ElementWise)} == {"approximated"}
    # An aggregate without its selects looks elsewhere, though none of its lines has other numbers.
    [aggregate, *_] = [s for s in program.statements if isinstance(s, Aggregate)]
    uniform = [replace(s, selectors=()) if s is aggregate else s for s in program.statements]
    assert origin_of(replace(program, statements=tuple(uniform)), aggregate.name, program) == "approximated"
    assert {origin_of(program, line, None) for line in Mechanism.of(program).lines} == {"unknown"}
