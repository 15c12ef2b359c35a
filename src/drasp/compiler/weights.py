"""Writes a layout as the weights of a GPT-2.

Every layer norm divides by nearly the same number, since the pair ±B outweighs what the blocks hold; so what reads the
stream multiplies by that number. The variable `one` is in no block: what is read of it is a bias of the reader.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.compiler.functions import in_code
from drasp.compiler.layout import EXTRA_COORDINATES, Factors, Layout
from drasp.compiler.plan import HeadPlan
from drasp.transformer import Shape


@dataclass(frozen=True)
class Frame:
    """Where the blocks are in the stream: `write` takes them there, `read` back again.

    The last three coordinates are the pair ±B and the one that makes the sum 0.
    """

    write: Float[Tensor, "width d_model"]
    read: Float[Tensor, "d_model width"]
    norm_size: float

    @classmethod
    def orthogonal(cls, width: int, d_model: int, norm_size: float) -> "Frame":
        """Each dimension of a block is a coordinate."""
        eye = torch.eye(width, d_model, dtype=torch.float64)
        write = eye.clone()
        write[:, -1] = -1
        return cls(write, eye.T, norm_size)

    @property
    def constant(self) -> Float[Tensor, " d_model"]:
        """What is in the stream everywhere."""
        pair = torch.zeros(self.write.shape[1], dtype=torch.float64)
        pair[-3], pair[-2] = self.norm_size, -self.norm_size
        return pair


def model_shape(layout: Layout, n_heads: int, d_hidden: int) -> Shape:
    """As small as the layout allows: heads have one width, and together they are as wide as the stream."""
    plan = layout.plan
    d_head = max(layout.d_head, -(-(layout.width + EXTRA_COORDINATES) // n_heads))
    return Shape(
        n_vocab=len(plan.program.vocabulary),
        n_positions=plan.program.n_positions,
        d_model=n_heads * d_head,
        n_layers=plan.n_layers,
        n_heads=n_heads,
        d_hidden=d_hidden,
        activation=plan.activation,
        tied=False,
    )


@dataclass(frozen=True)
class Writer:
    """A layout in a frame, on its way into the weights of a model of some shape."""

    layout: Layout
    shape: Shape
    frame: Frame

    @cached_property
    def norm(self) -> float:
        """What layer norms divide by: the root mean square of the stream, with token and position in it."""
        initial = [self.written(name, self.layout.codes[name]) for name in ("token", "pos")]
        squares = sum(float(rows.square().sum(1).mean()) for rows in initial)
        return math.sqrt((2 * self.frame.norm_size**2 + squares) / self.shape.d_model + self.shape.eps)

    def written(self, variable: str, code: Float[Tensor, "rows block"]) -> Float[Tensor, "rows d_model"]:
        """What something in a variable's code adds to the stream."""
        return code @ self.frame.write[self.layout.blocks[variable]]

    def read(self, variable: str, matrix: Float[Tensor, "dims columns"]) -> Float[Tensor, "d_model columns"]:
        """A map of a variable as a map of the stream behind layer norm."""
        code = self.layout.codes[variable]
        return self.norm * self.frame.read[:, self.layout.blocks[variable]] @ (code.T @ matrix)

    def weights(self) -> dict[str, Tensor]:
        weights = {name: torch.zeros(size, dtype=torch.float64) for name, size in self.shape.weight_shapes().items()}
        for name in weights:
            if ".ln_" in name and name.endswith("weight"):
                weights[name] += 1
        codes = self.layout.codes
        weights["transformer.wte.weight"] += self.written("token", codes["token"]) + self.frame.constant
        weights["transformer.wpe.weight"] += self.written("pos", codes["pos"])
        for head, factors in zip(self.layout.plan.heads, self.layout.factors, strict=True):
            for place in head.places:
                self.write_head(weights, head, factors, place)
        self.write_mlps(weights)
        self.write_output(weights)
        return weights

    def write_head(self, weights: Mapping[str, Tensor], head: HeadPlan, factors: Factors, place: int) -> None:
        """Scores are divided by √d_head in the model; each of several heads that do the same writes its part."""
        name, width = f"transformer.h.{head.layer}.attn", self.shape.d_model // self.shape.n_heads
        qkv = weights[f"{name}.c_attn.weight"].view(-1, 3, self.shape.n_heads, width)[:, :, place]
        bias = weights[f"{name}.c_attn.bias"].view(3, self.shape.n_heads, width)[:, place]
        out = weights[f"{name}.c_proj.weight"].view(self.shape.n_heads, width, -1)[place]
        self.add(qkv[:, 0], bias[0], factors.query, math.sqrt(width))
        self.add(qkv[:, 1], bias[1], factors.key)
        start = 0
        for aggregate, value in head.values:
            code = self.layout.codes[aggregate]
            stop = start + code.shape[1]
            self.add(qkv[:, 2, start:stop], bias[2, start:stop], {value: code})
            eye = torch.eye(code.shape[1], dtype=torch.float64)
            out[start:stop] = self.written(aggregate, eye) / len(head.places)
            start = stop

    def add(self, weight: Tensor, bias: Tensor, maps: Mapping[str, Tensor], factor: float = 1.0) -> None:
        """Lets the first columns of a matrix, with its bias, read variables through maps."""
        for variable, matrix in maps.items():
            columns = matrix.shape[1]
            if variable == "one":
                bias[:columns] += factor * matrix[0]
            else:
                weight[:, :columns] += factor * self.read(variable, matrix)

    def write_mlps(self, weights: Mapping[str, Tensor]) -> None:
        """Units of a layer's functions side by side."""
        used = [0] * self.shape.n_layers
        for cell in self.layout.plan.cells:
            name = f"transformer.h.{cell.layer}.mlp"
            units = in_code(cell.stage, self.layout.codes[cell.variable])
            columns = slice(used[cell.layer], used[cell.layer] + len(units.bias))
            used[cell.layer] = columns.stop
            fc, fc_bias = weights[f"{name}.c_fc.weight"][:, columns], weights[f"{name}.c_fc.bias"][columns]
            fc_bias += units.bias
            for variable, matrix in zip(cell.inputs, units.maps, strict=True):
                self.add(fc, fc_bias, {variable: matrix})
            weights[f"{name}.c_proj.weight"][columns] = self.written(cell.variable, units.out)
            weights[f"{name}.c_proj.bias"].add_(self.written(cell.variable, units.out_bias[None])[0])

    def write_output(self, weights: Mapping[str, Tensor]) -> None:
        """The unembedding; what is read of `one` comes by way of the final norm's bias.

        It lies on one of the pair of constant coordinates, and the other reads the same: what the stream has there
        cancels, and the bias does not depend on the norm.
        """
        unembedding = weights["lm_head.weight"].T
        bias = torch.zeros(self.shape.n_vocab, dtype=torch.float64)
        for output in self.layout.plan.outputs:
            self.add(unembedding, bias, {output.variable: output.tensor})
        unembedding[-3] += bias
        unembedding[-2] += bias
        weights["transformer.ln_f.bias"][-3] = 1
