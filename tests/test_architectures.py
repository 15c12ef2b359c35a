"""Transformers that differ from a GPT-2: run, edited, translated and stored as exactly as it."""

from dataclasses import asdict, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drasp.decompiler.components import Components, Edits
from drasp.decompiler.moves import norm_lines
from drasp.edits import CUT, Edit, Replaced, Scaled
from drasp.errors import DraspError
from drasp.forward import Forward
from drasp.language import Interpreter, check, load_program, parse, program_files, to_text
from drasp.layers import NormKind
from drasp.loading import fitted_task
from drasp.model_files import digest, load_model, model_files, read_folder
from drasp.output_folder import write_files
from drasp.report.examples import draw_examples
from drasp.report.model import page_model
from drasp.report.page import report_page
from drasp.running import run
from drasp.sequences import Sequences
from drasp.sites import OUT, Component, Edge, NormSite, Receiver, Site
from drasp.tasks import TASKS
from drasp.transformer import Shape, Transformer, assemble, converted
from drasp.translation import theorem_lines, translate, translation_size
from drasp.vocabulary import Vocabulary
from effort import examples

shapes = st.builds(
    Shape,
    n_vocab=st.just(5),
    n_positions=st.just(8),
    d_model=st.sampled_from([4, 6]),
    n_layers=st.integers(0, 2),
    n_heads=st.integers(1, 2),
    d_hidden=st.sampled_from([0, 7]),
    activation=st.sampled_from(["relu", "gelu", "gelu_new", "silu"]),
    eps=st.sampled_from([1e-5, 0.1]),
    scale_by_head=st.booleans(),
    tied=st.booleans(),
    d_head=st.sampled_from([1, 2, 5]),
    norm=st.sampled_from(["layer", "rms", "none"]),
    unembedding_bias=st.booleans(),
)
seeds = st.integers(0, 2**32)


def random_weights(shape: Shape, seed: int, biases: bool = True) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, size in shape.weight_shapes().items():
        noise = torch.randn(size, generator=generator, dtype=torch.float64)
        if name.endswith("bias"):
            weights[name] = 0.5 * noise * biases
        elif ".ln_" in name:
            weights[name] = 1 + 0.3 * noise
        else:
            weights[name] = noise / size[0] ** 0.5
    return weights


def random_model(shape: Shape, seed: int, biases: bool = True) -> Transformer:
    return assemble(shape, random_weights(shape, seed, biases))


def some_inputs(seed: int) -> Sequences:
    generator = torch.Generator().manual_seed(seed)
    return Sequences(torch.randint(5, (3, 6), generator=generator), torch.arange(6) + torch.tensor([[0], [1], [2]]))


@examples(200)
@given(shape=shapes, seed=seeds, biases=st.booleans())
def test_translations_are_exact(shape, seed, biases):
    model = random_model(shape, seed, biases)
    program = translate(model)
    assert check(program) == []
    assert program.lines == translation_size(model).total
    x = some_inputs(seed)
    torch.testing.assert_close(
        Interpreter(program, torch.float64)(x.ids, x.positions), model(x.ids, x.positions), rtol=1e-8, atol=1e-8
    )


@examples(100)
@given(shape=shapes, seed=seeds, share=st.floats(0, 0.6), constant=st.sampled_from([None, 1.5]))
def test_translations_of_edited_models_are_exact(shape, seed, share, constant):
    model = random_model(shape, seed)
    generator = torch.Generator().manual_seed(seed)
    gone = torch.rand(len(model.anatomy.edges), generator=generator) < share
    edits: dict[Site, Edit] = {edge: CUT for edge, cut in zip(model.anatomy.edges, gone.tolist(), strict=True) if cut}
    for receiver in model.anatomy.receivers:
        if constant and torch.rand((), generator=generator) < 0.5:
            edits[NormSite(receiver)] = Replaced(constant)
    x = some_inputs(seed)
    found = Interpreter(translate(model, edits=edits), torch.float64)(x.ids, x.positions)
    torch.testing.assert_close(found, run(model, x, edits).logits, rtol=1e-8, atol=1e-8)


@examples(60)
@given(shape=shapes, seed=seeds)
def test_a_gate_that_is_shut_in_a_row_is_a_cut_there(shape, seed):
    """Gates take another way through the forward pass than cuts, and the plain pass a third."""
    model, x = random_model(shape, seed), some_inputs(seed)
    edges = model.anatomy.edges
    shut = torch.rand(3, len(edges), generator=torch.Generator().manual_seed(seed)) < 0.3
    shut[0] = False
    gates: dict[Site, Edit] = {edge: Scaled(1 - shut[:, i].double()) for i, edge in enumerate(edges)}
    gated = run(model, x, gates).logits
    torch.testing.assert_close(gated[0], model(x.ids, x.positions)[0], rtol=1e-8, atol=1e-8)
    for row in (1, 2):
        cuts: dict[Site, Edit] = {edge: CUT for i, edge in enumerate(edges) if shut[row, i]}
        torch.testing.assert_close(gated[row], run(model, x, cuts).logits[row], rtol=1e-8, atol=1e-8)


