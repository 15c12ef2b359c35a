"""Models of TransformerLens, from the tensors of a `HookedTransformer` and what its configuration says.

A configuration may lack what the tensors themselves tell, and what is as TransformerLens has it by default. What would
make the model compute something else than drasp does is refused by name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from drasp.configuration import Fields, known_activation
from drasp.errors import DraspError
from drasp.layers import NormKind
from drasp.transformer import Shape

# The logit of tokens that the model reads but never says: where it has fewer outputs than inputs.
NEVER_SAID = -1e4

NORMS: dict[object, NormKind] = {None: "none", "LN": "layer", "LNPre": "layer", "RMS": "rms", "RMSPre": "rms"}
# What a configuration may say only thus, or not at all; None and False are the same.
_PLAIN: dict[str, tuple[object, ...]] = {
    "attention_dir": ("causal", None),
    "gated_mlp": (None,),
    "parallel_attn_mlp": (None,),
    "use_local_attn": (None,),
    "use_qk_norm": (None,),
    "clip_qkv": (None,),
    "use_logn_attn": (None,),
    "use_attention_sinks": (None,),
    "post_embedding_ln": (None,),
    "use_normalization_before_and_after": (None,),
    "num_experts": (None,),
    "attn_scores_soft_cap": (-1.0, None),
    "output_logits_soft_cap": (-1.0, None),
}
_POSITIONS = ("standard", None)
# Masks, which follow from the model's size.
_BUFFERS = (".attn.mask", ".attn.IGNORE")


def is_lens(tensors: Mapping[str, Tensor]) -> bool:
    """Whether tensors are named as those of a `HookedTransformer`."""
    return "embed.W_E" in tensors


def from_lens(tensors: Mapping[str, Tensor], config: Mapping[str, Any], where: str) -> tuple[Shape, dict[str, Tensor]]:
    """The shape and the weights, by Hugging Face's names, of a model of TransformerLens."""
    _refuse_others(tensors, config, where)
    fields = Fields(config, where)
    state = _State({name: tensor.detach() for name, tensor in tensors.items()}, where)
    embedding, positions = state.take("embed.W_E", None, None), state.take("pos_embed.W_pos", None, None)
    d_model, n_layers = embedding.shape[1], _layers(tensors, where)
    n_heads, d_head = _heads(state, n_layers, d_model)
    kind, has_gains = _norm(tensors, config, where)
    hidden = "blocks.0.mlp.W_in"
    has_mlps = hidden in tensors or (n_layers and not config.get("attn_only", True))
    d_hidden = state.take(hidden, d_model, None).shape[1] if has_mlps else 0
    unembedding = state.take("unembed.W_U", d_model, None).T
    unembedding_bias = state.take("unembed.b_U", len(unembedding))
    n_vocab = max(len(embedding), len(unembedding))
    fields.check_sizes(n_layers=n_layers, d_model=d_model)
    if n_layers:
        fields.check_sizes(n_heads=n_heads, d_head=d_head)
    if "act_fn" not in config and d_hidden:
        raise DraspError(f"{where}: the file does not say which activation its MLPs have; give --activation")

    # What TransformerLens divides scores by goes into the queries, where it is not the root of a head's width.
    rescaled = math.sqrt(d_head) / _divisor(config, d_head, where)
    weights = {"wte.weight": _padded(embedding, n_vocab), "wpe.weight": positions}

    def norm(name: str, lens_name: str) -> None:
        gain = state.take(f"{lens_name}.w", d_model) if has_gains else embedding.new_ones(d_model)
        shift = state.take(f"{lens_name}.b", d_model) if has_gains and kind == "layer" else embedding.new_zeros(d_model)
        parts = {"layer": {"weight": gain, "bias": shift}, "rms": {"weight": gain}, "none": {}}
        weights.update({f"{name}.{part}": tensor for part, tensor in parts[kind].items()})

    for i in range(n_layers):
        block, attention = f"blocks.{i}", f"blocks.{i}.attn"
        norm(f"h.{i}.ln_1", f"{block}.ln1")
        sides = [state.take(f"{attention}.W_{side}", n_heads, d_model, d_head) for side in "QKV"]
        biases = [state.take(f"{attention}.b_{side}", n_heads, d_head) for side in "QKV"]
        if not math.isclose(rescaled, 1.0, rel_tol=1e-12):
            sides[0], biases[0] = sides[0] * rescaled, biases[0] * rescaled
        weights[f"h.{i}.attn.c_attn.weight"] = torch.cat([side.transpose(0, 1).flatten(1) for side in sides], 1)
        weights[f"h.{i}.attn.c_attn.bias"] = torch.cat([bias.flatten() for bias in biases])
        weights[f"h.{i}.attn.c_proj.weight"] = state.take(f"{attention}.W_O", n_heads, d_head, d_model).flatten(0, 1)
        weights[f"h.{i}.attn.c_proj.bias"] = state.take(f"{attention}.b_O", d_model)
        if d_hidden:
            norm(f"h.{i}.ln_2", f"{block}.ln2")
            weights[f"h.{i}.mlp.c_fc.weight"] = state.take(f"{block}.mlp.W_in", d_model, d_hidden)
            weights[f"h.{i}.mlp.c_fc.bias"] = state.take(f"{block}.mlp.b_in", d_hidden)
            weights[f"h.{i}.mlp.c_proj.weight"] = state.take(f"{block}.mlp.W_out", d_hidden, d_model)
            weights[f"h.{i}.mlp.c_proj.bias"] = state.take(f"{block}.mlp.b_out", d_model)
    norm("ln_f", "ln_final")
    state.check_all_taken()
    weights = {f"transformer.{name}": tensor for name, tensor in weights.items()}
    weights["lm_head.weight"] = _padded(unembedding, n_vocab)
    has_bias = bool(unembedding_bias.any()) or len(unembedding) < n_vocab
    if has_bias:
        weights["lm_head.bias"] = _padded(unembedding_bias, n_vocab, NEVER_SAID)
    shape = Shape(
        n_vocab=n_vocab,
        n_positions=len(positions),
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        d_hidden=d_hidden,
        activation=known_activation(config.get("act_fn", "relu"), "act_fn", where) if d_hidden else "relu",
        eps=fields.eps("eps"),
        scale_by_layer=fields.flag("scale_attn_by_inverse_layer_idx", False),
        tied=False,
        d_head=d_head,
        norm=kind,
        unembedding_bias=has_bias,
    )
    return shape, weights


