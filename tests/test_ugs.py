"""Pruning by gates: sampling, objective and training against what is known, the search of λ, the whole on one edge."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from command import fails
from drasp.causal.origins import origin_of
from drasp.decompiler.checkpoint import State
from drasp.decompiler.components import Components, Graph
from drasp.decompiler.gates import GatedModel, Learnt
from drasp.decompiler.pipeline import decompile
from drasp.decompiler.result import Point
from drasp.decompiler.search import Search
from drasp.decompiler.ugs.circuit import as_paths, as_products, whole, without
from drasp.decompiler.ugs.coefficients import GateRun, next_coefficient, representative
from drasp.decompiler.ugs.gates import Effort, Gates, Training, divergence, sample_masks, unigram_loss
from drasp.decompiler.ugs.method import Method, Stage, prune_by_gates
from drasp.decompiler.ugs.running import answers_of, mean_log_variances, means_of
from drasp.decompiler.ugs.storing import kept_of, run_of
from drasp.decompiler.ugs.writing import finest, program_of
from drasp.errors import DraspError
from drasp.language import Program
from drasp.measure import Share
from drasp.settings import UgsSettings
from drasp.sites import OUT, POSITION, TOKEN, Component, Edge
from drasp.tasks import load_task
from drasp.transformer import Shape, assemble, initial_weights
from small_graphs import TASK, difference, only_token_to_output, oracle, random_transformer
from typed import known

LANGUAGE = load_task("D2")
SMALL = UgsSettings(
    runs=(1, 1, 1, 1),
    continued=1,
    patience=(100, 100, 60, 60),
    steps=200,
    inputs=4,
    masks=4,
    batches=20,
    coefficient=0.03,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def linear(model, pool):
    real = whole(model, None)
    return replace(real, log_variances=mean_log_variances(real, pool))


def to_output_alone(model, pool):
    """What the output hears can be closed; what is behind it cannot."""
    circuit = linear(model, pool)
    inner = [edge for edge in circuit.edges if edge.receiver != OUT]
    return without(circuit, inner, means_of(circuit, [edge.sender for edge in inner], pool))


# ------------------------------------------------------------------------------------------ sampling


def test_masks_keep_as_many_rows_as_the_gate_says():
    theta = torch.tensor([-8.0, -1.0, 0.0, 1.0, 8.0])
    masks = sample_masks(theta, 20_000, generator())
    assert masks.mean(0) == pytest.approx(theta.sigmoid(), abs=0.02)
    between = ((masks > 0) & (masks < 1)).float().mean(0)
    assert between == pytest.approx(theta.sigmoid() * (1 - theta.sigmoid()), abs=0.02)


def test_gates_have_a_gradient_only_from_rows_between():
    theta = torch.tensor([-50.0, 0.0, 50.0], requires_grad=True)
    masks = sample_masks(theta, 120, generator())
    slopes = torch.randn(120, 3, generator=generator(1))
    (masks * slopes).mean(0).sum().backward()
    between = (masks[:, 1] > 0) & (masks[:, 1] < 1)
    assert theta.grad is not None
    assert theta.grad.tolist() == pytest.approx([0, float(slopes[between, 1].mean()), 0], abs=1e-6)


def test_the_gradient_of_one_gate_is_what_the_edge_is_worth():
    """On average over masks, that of the divergence without and with the edge: the exact slope along its share."""
    model = only_token_to_output()
    pool = oracle(model)
    circuit = to_output_alone(model, pool)
    others = [edge for edge in circuit.edges if edge.sender != TOKEN]
    circuit = without(circuit, others, means_of(circuit, [edge.sender for edge in others], pool))
    gates = Gates(circuit, pool)
    assert gates.circuit.gates == (Edge(TOKEN, OUT),)
    with torch.no_grad():
        gates.theta.fill_(0.3)
        batch = pool.batches[0]
        shut, full = (divergence(batch, gates.answers(batch, torch.full((8, 1), x)), "softmax") for x in (0.0, 1.0))
    kept = sample_masks(gates.theta, 4000 * 8, generator())
    divergence(batch, gates.answers(batch, kept), "softmax").backward()
    assert gates.theta.grad is not None
    assert float(gates.theta.grad) == pytest.approx(float(full - shut), rel=0.05)


# ------------------------------------------------------------------------------------------ objective


@pytest.mark.parametrize("task", [TASK, LANGUAGE], ids=["softmax", "sigmoid"])
def test_the_objective_is_the_one_written_by_hand(task):
    """With the model's own norms, whose masked logits another module computes as well; answer by answer, in a loop."""
    model = random_transformer(2, 1, 2, task)
    pool = oracle(model, task, count=6)
    [batch] = pool.batches
    components, edges = Components(model), model.anatomy.edges
    gates = Gates(whole(model, None), pool)
    training = Training(gates, 0.02, task.output)
    with torch.no_grad():
        gates.theta.copy_(torch.randn(len(edges), generator=generator()))
    copies = 2
    kept = torch.rand(copies * 6, len(edges), generator=generator(1))
    kept[::3] = kept[::3].round()

    constants = torch.zeros(len(model.anatomy.receivers), model.d_model)
    ablations = dict(zip(gates.senders, gates.ablations.detach(), strict=True))
    learnt = Learnt(torch.stack([ablations[sender] for sender in model.anatomy.senders]), constants)
    rows = batch.rows(torch.arange(6).repeat_interleave(copies))
    logits = GatedModel(components, edges).logits(learnt, kept, rows)
    total, count = 0.0, 0
    for row in range(len(logits)):
        for place in range(logits.shape[1]):
            if not rows.valid[row, place]:
                continue
            count += 1
            theirs, ours = (_shares(each[row, place], task) for each in (rows.logits, logits))
            total += sum(p * math.log(p / q) for p, q in zip(theirs, ours, strict=True))
    expected = total / count / logits.shape[-1] + 0.02 * sum(1 / (1 + math.exp(-t)) for t in gates.theta.tolist())
    objective, _ = training.objective(batch, kept)
    assert float(objective.detach()) == pytest.approx(expected, rel=1e-3)


