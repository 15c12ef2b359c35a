"""The model in the page computes what Python's does, under every kind of edit."""

from pathlib import Path as FsPath

import pytest
import torch
from torch import Tensor

import drasp.report
from drasp.edits import CUT, Edit, Replaced, Scaled, Shifted
from drasp.loading import ZOO_FOLDER
from drasp.model_files import load_model
from drasp.report.model import PageModel, page_model
from drasp.running import run
from drasp.sequences import Sequences
from drasp.sites import OUT, Component, ConstantNorm, Edge, NormSite, Pattern, Product, Site
from drasp.transformer import Transformer, converted
from model_sites import sites_of
from page_edits import in_page
from published import MODELS, needs_published_models
from random_models import random_gpt2
from typed import T

SCRIPTS = [
    FsPath(drasp.report.__file__).with_name(name)
    for name in ("edits.js", "matrices.js", "interpreter.js", "model.js", "forward.js")
]
ZOO = sorted(folder for folder in ZOO_FOLDER.iterdir() if folder.is_dir())

SET_UP = """async ({ shape, tensors }) => { globalThis.model = new Model(shape, await unpackTensors(tensors)); }"""
RUN = """(cases) => cases.map(([ids, offset, edits, record]) => {
    const { logits, values } = model.run(ids, offset, edits, record);
    return [[...logits], record.map((site) => [...values.get(site)])];
})"""


@pytest.fixture(scope="module")
def model_page(browser):
    page = browser.new_page()
    for script in SCRIPTS:
        page.add_script_tag(path=script)
    yield page
    page.close()


def shape_of(site: Site, length: int, d_model: int) -> tuple[int, ...]:
    match site:
        case Pattern() | Product():
            return length, length
        case NormSite():
            return (length,)
        case _:
            return length, d_model


def edit_of(site: Site, length: int, d_model: int, generator: torch.Generator) -> Edit:
    """One of the three edits, with a number, a vector, or a value for every position."""
    value = torch.randn(shape_of(site, length, d_model), generator=generator, dtype=torch.float64)
    match site:
        case Pattern():
            value = value.softmax(-1).tril()
        case NormSite():
            value = value.abs() + 0.5
        case _:
            pass
    parts = [value, value[-1], float(value.flatten()[0].abs() + 0.3)]

    def pick(choices: list[T]) -> T:
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    part = pick(parts[::2] if isinstance(site, NormSite) else parts)
    edits = [Replaced(part), Replaced(value), Scaled(0.3, part), Scaled(0.5), Shifted(abs(part))]
    return pick(edits if isinstance(site, NormSite) else [*edits, CUT])  # nothing can be divided by 0


@torch.no_grad()
def check_equal(page, stored: PageModel, cases: list[tuple[list[int], int, dict[Site, Edit]]]) -> None:
    """Logits and edited values from the weights as a page packs them, against those of Python's forward pass."""
    page.evaluate(SET_UP, stored.to_json())
    transformer = converted(stored.transformer, lambda weight: weight.double())
    # What constants are divided by can be edited, and not recorded.
    recorded = [[site for site in edits if not isinstance(site, ConstantNorm)] for _, _, edits in cases]
    asked = [
        [ids, offset, {str(site): in_page(edit) for site, edit in edits.items()}, list(map(str, sites))]
        for (ids, offset, edits), sites in zip(cases, recorded, strict=True)
    ]
    for (ids, offset, edits), sites, (logits, values) in zip(cases, recorded, page.evaluate(RUN, asked), strict=True):
        length = len(ids)
        inputs = Sequences(torch.tensor([ids]), torch.arange(offset, offset + length)[None])
        expected = run(transformer, inputs, edits, record=sites)
        close(logits, expected.logits)
        for site, value in zip(sites, values, strict=True):
            shape = shape_of(site, length, transformer.d_model)
            theirs = expected.values[site].expand(1, *shape)
            if isinstance(site, Product) and not isinstance(edits[site], Replaced):
                # Of scores, those of keys that come later are nobody's business.
                value = torch.tensor(value).view(shape).tril().flatten().tolist()
                theirs = theirs.tril()
            close(value, theirs)


def close(found: list[float], expected: Tensor) -> None:
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), expected.flatten(), rtol=0, atol=1e-4)


def random_cases(transformer: Transformer, count: int, seed: int, longest: int = 24) -> list:
    """Inputs, the first without edits and each of the others with up to three, so that every kind is among them."""
    generator = torch.Generator().manual_seed(seed)

    def below(n: int) -> int:
        return int(torch.randint(n, (), generator=generator))

    sites = {kind: found for kind, found in sites_of(transformer.anatomy).items() if found}
    cases = []
    for number in range(count):
        length = 1 + below(min(longest, transformer.n_positions))
        ids = torch.randint(transformer.n_vocab, (length,), generator=generator).tolist()
        kinds = [list(sites)[(number + i) % len(sites)] for i in range(1 + number % 3)] if number else []
        chosen = [sites[kind][below(len(sites[kind]))] for kind in kinds]
        edits = {site: edit_of(site, length, transformer.d_model, generator) for site in chosen}
        cases.append((ids, below(transformer.n_positions - length + 1), edits))
    return cases


