"""Each measure against a version of it that loops over inputs and positions, on hooked models and naive programs."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import GPT2LMHeadModel

import naive
from causal_models import ANSWERS, SETS, lively_gpt2, trials_of
from drasp.causal import Mechanism, attention, complement, edited, interchange, splice
from drasp.causal.attention import _places, looks_of
from drasp.causal.complement import Rest
from drasp.causal.means import with_means
from drasp.causal.measures import (
    BinMean,
    Cases,
    Measure,
    alike,
    status_of,
    weighted_mean,
    worst,
)
from drasp.causal.parts import part_effects
from drasp.causal.swaps import ModelSwap, model_swap
from drasp.causal.trials import SOURCES
from drasp.edits import Edit, Replaced
from drasp.forward import Forward
from drasp.language import parse
from drasp.language.syntax import (
    Aggregate,
    ElementWise,
    Prediction,
    Program,
    Project,
    Reference,
    Select,
    Statement,
)
from drasp.measure import margins
from drasp.model_files import load_model
from drasp.rewriting.simplify import simplify
from drasp.settings import EVIDENCE
from drasp.sites import OUT, POSITION, TOKEN, Component, NormSite, Path, Pattern, Receiver, Site
from drasp.tasks import EDITS
from drasp.translation import translate
from hooked_model import HookedModel
from random_models import random_gpt2
from swapping import hooked_swap, naive_swap
from typed import blocks_of, known

BOTH = pytest.mark.parametrize("task", [ANSWERS, SETS], ids=["answers", "sets"])


def case(seed: int, layers: int, heads: int, task, cut: bool = True, count: int = 5):
    """A model, a program of it that is not quite it, and pairs."""
    model = lively_gpt2(seed, layers, heads, task)
    transformer = load_model(model)
    program = translate(transformer, task.vocabulary, task.output)
    if cut:
        selects = [s for s in program.statements if isinstance(s, Select)]
        off = {name: 0.3 * program.tensors[name] for s in selects for name in s.tensor_names}
        program = program.with_tensors(off)
    return model, transformer, program, trials_of(transformer, task, count)


def rows_of(pairs):
    """Each pair by itself: base and source as ids and offset, and the positions that count."""
    for row in range(len(pairs)):
        size = int(pairs.sizes[row])
        sides = [(s.ids[row, :size].tolist(), int(s.positions[row, 0])) for s in (pairs.base, pairs.source)]
        places = [int(p) for p, valid in zip(pairs.where[row], pairs.valid[row], strict=True) if valid]
        yield row, *sides, places


class HookedRun(HookedModel):
    """A run of a model on one input, with its logits."""

    def __init__(self, model, ids: list[int], offset: int, edits: Mapping[Site, Edit]) -> None:
        super().__init__(model, edits)
        self.said = self.logits(torch.tensor([ids]), torch.arange(offset, offset + len(ids))[None])[0].numpy()


def hooked(model, ids: list[int], offset: int, edits: Mapping[Site, Edit] | None = None) -> HookedRun:
    return HookedRun(model, ids, offset, edits or {})


def answer(logits: np.ndarray, output: str):
    return int(logits.argmax()) if output == "softmax" else tuple(bool(x > 0) for x in logits)


def margin(logits: np.ndarray, output: str) -> float:
    first, second = sorted(logits)[-1:-3:-1]
    return first - second if output == "softmax" else min(abs(x) for x in logits)


def clear_margin(model, trials) -> float:
    found = []
    for pairs in trials.batches:
        for _, base, _, places in rows_of(pairs):
            said = hooked(model, *base).said
            found += [margin(said[p], trials.output) for p in places]
    return EVIDENCE.clear_in_model * sorted(found)[(len(found) - 1) // 2]


def share_alike(places, before, after, own_before, own_after, clear, output):
    """Over positions at which one side's answer changed: the share at which both answer alike; None without any."""
    hits = count = 0
    for p in places:
        changed = answer(before[p], output) != answer(after[p], output)
        changed |= answer(own_before[p], output) != answer(own_after[p], output)
        if changed and margin(after[p], output) > clear:
            count += 1
            hits += answer(after[p], output) == answer(own_after[p], output)
    return hits / count if count else None