def _shares(logits, task) -> list[float]:
    """One distribution over all tokens, or for each token whether it is possible, and whether not."""
    said = logits.detach().double()
    if task.output == "softmax":
        return said.softmax(-1).tolist()
    return [share for p in said.sigmoid().tolist() for share in (p, 1 - p)]


def test_the_unigram_model_is_the_best_constant_answer():
    for task in (TASK, LANGUAGE):
        model = random_transformer(2, 1, 1, task)
        pool = oracle(model, task, count=8)
        least = unigram_loss(pool.batches, task.output)
        [batch] = pool.batches
        said = batch.logits[batch.valid]
        shares = (said.softmax(-1) if task.output == "softmax" else said.sigmoid()).mean(0)
        best = shares.log() if task.output == "softmax" else shares.logit()
        for noise in (0.0, 0.1, 0.3):
            other = best + noise * torch.randn(best.shape, generator=generator(5))
            loss = float(divergence(batch, other.expand_as(batch.logits)[:, None], task.output))
            assert loss >= least - 1e-6
            assert noise or loss == pytest.approx(least, abs=1e-6)


def test_constants_learn_only_from_rows_where_the_gate_is_shut():
    model = random_transformer(0, 1, 1)
    pool = oracle(model)
    batch = pool.batches[0]
    for share, learns in ((1.0, False), (0.5, False), (0.0, True)):
        gates = Gates(linear(model, pool), pool)
        gates.answers(batch, torch.full((len(batch.inputs), len(gates.theta)), share)).square().sum().backward()
        assert gates.ablations.grad is not None
        assert bool(gates.ablations.grad.abs().max() > 1e-6) == learns


