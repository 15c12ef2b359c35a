"""A transformer as plain tensors: a GPT-2, or one that differs from it as a `Shape` can say.

The weights are views of the tensors in the model file, so that training can reach them; biases that the model does not
have are zeros. The forward pass is in `forward.py`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from drasp.sites import Anatomy

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
}
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

    @property
    def width(self) -> int:
        """Of all heads together."""
        return len(self.output.weight)

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
    """`mlp` is None in a model of attention alone."""

    attention_norm: StreamNorm
    attention: Attention
    mlp_norm: StreamNorm
    mlp: Mlp | None


@dataclass(frozen=True)
class Transformer:
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

    @cached_property
    def anatomy(self) -> Anatomy:
        has_mlps = all(layer.mlp is not None for layer in self.layers)
        return Anatomy(len(self.layers), self.n_heads, has_mlps, self.final_norm.kind != "none")

    @property
    def is_gpt2(self) -> bool:
        """Whether a model is computed as a GPT-2 is: with layer norms, MLPs and heads that share the stream."""
        whole = all(layer.mlp is not None and layer.attention.width == self.d_model for layer in self.layers)
        return whole and self.final_norm.kind == "layer" and self.unembedding_bias is None

    def __call__(
        self, ids: Int[Tensor, "batch pos"], positions: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos n_vocab"]:
        """Logits, as the model gives them."""
        from drasp.forward import Forward
        from drasp.sequences import Sequences

        return Forward(self)(Sequences(ids, positions)).logits


@dataclass(frozen=True)
class Shape:
    """A model's architecture: what a GPT-2 configuration says, and in how far the model differs from a GPT-2.

    Heads are as wide as their share of the residual stream unless `d_head` says otherwise; without hidden units
    (`d_hidden` 0) there are no MLPs.
    """

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
    d_head: int | None = None
    norm: NormKind = "layer"
    unembedding_bias: bool = False

    @property
    def head_width(self) -> int:
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @property
    def is_gpt2(self) -> bool:
        """Whether a GPT-2 configuration can say all of it."""
        whole = self.n_heads * self.head_width == self.d_model
        return whole and self.norm == "layer" and self.d_hidden > 0 and not self.unembedding_bias

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the model by its Hugging Face name."""
        d, hidden, heads = self.d_model, self.d_hidden, self.n_heads * self.head_width

        def linear(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
            return {f"{name}.weight": (rows, columns), f"{name}.bias": (columns,)}

        def norm(name: str) -> dict[str, tuple[int, ...]]:
            parts = {"layer": ("weight", "bias"), "rms": ("weight",), "none": ()}
            return {f"{name}.{part}": (d,) for part in parts[self.norm]}

        shapes: dict[str, tuple[int, ...]] = {"wte.weight": (self.n_vocab, d), "wpe.weight": (self.n_positions, d)}
        for i in range(self.n_layers):
            shapes |= norm(f"h.{i}.ln_1")
            shapes |= linear(f"h.{i}.attn.c_attn", d, 3 * heads) | linear(f"h.{i}.attn.c_proj", heads, d)
            if hidden:
                shapes |= norm(f"h.{i}.ln_2")
                shapes |= linear(f"h.{i}.mlp.c_fc", d, hidden) | linear(f"h.{i}.mlp.c_proj", hidden, d)
        shapes = {f"transformer.{name}": shape for name, shape in (shapes | norm("ln_f")).items()}
        shapes |= {} if self.tied else {"lm_head.weight": (self.n_vocab, d)}
        return shapes | ({"lm_head.bias": (self.n_vocab,)} if self.unembedding_bias else {})


def assemble(shape: Shape, weights: dict[str, Tensor]) -> Transformer:
    """A transformer whose tensors are views of `weights`, so that gradients reach them."""
    tokens = weights["transformer.wte.weight"]

    def linear(name: str) -> Linear:
        return Linear(weights[f"transformer.{name}.weight"], weights[f"transformer.{name}.bias"])

    def norm(name: str) -> StreamNorm:
        gain, bias = (weights.get(f"transformer.{name}.{part}") for part in ("weight", "bias"))
        gain = tokens.new_ones(shape.d_model) if gain is None else gain
        return StreamNorm(gain, tokens.new_zeros(shape.d_model) if bias is None else bias, shape.eps, shape.norm)

    def mlp(layer: int) -> Mlp | None:
        if not shape.d_hidden:
            return None
        return Mlp(linear(f"h.{layer}.mlp.c_fc"), linear(f"h.{layer}.mlp.c_proj"), shape.activation)

    def scale(layer: int) -> float:
        by_head = 1 / math.sqrt(shape.head_width) if shape.scale_by_head else 1.0
        return by_head / (layer + 1) if shape.scale_by_layer else by_head

    def attention(layer: int) -> Attention:
        qkv, output = linear(f"h.{layer}.attn.c_attn"), linear(f"h.{layer}.attn.c_proj")
        return Attention(qkv, output, shape.n_heads, scale(layer))

    return Transformer(
        token_embedding=tokens,
        position_embedding=weights["transformer.wpe.weight"],
        layers=tuple(
            Layer(norm(f"h.{i}.ln_1"), attention(i), norm(f"h.{i}.ln_2"), mlp(i)) for i in range(shape.n_layers)
        ),
        final_norm=norm("ln_f"),
        unembedding=tokens if shape.tied else weights["lm_head.weight"],
        unembedding_bias=weights["lm_head.bias"] if shape.unembedding_bias else None,
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
