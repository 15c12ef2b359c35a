"""What cuts must not change, against loops over pairs of inputs with hooks on Hugging Face's model."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cuts import AnyMeans, cuttable
from drasp.causal.attention import looks_of
from drasp.causal.trials import SOURCES, Amount, Trials, lowest
from drasp.decompiler.components import Components, Edits, Graph
from drasp.decompiler.standards import Standards
from drasp.edits import Replaced, Scaled
from drasp.model_files import load_model
from drasp.settings import DEFAULT, EVIDENCE
from drasp.sites import Component, Edge, Path, Product, Read
from drasp.tasks import Language, Task, answer_task, each_row, language_task
from hooked_model import HookedModel
from random_models import random_gpt2

LAST = answer_task(
    "last", "abc", each_row(lambda x: [x[-1], x[0]]), lengths=range(3, 7), longest_input=9, room=9, ends=False
)
SPELT = language_task("spelt", Language("ab", "(a|bb)*"), lengths=range(3, 7), room=8)
LAYERS, FEWEST, MANY = 2, 12, 20
LEAST_EDITED, LEAST_OVERLAP = DEFAULT.least_edited, DEFAULT.least_overlap
PAIRS = Amount(24, 24)


class StandardsCase:
    """A random model, a graph of it, and the pairs that it is held to."""

    def __init__(self, task: Task, seed: int, amount: Amount = PAIRS) -> None:
        self.task = task
        self.model = random_gpt2(seed, LAYERS, 2, vocab=len(task.vocabulary), positions=task.n_positions)
        self.transformer = load_model(self.model)
        self.trials = Trials.draw(self.transformer, task, amount, np.random.default_rng(seed))
        self.graph = self.cut_little(seed)
        self.rows = [(number, row) for number, pairs in enumerate(self.trials.batches) for row in range(len(pairs))]

    def cut_little(self, seed: int) -> Graph:
        """Some edges, ways, reads and products, a norm that is constant, and constants that are not 0."""
        rng, means = random.Random(seed), AnyMeans(self.transformer.d_model)
        graph = Components(self.transformer).whole()
        sites = cuttable(graph)
        by_kind = {
            "edge": [s for s in sites if isinstance(s, Edge) and isinstance(s.sender, Component)],
            "way": [s for s in sites if isinstance(s, Edge) and isinstance(s.sender, Path)],
            "read": [s for s in sites if isinstance(s, Read)],
            "product": [s for s in sites if isinstance(s, Product)],
        }
        graph = graph.cut([site for found in by_kind.values() for site in rng.sample(found, 2)], means)
        return replace(graph, norms={rng.choice(graph.anatomy.receivers): 1.3})

    def hooked(self, number: int, row: int, side: str, edits: Edits) -> tuple[HookedModel, Tensor]:
        """One input of a pair, alone and without its padding; logits where answers count."""
        pairs = self.trials.batches[number]
        size, inputs = int(pairs.sizes[row]), getattr(pairs, side)
        hooked = HookedModel(self.model, edits)
        logits = hooked.logits(inputs.ids[row : row + 1, :size], inputs.positions[row : row + 1, :size])[0]
        return hooked, logits[pairs.where[row][pairs.valid[row]]]

    def answers(self, logits: Tensor) -> list[object]:
        if self.task.output == "softmax":
            return logits.argmax(-1).tolist()
        return [tuple(row) for row in (logits > 0).tolist()]

    def margin(self, logits: Tensor) -> float:
        if self.task.output == "softmax":
            best, second = sorted(logits.tolist())[-1:-3:-1]
            return best - second
        return min(map(abs, logits.tolist()))

    def is_clear(self, logits: Tensor) -> bool:
        return self.margin(logits) > self.clear

    @property
    def clear(self) -> float:
        every = [self.margin(said) for number, row in self.rows for said in self.hooked(number, row, "base", {})[1]]
        return EVIDENCE.clear_in_model * sorted(every)[(len(every) - 1) // 2]


@pytest.fixture(scope="module", params=[(LAST, 15), (SPELT, 6)], ids=["softmax", "sigmoid"])
def case(request) -> StandardsCase:
    return StandardsCase(*request.param)


def test_edited_answers_are_those_of_hooks(case):
    clear = case.clear
    assert EVIDENCE.clear_in_model * case.trials.margin == pytest.approx(clear, rel=1e-5)
    shares: dict[int, list[float]] = {kind: [] for kind in range(1, len(SOURCES))}
    for number, row in case.rows:
        kind = int(case.trials.batches[number].kinds[row])
        if not kind:
            continue
        (before, after), (ours, edited) = (
            [case.hooked(number, row, side, edits)[1] for side in ("base", "source")]
            for edits in ({}, dict(case.graph.edits))
        )
        said = [case.answers(each) for each in (before, after, ours, edited)]
        alike = [
            theirs == our
            for old, theirs, own, our, logits in zip(*said, after, strict=True)
            if (old != theirs or own != our) and case.margin(logits) > clear
        ]
        if alike:
            shares[kind].append(sum(alike) / len(alike))
    together = [share for found in shares.values() for share in found]
    assert len(together) >= FEWEST
    expected = min(np.mean(found) for found in (*shares.values(), together) if len(found) >= MANY or found is together)
    _, found = Standards(case.trials).look(case.graph)
    assert 0 < found < 1
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.long
def test_overlap_is_where_outputs_are_read(case):
    """Everything but the places that are drawn is computed anew."""
    standards = Standards(case.trials)
    overlaps, _ = standards.look(case.graph)
    assert set(overlaps) == set(case.graph.used_heads())
    for head in (Component("head", layer) for layer in range(LAYERS)):
        sums, count = torch.zeros(case.transformer.d_model, dtype=torch.float64), 0
        for number, row in case.rows:
            sent = case.hooked(number, row, "base", {})[0].sent[head][0]
            sums, count = sums + sent.sum(0), count + len(sent)
        shared = read = 0.0
        for number, row in case.rows:
            pairs, looks = case.trials.batches[number], looks_of(case.trials, (head,))[number]
            counted = pairs.where[row][pairs.valid[row]].tolist()
            (model, before), (ours, _) = (case.hooked(number, row, "base", e) for e in ({}, dict(case.graph.edits)))
            for place in looks.places[row].tolist():
                at = counted[place] if looks.narrow else place
                sent = model.sent[head].clone()
                sent[0, at] = sums / count
                change = case.hooked(number, row, "base", {head: Replaced(sent)})[1] - before
                if case.task.output == "softmax":
                    change = change - change.mean(-1, keepdim=True)
                anywhere = 0.5 * (at in counted) / len(counted) + 0.5 / (max(counted) + 1)
                weight = float(change.norm()) / (1 / len(counted) if looks.narrow else anywhere)
                own, other = (each.patterns[head][0, at] for each in (model, ours))
                shared += weight * float(torch.minimum(own, other).sum())
                read += weight
        assert overlaps[head] == pytest.approx(shared / read, abs=1e-4), head


def test_the_complement_is_the_source(case):
    standards = Standards(case.trials)
    clear, shares = case.clear, []
    for number, row in case.rows:
        products = {site: Scaled(1.0) for site in case.graph.cuts if isinstance(site, Product)}  # so that they are seen
        source, other = case.hooked(number, row, "source", products)
        edits: Edits = {}
        for site in case.graph.cuts:
            match site:
                case Edge(Component() as sender) | Read(Component() as sender):
                    edits[site] = Replaced(source.sent[sender])
                case Edge(Path() as way) | Read(Path() as way):
                    edits[site] = Replaced(source.along(way))
                case Product():
                    edits[site] = Replaced(source.values[site])
        before, after = case.hooked(number, row, "base", {})[1], case.hooked(number, row, "base", edits)[1]
        said = [case.answers(each) for each in (before, other, after)]
        stayed = [
            own == now
            for own, theirs, now, logits in zip(*said, before, strict=True)
            if own != theirs and case.margin(logits) > clear
        ]
        if stayed:
            shares.append(sum(stayed) / len(stayed))
    assert len(shares) >= FEWEST
    found = standards.complement(case.graph)
    assert 0 < found < 1
    assert found == pytest.approx(np.mean(shares), abs=1e-6)


def test_a_graph_that_is_not_complete_is_found_out_before_all_inputs_are_looked_at(monkeypatch):
    monkeypatch.setattr("drasp.causal.trials._TOKENS", 60)
    case = StandardsCase(LAST, 15)
    share = Standards(case.trials).complement(case.graph)
    looked_at: list[int] = []
    told_by: list[int] = []
    for least in (0.0, share / 2, share - 1e-6, share + 1e-6, 0.98, 1.0):
        standards = Standards(case.trials)
        looked_at.append(0)
        monkeypatch.setattr(standards, "_complement_of", counting(standards, looked_at))
        assert standards.is_complement(case.graph, least) == (share >= least)
        told_by.append(looked_at[-1])
        assert standards.complement(case.graph) == share
    batches = len(case.trials.batches)
    assert looked_at == [batches] * 6
    assert told_by[-1] < batches


def counting(standards: Standards, looked_at: list[int]):
    look = standards._complement_of

    def counted(graph: Graph, number: int):
        looked_at[-1] += 1
        return look(graph, number)

    return counted


@pytest.mark.long
@pytest.mark.parametrize(("task", "seed"), [(LAST, 15), (SPELT, 6)])
def test_interchange_takes_a_component_from_the_source_on_both_sides(task, seed):
    case = StandardsCase(task, seed, Amount(8, 8))
    clear = EVIDENCE.clear * case.trials.margin
    sides: tuple[Edits, Edits] = ({}, case.graph.edits)
    used = [c for c in case.transformer.anatomy.senders if c.receivers and case.graph.is_used(c)]
    shares: dict[Component, list[float]] = {component: [] for component in used}
    for number, row in case.rows:
        sources = [case.hooked(number, row, "source", edits)[0].sent for edits in sides]
        before = [case.answers(case.hooked(number, row, "base", edits)[1]) for edits in sides]
        for component in used:
            after = [
                case.hooked(number, row, "base", {**edits, component: Replaced(sent[component])})[1]
                for edits, sent in zip(sides, sources, strict=True)
            ]
            alike = [
                model[1] == graph[1]
                for model, graph, own in zip(
                    zip(before[0], case.answers(after[0]), strict=True),
                    zip(before[1], case.answers(after[1]), strict=True),
                    after[0],
                    strict=True,
                )
                if (model[0] != model[1] or graph[0] != graph[1]) and case.margin(own) > clear
            ]
            if alike:
                shares[component].append(sum(alike) / len(alike))
    lowest_share = min(np.mean(found) for found in shares.values() if len(found) >= FEWEST)
    standards = Standards(case.trials)
    assert standards.interchange(case.graph) == pytest.approx(lowest_share, abs=1e-6)
    assert 0 < lowest_share < 1
    assert standards.interchange(Components(case.transformer).whole()) == 1


def test_the_whole_model_holds_and_one_without_anything_does_not(case):
    standards = Standards(case.trials)
    whole = Components(case.transformer).whole()
    overlaps, edited = standards.look(whole)
    assert list(overlaps.values()) == pytest.approx([1.0] * 4)
    assert edited == standards.complement(whole) == 1
    assert standards.spare(whole) == pytest.approx(1 - max(LEAST_OVERLAP, LEAST_EDITED))
    nothing = whole.cut(whole.anatomy.edges, AnyMeans(case.transformer.d_model))
    assert standards.look(nothing)[0] == {}
    assert standards.complement(nothing) == 0
    assert standards.spare(nothing) < 0


@pytest.mark.parametrize(
    ("overlap", "edited", "spare"),
    [
        (1.0, LEAST_EDITED + 0.02, 0.02),
        (LEAST_OVERLAP, LEAST_EDITED, 0.0),
        (LEAST_OVERLAP - 0.01, 1.0, -0.01),
        (1.0, LEAST_EDITED - 0.01, -0.01),
    ],
)
def test_a_graph_is_held_to_the_worst_of_them(case, monkeypatch, overlap, edited, spare):
    heads = {Component("head", 0, 0): 1.0, Component("head", 0, 1): overlap}
    monkeypatch.setattr(Standards, "look", lambda *_: (heads, edited))
    assert Standards(case.trials).spare(case.graph) == pytest.approx(spare)


def test_too_few_cases_say_nothing():
    assert lowest([], FEWEST, MANY) == 1.0


def test_what_is_kept_from_sources_takes_no_more_room_than_it_may(monkeypatch):
    """With no room at all each batch forgets the one before, and what is asked for again is the same."""
    monkeypatch.setattr("drasp.causal.trials._TOKENS", 300)
    case = StandardsCase(LAST, 1)
    expected = Standards(case.trials).complement(case.graph)
    monkeypatch.setattr("drasp.decompiler.standards._MOST_BYTES", 0)
    standards = Standards(case.trials)
    assert standards.complement(case.graph) == expected
    last = len(case.trials.batches) - 1
    assert last > 0
    assert {number for number, _ in standards.sources} == {last}
    assert standards.complement(replace(case.graph)) == expected
