"""Reads and writes model folders (`config.json` and safetensors); refuses everything else.

A folder holds a GPT-2 as Hugging Face has it, or, where its form cannot say what a model is, a model of drasp's own
form: `model_type` "drasp", the fields of a `Shape`, and tensors by the same names. Nothing is unpickled, and no model
class of another library is needed: models in memory are known by what they have.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from safetensors.torch import save
from torch import Tensor

from drasp.configuration import Fields
from drasp.errors import DraspError
from drasp.input_files import found_at, is_folder, is_there, read_json, read_json_if_there, read_tensors
from drasp.layers import Linear, StreamNorm
from drasp.lens import from_lens
from drasp.transformer import Shape, Transformer, assemble

if TYPE_CHECKING:
    from typing import Protocol

    from transformers import GPT2LMHeadModel

    class LensModel(Protocol):
        """What is asked of a model of TransformerLens, which need not be installed."""

        cfg: Any

        def state_dict(self) -> Mapping[str, Tensor]: ...


CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
OWN_TYPE = "drasp"
# Causal masks that older files carry along.
_BUFFERS = (".attn.bias", ".attn.masked_bias")
# Of architectures that are often met, why they cannot be read.
_POSITIONS_OF = {
    **dict.fromkeys(("llama", "mistral", "gpt_neox", "gptj", "qwen2", "qwen3", "gemma", "phi"), "rotary"),
    **dict.fromkeys(("bloom", "mpt"), "ALiBi's"),
}


ModelSource: TypeAlias = "str | Path | Transformer | GPT2LMHeadModel | LensModel"


def load_model(source: ModelSource, device: torch.device | str | None = None) -> Transformer:
    """The transformer in a folder, or in a model of transformers or TransformerLens that is in memory.

    Its tensors are on torch's default device, or on another. What is a `Transformer` already is given back as it is.
    """
    if isinstance(source, Transformer):
        return source
    shape, weights = read_folder(Path(source)) if isinstance(source, str | Path) else _from_memory(source)
    place = torch.get_default_device() if device is None else device
    return assemble(shape, {name: weight.to(place) for name, weight in weights.items()})


def _from_memory(source: Any) -> tuple[Shape, dict[str, Tensor]]:
    where = type(source).__name__
    if any(each.__name__ == "HookedTransformer" for each in type(source).__mro__):
        shape, weights = from_lens(source.state_dict(), vars(source.cfg), where)
        return shape, checked_weights(weights, shape, where)
    config = getattr(source, "config", None)
    if config is None or not hasattr(config, "to_dict") or not hasattr(source, "state_dict"):
        raise DraspError(f"expected a model's folder, a GPT2LMHeadModel or a HookedTransformer, found {where}")
    shape = _shape(config.to_dict(), where)
    return shape, checked_weights(source.state_dict(), shape, where)


def digest(transformer: Transformer) -> str:
    """A transformer to the SHA-256 of what it computes with: its weights by Hugging Face's names, and its form."""
    form = [(a.attention.n_heads, a.attention.scale, a.mlp and a.mlp.activation) for a in transformer.layers]
    norm = transformer.final_norm
    kind = () if norm.kind == "layer" else (norm.kind,)
    made = sha256(repr([norm.eps, *kind, *form]).encode())
    for name, tensor in named_weights(transformer):
        made.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        made.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return made.hexdigest()


