"""Pruning by gates: its parts on random models and made-up numbers, the whole on a model with one edge."""

from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from command import fails
from drasp.decompiler.checkpoint import State
from drasp.decompiler.components import Components, Graph
from drasp.decompiler.gates import EdgeGates, GatedModel, Learnt, sample_masks
from drasp.decompiler.pipeline import decompile
from drasp.decompiler.program_gates import ProgramGates, path_gates, product_gates
from drasp.decompiler.search import Search
from drasp.decompiler.ugs import Run, Stages, UgsSettings, next_coefficient, prune_by_gates, representative
from drasp.errors import DraspError
from drasp.fitting.oracle import answering
from drasp.rewriting.tidy import without_unused
from drasp.sites import OUT, TOKEN, Edge
from drasp.wiring import write_program
from test_decompiler_passes import TASK, difference, only_token_to_output, oracle, random_graph, random_transformer

SMALL = UgsSettings(
    runs=(1, 1, 1), continued=1, patience=(100, 100, 100), steps=220, inputs=5, masks=6, batches=20, coefficient=0.03
)
small_models = st.tuples(st.integers(0, 2**32), st.integers(1, 2), st.integers(1, 2))


def test_masks_keep_as_many_rows_as_the_gate_says():
    theta = torch.tensor([-8.0, -1.0, 0.0, 1.0, 8.0])
    masks = sample_masks(theta, 20_000, torch.Generator().manual_seed(0))
    assert masks.mean(0) == pytest.approx(theta.sigmoid(), abs=0.02)
    between = ((masks > 0) & (masks < 1)).float().mean(0)
    assert between == pytest.approx(theta.sigmoid() * (1 - theta.sigmoid()), abs=0.02)


def test_gates_have_a_gradient_only_from_rows_between():
    theta = torch.tensor([-50.0, 0.0, 50.0], requires_grad=True)
    masks = sample_masks(theta, 120, torch.Generator().manual_seed(0))
    slopes = torch.randn(120, 3, generator=torch.Generator().manual_seed(1))
    (masks * slopes).mean(0).sum().backward()
    between = (masks[:, 1] > 0) & (masks[:, 1] < 1)
    assert theta.grad is not None
    assert theta.grad.tolist() == pytest.approx([0, float(slopes[between, 1].mean()), 0], abs=1e-6)


def learnt(components: Components, means) -> Learnt:
    anatomy = components.anatomy
    whole = components.whole()
    return Learnt(
        ablations=torch.stack([means[sender] for sender in anatomy.senders]),
        constants=torch.stack([whole.constants[receiver] for receiver in anatomy.receivers]),
    )


@settings(max_examples=8, deadline=None)
@given(small_models, st.integers(0, 2**32))
def test_masks_of_0_and_1_are_the_cut_graph(model, seed):
    components = Components(random_transformer(*model))
    pool = oracle(components.transformer)
    means = components.means(pool)
    graph = replace(random_graph(components, means, seed), norms={})
    gated, edges = GatedModel(components, components.anatomy.edges), components.anatomy.edges
    parameters = learnt(components, means)

    def masked(kept):
        row = torch.tensor([float(edge in kept) for edge in edges])
        return lambda batch: gated.logits(parameters, row.expand(len(batch.inputs), -1), batch)

    assert difference(masked(frozenset(edges)), lambda b: b.logits, pool) <= 1e-4
    assert difference(masked(graph.kept), lambda b: components.logits(graph, b), pool) <= 1e-4


@settings(max_examples=5, deadline=None)
@example((0, 2, 1), 2)  # an MLP that has lost all its inputs, and is still heard
@given(small_models, st.integers(0, 2**32))
def test_a_pruned_graph_answers_as_its_gates_do(model, seed):
    """With edges from components that have lost all their inputs, and norms that are numbers."""
    components = Components(random_transformer(*model))
    pool = oracle(components.transformer)
    gates = EdgeGates(components, pool)
    with torch.no_grad():
        gates.theta.copy_(torch.randn(len(gates.theta), generator=torch.Generator().manual_seed(seed)))
    masks = (gates.theta > 0).float()
    graph = gates.pruned()
    program = write_program(components.transformer, graph.edits, TASK.vocabulary, TASK.output)

    @torch.no_grad()
    def gated(batch):
        return gates.model.logits(gates.learnt, masks.expand(len(batch.inputs), -1), batch)

    scale = max(1.0, max(float(gated(b).abs().max()) for b in pool.batches))
    assert difference(gated, lambda b: components.logits(graph, b), pool) <= 1e-4 * scale
    assert difference(gated, answering(program), pool) <= 1e-4 * scale


