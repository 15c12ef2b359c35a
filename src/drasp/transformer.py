"""Transformers that can be run, made from a `Shape` and weights: a GPT-2, or how a model differs from one.

The forward pass is in `forward.py`, the weights are in `layers.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from drasp.forward import Forward
from drasp.layers import Attention, Layer, Linear, Mlp, NormKind, Stack, StreamNorm
from drasp.sequences import Sequences


class Transformer(Stack):
    """A model: token ids and positions to logits."""

    def __call__(
        self, ids: Int[Tensor, "batch pos"], positions: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos n_vocab"]:
        """Logits, as the model gives them."""
        return Forward(self)(Sequences(ids, positions)).logits

    def __repr__(self) -> str:
        return f"<Transformer: {self.size}, {self.n_vocab} tokens, {self.n_positions} positions>"


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

    @property
    def n_weights(self) -> int:
        return sum(math.prod(size) for size in self.weight_shapes().values())

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


def converted(transformer: Transformer, change: Callable[[Tensor], Tensor]) -> Transformer:
    """The same model with every weight changed; a tied unembedding stays tied."""

    def linear(part: Linear) -> Linear:
        return Linear(change(part.weight), change(part.bias))

    def norm(part: StreamNorm) -> StreamNorm:
        return replace(part, gain=change(part.gain), bias=change(part.bias))

    def attention(part: Attention) -> Attention:
        return replace(part, qkv=linear(part.qkv), output=linear(part.output))

    def mlp(part: Mlp | None) -> Mlp | None:
        return part and replace(part, hidden=linear(part.hidden), output=linear(part.output))

    tokens = change(transformer.token_embedding)
    is_tied = transformer.unembedding is transformer.token_embedding
    return Transformer(
        token_embedding=tokens,
        position_embedding=change(transformer.position_embedding),
        layers=tuple(
            Layer(norm(layer.attention_norm), attention(layer.attention), norm(layer.mlp_norm), mlp(layer.mlp))
            for layer in transformer.layers
        ),
        final_norm=norm(transformer.final_norm),
        unembedding=tokens if is_tied else change(transformer.unembedding),
        unembedding_bias=None if transformer.unembedding_bias is None else change(transformer.unembedding_bias),
    )


def in_single_precision(transformer: Transformer) -> Transformer:
    """The model as programs are run when they are searched for: one in double precision is rounded."""
    if transformer.token_embedding.dtype == torch.float32:
        return transformer
    return converted(transformer, lambda weight: weight.float())


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
