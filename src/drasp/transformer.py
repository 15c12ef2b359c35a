"""A GPT-2 as plain tensors, with a forward pass of our own.

The weights are views of the tensors in the model file, so the same forward pass serves for reading a
model, for training one, and as the reference that a translated program must equal.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
}


@dataclass(frozen=True)
class LayerNorm:
    """`gain * (x - mean x) / n + bias`, where n is the root of the variance, or a given constant."""

    gain: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"]
    eps: float
    constant: float | None = None

    def __call__(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        if self.constant is None:
            return F.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)
        return self.gain * (x - x.mean(-1, keepdim=True)) / self.constant + self.bias


@dataclass(frozen=True)
class Linear:
    """GPT-2 keeps its matrices as [input, output]."""

    weight: Float[Tensor, "d_in d_out"]
    bias: Float[Tensor, " d_out"]

    def __call__(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        return (x @ self.weight).add_(self.bias)


@dataclass(frozen=True)
class Head:
    """One attention head as maps from and to the residual stream; the score scale is in the query."""

    query: Float[Tensor, "d_head d_model"]
    query_bias: Float[Tensor, " d_head"]
    key: Float[Tensor, "d_head d_model"]
    key_bias: Float[Tensor, " d_head"]
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

    def __call__(self, x: Float[Tensor, "batch pos d_model"], dropout: float) -> Tensor:
        batch, length, d_model = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout, scale=self.scale)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, d_model))

    def heads(self) -> Iterator[Head]:
        d_model = self.output.weight.shape[1]
        weight = self.qkv.weight.T.reshape(3, self.n_heads, -1, d_model)
        bias = self.qkv.bias.reshape(3, self.n_heads, -1)
        output = self.output.weight.reshape(self.n_heads, -1, d_model)
        for h in range(self.n_heads):
            yield Head(
                query=weight[0, h] * self.scale,
                query_bias=bias[0, h] * self.scale,
                key=weight[1, h],
                key_bias=bias[1, h],
                value=weight[2, h],
                value_bias=bias[2, h],
                output=output[h].T,
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
    attention_norm: LayerNorm
    attention: Attention
    mlp_norm: LayerNorm
    mlp: Mlp


@dataclass(frozen=True)
class Transformer:
    token_embedding: Float[Tensor, "n_vocab d_model"]
    position_embedding: Float[Tensor, "n_positions d_model"]
    layers: tuple[Layer, ...]
    final_norm: LayerNorm
    unembedding: Float[Tensor, "n_vocab d_model"]

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
    def norms(self) -> tuple[LayerNorm, ...]:
        """In the order of the forward pass: two a layer, and the final one."""
        return (*(n for layer in self.layers for n in (layer.attention_norm, layer.mlp_norm)), self.final_norm)

    def __call__(
        self,
        ids: Int[Tensor, "batch pos"],
        positions: Int[Tensor, "batch pos"],
        dropout: float = 0.0,
    ) -> Float[Tensor, "batch pos n_vocab"]:
        """Logits. Inputs of different lengths are padded on the right: causal attention never looks there."""

        def drop(x: Tensor) -> Tensor:
            return F.dropout(x, dropout) if dropout else x

        x = drop(F.embedding(ids, self.token_embedding) + F.embedding(positions, self.position_embedding))
        for layer in self.layers:
            x = x + drop(layer.attention(layer.attention_norm(x), dropout))
            x = x + drop(layer.mlp(layer.mlp_norm(x)))
        return self.final_norm(x) @ self.unembedding.T

    def with_norm_constants(self, constants: Sequence[float | None]) -> "Transformer":
        """The same model with layer norm i divided by `constants[i]` instead of its own norm (None: kept)."""
        if len(constants) != len(self.norms):
            raise ValueError(f"{len(constants)} constants for {len(self.norms)} layer norms")
        fixed = [replace(n, constant=c) for n, c in zip(self.norms, constants, strict=True)]
        layers = tuple(
            replace(layer, attention_norm=fixed[2 * i], mlp_norm=fixed[2 * i + 1])
            for i, layer in enumerate(self.layers)
        )
        return replace(self, layers=layers, final_norm=fixed[-1])


@dataclass(frozen=True)
class Shape:
    """What a GPT-2 configuration says of a model's form."""

    n_vocab: int
    n_positions: int
    d_model: int
    n_layers: int
    n_heads: int
    d_hidden: int
    activation: str = "gelu_new"
    eps: float = 1e-5
    scale_by_head: bool = True
    scale_by_layer: bool = False
    tied: bool = True

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the model by its Hugging Face name."""
        d, hidden = self.d_model, self.d_hidden
        shapes: dict[str, tuple[int, ...]] = {"wte.weight": (self.n_vocab, d), "wpe.weight": (self.n_positions, d)}
        for i in range(self.n_layers):
            shapes |= {
                f"h.{i}.ln_1.weight": (d,),
                f"h.{i}.ln_1.bias": (d,),
                f"h.{i}.attn.c_attn.weight": (d, 3 * d),
                f"h.{i}.attn.c_attn.bias": (3 * d,),
                f"h.{i}.attn.c_proj.weight": (d, d),
                f"h.{i}.attn.c_proj.bias": (d,),
                f"h.{i}.ln_2.weight": (d,),
                f"h.{i}.ln_2.bias": (d,),
                f"h.{i}.mlp.c_fc.weight": (d, hidden),
                f"h.{i}.mlp.c_fc.bias": (hidden,),
                f"h.{i}.mlp.c_proj.weight": (hidden, d),
                f"h.{i}.mlp.c_proj.bias": (d,),
            }
        shapes |= {"ln_f.weight": (d,), "ln_f.bias": (d,)}
        shapes = {f"transformer.{name}": shape for name, shape in shapes.items()}
        return shapes if self.tied else shapes | {"lm_head.weight": (self.n_vocab, d)}


def assemble(shape: Shape, weights: dict[str, Tensor]) -> Transformer:
    """A transformer whose tensors are views of `weights`, so that gradients reach them."""

    def linear(name: str) -> Linear:
        return Linear(weights[f"transformer.{name}.weight"], weights[f"transformer.{name}.bias"])

    def norm(name: str) -> LayerNorm:
        return LayerNorm(weights[f"transformer.{name}.weight"], weights[f"transformer.{name}.bias"], shape.eps)

    def scale(layer: int) -> float:
        by_head = 1 / math.sqrt(shape.d_model // shape.n_heads) if shape.scale_by_head else 1.0
        return by_head / (layer + 1) if shape.scale_by_layer else by_head

    tokens = weights["transformer.wte.weight"]
    return Transformer(
        token_embedding=tokens,
        position_embedding=weights["transformer.wpe.weight"],
        layers=tuple(
            Layer(
                norm(f"h.{i}.ln_1"),
                Attention(linear(f"h.{i}.attn.c_attn"), linear(f"h.{i}.attn.c_proj"), shape.n_heads, scale(i)),
                norm(f"h.{i}.ln_2"),
                Mlp(linear(f"h.{i}.mlp.c_fc"), linear(f"h.{i}.mlp.c_proj"), shape.activation),
            )
            for i in range(shape.n_layers)
        ),
        final_norm=norm("ln_f"),
        unembedding=tokens if shape.tied else weights["lm_head.weight"],
    )


def initial_weights(shape: Shape, seed: int) -> dict[str, Tensor]:
    """Fresh weights by GPT-2's rule: normal with deviation 0.02, less where a layer writes to the stream."""
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, Tensor] = {}
    for name, size in shape.weight_shapes().items():
        if ".ln_" in name:
            weights[name] = torch.ones(size) if name.endswith("weight") else torch.zeros(size)
        elif name.endswith("bias"):
            weights[name] = torch.zeros(size)
        else:
            deviation = 0.02 / math.sqrt(2 * shape.n_layers) if "c_proj" in name else 0.02
            weights[name] = torch.randn(size, generator=generator, device="cpu") * deviation
    return {name: weight.to(torch.get_default_device()) for name, weight in weights.items()}