@examples(60)
@given(shape=shapes, seed=seeds)
def test_logits_at_some_positions_are_those_of_all(shape, seed):
    model, x = random_model(shape, seed), some_inputs(seed)
    where = torch.tensor([[1, 5], [0, 2], [4, 5]])
    whole = model(x.ids, x.positions)
    several: tuple[Edits, ...] = ({}, {Edge(Component("token"), OUT): Scaled(1.0)})
    for edits in several:
        narrow = Forward(model, edits)(replace(x, where=where)).logits
        torch.testing.assert_close(narrow, torch.stack([row[at] for row, at in zip(whole, where, strict=True)]))


def test_norms_are_what_their_definitions_say():
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    references: dict[NormKind, torch.Tensor] = {
        "layer": torch.nn.functional.layer_norm(x, (6,), eps=1e-5),
        "rms": torch.nn.functional.rms_norm(x, (6,), eps=1e-5),
        "none": x,
    }
    for kind, reference in references.items():
        shape = Shape(5, 8, 6, 0, 1, 0, norm=kind)
        norm = assemble(shape, random_weights(shape, 0)).final_norm
        expected = reference * norm.gain + norm.bias
        torch.testing.assert_close(norm(x), expected)
        torch.testing.assert_close(norm.centred(x) / norm.root(x)[:, None] * norm.gain + norm.bias, expected)


def test_what_is_not_there_takes_no_line():
    plain = Shape(5, 8, 4, 2, 2, 8, d_head=3, norm="none")
    attention_only = replace(plain, d_hidden=0)
    for shape, has_mlps in ((plain, True), (attention_only, False)):
        model = random_model(shape, 0, biases=False)
        program = translate(model)
        assert program.lines == theorem_lines(2, 2, has_mlps=has_mlps)
        assert translation_size(model).norms == 0
    # A layer of two heads: 4 selects and 2 aggregates each; 2 + 4 projects, bias and prediction.
    assert theorem_lines(1, 2, has_mlps=False) == 2 * 6 + 6 + 2


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_new", "silu"])
def test_programs_with_every_activation_can_be_stored(activation, tmp_path):
    model = random_model(Shape(5, 8, 4, 1, 1, 6, activation=activation, norm="rms"), 1)
    program = translate(model)
    for name, content in program_files(program).items():
        (tmp_path / name).write_bytes(content)
    x, stored = some_inputs(0), load_program(tmp_path)
    assert to_text(parse(to_text(program), program.tensors)) == to_text(program)
    torch.testing.assert_close(
        Interpreter(stored, torch.float64)(x.ids, x.positions), model(x.ids, x.positions), rtol=1e-6, atol=1e-6
    )
    own: dict = {}
    exec((tmp_path / "program.py").read_text(), own)
    found = torch.as_tensor(own["logits"](x.ids[1].tolist(), 1))
    torch.testing.assert_close(found, model(x.ids, x.positions)[1], rtol=1e-6, atol=1e-6)


# ------------------------------------------------------------------------------------------- files


@examples(60)
@given(shape=shapes, seed=seeds)
def test_folders_hold_every_shape(tmp_path_factory, shape, seed):
    folder, weights = tmp_path_factory.mktemp("models") / "model", random_weights(shape, seed)
    write_files(folder, model_files(shape, weights))
    found, read = read_folder(folder)
    assert replace(found, d_head=found.head_width) == shape
    assert all(torch.equal(read[name], weight) for name, weight in weights.items())
    assert digest(load_model(folder)) == digest(assemble(shape, weights))


def test_digests_tell_architectures_apart():
    shape = Shape(5, 8, 4, 1, 2, 8, tied=False)
    weights = random_weights(replace(shape, unembedding_bias=True), 0, biases=False)
    others = [
        shape,
        replace(shape, norm="rms"),
        replace(shape, norm="none"),
        replace(shape, d_hidden=0),
        replace(shape, unembedding_bias=True),
        replace(shape, activation="silu"),
        replace(shape, eps=1e-6),
        replace(shape, scale_by_head=False),
        replace(shape, n_heads=1, d_head=4),
        replace(shape, n_heads=4, d_head=1),
    ]
    assert len({digest(assemble(each, weights)) for each in others}) == len(others)


