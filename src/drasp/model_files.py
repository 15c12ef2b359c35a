"""Reads and writes GPT-2 folders (`config.json` and `model.safetensors`); refuses everything else.

Nothing is unpickled, and no model class of another library is needed: a GPT-2 is its configuration and
its named tensors.
"""

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from drasp.errors import DraspError
from drasp.transformer import ACTIVATIONS, Shape, Transformer, assemble

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel

# Causal masks that older files carry along.
_BUFFERS = (".attn.bias", ".attn.masked_bias")


def load_model(source: "str | Path | GPT2LMHeadModel", device: torch.device | str | None = None) -> Transformer:
    """The transformer in a GPT-2 folder, or in a `GPT2LMHeadModel` in memory; on torch's default device, or another."""
    if isinstance(source, str | Path):
        shape, weights = read_folder(Path(source))
    else:
        config = getattr(source, "config", None)
        if config is None or not hasattr(source, "state_dict"):
            raise DraspError(f"expected a folder or a GPT2LMHeadModel, found {type(source).__name__}")
        where = type(source).__name__
        shape = _shape(config.to_dict(), where)
        weights = _weights(source.state_dict(), shape, where)
    place = torch.get_default_device() if device is None else device
    return assemble(shape, {name: weight.to(place) for name, weight in weights.items()})


def digest(transformer: Transformer) -> str:
    """A transformer to the SHA-256 of what it computes with: its weights by Hugging Face's names, and its form."""
    form = [(a.attention.n_heads, a.attention.scale, a.mlp.activation) for a in transformer.layers]
    made = sha256(repr([transformer.final_norm.eps, *form]).encode())
    for name, tensor in named_weights(transformer):
        made.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        made.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return made.hexdigest()


def named_weights(transformer: Transformer) -> Iterator[tuple[str, Tensor]]:
    yield "wte.weight", transformer.token_embedding
    yield "wpe.weight", transformer.position_embedding
    for i, layer in enumerate(transformer.layers):
        yield f"h.{i}.ln_1.weight", layer.attention_norm.gain
        yield f"h.{i}.ln_1.bias", layer.attention_norm.bias
        yield f"h.{i}.attn.c_attn.weight", layer.attention.qkv.weight
        yield f"h.{i}.attn.c_attn.bias", layer.attention.qkv.bias
        yield f"h.{i}.attn.c_proj.weight", layer.attention.output.weight
        yield f"h.{i}.attn.c_proj.bias", layer.attention.output.bias
        yield f"h.{i}.ln_2.weight", layer.mlp_norm.gain
        yield f"h.{i}.ln_2.bias", layer.mlp_norm.bias
        yield f"h.{i}.mlp.c_fc.weight", layer.mlp.hidden.weight
        yield f"h.{i}.mlp.c_fc.bias", layer.mlp.hidden.bias
        yield f"h.{i}.mlp.c_proj.weight", layer.mlp.output.weight
        yield f"h.{i}.mlp.c_proj.bias", layer.mlp.output.bias
    yield "ln_f.weight", transformer.final_norm.gain
    yield "ln_f.bias", transformer.final_norm.bias
    yield "lm_head.weight", transformer.unembedding