def matching(cases: Cases, expected: list[float | None]) -> None:
    wanted = [value for value in expected if value is not None]
    assert wanted, "no case that matters"
    np.testing.assert_allclose(cases.values.numpy(), wanted, atol=1e-6)


@BOTH
def test_edited(task):
    model, _, program, trials = case(1, 1, 2, task)
    clear = clear_margin(model, trials)
    assert EVIDENCE.clear_in_model * trials.margin == pytest.approx(clear, rel=1e-4)
    found = edited(program, trials)
    for number, kind in enumerate(EDITS, 1):
        assert SOURCES[number] == kind
        expected = []
        for pairs in trials.batches:
            for row, base, source, places in rows_of(pairs):
                if int(pairs.kinds[row]) == number:
                    before, after = (hooked(model, *side).said for side in (base, source))
                    own, other = (naive.run(program, *side)["logits"] for side in (base, source))
                    expected.append(share_alike(places, before, after, own, other, clear, task.output))
        matching(found[kind].cases, expected)


@BOTH
def test_interchange_in_the_model(task):
    model, transformer, program, trials = case(2, 1, 2, task, count=2)
    mechanism, clear = Mechanism.of(program), clear_margin(model, trials)
    chosen = [s.name for s in program.statements if isinstance(s, Aggregate | ElementWise)][:3] + ["s1"]
    found = interchange(program, trials, transformer, chosen)
    values = {}
    for line in chosen:
        expected = []
        for pairs in trials.batches:
            after = hooked_swap(model, pairs, model_swap(mechanism, line))
            for row, base, _, places in rows_of(pairs):
                said = hooked(model, *base).said
                swapped = np.zeros_like(said)
                swapped[places] = after[row, : len(places)].numpy()
                own = naive.run(program, *base)["logits"]
                own_after = naive_swap(program, pairs, row, mechanism.groups[line])
                expected.append(share_alike(places, said, swapped, own, own_after, clear, task.output))
        values[line] = [value for value in expected if value is not None]
        np.testing.assert_allclose(found[line].cases.values.numpy(), values[line], atol=1e-6)
    assert sum(map(len, values.values())) > 10


def test_interchange_against_a_program_is_that_of_both_programs():
    """Scores that are off change what a source does; the reference is the exact program."""
    _, transformer, program, trials = case(2, 1, 2, ANSWERS, count=3)
    exact = translate(transformer, ANSWERS.vocabulary, ANSWERS.output)
    lines = [s.name for s in program.statements if isinstance(s, Aggregate)]
    found = interchange(program, trials, exact, lines)
    same = interchange(exact, trials, exact, lines)
    for line in lines:
        groups = Mechanism.of(program).groups[line]
        expected = []
        for pairs in trials.batches:
            for row, base, _, places in rows_of(pairs):
                sides = [(naive.run(p, *base)["logits"], naive_swap(p, pairs, row, groups)) for p in (exact, program)]
                clear = 0.0  # margins here are far from it
                expected.append(share_alike(places, *sides[0], *sides[1], clear, "softmax"))
        wanted = [value for value in expected if value is not None]
        assert len(found[line].cases) == pytest.approx(len(wanted), abs=2)
        assert float(found[line].cases.values.sum()) == pytest.approx(sum(wanted), abs=2)
        assert bool((same[line].cases.values == 1).all())


# ------------------------------------------------------------------------------------------------- attention


