"""A GPT-2 as plain tensors.

The weights are views of the tensors in the model file, so that training can reach them. The forward pass is in
`forward.py`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from drasp.sites import Anatomy

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
}


@dataclass(frozen=True)
class LayerNorm:
    """`gain * (x - mean x) / root + bias`, where the root is that of the variance plus eps."""

    gain: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"]
    eps: float

    def __call__(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        return F.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)

    def root(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch"]:
        # What `x.var` gives, in a fraction of its time.
        return ((x - x.mean(-1, keepdim=True)).square().mean(-1) + self.eps).sqrt()


@dataclass(frozen=True)
class Linear:
    """GPT-2 keeps its matrices as [input, output]."""

    weight: Float[Tensor, "d_in d_out"]
    bias: Float[Tensor, " d_out"]

    def __call__(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        return (x @ self.weight).add_(self.bias)


@dataclass(frozen=True)
class Head:
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

    def side(self, index: int) -> Float[Tensor, "d_model heads d_head"]:
        """The matrices of all heads' queries (0), keys (1) or values (2)."""
        return self.qkv.weight.view(len(self.qkv.weight), 3, self.n_heads, -1)[:, index]

    def side_bias(self, index: int) -> Float[Tensor, "heads d_head"]:
        return self.qkv.bias.view(3, self.n_heads, -1)[index]

    def output_of(self, head: int) -> Float[Tensor, "d_head d_model"]:
        return self.output.weight.view(self.n_heads, -1, self.output.weight.shape[1])[head]

    def heads(self) -> Iterator[Head]:
        (q, q_bias), (k, _), (v, v_bias) = ((self.side(i), self.side_bias(i)) for i in range(3))
        for h in range(self.n_heads):
            yield Head(
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

    @cached_property
    def anatomy(self) -> Anatomy:
        return Anatomy(len(self.layers), self.n_heads)

    def __call__(
        self, ids: Int[Tensor, "batch pos"], positions: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos n_vocab"]:
        """Logits, as the model gives them."""
        from drasp.forward import Forward
        from drasp.sequences import Sequences

        return Forward(self)(Sequences(ids, positions)).logits


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
