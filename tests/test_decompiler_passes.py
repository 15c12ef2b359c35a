"""Graphs, elimination and harm, each alone, on small models where the answer is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drasp.decompiler.checkpoint import State
from drasp.decompiler.components import Components, Graph
from drasp.decompiler.cutting import squeeze_lines, write_dense_graph
from drasp.decompiler.elimination import EliminationJudge, Move, eliminate, squeeze
from drasp.decompiler.gates import GatedModel, Learnt
from drasp.decompiler.harm import harm_by_edge, harm_by_line
from drasp.decompiler.moves import norm_lines
from drasp.decompiler.search import Search
from drasp.fitting.dropping import with_bias
from drasp.fitting.means import operand_means
from drasp.fitting.oracle import Oracle, answering
from drasp.language import Interpreter, Program, check, parse
from drasp.language.syntax import ElementWise, Norm, Project, Select
from drasp.measure import predict
from drasp.rewriting.simplify import simplify
from drasp.rewriting.tidy import bias_of, fold_constants, renumbered
from drasp.settings import QUICK, Settings
from drasp.sites import OUT, POSITION, TOKEN, Component, Edge, Receiver
from drasp.tasks import load_task
from drasp.wiring import write_program
from effort import examples
from small_graphs import TASK, difference, only_token_to_output, oracle, random_graph, random_transformer
from typed import known, of_kind

LANGUAGE = load_task("D2")
HEAD, MLP = Component("head", 0, 0), Component("mlp", 0)


models = st.tuples(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 2))


@examples(25)
@given(models, st.sampled_from([TASK, LANGUAGE]))
def test_the_whole_graph_has_the_models_logits(model, task):
    transformer = random_transformer(*model, task=task)
    pool = oracle(transformer, task)
    components = Components(transformer)
    assert difference(lambda b: components.logits(components.whole(), b), lambda b: b.logits, pool) <= 1e-4


@examples(40)
@given(models, st.integers(0, 2**32))
def test_a_graph_and_its_program_have_the_same_logits(model, seed):
    """Written, folded and renumbered; with edges cut and some norms constant."""
    transformer = random_transformer(*model)
    components = Components(transformer)
    pool = oracle(transformer)
    graph = random_graph(components, components.means(pool), seed)
    program = write_program(transformer, graph.edits, TASK.vocabulary, TASK.output)
    neat = renumbered(fold_constants(program))
    assert check(neat) == []
    assert neat.lines <= program.lines
    logits = lambda batch: components.logits(graph, batch)  # noqa: E731
    scale = max(1.0, max(float(logits(b).abs().max()) for b in pool.batches))
    assert difference(logits, answering(program), pool) <= 1e-4 * scale
    assert difference(logits, answering(neat), pool) <= 1e-4 * scale


def test_the_oracle_counts_agreement_as_the_measures_do():
    transformer, other = random_transformer(1, 1, 1), random_transformer(2, 1, 1)
    pool = oracle(transformer, count=40)
    components = Components(other)
    expected = 0
    for batch in pool.batches:
        said, answered = (predict(model, batch.inputs, "softmax") for model in (transformer, other))
        expected += int(((said == answered) | ~batch.inputs.counted).all(-1).sum())
    assert pool.match(lambda b: components.logits(components.whole(), b)).hits == expected
    assert pool.match(lambda b: b.logits).value == 1
    assert pool.match_if(lambda b: components.logits(components.whole(), b), expected / 40) == pytest.approx(
        expected / 40
    )
    assert pool.match_if(lambda b: components.logits(components.whole(), b), (expected + 1) / 40) == 0
    assert pool.mean_loss(lambda b: b.logits) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("task", [TASK, LANGUAGE])
def test_the_oracle_knows_which_answers_are_right(task):
    pool = oracle(random_transformer(1, 1, 1, task), task, count=40)

    def nearly_right(batch):
        """The task's answers, but for the last one of every third input."""
        targets = batch.inputs.targets
        wanted = targets if task.output == "sigmoid" else torch.nn.functional.one_hot(targets, len(task.vocabulary))
        logits = batch.at_counted(wanted.float() * 2 - 1)
        for row in range(0, len(batch.inputs), 3):
            logits[row, int(batch.valid[row].sum()) - 1] *= -1
        return logits

    spoilt = sum(-(-len(batch.inputs) // 3) for batch in pool.batches)
    assert pool.right(nearly_right).hits == 40 - spoilt


def cutting(components: Components, means) -> list[Move[Graph]]:
    def move(edge) -> Move[Graph]:
        return Move(str(edge), lambda g: g.cut([edge], means) if edge in g.kept else None)

    return [move(edge) for edge in components.anatomy.edges]


def judge(components: Components, pool: Oracle) -> EliminationJudge[Graph]:
    return EliminationJudge(
        stands=lambda _: True,
        loss=lambda graph: pool.mean_loss(lambda b: components.logits(graph, b)),
        match=lambda graph, target: pool.match_if(lambda b: components.logits(graph, b), target),
        spare=lambda _: 0.0,
        settle=lambda graph: graph,
        settle_longer=lambda graph: graph,
        hopeless=1.0,
        settings=Settings(near=0.1),
    )


def test_elimination_finds_what_changes_nothing_and_keeps_what_is_needed():
    transformer = only_token_to_output()
    components, pool = Components(transformer), oracle(transformer)
    accepted: list[float] = []
    graph = eliminate(
        components.whole(),
        lambda _: cutting(components, components.means(pool)),
        judge(components, pool),
        lambda *_: 1.0,
        lambda _, match: accepted.append(match),
        patience=5,
    )
    assert graph.kept == {Edge(TOKEN, OUT)}
    assert accepted
    assert set(accepted) == {1.0}


def test_squeezing_keeps_what_is_needed_to_the_last():
    transformer = only_token_to_output()
    components, pool = Components(transformer), oracle(transformer)
    moves, its_judge = cutting(components, components.means(pool)), judge(components, pool)
    accepted: list[tuple[int, float]] = []

    def harm(graph: Graph) -> dict:
        return {move.name: its_judge.loss(less) for move in moves if (less := move.apply(graph)) is not None}

    def squeezed(start: Graph, wanted: int) -> Graph:
        return squeeze(
            start,
            lambda _: moves,
            its_judge,
            harm,
            lambda graph: len(graph.kept) - wanted,
            lambda graph, match: accepted.append((len(graph.kept), match)),
        )

    whole = components.whole()
    assert squeezed(whole, len(whole.kept)) is whole, "nothing is too much"
    assert accepted == []
    graph = squeezed(whole, 2)
    assert len(graph.kept) <= 2
    assert Edge(TOKEN, OUT) in graph.kept
    assert {match for _, match in accepted} == {1.0}


def test_a_graph_that_stays_dense_is_written_exactly_and_squeezed_until_it_is_short():
    search = Search(random_transformer(0, 1, 1), TASK, 0, lambda _: None, QUICK, max_lines=6)
    state = write_dense_graph(State(search.components.whole()), search)
    [written] = search.progress.found
    assert written.match == 1.0
    assert written.lines > 6
    shorter = squeeze_lines(state, search).program
    assert shorter is not None
    assert simplify(shorter).lines <= 6
    assert search.progress.found[-1].lines <= 6


def test_programs_of_a_search_share_tensors_but_lines_of_one_do_not():
    """Shared, they take the room of one; files refuse two names of one tensor."""
    search = Search(random_transformer(0, 1, 1), TASK, 0, lambda _: None, QUICK)
    count = len(TASK.vocabulary)
    tensors = {"A": torch.eye(count), "B": torch.eye(count)}
    lines = "a1 = aggregate(s=[], v=token)\nx = project(inp=a1, op=A)\ny = project(inp=token, op=B)\n"
    head = f"vocab = [{', '.join(map(str, range(count)))}]\npositions = 9\n"
    program = parse(f"{head}{lines}prediction = softmax(x+y)", tensors)
    for _ in range(2):
        search.accept_program(program, 1.0)
    one, other = (list(search.program_of(found).tensors.values()) for found in search.progress.found)
    assert all(a is b for a, b in zip(one, other, strict=True))
    assert len(one) == len({tensor.data_ptr() for tensor in one}) == 2


def _with_less_of(program: Program, name, share: float, means) -> Program:
    """With a little of a line given up for its mean."""
    kind, line, *operands = name
    statement, tensors = program.find(line), dict(program.tensors)
    if kind == "select":
        [tensor] = of_kind(Select, statement).tensor_names
    elif kind == "project":
        project = of_kind(Project, statement)
        [tensor], operands = project.tensor_names, [project.input]
        [constant] = known(bias_of(program)).tensor_names
        tensors[constant] = tensors[constant] + share * means[project.input] @ tensors[tensor]
    else:
        assert isinstance(statement, ElementWise | Norm)
        network, place = statement.stored, statement.inputs.index(operands[0])
        tensor, constant = f"{network}.{place}", f"{network}.hidden_bias"
        left = means[operands[0]] @ tensors[tensor] @ tensors[f"{network}.hidden"]
        tensors[constant] = tensors[constant] + share * left
    tensors[tensor] = (1 - share) * tensors[tensor]
    return program.with_tensors(tensors)


@pytest.mark.long
@pytest.mark.parametrize("task", [TASK, LANGUAGE], ids=["softmax", "sigmoid"])
def test_the_harm_of_losing_a_line_is_that_of_losing_a_little_of_it_scaled_up(task):
    transformer = random_transformer(1, 1, 1, task)
    components = Components(transformer)
    graph = replace(components.whole(), norms=dict.fromkeys(components.anatomy.receivers, 1.7))
    program = with_bias(simplify(write_program(transformer, graph.edits, task.vocabulary, task.output)))
    pool = Oracle.draw(Interpreter(program), task, 200, np.random.default_rng(0), batch_size=1)
    means = operand_means(program, pool)
    harms = harm_by_line(program, means, pool)
    assert len(harms) >= 5
    little = 0.05
    for name in harms:
        loss = pool.mean_loss(answering(_with_less_of(program, name, little, means)))
        assert loss / little**2 == pytest.approx(harms[name], rel=0.5, abs=0.02 * max(harms.values())), name


@pytest.mark.long
@pytest.mark.parametrize("task", [TASK, LANGUAGE], ids=["softmax", "sigmoid"])
def test_the_harm_of_losing_an_edge_is_that_of_losing_a_little_of_it_scaled_up(task):
    transformer = random_transformer(2, 2, 1, task)
    components = Components(transformer)
    pool = Oracle.draw(transformer, task, 200, np.random.default_rng(0), batch_size=4)
    means, whole = components.means(pool), components.whole()
    less = whole.cut(whole.anatomy.edges[-1:], means)
    assert set(harm_by_edge(components, less, means, pool)) == less.kept
    harms, little = harm_by_edge(components, whole, means, pool), 0.05
    edges = list(harms)
    model = GatedModel(components, edges)
    learnt = Learnt(
        ablations=torch.stack([means[sender] for sender in components.anatomy.senders]),
        constants=torch.stack([whole.constants[receiver] for receiver in components.anatomy.receivers]),
    )
    ratios: list[float] = []
    for i, edge in enumerate(edges):
        masks = torch.ones(len(edges))
        masks[i] -= little
        loss = pool.mean_loss(lambda b, masks=masks: model.logits(learnt, masks.expand(len(b.inputs), -1), b))
        if harms[edge] > 0.05 * max(harms.values()):
            ratios.append(loss / little**2 / harms[edge])
    # Answers are drawn, and a few inputs are far from a parabola.
    assert len(ratios) >= 5
    assert np.median(ratios) == pytest.approx(1, abs=0.25)
    assert max(abs(np.log(ratios))) < np.log(4)


def test_what_has_no_reader_or_no_input_goes_with_the_cut():
    components = Components(random_transformer(0, 1, 1))
    means = components.means(oracle(components.transformer))
    graph = components.whole().cut([Edge(HEAD, OUT), Edge(HEAD, Receiver(0, "mlp"))], means)
    assert not any(edge.receiver in HEAD.receivers for edge in graph.kept)
    graph = components.whole().cut([Edge(sender, HEAD.receivers[2]) for sender in (TOKEN, POSITION)], means)
    assert not graph.is_used(HEAD)


def test_a_cut_edge_leaves_its_mean_behind():
    components = Components(random_transformer(0, 1, 1))
    means = components.means(oracle(components.transformer))
    whole = components.whole()
    graph = whole.cut([Edge(MLP, OUT)], means)
    torch.testing.assert_close(graph.constants[OUT], whole.constants[OUT] + means[MLP])


def test_norms_that_cost_no_line_are_left_exact():
    components = Components(random_transformer(0, 1, 1))
    means = components.means(oracle(components.transformer))
    graph = components.whole()
    assert {receiver.kind for receiver in norm_lines(graph)} == {"query", "key", "value", "out"}
    graph = graph.cut([Edge(POSITION, receiver) for receiver in graph.anatomy.receivers], means)
    assert [receiver.kind for receiver in norm_lines(graph)] == ["out"]
