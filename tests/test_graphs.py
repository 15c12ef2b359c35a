"""Graphs: what is cut of a model, against hooks on Hugging Face's model and the interpreter, on random models."""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from cuts import AnyMeans, cuttable
from drasp.decompiler.checkpoint import Found, Progress, State, load, store
from drasp.decompiler.components import Components, Graph
from drasp.decompiler.outline import MOST_ROWS, Outlines
from drasp.decompiler.pipeline import decompile
from drasp.edits import Shifted
from drasp.forward import Forward
from drasp.language import Interpreter, Program, check
from drasp.language.syntax import Norm, Project
from drasp.model_files import load_model
from drasp.program_writer import TooLargeError
from drasp.records import Identity
from drasp.rewriting.simplify import simplify
from drasp.running import run
from drasp.sequences import Sequences
from drasp.settings import QUICK
from drasp.sites import NO_COMPONENT, OUT, POSITION, TOKEN, Component, Edge, NormSite, Path, Product, Read, Sender, Site
from drasp.tasks import load_task
from drasp.transformer import Shape, Transformer, assemble, initial_weights
from drasp.translation import translate
from drasp.vocabulary import Vocabulary
from drasp.wiring import write_program
from effort import examples
from hooked_model import HookedModel
from random_models import random_gpt2
from typed import of_kind

# A seed, layers and heads; with more of them, ways are very many.
SIZES = st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]).flatmap(
    lambda size: st.tuples(st.integers(0, 2**32), *map(st.just, size))
)
SEEDS = st.integers(0, 2**32)
TOKENS = 5
POSITIONS = torch.arange(6) + torch.tensor([[0], [1], [2], [0]])


def cut_at_random(graph: Graph, means, seed: int, reads: bool = True) -> Graph:
    """Cut in some steps, so that what has been cut before meets what is cut later."""
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 4)):
        share = rng.choice([0.05, 0.2, 0.5])
        sites = [site for site in cuttable(graph) if reads or not isinstance(site, Read)]
        graph = graph.cut([site for site in sites if rng.random() < share], means)
    return graph


