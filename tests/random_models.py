"""Random GPT-2s of Hugging Face, with weights far from their initial calm."""

from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from typed import blocks_of


def random_gpt2(
    seed: int,
    layers: int,
    heads: int,
    d_head: int = 4,
    vocab: int = 5,
    positions: int = 8,
    activation: str = "gelu_new",
    **options,
) -> GPT2LMHeadModel:
    """Biases are not zero, and layer-norm gains range from a hundredth to ten."""
    fixed: dict[str, Any] = {"attn_implementation": "eager", "bos_token_id": None, "eos_token_id": None}
    config = GPT2Config(
        vocab_size=vocab,
        n_positions=positions,
        n_embd=heads * d_head,
        n_layer=layers,
        n_head=heads,
        activation_function=activation,
        **fixed,
        **options,
    )
    model = GPT2LMHeadModel(config).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            if ".ln_" in name and name.endswith("weight"):
                spread = 10 ** (torch.rand((), generator=generator).item() * 3 - 2)
                weight.copy_(spread * (1 + 0.3 * noise))
            else:
                weight.copy_(noise * (0.5 if weight.ndim == 1 else 1 / weight.shape[0] ** 0.5))
    return model


def logits_of(model: GPT2LMHeadModel, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        mask = torch.ones_like(ids)
        return model(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False).logits


class LinearNorm(torch.nn.LayerNorm):
    """A layer norm that divides by a constant, to stand in a Hugging Face model."""

    def __init__(self, norm: torch.nn.LayerNorm, constant: float) -> None:
        super().__init__(list(norm.normalized_shape))
        self.weight, self.bias, self.constant = norm.weight, norm.bias, constant

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return (input - input.mean(-1, keepdim=True)) / self.constant * self.weight + self.bias


def linearise(model: GPT2LMHeadModel, constants: list[float]) -> None:
    """Layer norms in the order of the forward pass."""
    remaining = iter(constants)
    for block in blocks_of(model):
        block.ln_1 = LinearNorm(block.ln_1, next(remaining))
        block.ln_2 = LinearNorm(block.ln_2, next(remaining))
    model.transformer.ln_f = LinearNorm(model.transformer.ln_f, next(remaining))