@BOTH
@pytest.mark.parametrize("layers", [1, 2])
def test_attention(task, layers):
    """Weights by hooks at the places drawn, overlaps by the definition."""
    model, transformer, program, trials = case(3, layers, 2, task, count=2)
    mechanism = Mechanism.of(program)
    heads = [s.name for s in program.statements if isinstance(s, Aggregate)]
    means = {head: [] for head in transformer.anatomy.senders if head.kind == "head"}
    for pairs in trials.batches:
        for _, base, _, _ in rows_of(pairs):
            run = hooked(model, *base)
            for head, seen in means.items():
                seen.append(run.values[head][0])
    means = {head: torch.cat(seen).mean(0) for head, seen in means.items()}
    found = attention(program, trials)
    for name in (heads[0], heads[-1]):
        [head] = mechanism.components(name)
        total = weight_total = 0.0
        for pairs, looks in zip(trials.batches, looks_of(trials, (head,)), strict=True):
            _, chances = _chances(pairs, looks)
            for row, base, _, places in rows_of(pairs):
                run = hooked(model, *base)
                own = naive.run(program, *base)[f"{name} pattern"]
                for column, place in enumerate(looks.places[row].tolist()):
                    position = places[place] if looks.narrow else place
                    value = run.values[head].clone()
                    value[0, position] = means[head]
                    change = hooked(model, *base, {head: Replaced(value)}).said - run.said
                    if task.output == "softmax":
                        change -= change.mean(-1, keepdims=True)
                    weight = np.sqrt((change[places] ** 2).sum()) / chances[row, column]
                    assert float(looks.weights[row, column]) == pytest.approx(weight, rel=1e-4, abs=1e-7)
                    overlap = sum(
                        min(a, b) for a, b in zip(own[position], run.patterns[head][0, position].tolist(), strict=True)
                    )
                    total, weight_total = total + weight * overlap, weight_total + weight
        assert found[name].value == pytest.approx(total / weight_total, rel=1e-4)


def _chances(pairs, looks):
    """How likely each place was, by the definition: half of the draws where answers count, half anywhere before."""
    chances = np.zeros(looks.places.shape)
    for row, _, _, places in rows_of(pairs):
        for column, place in enumerate(looks.places[row].tolist()):
            if looks.narrow:
                chances[row, column] = 1 / len(places)
            else:
                chances[row, column] = 0.5 * (place in places) / len(places) + 0.5 / (max(places) + 1)
    return looks.places, chances


def test_places_are_drawn_as_likely_as_said():
    *_, trials = case(0, 2, 1, ANSWERS, count=1)
    pairs, rng = trials.batches[0], np.random.default_rng(0)
    counts, chances = {}, {}
    for _ in range(3000):
        places, likely = _places(pairs, False, rng)
        for place, chance in zip(places[0].tolist(), likely[0].tolist(), strict=True):
            counts[place] = counts.get(place, 0) + 1
            chances[place] = chance
    total = sum(counts.values())
    assert sum(chances.values()) == pytest.approx(1, abs=1e-5)
    for place, count in counts.items():
        assert count / total == pytest.approx(chances[place], abs=0.02)


def test_an_exact_program_looks_where_the_model_does():
    _, _, program, trials = case(4, 2, 2, ANSWERS, cut=False, count=10)
    assert all(m.value == pytest.approx(1, abs=1e-4) for m in attention(program, trials).values())


# ---------------------------------------------------------------------------------------------------- splice


def divergence(p: np.ndarray, q: np.ndarray, output: str) -> float:
    if output == "softmax":
        a, b = (np.exp(x - x.max()) / np.exp(x - x.max()).sum() for x in (p, q))
        return float((a * np.log(a / b)).sum())
    a, b = (1 / (1 + np.exp(-x)) for x in (p, q))
    return float((a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))).sum())


@BOTH
def test_splice(task):
    model, _, program, trials = case(5, 1, 2, task, count=3)
    mechanism, found = Mechanism.of(program), splice(program, trials)

    def mean_divergence(said, other, places) -> float:
        return float(np.mean([divergence(said[p], other[p], task.output) for p in places]))

    for line in [s.name for s in program.statements if isinstance(s, Aggregate)][:2]:
        [head] = mechanism.components(line)
        spliced, resampled = [], []
        for pairs in trials.batches:
            for _, base, source, places in rows_of(pairs):
                said = hooked(model, *base).said
                ours = torch.tensor(naive.run(program, *base)[f"{line} pattern"])[None]
                theirs = hooked(model, *source).patterns[head]
                for pattern, into in ((ours, spliced), (theirs, resampled)):
                    into.append(
                        mean_divergence(said, hooked(model, *base, {Pattern(head): Replaced(pattern)}).said, places)
                    )
        assert found[line].value == pytest.approx(max(-1, 1 - sum(spliced) / sum(resampled)), abs=1e-3)
    assert any(measure.value is not None and measure.value < 0.99 for measure in found.values())


