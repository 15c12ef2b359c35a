"""The graphs that the paper prunes: what each part of a model hears, coarse first, then finer.

`components`: token, position, heads and MLPs send to queries, keys, values, MLPs and the output. `paths`: a head sends
apart what it makes of each way to its values; where MLPs are split, so does an MLP, each part of which is an MLP of its
own. `products`: scores are a sum of products of a way to the queries and a way to the keys, and of terms of a key
alone, each with a query of its own. A finer graph answers exactly as the one that it was made of, but for MLPs that are
split.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.layers import Linear, Mlp, StreamNorm
from drasp.sites import NO_COMPONENT, OUT, Component, Edge, Path, Product, Receiver, Sender, last_of, through
from drasp.transformer import Transformer

Level = Literal["components", "paths", "products"]
Gate: TypeAlias = Edge | Product  # what can be closed
Means = Callable[["Circuit", Sequence[Sender]], Mapping[Sender, Float[Tensor, " d_model"]]]


@dataclass(frozen=True, eq=False)
class Circuit:
    """What is left of a model; ways may go through MLPs that are split (`mlps`), which a `Path` of sites does not.

    `biases` are what receivers hear besides: all constants. `log_variances` are those that linear norms divide by; None
    where norms are the model's own. Products of `NO_COMPONENT` are terms of a key alone, with `queries`.
    """

    model: Transformer
    level: Level
    edges: tuple[Edge, ...]
    biases: Float[Tensor, "receivers d_model"]
    log_variances: Float[Tensor, " receivers"] | None
    products: tuple[Product, ...] = ()
    mlps: Mapping[Path, Mlp] = field(default_factory=dict[Path, Mlp])
    queries: Mapping[Product, Float[Tensor, " d_head"]] = field(default_factory=dict[Product, Tensor])

    @property
    def gates(self) -> tuple[Gate, ...]:
        """What is pruned at this level."""
        return self.products if self.level == "products" else self.edges

    @property
    def size(self) -> int:
        """The number of edges, in the paper's sense."""
        return len(self.edges) + len(self.products)

    @cached_property
    def heard(self) -> Mapping[Receiver, tuple[Sender, ...]]:
        found: dict[Receiver, tuple[Sender, ...]] = {}
        for edge in self.edges:
            found[edge.receiver] = (*found.get(edge.receiver, ()), edge.sender)
        return found

    @cached_property
    def needed(self) -> frozenset[Sender]:
        """All ways that anything hears, and those that they go on from."""
        sent: list[Sender] = [edge.sender for edge in self.edges]
        sent += [way for each in self.products for way in (each.query, each.key) if way != NO_COMPONENT]
        return frozenset(part for way in sent for part in parts_of(way))

    def products_of(self, head: Component) -> tuple[Product, ...]:
        return tuple(each for each in self.products if each.head == head)

    def hears(self, receiver: Receiver) -> tuple[Sender, ...]:
        return self.heard.get(receiver, ())

    @cached_property
    def places(self) -> Mapping[Receiver, int]:
        return {receiver: i for i, receiver in enumerate(self.model.anatomy.receivers)}

    def bias(self, receiver: Receiver) -> Float[Tensor, " d_model"]:
        return self.biases[self.places[receiver]]

    def root(self, receiver: Receiver) -> Float[Tensor, ""]:
        """What a linear norm divides by."""
        assert self.log_variances is not None, "norms are linear from the first stage on"
        return (0.5 * self.log_variances[self.places[receiver]]).exp()

    def scaled(self, receiver: Receiver, x: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any d_model"]:
        """What a receiver's linear norm makes of a part of what is heard; its bias is left to constants."""
        norm = norm_of(self.model, receiver)
        return norm.gain * norm.centred(x) / self.root(receiver)


def whole(model: Transformer, log_variances: Float[Tensor, " receivers"] | None) -> Circuit:
    """All edges between components; constants are the biases of attention's outputs, which belong to no head."""
    biases = torch.stack([_attention_biases(model, receiver) for receiver in model.anatomy.receivers])
    return Circuit(model, "components", model.anatomy.edges, biases, log_variances)


def _attention_biases(model: Transformer, receiver: Receiver) -> Float[Tensor, " d_model"]:
    """The sum of the attention biases of all layers that come before a receiver."""
    last = len(model.layers) if receiver == OUT else receiver.layer + (receiver.kind == "mlp")
    return sum((layer.attention.output.bias for layer in model.layers[:last]), torch.zeros_like(model.final_norm.bias))


def norm_of(model: Transformer, receiver: Receiver) -> StreamNorm:
    match receiver.kind:
        case "out":
            return model.final_norm
        case "mlp":
            return model.layers[receiver.layer].mlp_norm
        case _:
            return model.layers[receiver.layer].attention_norm


def parts_of(way: Sender) -> list[Sender]:
    """A way and those that it goes on from, the longest first."""
    found = [way]
    while isinstance(way, Path):
        way = before(way)
        found.append(way)
    return found


def before(way: Path) -> Sender:
    """A way without its last step."""
    return Path(way.origin, way.heads[:-1]) if len(way.heads) > 1 else way.origin


# --------------------------------------------------------------------------------------- closing gates


def without(circuit: Circuit, closed: Iterable[Gate], ablations: Mapping[Sender, Float[Tensor, " d_model"]]) -> Circuit:
    """The circuit without some edges or products, and without what then is neither heard nor hears anything.

    A receiver gets a sender's constant for each edge that is closed; a product leaves nothing.
    """
    closed = set(closed)
    biases = circuit.biases.clone()
    for edge in closed:
        if isinstance(edge, Edge):
            place = circuit.places[edge.receiver]
            biases[place] = biases[place] + ablations[edge.sender]
    left = tuple(edge for edge in circuit.edges if edge not in closed)
    products = tuple(each for each in circuit.products if each not in closed)
    left_over = _with_live(replace(circuit, edges=left, products=products, biases=biases))
    return _without_constant_mlps(left_over) if circuit.level == "paths" else left_over


def _without_constant_mlps(circuit: Circuit) -> Circuit:
    """What comes from an MLP that has lost all its inputs is a constant of those that hear it."""
    for mlp in (c for c in circuit.model.anatomy.senders if c.kind == "mlp"):
        if circuit.hears(mlp.receivers[0]) or mlp not in circuit.needed:
            continue
        idle = [edge for edge in circuit.edges if parts_of(edge.sender)[-1] == mlp]
        said = _says_always(circuit, mlp)
        ablations = {edge.sender: _along(circuit, edge.sender, said) for edge in idle}
        circuit = without(circuit, idle, ablations)
    return circuit


def _along(circuit: Circuit, way: Sender, constant: Float[Tensor, " d_model"]) -> Float[Tensor, " d_model"]:
    """What comes of a constant on a way through heads."""
    for head in way.heads if isinstance(way, Path) else ():
        attention = circuit.model.layers[head.layer].attention
        value = circuit.scaled(head.receivers[2], constant) @ attention.side(2)[:, head.head]
        constant = value @ attention.output_of(head.head)
    return constant


def _with_live(circuit: Circuit) -> Circuit:
    """The circuit of what reaches the output, with nothing that is not used any more."""
    while True:
        live = live_components(circuit)
        edges = tuple(edge for edge in circuit.edges if edge.receiver == OUT or edge.receiver.component in live)
        products = tuple(each for each in circuit.products if each.head in live)
        if (len(edges), len(products)) == (len(circuit.edges), len(circuit.products)):
            break
        circuit = replace(circuit, edges=edges, products=products)
    return replace(
        circuit,
        mlps={way: mlp for way, mlp in circuit.mlps.items() if way in circuit.needed},
        queries={each: query for each, query in circuit.queries.items() if each in circuit.products},
    )


def live_components(circuit: Circuit) -> frozenset[Component]:
    """The components that the output hears of."""
    live: set[Component] = set()
    while True:
        heard = [e.sender for e in circuit.edges if e.receiver == OUT or e.receiver.component in live]
        heard += [way for p in circuit.products if p.head in live for way in (p.query, p.key)]
        found = {last_of(part) for way in heard for part in parts_of(way)}
        if found <= live:
            return frozenset(live)
        live |= found


# ---------------------------------------------------------------------------------------- finer levels


def as_paths(circuit: Circuit, split: bool, means: Means) -> Circuit:
    """The circuit of components, in which a way from each of its inputs takes the place of a head, and of a split MLP.

    What a head makes of constants is a constant of those that hear it. A part of a split MLP begins as the model's,
    with the other ways at their means; what the means make is counted once.
    """
    model = circuit.model
    assert circuit.level == "components"
    unfolded = replace(circuit, level="paths", edges=())
    ways: dict[Receiver, list[Sender]] = {}
    constants: dict[Component, Tensor] = {}  # what heads and MLPs say whatever the input
    biases = circuit.biases.clone()
    for receiver in model.anatomy.receivers:
        ways[receiver] = []
        for sender in circuit.hears(receiver):
            assert isinstance(sender, Component)
            if sender in constants:
                biases[circuit.places[receiver]] = biases[circuit.places[receiver]] + constants[sender]
            inner = ways[sender.receivers[-1]] if sender.receivers else []
            if sender.kind == "head" or (sender.kind == "mlp" and split):
                ways[receiver] += [through(way, sender) for way in inner]
            elif inner or not sender.receivers:
                ways[receiver].append(sender)
        unfolded = replace(unfolded, biases=biases)
        component = receiver.component
        if receiver.kind == "value":
            constants[_there(component)] = _of_constants(unfolded, _there(component))
        elif receiver.kind == "mlp" and not ways[receiver]:
            constants[_there(component)] = _says_always(unfolded, _there(component))
        elif receiver.kind == "mlp" and split:
            unfolded = _with_parts(unfolded, _there(component), ways[receiver], means)
        else:  # what values and split MLPs hear is what ways go through
            unfolded = replace(unfolded, edges=(*unfolded.edges, *(Edge(way, receiver) for way in ways[receiver])))
    return _with_live(unfolded)


def _there(component: Component | None) -> Component:
    assert component is not None, "the output is no part of a component"
    return component


def _says_always(circuit: Circuit, mlp: Component) -> Float[Tensor, " d_model"]:
    """What an MLP says that hears nothing but constants."""
    return _mlp_of(circuit, mlp)(_heard_constant(circuit, mlp.receivers[0]))


def _heard_constant(circuit: Circuit, receiver: Receiver) -> Float[Tensor, " d_model"]:
    """What a receiver that hears constants alone reads behind its norm."""
    return circuit.scaled(receiver, circuit.bias(receiver)) + norm_of(circuit.model, receiver).bias


def _of_constants(circuit: Circuit, head: Component) -> Float[Tensor, " d_model"]:
    """What a head says of the constants that its values hear: attention adds up to one."""
    attention = circuit.model.layers[head.layer].attention
    value = _heard_constant(circuit, head.receivers[2]) @ attention.side(2)[:, head.head]
    return (value + attention.side_bias(2)[head.head]) @ attention.output_of(head.head)


def _mlp_of(circuit: Circuit, component: Component) -> Mlp:
    mlp = circuit.model.layers[component.layer].mlp
    assert mlp is not None
    return mlp


def _with_parts(circuit: Circuit, component: Component, ways: Sequence[Sender], means: Means) -> Circuit:
    """The circuit with an MLP for each way: it hears what the linear norm divides, and has gain and bias in it."""
    [receiver], mlp = component.receivers, _mlp_of(circuit, component)
    gain, average = norm_of(circuit.model, receiver).gain, means(circuit, ways)
    everything = sum((average[way] for way in ways), circuit.bias(receiver))
    parts: dict[Path, Mlp] = {}
    for way in ways:
        others = everything - average[way]
        shift = circuit.scaled(receiver, others) + norm_of(circuit.model, receiver).bias
        usual = mlp(circuit.scaled(receiver, everything) + norm_of(circuit.model, receiver).bias) if parts else 0.0
        output = Linear(mlp.output.weight, mlp.output.bias - usual)
        parts[through(way, component)] = replace(behind_gain(mlp, gain, shift), output=output)
    return replace(circuit, mlps={**circuit.mlps, **parts})


def as_products(circuit: Circuit) -> Circuit:
    """The circuit of paths, with a product for each pair of ways to queries and keys, and a term for each key.

    The constant of a query is the query of all terms of a key alone; that of a key changes no weights.
    """
    assert circuit.level == "paths"
    products: list[Product] = []
    queries: dict[Product, Tensor] = {}
    for head in (c for c in circuit.model.anatomy.senders if c.kind == "head" and c in live_components(circuit)):
        query, key, _ = head.receivers
        keys = circuit.hears(key)
        products += [Product(q, k, head) for q, k in product(circuit.hears(query), keys)]
        alone = [Product(NO_COMPONENT, k, head) for k in keys]
        attention = circuit.model.layers[head.layer].attention
        constant = _heard_constant(circuit, query) @ attention.side(0)[:, head.head] + attention.side_bias(0)[head.head]
        queries |= {each: constant.clone() for each in alone}
        products += alone
    edges = tuple(edge for edge in circuit.edges if edge.receiver.kind not in ("query", "key"))
    return _with_live(replace(circuit, level="products", edges=edges, products=tuple(products), queries=queries))


# --------------------------------------------------------------------------------------------- tensors


def behind_gain(mlp: Mlp, gain: Float[Tensor, " d_model"], shift: Float[Tensor, " d_model"]) -> Mlp:
    """An MLP of what its norm divides, before gain and bias and beside constants."""
    hidden = Linear(gain[:, None] * mlp.hidden.weight, shift @ mlp.hidden.weight + mlp.hidden.bias)
    return replace(mlp, hidden=hidden)


def tensors_of(mlp: Mlp) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return mlp.hidden.weight, mlp.hidden.bias, mlp.output.weight, mlp.output.bias


def mapped(mlp: Mlp, change: Callable[[Tensor], Tensor]) -> Mlp:
    """The MLP with each of its tensors put through a function."""
    a, b, c, d = map(change, tensors_of(mlp))
    return Mlp(Linear(a, b), Linear(c, d), mlp.activation)


def detached(circuit: Circuit) -> Circuit:
    """The same numbers, apart from those that are trained further."""
    return replace(
        circuit,
        biases=circuit.biases.detach().clone(),
        log_variances=None if circuit.log_variances is None else circuit.log_variances.detach().clone(),
        mlps={way: mapped(mlp, lambda t: t.detach().clone()) for way, mlp in circuit.mlps.items()},
        queries={each: query.detach().clone() for each, query in circuit.queries.items()},
    )
