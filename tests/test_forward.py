"""The forward pass under every kind of edit: against hooks on Hugging Face's own model, on random models."""

import ast
from functools import partial
from pathlib import Path as FsPath
from typing import TypeVar

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

import drasp
from drasp.attention import attend, causal_bias, causal_weights
from drasp.edits import CUT, Edit, Replaced, Scaled, Shifted, with_values
from drasp.errors import DraspError
from drasp.model_files import load_model
from drasp.plan import Plan
from drasp.running import run
from drasp.sequences import Sequences
from drasp.sites import (
    NO_COMPONENT,
    OUT,
    POSITION,
    TOKEN,
    Anatomy,
    Component,
    Edge,
    NormSite,
    Path,
    Pattern,
    Product,
    Read,
    Receiver,
    Site,
    parse_site,
    parse_sites,
)
from drasp.transformer import Transformer
from effort import examples, in_both, part
from hooked_model import HookedModel
from model_sites import sites_of
from random_models import logits_of, random_gpt2
from typed import blocks_of

T = TypeVar("T")
SIZES = st.tuples(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 3))
POSITIONS = torch.arange(6) + torch.tensor([[0], [1], [2], [0]])


def inputs(seed: int) -> tuple[Tensor, Tensor]:
    return torch.randint(5, (4, 6), generator=torch.Generator().manual_seed(seed)), POSITIONS


KINDS = tuple(sites_of(Anatomy(1, 1)))


def shape_of(site: Site, d_model: int) -> tuple[int, ...]:
    match site:
        case Pattern() | Product():
            return (4, 6, 6)
        case NormSite():
            return (4, 6)
        case _:
            return (4, 6, d_model)


def random_edit(site: Site, d_model: int, generator: torch.Generator) -> Edit:
    """A constant, values by row and position, a share a row, or something more."""

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    value = noise(*shape_of(site, d_model))
    match site:
        case Pattern():
            value = value.softmax(-1).tril()
        case NormSite():
            value = value.abs() + 0.5
        case _:
            pass

    def pick(*choices: T) -> T:
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    # Whatever is broadcast to the value: the same in all rows, at all positions, in all dimensions.
    part = pick(value, value[:1], value[0], value[:, :1], value[..., :1], value[0, 0], float(value[0, 0].sum() + 0.5))
    share = torch.rand(4, generator=generator, dtype=torch.float64)
    edits = [Replaced(part), Replaced(value), Scaled(share, part), Scaled(0.5), Shifted(abs(part))]
    return pick(*edits, *(() if isinstance(site, NormSite) else (CUT,)))  # nothing can be divided by 0


@in_both
@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_does_what_a_hook_does(kind):
    @settings(max_examples=part(150))
    @given(size=SIZES, which=st.integers(0, 2**32))
    def check_one(size, which):
        model = random_gpt2(*size)
        generator = torch.Generator().manual_seed(which)
        transformer = load_model(model)
        sites = sites_of(transformer.anatomy)[kind]
        if not sites:
            return
        site = sites[which % len(sites)]
        edit = random_edit(site, transformer.d_model, generator)
        ids, positions = inputs(which)
        expected = HookedModel(model, {site: edit}).logits(ids, positions)
        found = run(transformer, Sequences(ids, positions), {site: edit}, record=[site])
        torch.testing.assert_close(found.logits, expected, rtol=1e-7, atol=1e-7)

    check_one()