def test_an_mlp_is_spliced_on_the_models_own_variables():
    """With its own map it changes nothing, although the heads of the program look elsewhere."""
    _, _, program, trials = case(5, 2, 1, ANSWERS, count=10)
    found = splice(program, trials)
    mlps = [s.name for s in program.statements if isinstance(s, ElementWise)]
    assert [found[line].value for line in mlps] == pytest.approx([1.0, 1.0], abs=1e-3)
    off = {n: 0.5 * t for n, t in program.tensors.items() if n.endswith(".out")}
    worse = splice(program.with_tensors(off), trials)
    assert all(known(worse[line].value) < 0.95 for line in mlps)


# ----------------------------------------------------------------------------------------------- complement


class Scrubbed(HookedModel):
    """A model of which each receiver reads a source along the edges that a program does not have, spelt out."""

    def __init__(self, model, mechanism: Mechanism, source: "SourceRun") -> None:
        super().__init__(model, {})
        self.mechanism, self.source = mechanism, source

    def has(self, sender: Component, receiver: Receiver) -> bool:
        heard = self.mechanism.edges.get(receiver, ())
        return any(str(path).split(" > ")[-1] == str(sender) for path in heard)

    def normed(self, receiver, norm):
        x = self.biases
        for sender, value in self.sent.items():
            x = x + (value if self.has(sender, receiver) else self.source.sent[sender])
        root = (x.var(-1, correction=0) + norm.eps).sqrt()
        self.values[NormSite(receiver)] = root
        self.roots[receiver] = root[..., None]
        return (x - x.mean(-1, keepdim=True)) / self.roots[receiver] * norm.weight + norm.bias

    def head(self, head, block):
        width = self.model.config.n_embd // self.model.config.n_head
        for receiver in head.receivers:
            self.normed(receiver, block.ln_1)
        v = block.attn.c_attn(self.normed(head.receivers[2], block.ln_1))[..., self.columns(head.receivers[2])]
        scores = self.source.scores[head]
        for product in self.mechanism.products_of_heads.get(head, ()):
            ours = self.product(product, block, *self.whole(head, block))
            theirs = self.source.product(product, block, *self.source.whole(head, block))
            scores = scores + ours - theirs
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        self.patterns[head] = scores.masked_fill(future, -torch.inf).softmax(-1)
        return self.patterns[head] @ v @ block.attn.c_proj.weight[head.head * width : (head.head + 1) * width]

    def whole(self, head, block):
        """Query and key of all that was sent before, over the norms of what is read."""
        before = {s: value for s, value in self.sent.items() if s.layer < head.layer}
        x = sum(before.values()) + self.biases_before[head.layer]
        sides = []
        for receiver in head.receivers[:2]:
            normed = (x - x.mean(-1, keepdim=True)) / self.roots[receiver] * block.ln_1.weight + block.ln_1.bias
            sides.append(block.attn.c_attn(normed)[..., self.columns(receiver)])
        return sides

    @property
    def biases_before(self):
        blocks = blocks_of(self.model)
        zero = torch.zeros(self.model.config.n_embd, dtype=torch.float64)
        return [sum((b.attn.c_proj.bias for b in blocks[:n]), zero) for n in range(len(blocks))]


class SourceRun(Scrubbed):
    """The source's own run, with the scores of all heads."""

    def __init__(self, model, mechanism) -> None:
        HookedModel.__init__(self, model, {})
        self.mechanism, self.scores = mechanism, {}

    def has(self, sender, receiver) -> bool:
        return True

    def head(self, head, block):
        for receiver in head.receivers:
            self.normed(receiver, block.ln_1)
        q, k = self.whole(head, block)
        self.scores[head] = q @ k.mT * self.scale(block)
        return HookedModel.head(self, head, block)


def pruned(program: Program, keep: str) -> Program:
    """The lines of a translation that stand for one head, without norms."""
    head = [s for s in program.statements if {keep, f"{keep} -> out"} & set(map(str, s.sites))]
    lines = [s.map(operand=lambda o: replace(o, norm=None)) for s in head]
    logits = tuple(Reference(s.name) for s in head if s.kind == "project")
    return replace(program, statements=(*lines, replace(program.prediction, logits=logits)))


