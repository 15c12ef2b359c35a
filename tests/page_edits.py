"""Edits as the scripts of a page have them."""

from torch import Tensor

from drasp.edits import Edit, Replaced, Scaled, Shifted


def plain(x: float | Tensor) -> float | list[float]:
    return x.flatten().tolist() if isinstance(x, Tensor) else x


def in_page(edit: Edit) -> dict:
    match edit:
        case Replaced(by):
            return {"replaced": plain(by)}
        case Scaled(by, ablation):
            return {"scaled": plain(by), "ablation": plain(ablation)}
        case Shifted(by):
            return {"shifted": plain(by)}
