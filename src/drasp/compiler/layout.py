"""What the residual stream holds of each variable, and where.

A variable is held only as far as it is read. All that later lines read of it are linear maps; an orthonormal basis of
what these maps see is the variable's code, and the code has a block of its own in the stream. So a position that is
asked for its parity only takes two dimensions, however many positions there are.

All blocks together add up to 0, since layer norm takes away the mean: one coordinate holds the opposite of their sum.
A pair of coordinates holds ±B at every position; the larger B, the less the norm depends on what the blocks hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.compiler.functions import Affine, in_code
from drasp.compiler.plan import CompilationPlan, HeadPlan
from drasp.compiler.samples import Samples, sample

RANK_TOLERANCE = 1e-7
"""Singular values that are a smaller share of the largest are nothing but the rounding of 32-bit weights."""
LEAST_SIZE = 0.1
"""What is smaller than this on random inputs may be larger on others, and is not made larger by more than it allows."""
EXTRA_COORDINATES = 3
"""One that makes the sum 0, and the pair that makes the norm constant."""

Code = Float[Tensor, "dims block"]


@dataclass(frozen=True)
class Factors:
    """A head's scores as queries times keys: for each variable the map into the head's own dimensions."""

    query: Mapping[str, Float[Tensor, "_ rank"]]
    key: Mapping[str, Float[Tensor, "_ rank"]]
    rank: int


@dataclass(frozen=True)
class Layout:
    """`codes` are what is held of each variable, in the order of their blocks, and `decoders` read it back."""

    plan: CompilationPlan
    codes: Mapping[str, Code]
    factors: tuple[Factors, ...]  # of the plan's heads
    samples: Samples

    @cached_property
    def decoders(self) -> dict[str, Float[Tensor, "block dims"]]:
        # The columns of a code are orthogonal, and of one length.
        return {name: code.T / code.square().sum(0)[:, None] for name, code in self.codes.items()}

    @cached_property
    def blocks(self) -> dict[str, slice]:
        found, start = dict[str, slice](), 0
        for name, code in self.codes.items():
            found[name] = slice(start, start + code.shape[1])
            start += code.shape[1]
        return found

    @property
    def width(self) -> int:
        """The dimensions of all blocks."""
        return sum(code.shape[1] for code in self.codes.values())

    @property
    def d_head(self) -> int:
        """The dimensions that a head needs for its scores and for the values that it mixes."""
        heads = zip(self.plan.heads, self.factors, strict=True)
        return max((max(f.rank, sum(self.codes[a].shape[1] for a, _ in head.values)) for head, f in heads), default=1)

    @property
    def d_hidden(self) -> int:
        units = [1] + [0] * self.plan.n_layers  # a model has at least one
        for cell in self.plan.cells:
            units[1 + cell.layer] += len(in_code(cell.stage, self.codes[cell.variable]).bias)
        return max(units)


def lay_out(plan: CompilationPlan) -> Layout:
    """The codes of all variables, from the last reader to the first: an aggregate's value holds what is read of it."""
    samples = sample(plan)
    reads: dict[str, list[Tensor]] = {name: [] for name in plan.sizes}
    codes: dict[str, Code] = {}
    factors = tuple(_factors(head, plan.sizes) for head in plan.heads)
    for output in plan.outputs:
        reads[output.variable].append(output.tensor)
    for layer in reversed(range(plan.n_layers)):
        for cell in (cell for cell in plan.cells if cell.layer == layer):
            code = codes[cell.variable] = _code(reads[cell.variable], samples[cell.variable])
            for variable, matrix in zip(cell.inputs, cell.stage.maps, strict=True):
                reads[variable].append(matrix @ code if isinstance(cell.stage, Affine) else matrix)
        for head, factor in zip(plan.heads, factors, strict=True):
            if head.layer != layer:
                continue
            for aggregate, value in head.values:
                code = codes[aggregate] = _code(reads[aggregate], samples[aggregate])
                reads[value].append(code)
            for side in (factor.query, factor.key):
                for variable, matrix in side.items():
                    reads[variable].append(matrix)
    for name in ("pos", "token"):
        codes[name] = _code(reads[name], samples[name])
    return Layout(plan, dict(reversed(codes.items())), factors, samples)


def _code(reads: list[Tensor], values: Float[Tensor, "n dims"]) -> Code:
    """A basis of what maps see of a variable, orthonormal but for a scale that makes what is held about 1.

    So what is held of one variable does not drown in another, where they overlap or are noisy.
    """
    basis = _basis(reads, values.shape[1])
    return basis / max(LEAST_SIZE, float((values @ basis).square().sum(1).mean().sqrt()))


def _basis(reads: list[Tensor], size: int) -> Code:
    """An orthonormal basis of all that maps see of a variable; its own directions where that is everything."""
    seen = [matrix / largest for matrix in reads if matrix.numel() and (largest := float(matrix.abs().max())) > 0]
    if not seen:
        return torch.zeros(size, 0, dtype=torch.float64)
    u, s, _ = torch.linalg.svd(torch.cat(seen, 1), full_matrices=False)
    rank = int((s > RANK_TOLERANCE * s[0]).sum())
    return torch.eye(size, dtype=torch.float64) if rank == size else u[:, :rank]


def _factors(head: HeadPlan, sizes: Mapping[str, int]) -> Factors:
    """The best way to write all scores as one product: they share the head's dimensions."""
    queries = list(dict.fromkeys(score.query for score in head.scores))
    keys = list(dict.fromkeys(score.key for score in head.scores))
    if not head.scores:
        return Factors({}, {}, 0)
    blocks = {(q, k): torch.zeros(sizes[q], sizes[k], dtype=torch.float64) for q in queries for k in keys}
    for score in head.scores:
        blocks[score.query, score.key] = blocks[score.query, score.key] + score.tensor
    total = torch.cat([torch.cat([blocks[q, k] for k in keys], 1) for q in queries])
    u, s, vt = torch.linalg.svd(total, full_matrices=False)
    rank = int((s > RANK_TOLERANCE * s[0]).sum()) if float(s[0]) else 0
    root = s[:rank].sqrt()
    left = (u[:, :rank] * root).split([sizes[q] for q in queries])
    right = (vt[:rank].T * root).split([sizes[k] for k in keys])
    return Factors(dict(zip(queries, left, strict=True)), dict(zip(keys, right, strict=True)), rank)