@BOTH
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("keep", ["layer 0 head 0", "layer 0 head 1"])
def test_complement(task, layers, keep):
    model, _, program, trials = case(6, layers, 2, task, cut=False, count=3)
    part = pruned(program, keep)
    mechanism, clear = Mechanism.of(part), clear_margin(model, trials)
    found, expected = complement(part, trials), []
    for pairs in trials.batches:
        for _, base, source, places in rows_of(pairs):
            theirs = SourceRun(model, mechanism)
            from_source = theirs.logits(
                torch.tensor([source[0]]), torch.arange(source[1], source[1] + len(source[0]))[None]
            )
            np.testing.assert_allclose(from_source[0].numpy(), hooked(model, *source).said, atol=1e-8)
            mixed = Scrubbed(model, mechanism, theirs)
            after = mixed.logits(torch.tensor([base[0]]), torch.arange(base[1], base[1] + len(base[0]))[None])[
                0
            ].numpy()
            said = hooked(model, *base).said
            expected.append(share_alike(places, from_source[0].numpy(), said, after, after, clear, task.output))
    matching(found.cases, expected)
    assert OUT in mechanism.edges


# ---------------------------------------------------------------------------------------------- plain means


class Averaged(HookedModel):
    """A model of which each receiver reads means along the edges and ways that a program does not have, spelt out."""

    def __init__(self, model, mechanism: Mechanism, means) -> None:
        super().__init__(model, {})
        self.mechanism, self.means = mechanism, means

    def ways(self, receiver: Receiver) -> list[Component | Path]:
        return [s for s in self.sent if s in self.mechanism.edges.get(receiver, ())]

    def normed(self, receiver, norm):
        heard = self.mechanism.edges.get(receiver, frozenset())
        x = self.biases + torch.zeros_like(self.sent[TOKEN])
        for sender, value in self.sent.items():
            ways = [Path(origin, (sender,)) for origin in (TOKEN, POSITION)]
            if sender not in heard and not heard.intersection(ways):
                value = self.means[sender]
            elif sender.kind == "head":
                missing = [w for w in ways if w not in heard and w.origin in self.mechanism.edges[sender.receivers[2]]]
                value = value + sum(self.means[way] - self.along(way) for way in missing)
            x = x + value
        self.roots[receiver] = (x.var(-1, correction=0) + norm.eps).sqrt()[..., None]
        return (x - x.mean(-1, keepdim=True)) / self.roots[receiver] * norm.weight + norm.bias

    def head(self, head, block):
        width = self.model.config.n_embd // self.model.config.n_head
        q, k, v = (block.attn.c_attn(self.normed(r, block.ln_1))[..., self.columns(r)] for r in head.receivers)
        products = self.mechanism.products_of_heads.get(head, ())
        scores = sum((self.product(p, block, q, k) for p in products), torch.zeros_like(q @ k.mT))
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        self.patterns[head] = scores.masked_fill(future, -torch.inf).softmax(-1)
        return self.patterns[head] @ v @ block.attn.c_proj.weight[head.head * width : (head.head + 1) * width]


def without(program: Program, gone: Callable[[Statement], bool]) -> Program:
    """A program without some of its selects or projects."""
    names = {s.name for s in program.statements if isinstance(s, Select | Project) and gone(s)}
    kept: list[Statement] = []
    for s in program.statements:
        match s:
            case Aggregate(selectors=selectors):
                kept.append(replace(s, selectors=tuple(r for r in selectors if r.variable not in names)))
            case Prediction(logits=logits):
                kept.append(replace(s, logits=tuple(r for r in logits if r.variable not in names)))
            case _ if s.name not in names:
                kept.append(s)
            case _:
                pass
    return replace(program, statements=tuple(kept))


def plain_means(model, trials):
    """What every component sends, and what comes from embeddings by way of each head, over all positions of bases."""
    sums, count = {}, 0
    for pairs in trials.batches:
        for _, (ids, offset), _, _ in rows_of(pairs):
            run, count = hooked(model, ids, offset), count + len(ids)
            heads = [c for c in run.sent if c.kind == "head"]
            ways = {Path(o, (head,)): run.along(Path(o, (head,))) for head in heads for o in (TOKEN, POSITION)}
            for sender, value in {**run.sent, **ways}.items():
                sums[sender] = sums.get(sender, 0) + value[0].sum(0)
    return {sender: total / count for sender, total in sums.items()}


