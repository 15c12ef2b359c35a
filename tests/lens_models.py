"""Fifty random models of TransformerLens itself, in memory and imported: the largest difference of a logit.

    python tests/lens_models.py FOLDER     with `transformer-lens<4` on the path (later ones have no HookedTransformer)

Packages for data sets and logging, which TransformerLens imports and models do not use, need not be there.
"""

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
import transformers  # noqa: F401  # asks for itself which packages are there

from drasp.importing import import_checkpoint
from drasp.model_files import load_model
from drasp.transformer import assemble

UNUSED = ("datasets", "pandas", "wandb")


class Unused(MetaPathFinder, Loader):
    """Finds modules of these packages, with nothing in them."""

    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in UNUSED else None

    def create_module(self, spec: ModuleSpec) -> Any:
        return MagicMock(__path__=[], __spec__=spec)

    def exec_module(self, module: ModuleType) -> None:
        pass


def difference(lens, seed: int, file: Path) -> float:
    generator = torch.Generator().manual_seed(seed)

    def pick(*choices):
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    config = lens.HookedTransformerConfig(
        n_layers=pick(1, 2, 3),
        d_model=pick(8, 12),
        n_ctx=9,
        d_head=pick(2, 4, 5),
        n_heads=pick(1, 2, 3),
        d_mlp=pick(8, 16),
        d_vocab=7,
        d_vocab_out=pick(7, 6),
        act_fn=pick("relu", "gelu", "gelu_new", "gelu_fast", "silu"),
        attn_only=pick(True, False),
        normalization_type=pick("LN", "LNPre", "RMS", "RMSPre", None),
        use_attn_scale=pick(True, True, False),
        scale_attn_by_inverse_layer_idx=pick(True, False),
        device="cpu",
    )
    model = lens.HookedTransformer(config).eval()
    for weight in model.parameters():
        weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    torch.save({"state_dict": model.state_dict(), "cfg": model.cfg.to_dict()}, file)
    imported = import_checkpoint(file)
    ids, positions = torch.randint(7, (3, 9), generator=generator), torch.arange(9).expand(3, 9)
    expected = model(ids)
    both = (load_model(model), assemble(imported.shape, dict(imported.weights)))
    return max(float((each(ids, positions)[..., : config.d_vocab_out] - expected).abs().max()) for each in both)


@torch.no_grad()
def main() -> None:
    warnings.simplefilter("ignore")  # HookedTransformer is deprecated
    sys.meta_path.insert(0, Unused())
    lens = import_module("transformer_lens")
    worst = max(difference(lens, seed, Path(sys.argv[1]) / "model.pt") for seed in range(50))
    print(f"largest difference of 50 models: {worst:.1e}")


if __name__ == "__main__":
    main()
