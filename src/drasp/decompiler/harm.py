"""What it would cost to do without a line, or an edge: for all of them at once, from slopes.

The divergence from the model is about least as the program stands, so it has no slope along the weight of a line. The
surprise at an answer drawn by the model has one; its mean square is the curvature of the divergence (the Fisher
information), and half of that, as far as a parabola goes, is what is lost with the line. It takes one backward pass
instead of a run for each of them.
"""

from collections.abc import Hashable, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from drasp.decompiler.components import Components, Graph
from drasp.decompiler.components import Means as ComponentMeans
from drasp.decompiler.gates import GatedModel, Learnt
from drasp.fitting.dropping import Means
from drasp.fitting.oracle import Batch, Oracle, answering
from drasp.language.syntax import ONE, ElementWise, Network, Norm, Program, Project, Select, TensorName
from drasp.rewriting.tidy import bias_of
from drasp.sites import Edge
from drasp.vocabulary import Output


def harm_by_line(program: Program, means: Means, oracle: Oracle) -> dict[Hashable, float]:
    """The estimated increase of divergence without each select, project and input, by the names of their moves.

    The smaller the oracle's batches, the better: slopes of single inputs are wanted.
    """
    generator = _generator()
    total: dict[Hashable, float] = {}
    for batch in oracle.batches:
        tensors = {name: tensor.detach().requires_grad_() for name, tensor in program.tensors.items()}
        with torch.enable_grad():
            logits = answering(program.with_tensors(tensors))(batch)
            surprise = _surprise(batch, logits, oracle.output, generator).sum()
        slopes = torch.autograd.grad(surprise, list(tensors.values()), allow_unused=True, materialize_grads=True)
        for name, slope in _slopes_by_line(program, means, dict(zip(tensors, slopes, strict=True))).items():
            total[name] = total.get(name, 0.0) + slope**2 / (2 * len(oracle))
    return total


def harm_by_edge(components: Components, graph: Graph, means: ComponentMeans, oracle: Oracle) -> dict[Edge, float]:
    edges = [edge for edge in graph.anatomy.edges if edge in graph.kept]
    model = GatedModel(components, edges)
    # Constants hold the means of what was cut before, which closed gates leave behind once more: the ranking is of a
    # graph nearby.
    learnt = Learnt(
        ablations=torch.stack([means[sender] for sender in graph.anatomy.senders]),
        constants=torch.stack([graph.constants[receiver] for receiver in graph.anatomy.receivers]),
    )
    generator = _generator()
    total = torch.zeros(len(edges))
    for batch in oracle.batches:
        masks = learnt.constants.new_ones(len(batch.inputs), len(edges)).requires_grad_()
        with torch.enable_grad():
            surprise = _surprise(batch, model.logits(learnt, masks, batch), oracle.output, generator).sum()
        [slopes] = torch.autograd.grad(surprise, [masks])
        total += (slopes**2).sum(0) / (2 * len(oracle))
    return dict(zip(edges, total.tolist(), strict=True))


def _generator() -> torch.Generator:
    """The same answers each time: what harms less does so by the same draw."""
    return torch.Generator(torch.get_default_device()).manual_seed(0)


def _surprise(
    batch: Batch, logits: Float[Tensor, "batch counted n_vocab"], output: Output, generator: torch.Generator
) -> Float[Tensor, " batch"]:
    """The surprise at answers drawn by the model, so scaled that squares add up to those of an input's mean."""
    if output == "softmax":
        chances = batch.logits.softmax(-1).flatten(0, 1)
        drawn = torch.multinomial(chances, 1, generator=generator)[:, 0]
        each = F.cross_entropy(logits.flatten(0, 1), drawn, reduction="none").view(batch.valid.shape)
    else:
        drawn = torch.bernoulli(batch.logits.sigmoid(), generator=generator)
        each = F.binary_cross_entropy_with_logits(logits, drawn, reduction="none").sum(-1)
    return (each * batch.valid).sum(-1) / batch.valid.sum(-1).sqrt()


def _slopes_by_line(program: Program, means: Means, slopes: Mapping[str, Tensor]) -> dict[Hashable, float]:
    """Along each line's weight, from all to nothing but its mean."""
    bias = bias_of(program)
    found: dict[Hashable, float] = {}

    def along(tensor: str) -> float:
        return float((program.tensors[tensor] * slopes[tensor]).sum())

    for statement in program.statements:
        match statement:
            case Select(name, op=TensorName(tensor)):
                found["select", name] = along(tensor)
            case Project(name, source, TensorName(tensor)) if source != ONE and bias is not None:
                [constant] = bias.tensor_names
                left = means[source] @ program.tensors[tensor]
                found["project", name] = along(tensor) - float(left @ slopes[constant][0])
            case ElementWise(name, inputs, Network(weights)) | Norm(name, inputs, TensorName(weights)):
                for i, operand in enumerate(inputs):
                    left = means[operand] @ program.tensors[f"{weights}.{i}"]
                    if ONE in inputs:
                        constant = slopes[f"{weights}.{inputs.index(ONE)}"][0]
                    elif isinstance(statement, Norm):
                        continue
                    else:
                        constant = program.tensors[f"{weights}.hidden"] @ slopes[f"{weights}.hidden_bias"]
                    found["input", name, operand] = along(f"{weights}.{i}") - float(left @ constant)
            case _:
                pass
    return found