@BOTH
@pytest.mark.parametrize("gone", ["nothing", "of positions", "all"])
def test_means_in_the_place_of_what_is_left_out(task, gone):
    """One head of two, and of it only what it takes from tokens, though it takes positions too; with fewer selects."""
    model, transformer, program, trials = case(6, 1, 2, task, cut=False, count=3)
    part = pruned(program, "layer 0 head 0")
    part = without(part, lambda s: s.kind == "select" and (gone == "all" or (gone != "nothing" and "pos" in str(s))))
    of_positions = {s.name for s in part.statements if isinstance(s, Aggregate) and s.value.variable == "pos"}
    part = without(part, lambda s: isinstance(s, Project) and s.input.variable in of_positions)
    means, forward = plain_means(model, trials), Forward(transformer, with_means(part, trials))
    for pairs in trials.batches:
        found = forward(pairs.base).logits
        for row, (ids, offset), _, places in rows_of(pairs):
            averaged = Averaged(model, Mechanism.of(part), means)
            said = averaged.logits(torch.tensor([ids]), torch.arange(offset, offset + len(ids))[None])[0]
            torch.testing.assert_close(found[row, : len(places)], said[places], rtol=1e-6, atol=1e-8)


@BOTH
@pytest.mark.parametrize("layers", [1, 2])
def test_nothing_changes_where_nothing_is_left_out(task, layers):
    _, transformer, program, trials = case(6, layers, 1, task, cut=False, count=1)
    for exact in (program, simplify(program)):
        forward = Forward(transformer, with_means(exact, trials))
        for pairs in trials.batches:
            torch.testing.assert_close(forward(pairs.base).logits, pairs.base_logits, rtol=1e-6, atol=1e-8)


def test_what_a_head_hears_by_its_norm_alone_is_left_out():
    """Of a head that takes tokens, over a norm of tokens and positions, the positions that it takes as well."""
    text = "vocab = [a, b]\nspecial = []\npositions = 8\n"
    text += "n1 = norm(token, pos, op=N, eps=1e-5)  # layer 0 attention norm\n"
    text += "a1 = aggregate(s=[], v=token/n1)  # layer 0 head 0\n"
    text += "logits1 = project(inp=a1, op=(inp==out))  # layer 0 head 0 -> out\nprediction = softmax(logits1)  # out"
    program = parse(text, {"N": torch.eye(10)})
    rest = Rest(Mechanism.of(program), load_model(lively_gpt2(6, 1, 1)))
    assert "pos > layer 0 head 0 -> out" in map(str, rest.others(OUT))


# --------------------------------------------------------------------------------------------- dormant paths


def dormant_gpt2() -> GPT2LMHeadModel:
    """In layer 0 the MLP takes away the half of the token that the head of layer 1 reads: that head says nothing."""
    model = random_gpt2(0, 2, 1, d_head=16, vocab=len(ANSWERS.vocabulary), positions=ANSWERS.n_positions)
    body, half = model.transformer, 8
    with torch.no_grad():
        tokens = body.wte.weight
        for part in (tokens[:, :half], tokens[:, half:]):
            part -= part.mean(1, keepdim=True)
        body.wpe.weight.zero_()
        first, last = blocks_of(model)
        for norm in (first.ln_1, last.ln_1, body.ln_f):
            norm.weight.fill_(1.0)
            norm.bias.zero_()
        for layer in (first.attn.c_proj, last.attn.c_proj, last.mlp.c_proj):
            layer.bias.zero_()
        for layer in (first.attn.c_proj, last.mlp.c_proj):
            layer.weight.zero_()
        hidden = first.mlp.act(first.mlp.c_fc(first.ln_2(tokens)))
        wanted = torch.cat([-tokens[:, :half], torch.zeros_like(tokens[:, half:])], 1)
        first.mlp.c_proj.bias.zero_()
        first.mlp.c_proj.weight.copy_(torch.linalg.lstsq(hidden, wanted).solution)
        last.attn.c_attn.bias.zero_()
        last.attn.c_attn.weight[half:, 2 * 16 :] = 0
        last.attn.c_proj.weight.mul_(20)
    return model


