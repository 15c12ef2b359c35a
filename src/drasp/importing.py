"""Checkpoints of TransformerLens and nanoGPT, written as folders that drasp reads.

A checkpoint is a pickle as a rule. It is read here and nowhere else, by torch's reader of tensors and plain values,
which runs nothing that a file asks for; or it is a safetensors file.
"""

import pickle
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drasp.configuration import SAME_ACTIVATIONS
from drasp.errors import DraspError
from drasp.input_files import MAX_TENSORS, read_bytes, read_tensors
from drasp.layers import NormKind
from drasp.lens import NORMS, from_lens, is_lens
from drasp.model_files import checked_weights
from drasp.nanogpt import from_nanogpt, is_nanogpt
from drasp.transformer import Shape

# Where checkpoints that hold more than the tensors have these, and the model's configuration.
_TENSORS = ("model", "state_dict", "model_state_dict")
_CONFIGS = ("model_args", "cfg", "config")
# Numbers of NumPy, which `HookedTransformerConfig.to_dict` holds, are plain values: what a pickle asks for where one
# is, by its names of today and of NumPy 1.
_NUMBERS = [
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8", "?")),
    (np._core.multiarray.scalar, "numpy._core.multiarray.scalar"),  # pyright: ignore[reportAttributeAccessIssue]
    (np._core.multiarray.scalar, "numpy.core.multiarray.scalar"),  # pyright: ignore[reportAttributeAccessIssue]
]
_LENS_NORMS: dict[NormKind, str | None] = {"layer": "LNPre", "rms": "RMSPre", "none": None}


@dataclass(frozen=True)
class Imported:
    """A model that was read from a checkpoint, and what was taken for granted there."""

    library: str
    shape: Shape
    weights: Mapping[str, Tensor]
    assumed: str

    @property
    def form(self) -> str:
        return "a GPT-2" if self.shape.is_gpt2 else "a model of drasp's own form"

    def summary(self) -> str:
        """The model in one line."""
        shape = self.shape
        norm = {"layer": "layer norm", "rms": "RMSNorm", "none": "no norm"}[shape.norm]
        mlps = f"MLPs of {shape.d_hidden:,} units ({shape.activation})" if shape.d_hidden else "no MLPs"
        layers = f"{shape.n_layers} layer{'s' if shape.n_layers != 1 else ''}"
        heads = f"{shape.n_heads} head{'s' if shape.n_heads != 1 else ''} of width {shape.head_width}"
        sizes = f"{shape.d_model} dimensions, {shape.n_vocab:,} tokens, {shape.n_positions:,} positions"
        return f"{self.library}: {layers} with {heads}, {mlps}, {norm}, {sizes}"


def import_checkpoint(
    file: Path, activation: str | None = None, norm: NormKind | None = None, heads: int | None = None
) -> Imported:
    """The model in a checkpoint; what the file does not say of it comes from the arguments."""
    tensors, config = _read(file)
    if is_lens(tensors):
        if heads is not None:
            raise DraspError(f"--heads {heads}: {file} is of TransformerLens, whose tensors say how many there are")
        _refuse_other("--activation", activation, config, "act_fn", file)
        if norm and NORMS.get(config.get("normalization_type", norm), norm) != norm:
            raise DraspError(f"--norm {norm}: {file} says normalization_type {config['normalization_type']!r}")
        said = {"act_fn": activation} if activation else {}
        said |= _said_norm(norm, tensors) if norm else {}
        library, made = "TransformerLens", from_lens(tensors, {**config, **said}, str(file))
        assumed = "" if config else "causal attention, scores divided by the root of a head's width, eps 1e-05"
    elif is_nanogpt(tensors):
        if norm not in (None, "layer"):
            raise DraspError(f"--norm {norm}: {file} is a nanoGPT, whose norm is layer")
        _refuse_other("--heads", heads, config, "n_head", file)
        said = {"n_head": heads} if heads else {}
        said |= {"activation": activation} if activation else {}
        library, made = "nanoGPT", from_nanogpt(tensors, {**config, **said}, str(file))
        assumed = "" if activation else "MLPs with gelu (older nanoGPTs have gelu_new: --activation gelu_new)"
    else:
        some = ", ".join(sorted(tensors)[:3])
        raise DraspError(
            f"{file}: expected the tensors of a TransformerLens model (embed.W_E, …) or of a nanoGPT "
            f"(transformer.wte.weight, …), found {some or 'none'}"
        )
    shape, weights = made
    return Imported(library, shape, checked_weights(weights, shape, str(file)), assumed)


def _refuse_other(option: str, given: object, config: Mapping[str, Any], key: str, file: Path) -> None:
    """Options are for what a file does not say."""
    said = config.get(key)
    if given is not None and said is not None and SAME_ACTIVATIONS.get(str(said), said) != given:
        raise DraspError(f"{option} {given}: {file} says {key} {said!r}")


def _said_norm(norm: NormKind, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """A norm by TransformerLens's name: those that were folded have no gains."""
    folded = _LENS_NORMS[norm]
    return {"normalization_type": folded and folded.removesuffix("Pre" if "ln_final.w" in tensors else "")}


def _read(file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a checkpoint, and the configuration that lies beside them."""
    if file.suffix == ".safetensors":
        return read_tensors(file), {}
    content = _unpickled(read_bytes(file, MAX_TENSORS, "a checkpoint"), file)
    if not isinstance(content, dict):
        raise DraspError(f"{file}: expected tensors by name (a state_dict), found {type(content).__name__}")
    tensors = next((content[key] for key in _TENSORS if isinstance(content.get(key), dict)), content)
    named = {str(name): value for name, value in tensors.items() if isinstance(value, Tensor)}
    config = next((content[key] for key in _CONFIGS if isinstance(content.get(key), dict)), {})
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in config.items()}
    return named, {str(key): value for key, value in plain.items()}


def _unpickled(content: bytes, file: Path) -> object:
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(_NUMBERS):
            warnings.simplefilter("ignore")  # of other versions of pickles: what cannot be read is refused
            return torch.load(BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))
        if asked is None:
            raise DraspError(f"{file}: not a checkpoint of tensors (torch cannot read it)") from None
        raise DraspError(
            f"{file}: a pickle that asks for {asked[1]}, which is no tensor and could run code; nothing was run. "
            "Expected tensors and plain values: torch.save(model.state_dict(), …)"
        ) from None
    except (RuntimeError, EOFError, ValueError, KeyError, IndexError, AttributeError, TypeError, UnicodeError):
        raise DraspError(f"{file}: not a whole checkpoint (torch cannot read it)") from None