def named_weights(transformer: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a transformer with its Hugging Face name, in the order of the digest."""
    yield "wte.weight", transformer.token_embedding
    yield "wpe.weight", transformer.position_embedding
    for i, layer in enumerate(transformer.layers):
        parts: list[tuple[str, StreamNorm | Linear]] = [("ln_1", layer.attention_norm)]
        parts += [("attn.c_attn", layer.attention.qkv), ("attn.c_proj", layer.attention.output)]
        if layer.mlp is not None:
            parts += [("ln_2", layer.mlp_norm), ("mlp.c_fc", layer.mlp.hidden), ("mlp.c_proj", layer.mlp.output)]
        for name, part in parts:
            yield f"h.{i}.{name}.weight", part.gain if isinstance(part, StreamNorm) else part.weight
            yield f"h.{i}.{name}.bias", part.bias
    yield "ln_f.weight", transformer.final_norm.gain
    yield "ln_f.bias", transformer.final_norm.bias
    yield "lm_head.weight", transformer.unembedding
    if transformer.unembedding_bias is not None:
        yield "lm_head.bias", transformer.unembedding_bias


def read_folder(folder: Path) -> tuple[Shape, dict[str, Tensor]]:
    """The shape and the weights of the model in a folder, checked against each other."""
    if not is_folder(folder):
        raise DraspError(f"{folder}: expected a model's folder, found {found_at(folder)}")
    config = read_json_if_there(folder / CONFIG)
    if config is None:
        raise DraspError(f"{folder}: no {CONFIG}; expected a Hugging Face GPT-2, or a model that `drasp import` wrote")
    shape = _shape(config, str(folder / CONFIG))
    file = folder / WEIGHTS
    if is_there(file):
        return shape, checked_weights(read_tensors(file), shape, str(file))
    if is_there(folder / INDEX):
        return shape, checked_weights(_read_shards(folder), shape, str(folder))
    pickled = next((p.name for p in sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt"))), None)
    if pickled:
        raise DraspError(
            f"{folder}: found {pickled}, a pickle, which could run code when read; expected "
            "model.safetensors (save_pretrained(..., safe_serialization=True) writes one)"
        )
    raise DraspError(f"{folder}: no {WEIGHTS}")


def _read_shards(folder: Path) -> dict[str, Tensor]:
    """The tensors of a model in several files, each where the index says it is."""
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise DraspError(f"{folder / INDEX}: expected weight_map to give the file of each tensor")
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name or "\0" in name:
            raise DraspError(f"{folder / INDEX}: {name!r} is no file of this folder")
        if not is_there(folder / name):
            raise DraspError(f"{folder}: {name} is missing, a part of the model by {INDEX}")
        there = read_tensors(folder / name)
        missing = next((tensor for tensor, file in places.items() if file == name and tensor not in there), None)
        if missing:
            raise DraspError(f"{folder / name}: tensor {missing} is missing, which is there by {INDEX}")
        tensors |= there
    return tensors


def model_files(shape: Shape, weights: Mapping[str, Tensor]) -> dict[str, bytes]:
    """The files that `read_folder` reads: a GPT-2, as `from_pretrained` reads it too, where the shape is one."""
    own = {"model_type": OWN_TYPE, **asdict(shape), "d_head": shape.head_width}
    config = _gpt2_config(shape) if shape.is_gpt2 else own
    tensors = {name: weight.detach().contiguous() for name, weight in weights.items()}
    return {CONFIG: (json.dumps(config, indent=2) + "\n").encode(), WEIGHTS: save(tensors, {"format": "pt"})}


def _gpt2_config(shape: Shape) -> dict[str, Any]:
    return {
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


def _shape(config: Mapping[str, Any], where: str) -> Shape:
    match config.get("model_type"):
        case "gpt2":
            return _gpt2_shape(config, where)
        case kind if kind == OWN_TYPE:
            return _own_shape(config, where)
        case kind:
            hint = _POSITIONS_OF.get(kind) if isinstance(kind, str) else None
            more = f": its positions are {hint}, and only learnt ones can be read" if hint else ""
            raise DraspError(f"{where}: expected model_type 'gpt2' or {OWN_TYPE!r}, found {kind!r}{more}")


def _gpt2_shape(config: Mapping[str, Any], where: str) -> Shape:
    if config.get("add_cross_attention"):
        raise DraspError(f"{where}: the model has cross-attention; only decoder-only GPT-2s can be read")
    fields = Fields(config, where)
    d_model, n_heads = fields.size("n_embd"), fields.size("n_head")
    if d_model % n_heads:
        raise DraspError(f"{where}: n_embd {d_model} is not divisible by n_head {n_heads}")
    return Shape(
        n_vocab=fields.size("vocab_size"),
        n_positions=fields.size("n_positions"),
        d_model=d_model,
        n_layers=fields.size("n_layer", least=0),
        n_heads=n_heads,
        d_hidden=4 * d_model if config.get("n_inner") is None else fields.size("n_inner"),
        activation=fields.activation("activation_function"),
        eps=fields.eps("layer_norm_epsilon"),
        scale_by_head=fields.flag("scale_attn_weights", True),
        scale_by_layer=fields.flag("scale_attn_by_inverse_layer_idx", False),
        tied=fields.flag("tie_word_embeddings", True),
    )


def _own_shape(config: Mapping[str, Any], where: str) -> Shape:
    known = {"model_type", *Shape.__dataclass_fields__}
    unknown = next((key for key in config if key not in known), None)
    if unknown:
        raise DraspError(f"{where}: {unknown} is no field of a model of drasp's; a newer drasp may know it")
    fields = Fields(config, where)
    return Shape(
        n_vocab=fields.size("n_vocab"),
        n_positions=fields.size("n_positions"),
        d_model=fields.size("d_model"),
        n_layers=fields.size("n_layers", least=0),
        n_heads=fields.size("n_heads"),
        d_hidden=fields.size("d_hidden", least=0),
        activation=fields.activation("activation"),
        eps=fields.eps("eps"),
        scale_by_head=fields.flag("scale_by_head", True),
        scale_by_layer=fields.flag("scale_by_layer", False),
        tied=fields.flag("tied", True),
        d_head=fields.size("d_head"),
        norm=fields.norm("norm"),
        unembedding_bias=fields.flag("unembedding_bias", False),
    )


def checked_weights(tensors: Mapping[str, Tensor], shape: Shape, where: str) -> dict[str, Tensor]:
    """The tensors that the configuration asks for: all of them, of the right shape, finite, and no others."""
    # A bare GPT2Model is saved without the prefix.
    named = {k if k.startswith(("transformer.", "lm_head.")) else f"transformer.{k}": v for k, v in tensors.items()}
    expected = shape.weight_shapes()
    ignored = {"lm_head.weight"} if shape.tied else set[str]()
    for name in sorted(named):
        if name not in expected and name not in ignored and not name.endswith(_BUFFERS):
            raise DraspError(f"{where}: unexpected tensor {name}; a model of this configuration has none")
    weights: dict[str, Tensor] = {}
    for name, size in expected.items():
        if name not in named:
            raise DraspError(f"{where}: tensor {name} is missing")
        tensor = named[name].detach()
        if tuple(tensor.shape) != size:
            raise DraspError(f"{where}: tensor {name} has shape {tuple(tensor.shape)}, expected {size}")
        if not tensor.is_floating_point():
            raise DraspError(f"{where}: tensor {name} holds {tensor.dtype}, expected floating-point numbers")
        # Kinds of eight bits have no arithmetic of their own.
        tensor = tensor if tensor.dtype == torch.float64 else tensor.float()
        if not torch.isfinite(tensor).all():
            raise DraspError(f"{where}: tensor {name} holds NaN or infinite numbers")
        weights[name] = tensor
    # Half precision is for storage, and one that is mixed cannot be computed with.
    double = any(tensor.dtype == torch.float64 for tensor in weights.values())
    return {name: tensor.double() if double else tensor.float() for name, tensor in weights.items()}