# ------------------------------------------------------------------------------------------- training


def _of_token_and_position():
    """A model whose logits depend on the token and on the position; head and MLP send nothing."""
    shape = Shape(len(TASK.vocabulary), TASK.n_positions, 8, 1, 1, 8)
    weights = {k: v * 20 if "wte" in k or "wpe" in k else v for k, v in initial_weights(shape, 0).items()}
    for name in ("h.0.attn.c_proj.weight", "h.0.mlp.c_proj.weight"):
        weights[f"transformer.{name}"] = torch.zeros_like(weights[f"transformer.{name}"])
    weights["transformer.ln_f.weight"] *= 4
    return assemble(shape, weights)


@pytest.mark.parametrize(("price", "size"), [(0.04, 2), (20.0, 0)])
def test_trained_gates_keep_the_best_subset(price, size):
    """Of all subsets of what the output hears, that with the least objective at the senders' means.

    A gate feels what its edge is worth in full, and its price by the slope of the sigmoid: the best must be that of all
    prices between.
    """
    model = _of_token_and_position()
    pool = oracle(model)
    start = to_output_alone(model, pool)
    circuit = replace(start, edges=tuple(edge for edge in start.edges if edge.receiver == OUT))
    means = means_of(circuit, [edge.sender for edge in circuit.edges], pool)

    def lost(closed) -> float:
        answers = answers_of(without(circuit, closed, means))
        with torch.no_grad():
            found = [float(divergence(b, answers(b)[:, None], TASK.output)) for b in pool.batches]
        return sum(found) / len(found) / len(TASK.vocabulary)

    subsets = [s for n in range(len(circuit.edges) + 1) for s in itertools.combinations(circuit.edges, n)]
    losses = {closed: lost(closed) for closed in subsets}
    rows = 6 * 8
    [best] = {min(subsets, key=lambda s: losses[s] - paid * len(s)) for paid in (price / rows, price)}
    assert len(circuit.edges) - len(best) == size
    gates = Gates(circuit, pool)
    with torch.no_grad():
        gates.theta.fill_(2.0)
    Training(gates, price, TASK.output).run(pool.batches, Effort(1000, 150, 6), math.inf, False, generator())
    assert set(gates.pruned().edges) == set(circuit.edges) - set(best)


def test_a_run_whose_loss_stays_too_high_is_given_up():
    model = only_token_to_output()
    pool = oracle(model)
    training = Training(Gates(linear(model, pool), pool), 1e4, TASK.output)
    ending, steps = training.run(pool.batches, Effort(500, 400, 4), 1e-6, False, generator())
    assert (ending, steps) == ("given up", 150)


def test_a_second_run_that_is_cut_off_is_not_trained_to_its_end():
    model = only_token_to_output()
    pool = oracle(model)
    for has_reached, expected in ((True, "cut off"), (False, "out of steps")):
        gates = Gates(to_output_alone(model, pool), pool)
        with torch.no_grad():
            gates.theta.fill_(-7.0)
        training = Training(gates, 1.0, TASK.output)
        assert training.run(pool.batches, Effort(500, 60, 4), math.inf, has_reached, generator())[0] == expected


def test_parts_of_a_split_mlp_learn_with_the_gates():
    model = random_transformer(6, 1, 1)
    pool = oracle(model)
    split = as_paths(linear(model, pool), True, lambda c, ways: means_of(c, ways, pool))
    assert len(split.mlps) == 4  # token, position, and what the head makes of each
    before = answers_of(split)
    gates = Gates(split, pool)
    training = Training(gates, 0.0, TASK.output)
    for i in range(40):
        training.step(pool.batches[i % 3], 1, generator(i))
    after = answers_of(gates.pruned())
    loss = [sum(float(divergence(b, run(b)[:, None], TASK.output)) for b in pool.batches) for run in (before, after)]
    assert loss[1] < loss[0]