@dataclass
class _State:
    """Tensors by name, each taken once with the size that is expected of it."""

    tensors: dict[str, Tensor]
    where: str

    def __post_init__(self) -> None:
        self.left = {name for name in self.tensors if not name.endswith(_BUFFERS)}

    def take(self, name: str, *size: int | None) -> Tensor:
        """None stands for any number."""
        if name not in self.tensors:
            raise DraspError(f"{self.where}: tensor {name} is missing")
        tensor = self.tensors[name]
        found = tuple(tensor.shape)
        if len(found) != len(size) or any(n is not None and n != m for n, m in zip(size, found, strict=True)):
            expected = ", ".join("any" if n is None else str(n) for n in size)
            raise DraspError(f"{self.where}: tensor {name} has shape {found}, expected ({expected})")
        self.left.discard(name)
        return tensor

    def check_all_taken(self) -> None:
        if self.left:
            raise DraspError(f"{self.where}: unexpected tensor {min(self.left)}; a plain HookedTransformer has none")


def _refuse_others(tensors: Mapping[str, Tensor], config: Mapping[str, Any], where: str) -> None:
    kind = config.get("positional_embedding_type")
    if any(".rotary_" in name for name in tensors):
        kind = "rotary"
    if kind not in _POSITIONS:
        raise DraspError(f"{where}: its positions are {kind}; only learnt ones, added to the embedding, can be read")
    if config.get("shortformer_pos"):
        raise DraspError(f"{where}: its positions are shortformer; only learnt ones can be read")
    for key, allowed in _PLAIN.items():
        value = config.get(key)
        if value is not False and value not in allowed:
            raise DraspError(f"{where}: {key} is {value!r}, which drasp cannot compute")
    parts = {".attn._W_K": "grouped-query attention", ".mlp.W_gate": "gated MLPs", ".mlp.ln.": "norms inside MLPs"}
    for part, what in parts.items():
        name = next((name for name in tensors if part in name), None)
        if name:
            raise DraspError(f"{where}: tensor {name} belongs to {what}, which drasp cannot compute")


def _layers(tensors: Mapping[str, Tensor], where: str) -> int:
    numbers = {name.split(".")[1] for name in tensors if name.startswith("blocks.")}
    missing = next((i for i in range(len(numbers)) if str(i) not in numbers), None)
    if missing is not None:
        raise DraspError(f"{where}: layer {missing} is missing (no tensor blocks.{missing}.…)")
    return len(numbers)


def _heads(state: _State, n_layers: int, d_model: int) -> tuple[int, int]:
    """How many heads a layer has, and how wide each is."""
    if not n_layers:
        return 1, d_model
    queries = state.take("blocks.0.attn.W_Q", None, d_model, None)
    return queries.shape[0], queries.shape[2]


def _divisor(config: Mapping[str, Any], d_head: int, where: str) -> float:
    """What scores are divided by; TransformerLens writes -1 for the root of a head's width."""
    if not Fields(config, where).flag("use_attn_scale", True):
        return 1.0
    value = config.get("attn_scale", -1.0)
    if not isinstance(value, int | float) or not (value > 0 or value == -1):
        raise DraspError(f"{where}: expected a positive number for attn_scale, found {value!r}")
    return math.sqrt(d_head) if value == -1 else float(value)


def _norm(tensors: Mapping[str, Tensor], config: Mapping[str, Any], where: str) -> tuple[NormKind, bool]:
    """The kind of a model's norms, and whether they have gains; those that were folded into the weights have none."""
    has_gains, has_biases = "ln_final.w" in tensors, "ln_final.b" in tensors
    if "normalization_type" not in config:
        if not has_gains:
            raise DraspError(
                f"{where}: the file does not say which norm it has, if any; give --norm layer, rms or none"
            )
        return ("layer" if has_biases else "rms"), True
    said = config["normalization_type"]
    if said not in NORMS:
        known = ", ".join(str(name) for name in NORMS)
        raise DraspError(f"{where}: expected normalization_type to be one of {known}, found {said!r}")
    if config.get("final_rms") and NORMS[said] != "rms":
        raise DraspError(f"{where}: final_rms is True, which drasp cannot compute: all norms are of one kind")
    if has_gains and (NORMS[said] == "none" or (NORMS[said] == "rms" and has_biases)):
        raise DraspError(f"{where}: normalization_type is {said!r}, but there is a tensor ln_final.w or ln_final.b")
    return NORMS[said], has_gains


def _padded(tensor: Tensor, rows: int, filling: float = 0.0) -> Tensor:
    return torch.cat([tensor, tensor.new_full((rows - len(tensor), *tensor.shape[1:]), filling)])
