"""What can be cut out of a graph, and means to leave behind."""

import torch
from torch import Tensor

from drasp.decompiler.components import Cuttable, Graph
from drasp.sites import Edge, Path, Read, Sender


class AnyMeans(dict[Sender, Tensor]):
    """A vector for everything that sends, in place of its mean."""

    def __init__(self, d_model: int) -> None:
        self.d_model = d_model

    def __missing__(self, sender: Sender) -> Tensor:
        generator = torch.Generator().manual_seed(sum(str(sender).encode()))
        self[sender] = torch.randn(self.d_model, generator=generator, dtype=torch.float64)
        return self[sender]


def cuttable(graph: Graph) -> list[Cuttable]:
    """All that could be cut of a graph: edges, ways through heads, reads, products."""
    ways = [(way, r) for r in graph.live_receivers() for way in graph.ways_to(r)]
    through_heads = [Edge(way, r) for way, r in ways if isinstance(way, Path)]
    reads = [Read(way, r) for way, r in ways if r.kind in ("value", "out")]
    products = [product for head in graph.used_heads() for product in graph.products(head)]
    return [*sorted(graph.kept, key=str), *through_heads, *reads, *products]