OWN = Shape(5, 8, 6, 1, 2, 0, d_head=2, norm="rms", tied=False, unembedding_bias=True)
DAMAGES = {
    "norm": ({"norm": "batch"}, "expected norm to be one of layer, rms, none, found 'batch'"),
    "width": ({"d_head": None}, "expected a positive whole number for d_head, found None"),
    "hidden": ({"d_hidden": -1}, "expected a positive whole number for d_hidden, found -1"),
    "flag": ({"unembedding_bias": 1}, "expected true or false for unembedding_bias, found 1"),
    "activation": ({"activation": "tanh"}, "expected activation to be one of gelu_new, gelu, relu, silu, found 'tanh'"),
    "field": ({"rotary": True}, "rotary is no field of a model of drasp's"),
    "shape": ({"d_head": 3}, "c_attn.weight has shape (6, 12), expected (6, 18)"),
    "missing": ({"norm": "layer"}, "tensor transformer.h.0.ln_1.bias is missing"),
    "more": ({"norm": "none"}, "unexpected tensor transformer.h.0.ln_1.weight"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_folders_are_refused_in_one_line(damage, tmp_path):
    import json

    changes, message = DAMAGES[damage]
    write_files(tmp_path, model_files(OWN, random_weights(OWN, 0)))
    config = {"model_type": "drasp", **asdict(OWN)} | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(DraspError) as caught:
        load_model(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


# ------------------------------------------------------------------------------------------- pages, graphs, tasks


@pytest.mark.parametrize(
    "changes",
    [{"norm": "rms"}, {"norm": "none"}, {"d_hidden": 0}, {"d_head": 3}, {"unembedding_bias": True}],
    ids=str,
)
def test_a_page_does_not_run_what_is_no_gpt2(changes):
    shape = replace(Shape(5, 8, 4, 1, 2, 8), **changes)
    model = random_model(shape, 0)
    assert page_model(model, lambda _: True) is None
    assert page_model(random_model(Shape(5, 8, 4, 1, 2, 8), 0), lambda _: True) is not None
    assert digest(converted(model, lambda weight: weight)) == digest(model)
    assert digest(converted(model, lambda weight: 2 * weight)) != digest(model)


def test_a_page_shows_what_was_recorded_of_a_model_that_it_cannot_run(browser, tmp_path):
    model = random_model(Shape(5, 8, 4, 1, 1, 0, norm="none"), 0)
    program = translate(model)
    examples = draw_examples(program, None, model)
    (tmp_path / "report.html").write_bytes(report_page(program, {}, examples))
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((tmp_path / "report.html").as_uri())
    page.wait_for_selector("#listing li")
    data = page.evaluate("() => JSON.parse(document.getElementById('data').textContent)")
    page.close()
    assert errors == []
    assert "tensors" not in data["model"]
    first, x = data["examples"]["steps"][0], examples.steps[0]
    assert first["model"] == [[int(token)] for token in model(*_alone(x.ids))[0].argmax(-1)]


def _alone(ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([ids]), torch.arange(len(ids))[None]


def test_a_model_without_norms_has_none_to_cut():
    model = random_model(Shape(5, 8, 4, 2, 1, 8, norm="none"), 0)
    whole = Components(model).whole()
    assert norm_lines(whole) == []
    assert not any(whole.has_norm(receiver) for receiver in whole.anatomy.receivers)
    x = some_inputs(0)
    recorded = run(model, x, {}, [NormSite(OUT), NormSite(Receiver(1, "query", 0))]).values
    assert all((value == 1).all() for value in recorded.values())


def test_spare_tokens_get_names():
    task = TASKS["bin_majority"]
    size = len(task.vocabulary)
    model = random_model(Shape(size + 2, task.n_positions, 4, 1, 1, 0), 0)
    fitted = fitted_task(task, model, "the model")
    assert fitted.vocabulary.tokens == (*task.vocabulary.tokens, f"spare{size}", f"spare{size + 1}")
    assert fitted.vocabulary.special == (*task.vocabulary.special, f"spare{size}", f"spare{size + 1}")
    assert fitted_task(task, random_model(Shape(size, task.n_positions, 4, 1, 1, 0), 0), "the model") is task
    with pytest.raises(DraspError, match=rf"has {size} tokens \(.*\), but the model has {size - 1}"):
        fitted_task(task, random_model(Shape(size - 1, task.n_positions, 4, 1, 1, 0), 0), "the model")
    with pytest.raises(DraspError, match=r"needs 154 positions \(.*\), but the model has 9"):
        fitted_task(task, random_model(Shape(size, 9, 4, 1, 1, 0), 0), "the model")
    assert Vocabulary(("a", "spare2")).widened(4).tokens == ("a", "spare2", "spare2_", "spare3")