def test_a_path_that_another_takes_back_is_dormant():
    transformer = load_model(dormant_gpt2())
    program = simplify(translate(transformer, ANSWERS.vocabulary, ANSWERS.output))
    mechanism, trials = Mechanism.of(program), trials_of(transformer, count=10)
    found = part_effects(program, trials)
    paths = {str(s): line for line in found for s in mechanism.senders.get(line, ())}
    assert found[paths["token > layer 1 head 0"]].dormant
    assert found[paths["token > layer 1 head 0"]].component == 0
    other = lively_gpt2(4, 2, 1)
    exact = translate(load_model(other), ANSWERS.vocabulary, ANSWERS.output)
    assert not any(effect.dormant for effect in part_effects(exact, trials_of(load_model(other))).values())


@BOTH
def test_effects_of_parts(task):
    model, _, program, trials = case(2, 1, 2, task, count=2)
    mechanism, found = Mechanism.of(program), part_effects(program, trials)
    parts = [s.name for s in program.statements if isinstance(s, Aggregate)]
    assert set(parts) <= set(found)
    for line in parts[:3]:
        [head] = mechanism.components(line)
        changed = [0, 0]
        for pairs in trials.batches:
            for i, swap in enumerate((model_swap(mechanism, line), ModelSwap((head,)))):
                after = hooked_swap(model, pairs, swap).numpy()
                for row, base, _, places in rows_of(pairs):
                    said = hooked(model, *base).said[places]
                    answers = [[answer(x, task.output) for x in side] for side in (said, after[row, : len(places)])]
                    changed[i] += answers[0] != answers[1]
        assert [found[line].part, found[line].component] == pytest.approx([n / len(trials) for n in changed])


# ------------------------------------------------------------------------------------------------ numbers


def test_ties_count_for_the_model_between_two_tokens():
    model = torch.tensor([[[3.0, 1.0, 0.0], [3.0, 1.0, 0.0], [3.0, 1.0, 0.0], [0.0, 3.0, 0.0]]])
    other = torch.tensor([[[2.0, 2.0, 0.0], [2.0, 2.0, 2.0], [1.0, 2.0, 0.0], [0.0, 3.0, 0.0]]])
    other[0, 0, 1] += 1e-6  # by which the second token is said
    same, tied, unsaid = alike(model, other, "softmax")
    assert same.tolist() == [[True, False, False, True]]
    assert tied.tolist() == [[True, False, False, False]]
    assert unsaid.tolist() == [[False, True, False, False]]  # among three that are alike none is said
    model, other = torch.tensor([[[1.0, -1.0, 1.0]]]), torch.tensor([[[5.0, 1e-6, 1.0]]])
    assert [x.tolist() for x in alike(model, other, "sigmoid")] == [[[True]], [[True]], [[False]]]
    assert alike(model, torch.tensor([[[5.0, 1e-3, 1.0]]]), "sigmoid")[0].tolist() == [[False]]
    assert margins(model, "sigmoid").tolist() == [[1.0]]


def test_what_a_number_says():
    assert status_of(BinMean(0.95, 400, (0.93, 0.97))) == "passed"
    assert status_of(BinMean(0.95, EVIDENCE.fewest_cases - 1, (0.93, 0.97))) == "untested"
    assert status_of(BinMean(0.89, 400, (0.86, 0.92))) == "failed"
    assert status_of(BinMean(0.92, 60, (0.82, 0.97))) == "failed"
    assert status_of(BinMean(None, 0, None), possible=False) == "not_applicable"
    cases = Cases(torch.tensor([1.0, 0.5, 1.0]), torch.zeros(3), torch.tensor([3, 60, 70]))
    found = cases.measure(((1, 50), (51, 100)))
    assert (found.value, found.n, found.status) == (pytest.approx(5 / 6), 3, "untested")
    assert [(name, part.n) for name, part in found.by_length.items()] == [("1-50", 1), ("51-100", 2)]
    assert found.by_length["51-100"].value == pytest.approx(0.75)
    assert Cases.joined([]).measure(((1, 50),)).idle
    failed, passed = (Measure(v, 100, (v, v), s) for v, s in ((0.5, "failed"), (0.95, "passed")))
    untested = Measure(0.1, 3, (0.0, 0.5), "untested")
    assert worst({"a": passed, "b": failed, "c": untested}) == failed
    assert worst({"a": passed, "c": untested}) == passed
    part = weighted_mean(torch.tensor([1.0, 0.0, 0.3]), torch.tensor([3.0, 1.0, 0.0]))
    assert (part.value, part.n) == (pytest.approx(0.75), 2)