def test_ablations_learn_only_from_rows_where_the_gate_is_0():
    components = Components(random_transformer(0, 1, 1))
    pool = oracle(components.transformer)
    edges = components.anatomy.edges
    batch = pool.batches[0]
    for mask, learns in ((1.0, False), (0.5, False), (0.0, True)):
        parameters = learnt(components, components.means(pool))
        parameters.ablations.requires_grad_()
        masks = torch.full((len(batch.inputs), len(edges)), mask)
        GatedModel(components, edges).logits(parameters, masks, batch).square().sum().backward()
        assert parameters.ablations.grad is not None
        assert bool(parameters.ablations.grad.abs().max() > 1e-6) == learns


@settings(max_examples=5, deadline=None)
@given(small_models, st.integers(0, 2**32))
def test_a_pruned_program_answers_as_its_gates_do(model, seed):
    transformer = random_transformer(*model)
    components, pool = Components(transformer), oracle(transformer)
    edges = EdgeGates(components, pool)
    with torch.no_grad():
        edges.theta.copy_(torch.randn(len(edges.theta), generator=torch.Generator().manual_seed(seed)))
    program = write_program(transformer, edges.pruned().edits, TASK.vocabulary, TASK.output)
    program = without_unused(program)
    for gates_of in (path_gates, product_gates):
        gates = ProgramGates(program, gates_of(program), pool)
        with torch.no_grad():
            gates.theta.copy_(torch.randn(len(gates.theta), generator=torch.Generator().manual_seed(seed)))
        pruned, masked = gates.pruned(), gates.masked((gates.theta > 0).float())
        assert pruned.lines <= program.lines
        with torch.no_grad():
            scale = max(1.0, max(float(answering(masked)(b).abs().max()) for b in pool.batches))
        assert difference(answering(masked), answering(pruned), pool) <= 1e-4 * scale
        program = pruned


@pytest.fixture(scope="module")
def token_search() -> tuple[Search, Graph]:
    """A finished search, and the graph that it found."""
    search = Search(only_token_to_output(), TASK, 3, lambda _: None)
    return search, prune_by_gates(search, SMALL)


def test_stage_1_finds_the_one_edge_of_a_model_of_the_token_alone(token_search):
    search, graph = token_search
    assert graph.kept == {Edge(TOKEN, OUT)}
    passes = search.progress.passes
    assert [p.match_accuracy for p in passes if p.name.startswith("gates on edges")] == pytest.approx([1.0], abs=0.05)


def test_a_run_whose_loss_stays_too_high_is_given_up():
    search = Search(only_token_to_output(), TASK, 0, lambda _: None)
    stages = Stages(search, replace(SMALL, coefficient=1e4, patience=(200, 200, 200), steps=300))
    stages.unigram_loss *= 0.5  # all gates close at once, and the loss is then that of knowing nothing
    [run] = stages.edges()
    assert (run.result, run.match) == (None, 0.0)


@pytest.mark.parametrize(
    ("tried", "expected"),
    [
        ([(0.5, 0.01)], 0.002),  # only lower agreement is known: a factor of five down
        ([(1.0, 0.01)], 0.05),  # only higher: up
        ([(1.0, 0.01), (0.3, 0.09)], 0.03),  # both: the geometric mean
        ([(1.0, 0.01), (1.0, 0.04), (0.3, 0.09)], 0.06),  # of the nearest
        ([(0.95 - i / 10, 0.01 * 2**i) for i in range(10)], None),  # every interval holds a run
    ],
)
def test_the_next_coefficient_is_the_papers(tried, expected):
    assert next_coefficient(tried, (0.0, 1.0)) == (expected and pytest.approx(expected))


