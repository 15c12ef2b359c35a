"""Constants of a graph against the range of what they replace, by loops over inputs and positions on hooked models."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from causal_models import ANSWERS, lively_gpt2
from drasp.decompiler.components import Components
from drasp.decompiler.constants import out_of_range
from drasp.fitting.oracle import Oracle
from drasp.model_files import load_model
from drasp.sites import OUT, POSITION, Edge, NormSite, Path, parse_site
from effort import examples
from hooked_model import HookedModel
from typed import of_kind


def cut_model(seed: int, layers: int, sites: list[str]):
    """A model, a graph of it without some edges and ways, its means in their place, and inputs."""
    model = lively_gpt2(seed, layers, 1)
    components = Components(load_model(model))
    oracle = Oracle.draw(components.transformer, ANSWERS, 12, np.random.default_rng(seed), batch_size=5)
    graph = components.whole().cut([of_kind(Edge, parse_site(site)) for site in sites], components.means(oracle))
    return model, components, graph, oracle


def at_all_positions(model, oracle, value) -> torch.Tensor:
    """What is somewhere in a run of the whole model, over the positions of all inputs one by one."""
    found = []
    for batch in oracle.batches:
        for row, size in enumerate(batch.inputs.sizes.tolist()):
            run = HookedModel(model, {})
            run.logits(batch.inputs.ids[row : row + 1, :size], batch.inputs.positions[row : row + 1, :size])
            found.append(value(run)[0])
    return torch.cat(found).detach()


CUTS = ["pos -> out", "layer 0 mlp -> out", "token > layer 0 head 0 -> out"]


@examples(20)
@given(st.integers(0, 2**20), st.floats(-2.0, 2.0), st.sampled_from([0.0, 3.0]))
def test_a_constant_is_out_of_range_where_no_value_goes_so_far(seed, share, shift):
    """Moved from the mean towards a value of what it replaces, by a share of the way there; and along all entries."""
    model, components, graph, oracle = cut_model(seed, 1, CUTS)
    assert not out_of_range(components, graph, oracle)

    def replaced(run):
        senders = [of_kind(Edge, parse_site(cut)).sender for cut in CUTS]
        return sum(run.along(s) if isinstance(s, Path) else run.sent[s] for s in senders)

    values = at_all_positions(model, oracle, replaced)
    values = values - values.mean(-1, keepdim=True)
    step = share * (values[3] - values.mean(0))
    moved = replace(graph, constants={**graph.constants, OUT: graph.constants[OUT] + step + shift})
    furthest = max(float((value - values.mean(0)) @ step / step.norm()) for value in values) if share else 0.0
    if abs(float(step.norm()) - furthest) > 1e-3 * (1 + furthest):
        assert bool(out_of_range(components, moved, oracle)) == (float(step.norm()) > furthest)


def test_nothing_is_replaced_by_something():
    """Where all is heard, there is nothing that a constant could stand for."""
    _, components, graph, oracle = cut_model(0, 1, ["pos -> out"])
    constants = {r: torch.randn(4, dtype=torch.float64) if r.kind == "mlp" else c for r, c in graph.constants.items()}
    [said] = out_of_range(components, replace(graph, constants=constants), oracle)
    assert said.startswith("layer 0 mlp input: a constant")
    assert said.endswith("which is nothing")


@pytest.mark.parametrize("site", ["layer 0 mlp norm", "final norm"])
def test_a_norm_out_of_the_range_of_the_models(site):
    model, components, graph, oracle = cut_model(1, 1, ["pos -> out"])
    norm = parse_site(site)
    assert isinstance(norm, NormSite)
    roots = at_all_positions(model, oracle, lambda run: run.values[norm])
    for value, fits in ((0.5 * roots.min(), False), (roots.median(), True), (2 * roots.max(), False)):
        constant = replace(graph, norms={norm.receiver: float(value)})
        assert bool(out_of_range(components, constant, oracle)) != fits


def test_means_are_in_range_however_much_is_cut():
    edges = ["token -> layer 0 mlp input", "layer 0 head 0 -> layer 1 head 0 value", "pos -> layer 1 mlp input"]
    _, components, graph, oracle = cut_model(2, 2, edges)
    assert Edge(POSITION, OUT) in graph.kept
    assert not out_of_range(components, graph, oracle)