@examples(250)
@given(SIZES, st.integers(0, 2**32), st.integers(1, 8))
@example((0, 1, 2), 20000, 8)  # what is read behind the norm of a receiver that is replaced
def test_many_edits_at_once(size, which, count):
    """Of all kinds; also where logits are wanted at some positions only."""
    model = random_gpt2(*size)
    generator = torch.Generator().manual_seed(which)
    transformer = load_model(model)
    every = [site for sites in sites_of(transformer.anatomy).values() for site in sites]
    chosen = [every[int(torch.randint(len(every), (), generator=generator))] for _ in range(count)]
    edits = {site: random_edit(site, transformer.d_model, generator) for site in chosen}
    ids, positions = inputs(which)
    reference = HookedModel(model, edits)
    expected = reference.logits(ids, positions)
    close = partial(torch.testing.assert_close, rtol=1e-7, atol=1e-7)
    close(run(transformer, Sequences(ids, positions), edits).logits, expected)
    recorded = run(transformer, Sequences(ids, positions), edits, record=chosen)
    close(recorded.logits, expected)
    for site in chosen:
        # Once sides of a layer are edited apart, they share no norm.
        if isinstance(site, NormSite) and site.receiver.kind == "attention" and len(edits) > 1:
            continue
        close(recorded.values[site].expand(shape_of(site, transformer.d_model)), reference.values[site])
    # Anywhere, and at the first positions, which are not looked up.
    for where in (torch.randint(6, (4, 3), generator=generator), torch.arange(3).expand(4, 3)):
        narrow = {site: at_wanted(site, edit, where, transformer) for site, edit in edits.items()}
        found = run(transformer, Sequences(ids, positions, where), narrow)
        wanted = expected.gather(1, where[..., None].expand(-1, -1, 5))
        close(found.logits, wanted)


def at_wanted(site: Site, edit: Edit, where: Tensor, model: Transformer) -> Edit:
    """The edit for a run in which the last layer's queries, its MLP and the output are at some positions only."""
    last = model.anatomy.n_layers - 1

    def is_narrow(place: Site) -> bool:
        match place:
            case Component(kind, layer):
                return layer == last and kind in ("head", "mlp")
            case Receiver(layer, kind):
                return kind == "out" or (layer == last and kind in ("query", "mlp"))
            case Pattern(head) | Product(head=head):
                return head.layer == last
            case NormSite(receiver) | Edge(receiver=receiver) | Read(receiver=receiver):
                return is_narrow(receiver)
            case _:
                raise AssertionError(place)

    def cut(value: float | Tensor) -> float | Tensor:
        if not isinstance(value, Tensor) or not is_narrow(site):
            return value
        value = value.expand(shape_of(site, model.d_model))
        return value.gather(1, where.view(4, 3, *[1] * (value.ndim - 2)).expand(-1, -1, *value.shape[2:]))

    changed = with_values(edit, cut)
    assert changed is not None
    return changed


@settings(max_examples=30)
@given(SIZES, st.integers(0, 2**32))
def test_what_is_recorded_is_what_is_there(size, which):
    model = random_gpt2(*size)
    transformer = load_model(model)
    ids, positions = inputs(which)
    sites = [
        site
        for kind, sites in sites_of(transformer.anatomy).items()
        if kind not in ("path", "read", "product")
        for site in sites
    ]
    reference = HookedModel(model, {})
    torch.testing.assert_close(reference.logits(ids, positions), logits_of(model, ids, positions))
    found = run(transformer, Sequences(ids, positions), record=sites)
    torch.testing.assert_close(found.logits, logits_of(model, ids, positions))
    for site in sites:
        torch.testing.assert_close(found.values[site].expand_as(reference.values[site]), reference.values[site])


@settings(max_examples=15)
@given(SIZES, st.integers(0, 2**32))
def test_a_head_is_the_sum_of_its_paths_and_its_scores_that_of_their_products(size, which):
    transformer = load_model(random_gpt2(*size))
    ids, positions = inputs(which)
    last = Component("head", transformer.anatomy.n_layers - 1, 0)
    senders = (NO_COMPONENT, *Plan(transformer.anatomy, {}, frozenset()).ways_to(last.receivers[0]))
    products: dict[Site, Edit] = {Product(q, k, last): CUT for q in senders for k in senders}
    without = run(transformer, Sequences(ids, positions), products, [Pattern(last)])
    uniform = torch.ones(6, 6, dtype=torch.float64).tril() / torch.arange(1, 7)[:, None]
    torch.testing.assert_close(without.values[Pattern(last)], uniform.expand(4, -1, -1))
    first = Component("head", 0, 0)
    paths = [Edge(Path(sender, (first,)), OUT) for sender in (TOKEN, POSITION)]
    whole = run(transformer, Sequences(ids, positions), record=[first, *paths]).values
    # What is left is the norm's and the value's bias, which attention passes on as it is.
    rest = whole[first] - sum(whole[path] for path in paths)
    torch.testing.assert_close(rest, rest[:1, :1].expand_as(rest), rtol=1e-6, atol=1e-6)