# --------------------------------------------------------------------------------------- coefficients


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
    model = random_transformer(0, 1, 1)
    one, two, three, worse = (whole(model, None) for _ in range(4))
    runs = [
        GateRun(0.1, 0.5, 2, one),
        GateRun(0.1, 0.4, 3, worse),
        GateRun(0.1, 0.8, 4, two),
        GateRun(0.1, 0.9, 9, three),
        GateRun(0.1),
    ]
    assert [run.circuit for run in representative(runs, 4)] == [one, two, three]
    assert [run.circuit for run in representative(runs, 2)] == [three, one]
    assert [run.circuit for run in representative(runs, 1)] == [three]


def test_a_stored_run_is_the_same():
    model = random_transformer(8, 2, 1)
    pool = oracle(model)
    split = as_paths(linear(model, pool), True, lambda c, ways: means_of(c, ways, pool))
    for circuit in (linear(model, pool), split, as_products(split)):
        run = GateRun(0.01, 0.9, circuit.size, circuit, "settled", 7)
        again = run_of(kept_of(run), model)
        kept = known(again.circuit)
        assert (kept.edges, kept.products) == (circuit.edges, circuit.products)
        assert difference(answers_of(kept), answers_of(circuit), pool) == 0
        assert replace(again, circuit=None) == replace(run, circuit=None)
    given_up = GateRun(0.5, steps=150)
    assert run_of(kept_of(given_up), model) == given_up


def test_what_parts_of_mlps_are_compared_with_is_found_again(tmp_path):
    """A program with MLPs that were trained keeps the one whose MLP is the model's; so does an interrupted run."""
    model, file = random_transformer(9, 1, 1), tmp_path / "run.decompiling"
    search = Search(model, TASK, 0, lambda _: None, checkpoint=file)
    method = Method(search, SMALL)
    mlp = Component("mlp", 0)
    few = [e for e in method.linear.edges if e.receiver.kind in ("mlp", "out") and e.sender in (TOKEN, mlp)]
    coarse = replace(method.linear, edges=(*few, Edge(POSITION, few[0].receiver)))
    split = as_paths(coarse, True, lambda c, ways: means_of(c, ways, search.probe))
    own = method.written(finest(coarse))

    def accepted(_: State) -> State:
        method.accept(GateRun(0.01, 0.9, split.size, split, "settled"), own)
        return State(search.nothing)

    search.once("split", accepted, State(search.nothing))
    [found] = Search(model, TASK, 0, lambda _: None, checkpoint=file, resume=True).progress.found
    assert found.own is not None
    assert isinstance(found.left, Program)
    assert found.own.digest == own.digest != found.left.digest
    point = Point(found.left, Share(9, 10), own=found.own)
    assert point.cut_down is found.own
    assert replace(point, own=None).cut_down is found.left
    # Of the model's MLP the parts are approximations, however near.
    functions = [s.name for s in own.statements if s.kind == "element_wise_op"]
    assert len(functions) == 1
    assert {origin_of(own, name, own) for name in functions} == {"own"}
    written = program_of(as_products(split), TASK.vocabulary, TASK.output)
    parts = [s.name for s in written.statements if s.kind == "element_wise_op"]
    assert {origin_of(written, name, own) for name in parts} == {"approximated"}


# ------------------------------------------------------------------------------------------ the whole


@pytest.fixture(scope="module")
def token_search() -> tuple[Search, Graph]:
    """A finished search, and the graph that it found."""
    search = Search(only_token_to_output(), TASK, 3, lambda _: None)
    return search, prune_by_gates(search, SMALL)


def test_stage_1_finds_the_one_edge_of_a_model_of_the_token_alone(token_search):
    search, graph = token_search
    assert graph.kept == {Edge(TOKEN, OUT)}
    runs = [p for p in search.progress.passes if p.unit == "edges"]
    assert [p.name.split(",")[0] for p in runs] == ["stage 1", "stage 2", "stage 0"]
    assert [p.match_accuracy for p in runs] == pytest.approx([1.0] * 3, abs=0.05)
    assert min(found.lines for found in search.progress.found) == 2


