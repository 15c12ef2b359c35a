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
from drasp.sites import OUT, Receiver
from drasp.transformer import Shape


@dataclass(frozen=True)
class Frame:
    """The places of the blocks in the stream: `write` takes them there, `read` back again.

    The last three coordinates are the pair ±B and the one that makes the sum 0.
    """

    write: Float[Tensor, "width d_model"]
    read: Float[Tensor, "d_model width"]
    norm_size: float

    @classmethod
    def of(cls, directions: Float[Tensor, "width room"], d_model: int, norm_size: float) -> "Frame":
        """A frame with a direction for each dimension of the blocks; where there is less room, they overlap.

        Then what is read back of a dimension is right in the mean, and has something of the others in it.
        """
        width, room = directions.shape
        write = torch.zeros(width, d_model, dtype=torch.float64)
        write[:, :room] = directions
        write[:, -1] = -directions.sum(1)
        read = torch.zeros(d_model, width, dtype=torch.float64)
        read[:room] = torch.linalg.pinv(directions)
        share = (write @ read).diagonal()
        return cls(write, read / share, norm_size)

    @property
    def constant(self) -> Float[Tensor, " d_model"]:
        """What is in the stream everywhere."""
        pair = torch.zeros(self.write.shape[1], dtype=torch.float64)
        pair[-3], pair[-2] = self.norm_size, -self.norm_size
        return pair


def model_shape(layout: Layout, room: int, n_heads: int, d_hidden: int) -> Shape:
    """The smallest shape that the layout allows: heads have one width, and together they are as wide as the stream."""
    plan = layout.plan
    d_head = max(layout.d_head, -(-(room + EXTRA_COORDINATES) // n_heads))
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


def attention(layer: int) -> Receiver:
    return Receiver(layer, "attention")


def mlp(layer: int) -> Receiver:
    return Receiver(layer, "mlp")


@dataclass(frozen=True)
class Writer:
    """A layout in a frame, on its way into the weights of a model of some shape."""

    layout: Layout
    shape: Shape
    frame: Frame

    def stream(self, receiver: Receiver) -> dict[str, Float[Tensor, "_ d_model"]]:
        """The variables that are in the stream where it is read, and what each adds to it; the constant is in token."""
        plan = self.layout.plan
        there = ["token", "pos"]
        for layer in range(plan.n_layers if receiver == OUT else receiver.layer + 1):
            last = receiver.layer == layer
            if not (last and receiver.kind == "attention"):
                there += [name for head in plan.heads if head.layer == layer for name, _ in head.values]
            if not last:
                there += [cell.variable for cell in plan.cells if cell.layer == layer]
        held = {name: self.written(name, code) for name, code in self.layout.codes.items() if name in there}
        held["token"] = held["token"] + self.frame.constant
        return {name: rows for name, rows in held.items() if rows.any()}

    @cached_property
    def norms(self) -> dict[Receiver, float]:
        """What each layer norm divides by, typically."""
        layers = range(self.shape.n_layers)
        return {r: self.typical_norm(r) for r in (*map(attention, layers), *map(mlp, layers), OUT)}

    def typical_norm(self, receiver: Receiver) -> float:
        samples = self.layout.samples
        total = sum(samples[name] @ rows for name, rows in self.stream(receiver).items())
        assert isinstance(total, Tensor)
        return math.sqrt(float(total.var(1, correction=0).mean()) + self.shape.eps)

    def written(self, variable: str, code: Float[Tensor, "rows block"]) -> Float[Tensor, "rows d_model"]:
        """What something in a variable's code adds to the stream."""
        return code @ self.frame.write[self.layout.blocks[variable]]

    def read(self, variable: str, matrix: Float[Tensor, "dims columns"]) -> Float[Tensor, "d_model columns"]:
        """A map of a variable as a map of the stream."""
        return self.frame.read[:, self.layout.blocks[variable]] @ (self.layout.decoders[variable] @ matrix)

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
        """Writes a head, whose scores the model divides by √d_head; of several that do the same, each has its part."""
        name, width = f"transformer.h.{head.layer}.attn", self.shape.d_model // self.shape.n_heads
        qkv = weights[f"{name}.c_attn.weight"].view(-1, 3, self.shape.n_heads, width)[:, :, place]
        bias = weights[f"{name}.c_attn.bias"].view(3, self.shape.n_heads, width)[:, place]
        out = weights[f"{name}.c_proj.weight"].view(self.shape.n_heads, width, -1)[place]
        scaled = {variable: math.sqrt(width) * matrix for variable, matrix in factors.query.items()}
        here = attention(head.layer)
        self.add(here, qkv[:, 0], bias[0], scaled)
        self.add(here, qkv[:, 1], bias[1], factors.key)
        start = 0
        for aggregate, value in head.values:
            code = self.layout.codes[aggregate]
            stop = start + code.shape[1]
            self.add(here, qkv[:, 2, start:stop], bias[2, start:stop], {value: code})
            eye = torch.eye(code.shape[1], dtype=torch.float64)
            out[start:stop] = self.written(aggregate, eye) / len(head.places)
            start = stop

    def add(self, receiver: Receiver, weight: Tensor, bias: Tensor, maps: Mapping[str, Tensor]) -> None:
        """Lets the first columns of a matrix, with its bias, read variables through maps behind a layer norm."""
        for variable, matrix in maps.items():
            columns = matrix.shape[1]
            if variable == "one":
                bias[:columns] += matrix[0]
            else:
                weight[:, :columns] += self.norms[receiver] * self.read(variable, matrix)

    def write_mlps(self, weights: Mapping[str, Tensor]) -> None:
        """Writes the MLPs, with the units of a layer's functions side by side."""
        used = [0] * self.shape.n_layers
        for cell in self.layout.plan.cells:
            name = f"transformer.h.{cell.layer}.mlp"
            units = in_code(cell.stage, self.layout.codes[cell.variable])
            columns = slice(used[cell.layer], used[cell.layer] + len(units.bias))
            used[cell.layer] = columns.stop
            fc, fc_bias = weights[f"{name}.c_fc.weight"][:, columns], weights[f"{name}.c_fc.bias"][columns]
            fc_bias += units.bias
            for variable, matrix in zip(cell.inputs, units.maps, strict=True):
                self.add(mlp(cell.layer), fc, fc_bias, {variable: matrix})
            weights[f"{name}.c_proj.weight"][columns] = self.written(cell.variable, units.out)
            weights[f"{name}.c_proj.bias"].add_(self.written(cell.variable, units.out_bias[None])[0])

    def write_output(self, weights: Mapping[str, Tensor]) -> None:
        """Writes the unembedding; what is read of `one` comes by way of the final norm's bias.

        It lies on one of the pair of constant coordinates, and the other reads the same: what the stream has there
        cancels, and the bias does not depend on the norm.
        """
        unembedding = weights["lm_head.weight"].T
        bias = torch.zeros(self.shape.n_vocab, dtype=torch.float64)
        for output in self.layout.plan.outputs:
            self.add(OUT, unembedding, bias, {output.variable: output.tensor})
        # As large as the blocks are behind the norm, so that noise does to it what it does to them.
        unembedding[-3:-1] += self.norms[OUT] * bias
        weights["transformer.ln_f.bias"][-3] = 1 / self.norms[OUT]