def test_hugging_faces_own_hooks():
    """A head's output, an MLP's, an embedding, and one edge, edited while Hugging Face's forward pass runs."""
    model = random_gpt2(5, layers=2, heads=2)
    transformer, (ids, positions) = load_model(model), inputs(0)
    vector = torch.arange(8, dtype=torch.float64) / 4
    block = blocks_of(model)[1]
    head = Component("head", 1, 1)
    kept: dict[str, Tensor] = {}

    def silence_head(_module, arguments):
        return (torch.cat([arguments[0][..., :4], 0 * arguments[0][..., 4:]], -1),)

    def without_token(_module, arguments, output):
        x = kept["x"] - model.transformer.wte(ids) + vector
        normed = torch.nn.functional.layer_norm(x, (8,), block.ln_1.weight, block.ln_1.bias, block.ln_1.eps)
        other = normed @ block.attn.c_attn.weight + block.attn.c_attn.bias
        return torch.cat([output[..., :4], other[..., 4:8], output[..., 8:]], -1)

    cases = [
        (lambda: [block.attn.c_proj.register_forward_pre_hook(silence_head)], {head: CUT}),
        (
            lambda: [block.mlp.register_forward_hook(lambda *_: vector.expand(4, 6, 8))],
            {Component("mlp", 1): Replaced(vector)},
        ),
        (lambda: [model.transformer.wpe.register_forward_hook(lambda *a: a[2] / 2)], {POSITION: Scaled(0.5)}),
        (
            lambda: [
                block.ln_1.register_forward_pre_hook(lambda _m, arguments: kept.update(x=arguments[0])),
                block.attn.c_attn.register_forward_hook(without_token),
            ],
            {Edge(TOKEN, Receiver(1, "query", 1)): Replaced(vector)},
        ),
    ]
    plain = logits_of(model, ids, positions)
    for register, edits in cases:
        hooks = register()
        expected = logits_of(model, ids, positions)
        for hook in hooks:
            hook.remove()
        assert (expected - plain).abs().max() > 1e-5
        torch.testing.assert_close(run(transformer, Sequences(ids, positions), edits).logits, expected)


def test_rows_of_a_batch_may_be_edited_apart():
    """One batch of many candidates says what each says alone."""
    transformer, (ids, positions) = load_model(random_gpt2(1, layers=2, heads=2)), inputs(1)
    edges = transformer.anatomy.edges[::7]
    rows = Sequences(ids[:1].expand(len(edges), -1), positions[:1].expand(len(edges), -1))
    kept = 1 - torch.eye(len(edges), dtype=torch.float64)
    together = run(transformer, rows, {edge: Scaled(kept[:, i]) for i, edge in enumerate(edges)}).logits
    for i, edge in enumerate(edges):
        alone = run(transformer, Sequences(ids[:1], positions[:1]), {edge: CUT}).logits
        torch.testing.assert_close(together[i : i + 1], alone)


def test_a_site_that_the_model_does_not_have_is_refused_by_name():
    transformer, (ids, positions) = load_model(random_gpt2(1, layers=1, heads=1)), inputs(1)
    with pytest.raises(DraspError, match="no site layer 3 head 0"):
        run(transformer, Sequences(ids, positions), {Component("head", 3, 0): CUT})