def test_the_papers_price_is_that_of_a_loss_over_the_vocabulary(token_search):
    search, _ = token_search
    method = Method(search, SMALL)
    loss = unigram_loss(method.batches, TASK.output)
    assert method.in_paper == pytest.approx(loss / len(TASK.vocabulary))
    [first] = [p.name for p in search.progress.passes if p.name.startswith("stage 1") and p.unit == "edges"]
    assert f"λ 0.03, the paper's {0.03 * method.in_paper:.3g};" in first


def test_a_coefficient_below_zero_is_tried_where_nothing_agrees(token_search, monkeypatch):
    tried: list[float] = []

    def run(self, stage: Stage, coefficient: float, done) -> GateRun:
        tried.append(coefficient)
        return GateRun(coefficient)

    monkeypatch.setattr(Method, "run", run)
    method = Method(token_search[0], replace(SMALL, runs=(0, 2, 0, 0)))
    assert len(method.components(1, method.linear, 0.2)) == 3
    assert tried == pytest.approx([0.03, 0.006, -0.03])


@pytest.mark.long
def test_an_interrupted_search_goes_on_with_the_run_it_was_in(tmp_path, monkeypatch):
    """Its result is that of a search that was not interrupted, and finished runs are not trained again."""
    model, several = only_token_to_output(), replace(SMALL, runs=(1, 2, 2, 1))
    trained: list[float] = []
    train = Method.trained

    def counted(self, stage, coefficient, done):
        if len(trained) == stop:
            raise KeyboardInterrupt
        trained.append(coefficient)
        return train(self, stage, coefficient, done)

    monkeypatch.setattr(Method, "trained", counted)
    stop = -1
    whole_ = decompile(model, TASK, seed=3, method="ugs", ugs=several, accept="answers")
    assert whole_.record("model").method == "ugs"
    assert whole_.final.match.value >= 0.95
    in_all = len(trained)
    assert in_all >= 3
    trained.clear()
    stop, file = in_all - 1, tmp_path / "run.decompiling"
    with pytest.raises(KeyboardInterrupt):
        decompile(model, TASK, seed=3, method="ugs", ugs=several, checkpoint=file, accept="answers")
    trained.clear()
    stop = -1
    resumed = decompile(model, TASK, seed=3, method="ugs", ugs=several, checkpoint=file, resume=True, accept="answers")
    assert len(trained) == 1
    assert [replace(p, seconds=0.0) for p in resumed.passes] == [replace(p, seconds=0.0) for p in whole_.passes]
    assert str(resumed.program) == str(whole_.program)


def test_a_model_out_of_reach_still_has_a_program():
    """Its frontier holds the model without any layer, however little that agrees."""
    search = Search(random_transformer(0, 1, 1), TASK, 0, lambda _: None)
    prune_by_gates(search, replace(SMALL, steps=2))
    assert search.progress.found


def test_an_unknown_method_is_one_clear_line(tmp_path):
    expected = "method slow: no such method; there are fast, ugs"
    assert f"--{expected}" in fails("decompile", "abcde", "--out", tmp_path / "out", "--method", "slow")
    with pytest.raises(DraspError, match=f"^{expected}$"):
        decompile(only_token_to_output(), TASK, method="slow")


def test_a_run_is_not_resumed_with_another_method(tmp_path):
    file = tmp_path / "run.decompiling"
    search = Search(only_token_to_output(), TASK, 0, lambda _: None, checkpoint=file, asked={"method": "fast"})
    search.once("nothing", lambda state: state, State(search.nothing))
    with pytest.raises(DraspError, match="was begun with method fast, found ugs; go on with the same"):
        decompile(only_token_to_output(), TASK, checkpoint=file, resume=True, method="ugs")