def test_an_agreement_out_of_reach_is_given_up():
    """No coefficient leads to the top interval; the search goes on with those below."""
    tried = [(0.55, 0.01 / 5**i) for i in range(5)]
    assert next_coefficient(tried, (0.0, 1.0)) == pytest.approx(0.05)
    assert next_coefficient([(1.0, 0.01)], (1.0, 1.0)) is None


def test_representative_runs_are_those_that_none_beats():
    runs = [Run(0.1, 0.5, 2, "a"), Run(0.1, 0.4, 3, "worse"), Run(0.1, 0.8, 4, "b"), Run(0.1, 0.9, 9, "c"), Run(0.1)]
    assert [run.result for run in representative(runs, 4)] == ["a", "b", "c"]
    assert [run.result for run in representative(runs, 2)] == ["c", "a"]
    assert [run.result for run in representative(runs, 1)] == ["c"]


def test_the_same_seed_gives_the_same_result(token_search):
    search, _ = token_search
    result = decompile(only_token_to_output(), TASK, seed=3, method="ugs", ugs=SMALL)
    pruned = [(p.name, p.left, p.match_accuracy) for p in search.progress.passes]
    assert [(p.name, p.left, p.match_accuracy) for p in result.passes][: len(pruned)] == pruned
    assert result.record("model").method == "ugs"
    assert result.final.match.value >= 0.95
    assert result.final.lines <= 3


@pytest.mark.long
def test_an_interrupted_search_goes_on_with_the_run_it_was_in(tmp_path, monkeypatch):
    """Its result is that of a search that was not interrupted, and finished runs are not trained again."""
    model, several = only_token_to_output(), replace(SMALL, runs=(3, 2, 2))
    trained: list[float] = []
    train = Stages.train

    def counted(self, gates, coefficient, patience):
        if len(trained) == stop:
            raise KeyboardInterrupt
        trained.append(coefficient)
        return train(self, gates, coefficient, patience)

    monkeypatch.setattr(Stages, "train", counted)
    stop = -1
    whole = decompile(model, TASK, seed=3, method="ugs", ugs=several)
    in_all = len(trained)
    assert in_all >= 2
    trained.clear()
    stop, file = in_all - 1, tmp_path / "run.decompiling"
    with pytest.raises(KeyboardInterrupt):
        decompile(model, TASK, seed=3, method="ugs", ugs=several, checkpoint=file)
    trained.clear()
    stop = -1
    resumed = decompile(model, TASK, seed=3, method="ugs", ugs=several, checkpoint=file, resume=True)
    assert len(trained) == 1
    assert [replace(p, seconds=0.0) for p in resumed.passes] == [replace(p, seconds=0.0) for p in whole.passes]
    assert str(resumed.program) == str(whole.program)


def test_a_model_out_of_reach_still_has_a_program():
    """Its frontier holds the model without any layer, however little that agrees."""
    search = Search(random_transformer(0, 1, 1), TASK, 0, lambda _: None)
    prune_by_gates(search, replace(SMALL, steps=2))
    assert search.progress.found


def test_an_unknown_method_is_one_clear_line(tmp_path):
    expected = "--method slow: no such method; there are fast, ugs"
    assert expected in fails("decompile", "abcde", "--out", tmp_path / "out", "--method", "slow")
    with pytest.raises(DraspError, match=f"^{expected}$"):
        decompile(only_token_to_output(), TASK, method="slow")


def test_a_run_is_not_resumed_with_another_method(tmp_path):
    file = tmp_path / "run.decompiling"
    search = Search(only_token_to_output(), TASK, 0, lambda _: None, checkpoint=file, settings={"method": "fast"})
    search.once("nothing", lambda state: state, State(search.nothing))
    with pytest.raises(DraspError, match="was begun with method fast, found ugs; go on with the same"):
        decompile(only_token_to_output(), TASK, checkpoint=file, resume=True, method="ugs")