@pytest.mark.parametrize("seed", [5, 6, 11])
def test_the_model_in_the_page_is_pythons(model_page, seed):
    layers, heads = [(1, 1), (2, 2), (3, 1), (1, 3)][seed % 4]
    activation = ("gelu_new", "relu", "gelu")[seed % 3]
    model = random_gpt2(seed, layers, heads, activation=activation, tie_word_embeddings=seed % 2 == 0)
    transformer = converted(load_model(model), lambda weight: weight.float())
    check_equal(model_page, PageModel(transformer, "single"), random_cases(transformer, 25, seed))


def test_constants_are_divided_by_norms_of_their_own(model_page):
    transformer = converted(load_model(random_gpt2(1, 2, 2)), lambda weight: weight.float())
    cases = []
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(transformer.anatomy.receivers), generator=generator)[:4]
        receivers = [transformer.anatomy.receivers[int(i)] for i in chosen]
        edits: dict[Site, Edit] = {ConstantNorm(r): Replaced(0.4 + seed / 9) for r in receivers if r.kind != "mlp"}
        others: list[Site] = [NormSite(receivers[0]), Edge(Component("head", 0, 1), OUT), receivers[1]]
        changes: list[Edit] = [Replaced(1.3), CUT, Shifted(0.2)]
        edits[others[seed % 3]] = changes[seed % 3]
        cases.append(([0, 3, 1, 4][: 1 + seed % 4], seed % 3, edits))
    check_equal(model_page, PageModel(transformer, "single"), cases)


def test_a_site_that_the_model_does_not_have_is_refused(model_page):
    model_page.evaluate(SET_UP, PageModel(load_model(ZOO_FOLDER / "bin_majority"), "single").to_json())
    for site in ("layer 1 mlp", "layer 0 head 1 pattern", "token -> layer 0 head 3 query", "nowhere", "token -> x"):
        with pytest.raises(Exception, match="The model has no site"):
            model_page.evaluate(RUN, [[[0], 0, {}, [site]]])


@pytest.mark.parametrize("name", ["bin_majority", "D12"])
def test_the_model_in_the_page_is_pythons_for_the_zoo(model_page, name):
    check_all_edits(model_page, ZOO_FOLDER / name, count=10)


@pytest.mark.long
@pytest.mark.parametrize("folder", ZOO, ids=lambda folder: folder.name)
def test_the_model_in_the_page_is_pythons_for_all_of_the_zoo(model_page, folder):
    check_all_edits(model_page, folder, count=20)


@pytest.mark.long
@needs_published_models
@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_the_model_in_the_page_is_pythons_for_published_models(model_page, folder):
    check_all_edits(model_page, folder, count=20)


def check_all_edits(page, folder: FsPath, count: int) -> None:
    """At the precision at which a page holds the model if half precision changes no answer."""
    stored = page_model(load_model(folder), lambda _: True)
    assert stored is not None
    check_equal(page, stored, random_cases(stored.transformer, count, seed=1))


def test_a_model_that_differs_would_be_noticed(model_page):
    transformer = load_model(ZOO_FOLDER / "bin_majority")
    model_page.evaluate(SET_UP, PageModel(converted(transformer, lambda weight: weight * 1.001), "single").to_json())
    [[logits, _]] = model_page.evaluate(RUN, [[[0, 1], 0, {}, []]])
    with pytest.raises(AssertionError):
        close(logits, transformer(torch.tensor([[0, 1]]), torch.tensor([[0, 1]])).double())


def test_weights_are_as_exact_as_answers_need_them():
    def random(**options) -> Transformer:
        return converted(load_model(random_gpt2(0, **options)), lambda weight: weight.float())

    large = random(layers=1, heads=4, d_head=64)

    def precision(transformer: Transformer, answers_alike: bool) -> str | None:
        stored = page_model(transformer, lambda _: answers_alike)
        return stored.precision if stored else None

    assert precision(load_model(ZOO_FOLDER / "bin_majority"), answers_alike=False) == "single"
    assert precision(large, answers_alike=True) == "half"
    assert precision(large, answers_alike=False) == "single"
    assert precision(random(layers=3, heads=4, d_head=128), answers_alike=True) is None
    stored = page_model(large, lambda rounded: torch.equal(rounded.unembedding, large.unembedding.half().float()))
    assert stored is not None
    assert stored.precision == "half"
