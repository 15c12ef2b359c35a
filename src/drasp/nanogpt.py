"""Models of nanoGPT, from their tensors and what a checkpoint's `model_args` say.

The tensors have a GPT-2's names, and their matrices are transposed: [output, input].
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from drasp.configuration import Fields, known_activation
from drasp.errors import DraspError
from drasp.transformer import Shape

_TOKENS, _POSITIONS, _OUT = "transformer.wte.weight", "transformer.wpe.weight", "lm_head.weight"
_COMPILED = "_orig_mod."  # before each name, where `torch.compile` has been at work
# Causal masks, where attention is not the fused one.
_MASK = ".attn.bias"
_LINEAR = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")


def is_nanogpt(tensors: Mapping[str, Tensor]) -> bool:
    """Whether tensors are named as those of a nanoGPT, or of a GPT-2 of Hugging Face."""
    return any(name.removeprefix(_COMPILED) == _TOKENS for name in tensors)


def from_nanogpt(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any], where: str
) -> tuple[Shape, dict[str, Tensor]]:
    """The shape and the weights, by Hugging Face's names, of a nanoGPT; biases that it does not have are zeros."""
    named = {name.removeprefix(_COMPILED): tensor.detach() for name, tensor in tensors.items()}
    named = {name: tensor for name, tensor in named.items() if not name.endswith(_MASK)}
    for name in (_TOKENS, _POSITIONS):
        if name not in named:
            why = "; only learnt positions can be read, no rotary or other ones" if name == _POSITIONS else ""
            raise DraspError(f"{where}: tensor {name} is missing{why}")
        if named[name].ndim != 2:
            raise DraspError(f"{where}: tensor {name} has shape {tuple(named[name].shape)}, expected two dimensions")
    n_vocab, d_model = named[_TOKENS].shape
    _refuse_hugging_face(named, d_model, where)
    layers = {name.split(".")[2] for name in named if name.startswith("transformer.h.")}
    hidden = named.get("transformer.h.0.mlp.c_fc.weight", torch.zeros(4 * d_model, d_model))
    is_tied = _OUT not in named or torch.equal(named[_OUT], named[_TOKENS])
    shape = Shape(
        n_vocab=n_vocab,
        n_positions=len(named[_POSITIONS]),
        d_model=d_model,
        n_layers=len(layers),
        n_heads=_heads(config, d_model, where),
        d_hidden=len(hidden),
        activation=known_activation(config.get("activation", "gelu"), "activation", where),
        tied=is_tied,
    )
    Fields(config, where).check_sizes(
        n_layer=shape.n_layers, n_embd=d_model, vocab_size=n_vocab, block_size=shape.n_positions
    )
    if is_tied:
        named.pop(_OUT, None)
    # Without biases, all of them are missing.
    has_biases = bool(config.get("bias", any(name.endswith(".bias") for name in named)))
    matrices = {name for name, tensor in named.items() if name.endswith(_LINEAR) and tensor.ndim == 2}
    weights = {name: tensor.T if name in matrices else tensor for name, tensor in named.items()}
    if not has_biases:
        biases = {name: size for name, size in shape.weight_shapes().items() if name.endswith(".bias")}
        weights = {name: named[_TOKENS].new_zeros(size) for name, size in biases.items()} | weights
    return shape, weights


def _refuse_hugging_face(named: Mapping[str, Tensor], d_model: int, where: str) -> None:
    """The same names, but matrices as Hugging Face has them."""
    first = named.get("transformer.h.0.attn.c_attn.weight")
    if first is not None and tuple(first.shape) == (d_model, 3 * d_model):
        raise DraspError(
            f"{where}: a GPT-2 of Hugging Face, and no nanoGPT; load it there and write it with "
            "save_pretrained(folder), which drasp reads as it is"
        )


def _heads(config: Mapping[str, Any], d_model: int, where: str) -> int:
    heads = config.get("n_head")
    if heads is None:
        raise DraspError(f"{where}: the file does not say how many heads a layer has; give --heads")
    if not isinstance(heads, int) or heads < 1 or d_model % heads:
        raise DraspError(f"{where}: expected n_head to divide the {d_model} dimensions, found {heads!r}")
    return heads
