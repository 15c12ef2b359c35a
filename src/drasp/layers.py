"""A transformer's weights as plain tensors, each with what it does to the residual stream.

They are views of the tensors in the model file, so that training can reach them; biases that the model does not have
are zeros.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from drasp.activations import ACTIVATIONS
from drasp.sites import Anatomy

NormKind: TypeAlias = Literal["layer", "rms", "none"]


@dataclass(frozen=True)
class StreamNorm:
    """`gain * centred x / root + bias`, as a receiver reads the residual stream x.

    Layer norm takes the mean of x away, and its root is that of the variance plus eps; RMSNorm takes nothing away, and
    its root is that of the mean square plus eps; where there is no norm, x is divided by 1.
    """

    gain: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"]
    eps: float
    kind: NormKind = "layer"

    def __call__(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        match self.kind:
            case "layer":
                return F.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)
            case "rms":
                return x / self.root(x)[..., None] * self.gain + self.bias
            case "none":
                return x

    def centred(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """What the root divides: the part of x that is linear in x and that the norm lets through."""
        return x - x.mean(-1, keepdim=True) if self.kind == "layer" else x

    def root(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch"]:
        if self.kind == "none":
            return torch.ones_like(x[..., 0])
        # What `x.var` gives, in a fraction of its time.
        return (self.centred(x).square().mean(-1) + self.eps).sqrt()


@dataclass(frozen=True)
class Linear:
    """GPT-2 keeps its matrices as [input, output]."""

    weight: Float[Tensor, "d_in d_out"]
    bias: Float[Tensor, " d_out"]

    def __call__(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        return (x @ self.weight).add_(self.bias)


@dataclass(frozen=True)
class HeadWeights:
    """One attention head as maps from and to the residual stream; the score scale is in the query.

    There is no key bias: it adds the same to every key, which softmax does not see.
    """

    query: Float[Tensor, "d_head d_model"]
    query_bias: Float[Tensor, " d_head"]
    key: Float[Tensor, "d_head d_model"]
    value: Float[Tensor, "d_head d_model"]
    value_bias: Float[Tensor, " d_head"]
    output: Float[Tensor, "d_model d_head"]


@dataclass(frozen=True)
class Attention:
    """All heads of a layer, fused as in the file; `heads()` takes them apart."""

    qkv: Linear
    output: Linear
    n_heads: int
    scale: float

    @property
    def width(self) -> int:
        """The width of all heads together."""
        return len(self.output.weight)

    def side(self, index: int) -> Float[Tensor, "d_model heads d_head"]:
        """The matrices of all heads' queries (0), keys (1) or values (2)."""
        return self.qkv.weight.view(len(self.qkv.weight), 3, self.n_heads, -1)[:, index]

    def side_bias(self, index: int) -> Float[Tensor, "heads d_head"]:
        return self.qkv.bias.view(3, self.n_heads, -1)[index]

    def output_of(self, head: int) -> Float[Tensor, "d_head d_model"]:
        return self.output.weight.view(self.n_heads, -1, self.output.weight.shape[1])[head]

    def heads(self) -> Iterator[HeadWeights]:
        (q, q_bias), (k, _), (v, v_bias) = ((self.side(i), self.side_bias(i)) for i in range(3))
        for h in range(self.n_heads):
            yield HeadWeights(
                query=q[:, h].T * self.scale,
                query_bias=q_bias[h] * self.scale,
                key=k[:, h].T,
                value=v[:, h].T,
                value_bias=v_bias[h],
                output=self.output_of(h).T,
            )


@dataclass(frozen=True)
class Mlp:
    hidden: Linear
    output: Linear
    activation: str

    def __call__(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        return self.output(ACTIVATIONS[self.activation](self.hidden(x)))


@dataclass(frozen=True)
class Layer:
    """`mlp` is None in a model of attention alone."""

    attention_norm: StreamNorm
    attention: Attention
    mlp_norm: StreamNorm
    mlp: Mlp | None


@dataclass(frozen=True)
class Stack:
    """All that a model computes with: embeddings, layers and the map to logits. `forward.py` runs it."""

    token_embedding: Float[Tensor, "n_vocab d_model"]
    position_embedding: Float[Tensor, "n_positions d_model"]
    layers: tuple[Layer, ...]
    final_norm: StreamNorm
    unembedding: Float[Tensor, "n_vocab d_model"]
    unembedding_bias: Float[Tensor, " n_vocab"] | None = None

    @property
    def n_vocab(self) -> int:
        return self.token_embedding.shape[0]

    @property
    def n_positions(self) -> int:
        return self.position_embedding.shape[0]

    @property
    def d_model(self) -> int:
        return self.token_embedding.shape[1]

    @property
    def n_heads(self) -> int:
        return self.layers[0].attention.n_heads if self.layers else 0

    @property
    def size(self) -> str:
        """Its size in words: `2 layers, 4 heads each, 64 dimensions`."""
        layers, heads = len(self.layers), self.n_heads
        each = " each" if layers > 1 and heads > 1 else ""
        return f"{layers} layer{'s' * (layers != 1)}, {heads} head{'s' * (heads != 1)}{each}, {self.d_model} dimensions"

    @cached_property
    def anatomy(self) -> Anatomy:
        has_mlps = all(layer.mlp is not None for layer in self.layers)
        return Anatomy(len(self.layers), self.n_heads, has_mlps, self.final_norm.kind != "none")

    @property
    def is_gpt2(self) -> bool:
        """Whether a model is computed as a GPT-2 is: with layer norms, MLPs and heads that share the stream."""
        whole = all(layer.mlp is not None and layer.attention.width == self.d_model for layer in self.layers)
        return whole and self.final_norm.kind == "layer" and self.unembedding_bias is None
