"""A run's circuit as facts and tensors, for a search that is resumed."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from drasp.decompiler.checkpoint import Kept
from drasp.decompiler.ugs.circuit import Circuit, tensors_of
from drasp.decompiler.ugs.coefficients import GateRun
from drasp.layers import Linear, Mlp
from drasp.sites import NO_COMPONENT, Component, Edge, Path, Product, Receiver, Sender, parse_site
from drasp.transformer import Transformer

_MLP = ("hidden", "hidden_bias", "out", "out_bias")


def kept_of(run: GateRun) -> Kept:
    circuit, tensors = run.circuit, dict[str, Tensor]()
    facts: dict[str, Any] = {name: getattr(run, name) for name in ("coefficient", "match", "size", "ending", "steps")}
    if circuit is not None:
        tensors["biases"] = circuit.biases
        if circuit.log_variances is not None:
            tensors["log_variances"] = circuit.log_variances
        for way, mlp in circuit.mlps.items():
            tensors |= {f"{way}.{part}": each for part, each in zip(_MLP, tensors_of(mlp), strict=True)}
        tensors |= {f"query {i}": circuit.queries[each] for i, each in _alone(circuit.products)}
        facts |= {
            "level": circuit.level,
            "edges": [[str(edge.sender), str(edge.receiver)] for edge in circuit.edges],
            "products": [[str(each.query), str(each.key), str(each.head)] for each in circuit.products],
            "mlps": {str(way): mlp.activation for way, mlp in circuit.mlps.items()},
        }
    return Kept(facts, tensors)


def run_of(kept: Kept, model: Transformer) -> GateRun:
    facts, tensors = kept.facts, kept.tensors
    circuit = None
    if "level" in facts:
        products = tuple(Product(_way(q), _way(k), _component(h)) for q, k, h in facts["products"])
        circuit = Circuit(
            model,
            facts["level"],
            tuple(Edge(_way(sender), _receiver(receiver)) for sender, receiver in facts["edges"]),
            tensors["biases"],
            tensors.get("log_variances"),
            products,
            {_path(way): _mlp(way, activation, tensors) for way, activation in facts["mlps"].items()},
            {each: tensors[f"query {i}"] for i, each in _alone(products)},
        )
    return GateRun(facts["coefficient"], facts["match"], facts["size"], circuit, facts["ending"], facts["steps"])


def _alone(products: tuple[Product, ...]) -> list[tuple[int, Product]]:
    return [(i, each) for i, each in enumerate(products) if each.query == NO_COMPONENT]


def _mlp(way: str, activation: str, tensors: Mapping[str, Tensor]) -> Mlp:
    a, b, c, d = (tensors[f"{way}.{part}"] for part in _MLP)
    return Mlp(Linear(a, b), Linear(c, d), activation)


def _component(text: str) -> Component:
    site = NO_COMPONENT if text == str(NO_COMPONENT) else parse_site(text)
    if not isinstance(site, Component):
        raise ValueError(f"expected a component, found {text}")
    return site


def _receiver(text: str) -> Receiver:
    site = parse_site(text)
    if not isinstance(site, Receiver):
        raise ValueError(f"expected a receiver, found {text}")
    return site


def _way(text: str) -> Sender:
    """Steps may be MLPs, which paths of sites do not have."""
    origin, *steps = map(_component, text.split(" > "))
    return Path(origin, tuple(steps)) if steps else origin


def _path(text: str) -> Path:
    way = _way(text)
    if not isinstance(way, Path):
        raise ValueError(f"expected a way through an MLP, found {text}")
    return way