@pytest.mark.parametrize("kind", KINDS)
def test_every_site_has_one_spelling(kind):
    anatomy = Anatomy(3, 2)
    sites = sites_of(anatomy)[kind]
    assert len({str(site) for site in sites}) == len(sites)
    assert all(parse_site(str(site)) == site and anatomy.has(site) for site in sites)
    assert parse_sites(", ".join(map(str, sites))) == tuple(sites)


@pytest.mark.parametrize(
    "text",
    [
        *("", "token ->", "layer 0", "head 1", "layer 0 head 0 pattern norm", "a > b -> out", "token -> final norm"),
        # Another spelling of a site would be printed otherwise than it was written.
        *("layer 00 mlp", "layer 0 head 01", "layer \u0663 mlp", "Layer 0 mlp", "token\n", " token", "token  -> out"),
        "one",  # no place of a model, but for what is left of a query or a key
        *("layer 0 mlp > layer 1 mlp -> out", "token * pos -> out", "token * pos * token -> layer 0 head 0 pattern"),
    ],
)
def test_other_texts_are_no_sites(text):
    assert parse_site(text) is None


PIECES = (
    "token",
    "pos",
    "one",
    "out",
    "layer",
    "head",
    "mlp",
    "query",
    "pattern",
    "norm",
    "input",
    "attention",
    "final",
)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join))
def test_what_is_read_as_a_site_is_written_as_it_was(text):
    site = parse_site(text)
    assert site is None or str(site) == text


# Softmax over something else than keys: what a prediction says, and what the model's logits say (for harm, and for the
# paper's gates); and one in NumPy that bounds its own errors.
OTHER_SOFTMAX = {
    "language/interpreter.py": 1,
    "decompiler/harm.py": 1,
    "decompiler/ugs/gates.py": 1,
    "certificates/level.py": 1,
}


def test_attention_is_computed_in_one_place():
    """No softmax is taken, and no fused kernel called, outside `attention.py` but for what is said here."""
    package = FsPath(drasp.__file__).parent
    texts = {str(path.relative_to(package)): path.read_text() for path in sorted(package.rglob("*.py"))}
    found = {name: len(calls(text)) for name, text in texts.items() if calls(text)}
    assert found.pop("attention.py") == 3
    assert found == OTHER_SOFTMAX


@given(st.integers(0, 2**32), st.sampled_from([(2,), (2, 3)]), st.booleans())
def test_the_fused_ways_of_attending_give_the_same(seed, batch, narrow):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(*batch, 6, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    queries = torch.randint(6, (2, 3), generator=generator) if narrow else torch.arange(6)[None]
    bias = causal_bias(queries, 6).double()
    bias, q = (bias if len(batch) == 1 else bias[:, None]), q[..., : queries.shape[1], :]
    expected = causal_weights(0.3 * q @ k.mT, bias) @ v
    torch.testing.assert_close(attend(q, k, v, bias, 0.3, 0.0), expected)
    with torch.no_grad():
        torch.testing.assert_close(attend(q, k, v, bias, 0.3, 0.0), expected)


def calls(text: str) -> list[str]:
    """The names under which softmax or fused attention is called in a module."""
    nodes = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    names = [node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in nodes]
    return [name for name in names if name in ("softmax", "scaled_dot_product_attention", "logsumexp", "Softmax")]


@settings(max_examples=15)
@given(SIZES, st.integers(0, 2**32))
def test_what_is_read_of_a_way_is_recorded_as_it_comes(size, which):
    """Behind the norm or before it, a way is the same; only what becomes of it differs."""
    transformer = load_model(random_gpt2(*size))
    ids, positions = inputs(which)
    reads = [site for site in sites_of(transformer.anatomy)["read"] if isinstance(site, Read)]
    edges = [Edge(site.sender, site.receiver) for site in reads]
    found = run(transformer, Sequences(ids, positions), record=[*reads, *edges])
    torch.testing.assert_close(found.logits, run(transformer, Sequences(ids, positions)).logits)
    for read, edge in zip(reads, edges, strict=True):
        torch.testing.assert_close(found.values[read], found.values[edge])
