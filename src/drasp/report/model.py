"""A model as the data that the report page runs it from: its shape, and its weights at the precision that they need."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from drasp.model_files import named_weights
from drasp.report.data import packed
from drasp.transformer import Transformer, converted

# Numbers of the weights in bytes: below the first they are stored as they are, above the second not at all.
_SMALL, _LARGEST = 2_000_000, 4_000_000
_BYTES = {"single": 4, "half": 2}


@dataclass(frozen=True)
class PageModel:
    """A model as a page holds it; `transformer` has the weights as they are rounded there."""

    transformer: Transformer
    precision: str

    def to_json(self) -> dict[str, Any]:
        transformer = self.transformer
        layers = transformer.layers
        shape = {
            "heads": transformer.n_heads,
            "activation": layers[0].mlp.activation if layers and layers[0].mlp else "relu",
            "eps": transformer.final_norm.eps,
            "scales": [layer.attention.scale for layer in layers],
        }
        dtype = "<f2" if self.precision == "half" else "<f4"
        arrays = {name: weight.detach().cpu().numpy().astype(dtype) for name, weight in weights(transformer).items()}
        return {"shape": shape, "precision": self.precision, "tensors": packed(arrays)}


def page_model(transformer: Transformer, answers_alike: Callable[[Transformer], bool]) -> PageModel | None:
    """The model at half precision, unless it is small or then does not answer alike.

    None where it is too large, or no GPT-2: those are the models that the page can run.
    """
    if not transformer.is_gpt2:
        return None
    numbers = sum(weight.numel() for weight in weights(transformer).values())
    if numbers * _BYTES["single"] <= _SMALL:
        return PageModel(transformer, "single")
    if numbers * _BYTES["half"] > _LARGEST:
        return None
    rounded = at_half_precision(transformer)
    if answers_alike(rounded):
        return PageModel(rounded, "half")
    return PageModel(transformer, "single") if numbers * _BYTES["single"] <= _LARGEST else None


def weights(transformer: Transformer) -> Mapping[str, Tensor]:
    """Every tensor by its Hugging Face name; without an unembedding that is the embedding."""
    tied = transformer.unembedding is transformer.token_embedding
    return {name: weight for name, weight in named_weights(transformer) if not (tied and name == "lm_head.weight")}


def at_half_precision(transformer: Transformer) -> Transformer:
    """The same model with every weight rounded to 16 bits."""
    return converted(transformer, lambda weight: weight.half().to(weight.dtype))
