"""The paper's graphs: each level answers as the one before, as the model with its edges cut, and as its program."""

from dataclasses import replace

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drasp.decompiler.components import Components
from drasp.decompiler.ugs.circuit import as_paths, as_products, whole, without
from drasp.decompiler.ugs.gates import Gates
from drasp.decompiler.ugs.method import graph_of
from drasp.decompiler.ugs.running import answers_of, mean_log_variances, means_of
from drasp.decompiler.ugs.writing import finest, program_of
from drasp.fitting.oracle import answering
from drasp.rewriting.simplify import simplify
from drasp.sites import TOKEN
from small_graphs import TASK, difference, oracle, random_transformer

small_models = st.tuples(st.integers(0, 2**32), st.integers(1, 2), st.integers(1, 2))


def linear(model, pool):
    """All of a model, with norms that are numbers."""
    real = whole(model, None)
    return replace(real, log_variances=mean_log_variances(real, pool))


def thinned(circuit, pool, seed, share=0.6):
    """Without a random part of its gates, with means in their place."""
    generator = torch.Generator().manual_seed(seed)
    means = means_of(circuit, [g.sender for g in circuit.gates] if circuit.level != "products" else [], pool)
    chance = torch.rand(len(circuit.gates), generator=generator)
    return without(circuit, [g for g, x in zip(circuit.gates, chance, strict=True) if x > share], means)


def unfolded(circuit, pool, split=False):
    return as_paths(circuit, split, lambda c, ways: means_of(c, ways, pool))


def largest(circuit, pool):
    with torch.no_grad():
        return max(1.0, max(float(answers_of(circuit)(b).abs().max()) for b in pool.batches))


def test_the_whole_circuit_is_the_model():
    model = random_transformer(3, 2, 2)
    pool = oracle(model)
    assert difference(answers_of(whole(model, None)), lambda b: b.logits, pool) <= 1e-4


@settings(max_examples=8, deadline=None)
@given(small_models, st.integers(0, 2**32))
def test_a_circuit_of_components_is_the_model_with_its_edges_cut(model, seed):
    transformer = random_transformer(*model)
    pool = oracle(transformer)
    circuit = thinned(linear(transformer, pool), pool, seed)
    graph, components = graph_of(circuit), Components(transformer)
    scale = largest(circuit, pool)
    assert difference(answers_of(circuit), lambda b: components.logits(graph, b), pool) <= 1e-4 * scale


@settings(max_examples=8, deadline=None)
@example((0, 2, 1), 2)
@given(small_models, st.integers(0, 2**32))
def test_finer_circuits_and_their_programs_answer_alike(model, seed):
    """Also where MLPs and heads have lost all their inputs, at each level."""
    transformer = random_transformer(*model)
    pool = oracle(transformer)
    coarse = thinned(linear(transformer, pool), pool, seed)
    scale = largest(coarse, pool)
    paths = unfolded(coarse, pool)
    assert difference(answers_of(coarse), answers_of(paths), pool) <= 1e-4 * scale
    paths = thinned(paths, pool, seed + 1)
    products = as_products(paths)
    scale = largest(paths, pool)
    assert difference(answers_of(paths), answers_of(products), pool) <= 1e-4 * scale
    products = thinned(products, pool, seed + 2)
    program = program_of(products, TASK.vocabulary, TASK.output)
    scale = largest(products, pool)
    assert difference(answers_of(products), answering(program), pool) <= 1e-4 * scale
    assert difference(answers_of(products), answering(simplify(program)), pool) <= 1e-4 * scale


@settings(max_examples=8, deadline=None)
@given(small_models, st.integers(0, 2**32))
def test_a_circuit_with_split_mlps_is_its_program(model, seed):
    transformer = random_transformer(*model)
    pool = oracle(transformer)
    paths = thinned(unfolded(thinned(linear(transformer, pool), pool, seed), pool, split=True), pool, seed + 1, 0.8)
    products = thinned(as_products(paths), pool, seed + 2, 0.8)
    program = simplify(program_of(products, TASK.vocabulary, TASK.output))
    scale = largest(products, pool)
    assert difference(answers_of(products), answering(program), pool) <= 1e-4 * scale


def test_a_split_mlp_of_one_way_is_the_models():
    """Where it hears one thing alone, its only part says the same; of several, all others at their means."""
    transformer = random_transformer(5, 1, 1)
    pool = oracle(transformer)
    circuit = linear(transformer, pool)
    alone = [e for e in circuit.edges if e.receiver.kind == "mlp" and e.sender != TOKEN]
    circuit = without(circuit, alone, means_of(circuit, [e.sender for e in alone], pool))
    assert difference(answers_of(circuit), answers_of(unfolded(circuit, pool, split=True)), pool) <= 1e-4


@settings(max_examples=5, deadline=None)
@given(small_models, st.integers(0, 2**32))
def test_a_pruned_circuit_answers_as_its_gates_do(model, seed):
    """Under masks of 0 and 1, at each level; and with no gate closed, as before."""
    transformer = random_transformer(*model)
    pool = oracle(transformer)
    circuit = linear(transformer, pool)
    for finer in (lambda c: unfolded(c, pool, split=bool(seed % 2)), as_products, None):
        gates = Gates(circuit, pool)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            gates.theta.copy_(torch.randn(len(gates.theta), generator=generator) + 0.5)
        for kept in (torch.ones(len(gates.theta)), (gates.theta > 0).float()):

            @torch.no_grad()
            def gated(batch, kept=kept):
                return gates.answers(batch, kept.expand(3 * len(batch.inputs), -1))[:, 2]  # noqa: B023

            with torch.no_grad():
                gates.theta.copy_(kept - 0.5)
            pruned = gates.pruned()
            scale = largest(pruned, pool)
            assert difference(gated, answers_of(pruned), pool) <= 1e-4 * scale
        circuit = finer(pruned) if finer else circuit


def test_a_circuit_that_hears_nothing_has_a_program_of_its_bias():
    transformer = random_transformer(1, 1, 1)
    pool = oracle(transformer)
    circuit = linear(transformer, pool)
    nothing = without(circuit, circuit.edges, means_of(circuit, [e.sender for e in circuit.edges], pool))
    program = simplify(program_of(finest(nothing), TASK.vocabulary, TASK.output))
    assert (nothing.size, program.lines) == (0, 2)
    assert difference(answers_of(nothing), answering(program), pool) <= 1e-4
