"""Small random models of a task, graphs of them, and pools of inputs with their answers."""

from dataclasses import replace

import numpy as np
import torch

from drasp.decompiler.components import Components, Graph
from drasp.fitting.oracle import Oracle
from drasp.tasks import load_task
from drasp.transformer import Shape, Transformer, assemble, initial_weights

TASK = load_task("bin_majority_interleave")


def random_transformer(seed: int, layers: int, heads: int, task=TASK) -> Transformer:
    shape = Shape(len(task.vocabulary), task.n_positions, 4 * heads, layers, heads, 8)
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: tensor + 0.4 * torch.randn(tensor.shape, generator=generator)
        for name, tensor in initial_weights(shape, seed).items()
    }
    return assemble(shape, weights)


def oracle(transformer: Transformer, task=TASK, count: int = 24) -> Oracle:
    return Oracle.draw(transformer, task, count, np.random.default_rng(0), batch_size=8)


def random_graph(components: Components, means, seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    graph = components.whole()
    graph = graph.cut([edge for edge in graph.anatomy.edges if rng.random() < 0.4], means)
    norms = {receiver: 1.7 for receiver in graph.live_receivers() if rng.random() < 0.3}
    return replace(graph, norms=norms)


def difference(run, other, pool: Oracle) -> float:
    with torch.no_grad():
        return max(float(((run(b) - other(b)).abs() * b.valid[..., None]).max()) for b in pool.batches)


def only_token_to_output() -> Transformer:
    """A model whose logits depend on the token alone: head and MLP send nothing, positions are all the same."""
    shape = Shape(len(TASK.vocabulary), TASK.n_positions, 8, 1, 1, 8)
    weights = {k: v * 20 if "wte" in k else v for k, v in initial_weights(shape, 0).items()}
    for name in ("h.0.attn.c_proj.weight", "h.0.mlp.c_proj.weight", "wpe.weight"):
        weights[f"transformer.{name}"] = torch.zeros_like(weights[f"transformer.{name}"])
    return assemble(shape, weights)