def random_graph(transformer: Transformer, seed: int) -> Graph:
    """Edges, ways and products are cut, some norms are numbers, others of constants alone, which are shifted."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed % 2**32)
    graph = Components(transformer).whole()
    norms = {r: 0.5 + rng.random() for r in graph.anatomy.receivers if rng.random() < 0.3}
    bare = {r: 0.5 + rng.random() for r in graph.anatomy.receivers if r.kind != "mlp" and rng.random() < 0.5}
    graph = cut_at_random(replace(graph, norms=norms, bare=bare), AnyMeans(transformer.d_model), seed)
    shifts = torch.randn(len(graph.constants), transformer.d_model, generator=generator, dtype=torch.float64)
    shifted = {r: c + s for (r, c), s in zip(graph.constants.items(), shifts, strict=True)}
    return replace(graph, constants=shifted)


def inputs(seed: int) -> Sequences:
    ids = torch.randint(TOKENS, (4, 6), generator=torch.Generator().manual_seed(seed))
    return Sequences(ids, POSITIONS)


def exactly(program: Program, x: Sequences) -> Tensor:
    return Interpreter(program, torch.float64)(x.ids, x.positions).expand(*x.ids.shape, -1)


def assert_same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max().clamp(min=1)))


@examples(100)
@given(SIZES, SEEDS)
def test_a_graph_its_program_and_the_hooked_model_say_the_same(size, seed):
    model = random_gpt2(*size)
    transformer = load_model(model)
    graph, x = random_graph(transformer, seed), inputs(seed)
    expected = HookedModel(model, graph.edits).logits(x.ids, x.positions)
    assert_same(run(transformer, x, graph.edits).logits, expected)
    program = write_program(transformer, graph.edits, Vocabulary.unnamed(TOKENS), "softmax")
    assert check(program) == []
    assert_same(exactly(program, x), expected)
    shorter = simplify(program)
    assert shorter.lines <= program.lines
    assert_same(exactly(shorter, x), expected)


@examples(100)
@given(SIZES, SEEDS)
def test_what_is_always_the_same_can_be_cut_and_nothing_changes(size, seed):
    """On one input of one position, everything is its own mean: so each is left behind, and once only."""
    transformer = load_model(random_gpt2(*size))
    x = Sequences(torch.tensor([[seed % TOKENS]]), torch.tensor([[3]]))

    class OwnMeans(dict[Sender, Tensor]):
        def __missing__(self, sender: Sender) -> Tensor:
            edge = Edge(sender, OUT)
            self[sender] = run(transformer, x, record=[edge]).values[edge][0, 0]
            return self[sender]

    graph = cut_at_random(Components(transformer).whole(), OwnMeans(), seed, reads=False)
    assert_same(run(transformer, x, graph.edits).logits, run(transformer, x).logits)


@examples(40)
@given(SIZES, SEEDS)
def test_what_a_graph_keeps_is_heard(size, seed):
    """What an edge carries changes the logits, for every edge that is left; and all that is closed would be heard."""
    transformer = load_model(random_gpt2(*size))
    graph, x = random_graph(transformer, seed), inputs(seed)
    before = run(transformer, x, graph.edits).logits
    noise = torch.randn(4, 6, transformer.d_model, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    # What is added on the way to a query comes from no component, as its constants do, whose products may be closed.
    deaf = {site.head.receivers[0] for site in graph.closed if isinstance(site, Product) and site.query == NO_COMPONENT}
    for edge in (edge for edge in graph.kept if edge.receiver not in deaf):
        after = run(transformer, x, {**graph.edits, edge: Shifted(noise)}).logits
        assert (after - before).abs().max() > 1e-12 * before.abs().max(), edge
    for site in graph.closed:
        opened = replace(graph, closed=graph.closed - {site})
        assert graph.has(site) is False
        assert opened.has(site)
        match site:
            case Product(query, key, head):
                assert head in graph.used_heads()
                assert query == NO_COMPONENT or query in graph.ways_to(head.receivers[0])
                assert key in graph.ways_to(head.receivers[1])
            case Edge(sender, receiver) | Read(sender, receiver):
                assert sender in opened.ways_to(receiver)
                assert sender not in graph.ways_to(receiver)


HEAD, MLP, LATER = Component("head", 0, 0), Component("mlp", 0), Component("head", 1, 0)


@pytest.fixture(scope="module")
def two_layers() -> Transformer:
    return load_model(random_gpt2(0, layers=2, heads=1))


def test_a_way_leaves_its_own_mean_behind(two_layers):
    means = AnyMeans(two_layers.d_model)
    whole = Components(two_layers).whole()
    way = Path(TOKEN, (HEAD,))
    graph = whole.cut([Edge(way, OUT)], means)
    assert graph.closed == {Edge(way, OUT)}
    torch.testing.assert_close(graph.constants[OUT], whole.constants[OUT] + means[way])
    assert graph.cut([Edge(way, OUT)], means).is_like(graph)
    # The rest of the head's output goes with the edge; what has gone before is not counted again.
    without = graph.cut([Edge(HEAD, OUT)], means)
    assert without.closed == frozenset()
    torch.testing.assert_close(without.constants[OUT], whole.constants[OUT] + means[HEAD])


def test_what_is_not_read_still_counts_in_the_norm(two_layers):
    """As by hand: the stream without it, divided by the root of the variance of the stream with it."""
    graph = Components(two_layers).whole().cut([Read(TOKEN, OUT)], AnyMeans(two_layers.d_model))
    x = inputs(0)
    there = run(two_layers, x, record=[OUT, TOKEN]).values
    stream, unread = there[OUT], there[TOKEN]
    root = (stream.var(-1, correction=0, keepdim=True) + two_layers.final_norm.eps).sqrt()
    rest = stream - unread
    read = (rest - rest.mean(-1, keepdim=True)) / root * two_layers.final_norm.gain + two_layers.final_norm.bias
    assert_same(run(two_layers, x, graph.edits).logits, read @ two_layers.unembedding.T)
    program = simplify(write_program(two_layers, graph.edits, Vocabulary.unnamed(TOKENS), "softmax"))
    [norm] = [s for s in program.statements if isinstance(s, Norm) and NormSite(OUT) in s.sites]
    assert "token" in norm.reads
    assert not any(isinstance(s, Project) and s.input.variable == "token" for s in program.statements)


def test_a_norm_that_is_constant_hears_nothing(two_layers):
    means = AnyMeans(two_layers.d_model)
    unread = Components(two_layers).whole().cut([Read(TOKEN, OUT)], means)
    assert Edge(TOKEN, OUT) in unread.kept
    graph = replace(unread, norms={OUT: 1.5}).cut((), means)
    assert Edge(TOKEN, OUT) not in graph.kept
    assert graph.closed == frozenset()
    torch.testing.assert_close(graph.constants[OUT], unread.constants[OUT])


def test_values_of_which_nothing_is_read_are_none(two_layers):
    means = AnyMeans(two_layers.d_model)
    graph = Components(two_layers).whole().cut([Read(s, HEAD.receivers[2]) for s in (TOKEN, POSITION)], means)
    assert not graph.is_used(HEAD)


def test_an_edge_goes_with_the_last_way_along_it(two_layers):
    means = AnyMeans(two_layers.d_model)
    graph = Components(two_layers).whole().cut([Edge(Path(TOKEN, (HEAD,)), OUT)], means)
    assert Edge(HEAD, OUT) in graph.kept
    graph = graph.cut([Edge(Path(POSITION, (HEAD,)), OUT)], means)
    assert Edge(HEAD, OUT) not in graph.kept
    assert graph.closed == frozenset()
    assert graph.is_used(HEAD), "others still hear it"


def test_attention_goes_with_its_last_product(two_layers):
    means = AnyMeans(two_layers.d_model)
    whole = Components(two_layers).whole()
    products = whole.products(HEAD)
    assert len(products) == 6, "token and position as keys, and both or neither as queries"
    graph = whole.cut(products[1:], means)
    assert graph.products(HEAD) == products[:1]
    graph = whole.cut(products, means)
    assert not any(edge.receiver in HEAD.receivers[:2] for edge in graph.kept)
    assert graph.closed == frozenset()


def test_a_head_that_has_nothing_to_look_for_has_no_queries(two_layers):
    """It attends to everything alike, whatever it asks."""
    means = AnyMeans(two_layers.d_model)
    graph = Components(two_layers).whole().cut([Edge(sender, HEAD.receivers[1]) for sender in (TOKEN, POSITION)], means)
    assert {edge.receiver for edge in graph.kept if edge.receiver in HEAD.receivers} == {HEAD.receivers[2]}


def test_a_graph_is_stored_with_all_that_is_cut(two_layers, tmp_path):
    whole = Components(two_layers).whole()
    way = Path(TOKEN, (HEAD,))
    cut = [whole.anatomy.edges[-1], Edge(way, OUT), Product(TOKEN, POSITION, HEAD), Read(way, LATER.receivers[2])]
    graph = replace(whole, norms={OUT: 1.5}).cut(cut, AnyMeans(two_layers.d_model))
    assert graph.closed == set(cut[1:])
    identity = Identity("a" * 64, "sort", "b" * 64, 0, {}, "1")
    store(tmp_path / "file", Progress([("cut", State(graph))]), identity, 1.0)
    progress, _ = load(tmp_path / "file", two_layers.anatomy, identity)
    [(_, state)] = progress.states
    found = state.graph
    assert found.is_like(graph)
    assert found.norms == graph.norms
    x = inputs(0)
    assert torch.equal(Forward(two_layers, found.edits)(x).logits, Forward(two_layers, graph.edits)(x).logits)


def test_a_tensor_that_programs_share_is_stored_once(two_layers, tmp_path):
    """It may have a hundred megabytes, and a search keeps many programs."""
    program = translate(two_layers)
    again = replace(program, tensors=dict(program.tensors))
    one, other = (Found(1.0, each, each.lines, 0.0) for each in (program, again))
    identity = Identity("a" * 64, "sort", "b" * 64, 0, {}, "1")
    state = State(Components(two_layers).whole())
    for name, found in (("once", [one]), ("twice", [one, other])):
        store(tmp_path / name, Progress([("cut", state)], found), identity, 1.0)
    assert load_file(tmp_path / "once").keys() == load_file(tmp_path / "twice").keys()
    progress, _ = load(tmp_path / "twice", two_layers.anatomy, identity)
    programs = [found.left for found in progress.found if isinstance(found.left, Program)]
    assert [found.digest for found in programs] == [program.digest] * 2
    a, b = (found.tensors for found in programs)
    assert all(a[name] is b[name] for name in a)


# ------------------------------------------------------------------- of a model of many tokens, few are written


def of_many(layers: int, tokens: int, positions: int) -> Transformer:
    shape = Shape(tokens, positions, d_model=8, n_layers=layers, n_heads=2, d_hidden=4)
    weights = initial_weights(shape, seed=0)
    return assemble(shape, {name: tensor + 0.3 * torch.randn(tensor.shape) for name, tensor in weights.items()})


@pytest.mark.parametrize("seed", range(6))
def test_lines_are_counted_on_a_few_of_many_tokens(seed):
    """They stand for the same of the model; only tables are smaller."""
    torch.manual_seed(seed)
    transformer = of_many(1, 700, 530)
    vocabulary, graph = Vocabulary.unnamed(700), random_graph(transformer, seed)
    whole = simplify(write_program(transformer, graph.edits, vocabulary, "softmax"))
    few = simplify(Outlines.of(transformer, vocabulary).write(graph.edits, "softmax"))

    def lines(program: Program) -> list[tuple[str, tuple[Site, ...]]]:
        return sorted(((statement.kind, statement.sites) for statement in program.statements), key=str)

    assert lines(few) == lines(whole)
    assert max(max(tensor.shape) for tensor in few.tensors.values()) <= MOST_ROWS
    assert max(max(tensor.shape) for tensor in whole.tensors.values()) == 700


def test_a_program_that_could_not_be_written_whole_is_not_outlined():
    transformer = of_many(2, 5000, 2000)
    graph = Components(transformer).whole()
    with pytest.raises(TooLargeError, match="more than 250,000,000 numbers, one of them of"):
        Outlines.of(transformer, Vocabulary.unnamed(5000)).write(graph.edits, "softmax")


def test_a_model_of_usual_size_is_its_own_outline(two_layers):
    outlines = Outlines.of(two_layers, Vocabulary.unnamed(two_layers.n_vocab))
    assert outlines.few is two_layers


# -------------------------------------------------------------------------------------- nothing is left


@examples(10)
@given(SIZES)
def test_when_all_is_cut_a_bias_is_left(size):
    transformer = load_model(random_gpt2(*size))
    whole = Components(transformer).whole()
    graph = whole.cut(whole.anatomy.edges, AnyMeans(transformer.d_model))
    assert (graph.kept, graph.closed, graph.live_receivers()) == (frozenset(), frozenset(), (OUT,))
    program = simplify(write_program(transformer, graph.edits, Vocabulary.unnamed(TOKENS), "softmax"))
    assert [type(s).__name__ for s in program.statements] == ["Project", "Prediction"]
    x = inputs(0)
    assert_same(exactly(program, x), run(transformer, x, graph.edits).logits)


@pytest.mark.parametrize("name", ["bin_majority", "tomita1"])
def test_a_model_that_always_says_the_same_is_one_bias(name):
    """Its last layer norm has no gain: a softmax task, and a sigmoid one."""
    task = load_task(name)
    shape = Shape(len(task.vocabulary), task.n_positions, 8, 1, 1, 8)
    weights = initial_weights(shape, 0)
    weights["transformer.ln_f.weight"] *= 0
    weights["transformer.ln_f.bias"] += torch.linspace(-3, 3, 8)
    result = decompile(assemble(shape, weights), task, settings=QUICK)
    assert [type(s).__name__ for s in result.program.statements] == ["Project", "Prediction"]
    assert of_kind(Project, result.program.statements[0]).input.variable == "one"
    assert result.verdict == "decompiled"
    assert result.final.match.all