def read_folder(folder: Path) -> tuple[Shape, dict[str, Tensor]]:
    if not folder.is_dir():
        raise DraspError(f"{folder}: expected a GPT-2 folder, found {'a file' if folder.exists() else 'nothing'}")
    shape = _shape(_read_config(folder / "config.json"), str(folder / "config.json"))
    file = folder / "model.safetensors"
    if not file.is_file():
        pickled = next((p.name for p in sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt"))), None)
        if pickled:
            raise DraspError(
                f"{folder}: found {pickled}, a pickle, which could run code when read; expected "
                "model.safetensors (save_pretrained(..., safe_serialization=True) writes one)"
            )
        raise DraspError(f"{folder}: no model.safetensors")
    try:
        tensors = load_file(file)
    except (SafetensorError, OSError) as error:
        raise DraspError(f"{file}: not a whole safetensors file ({error})") from None
    return shape, _weights(tensors, shape, str(file))


def write_folder(folder: Path, shape: Shape, weights: Mapping[str, Tensor]) -> None:
    """Writes what `read_folder` and Hugging Face's `from_pretrained` read."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": shape.activation,
        "bos_token_id": None,  # or transformers takes those of the 50,257 tokens of the published GPT-2
        "eos_token_id": None,
        "layer_norm_epsilon": shape.eps,
        "n_embd": shape.d_model,
        "n_head": shape.n_heads,
        "n_inner": None if shape.d_hidden == 4 * shape.d_model else shape.d_hidden,
        "n_layer": shape.n_layers,
        "n_positions": shape.n_positions,
        "scale_attn_by_inverse_layer_idx": shape.scale_by_layer,
        "scale_attn_weights": shape.scale_by_head,
        "tie_word_embeddings": shape.tied,
        "vocab_size": shape.n_vocab,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({k: v.detach().contiguous() for k, v in weights.items()}, folder / "model.safetensors", {"format": "pt"})


def _read_config(file: Path) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text())
    except FileNotFoundError:
        raise DraspError(f"{file.parent}: no config.json; expected a Hugging Face GPT-2 folder") from None
    except (OSError, ValueError) as error:
        raise DraspError(f"{file}: not a readable JSON file ({error})") from None
    if not isinstance(config, dict):
        raise DraspError(f"{file}: expected a JSON object, found {type(config).__name__}")
    return config


def _shape(config: Mapping[str, Any], where: str) -> Shape:
    if config.get("model_type") != "gpt2":
        raise DraspError(f"{where}: expected model_type 'gpt2', found {config.get('model_type')!r}")
    if config.get("add_cross_attention"):
        raise DraspError(f"{where}: the model has cross-attention; only decoder-only GPT-2s can be read")

    def size(key: str) -> int:
        value = config.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < (0 if key == "n_layer" else 1):
            raise DraspError(f"{where}: expected a positive whole number for {key}, found {value!r}")
        return value

    def flag(key: str, default: bool) -> bool:
        value = config.get(key, default)
        if not isinstance(value, bool):
            raise DraspError(f"{where}: expected true or false for {key}, found {value!r}")
        return value

    d_model, n_heads = size("n_embd"), size("n_head")
    if d_model % n_heads:
        raise DraspError(f"{where}: n_embd {d_model} is not divisible by n_head {n_heads}")
    activation = config.get("activation_function", "gelu_new")
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise DraspError(f"{where}: expected an activation_function of {known}, found {activation!r}")
    eps = config.get("layer_norm_epsilon", 1e-5)
    if not isinstance(eps, int | float) or not 0 <= eps < 1:
        raise DraspError(f"{where}: expected a small number for layer_norm_epsilon, found {eps!r}")
    return Shape(
        n_vocab=size("vocab_size"),
        n_positions=size("n_positions"),
        d_model=d_model,
        n_layers=size("n_layer"),
        n_heads=n_heads,
        d_hidden=4 * d_model if config.get("n_inner") is None else size("n_inner"),
        activation=activation,
        eps=float(eps),
        scale_by_head=flag("scale_attn_weights", True),
        scale_by_layer=flag("scale_attn_by_inverse_layer_idx", False),
        tied=flag("tie_word_embeddings", True),
    )


def _weights(tensors: Mapping[str, Tensor], shape: Shape, where: str) -> dict[str, Tensor]:
    """The tensors that the configuration asks for: all of them, of the right shape, finite, and no others."""
    # A bare GPT2Model is saved without the prefix.
    named = {k if k.startswith(("transformer.", "lm_head.")) else f"transformer.{k}": v for k, v in tensors.items()}
    expected = shape.weight_shapes()
    ignored = {"lm_head.weight"} if shape.tied else set[str]()
    for name in named:
        if name not in expected and name not in ignored and not name.endswith(_BUFFERS):
            raise DraspError(f"{where}: unexpected tensor {name}; a plain GPT-2 of this configuration has none")
    weights: dict[str, Tensor] = {}
    for name, size in expected.items():
        if name not in named:
            raise DraspError(f"{where}: tensor {name} is missing")
        tensor = named[name].detach()
        if tuple(tensor.shape) != size:
            raise DraspError(f"{where}: tensor {name} has shape {tuple(tensor.shape)}, expected {size}")
        if not tensor.is_floating_point():
            raise DraspError(f"{where}: tensor {name} holds {tensor.dtype}, expected floating-point numbers")
        if not torch.isfinite(tensor).all():
            raise DraspError(f"{where}: tensor {name} holds NaN or infinite numbers")
        weights[name] = tensor if tensor.dtype == torch.float64 else tensor.float()
    return weights
