"""Places of a transformer, each with one spelling in text and in JSON.

    token, pos                          what the embeddings write to the residual stream
    layer 0 head 1, layer 0 mlp         what a head or an MLP writes to it
    layer 0 head 1 query (key, value)   what a head's side reads of it, before layer norm
    layer 0 mlp input, out              what an MLP, or the output, reads of it
    layer 0 attention                   what all heads of a layer read of it (of lines of programs only: a run knows
                                        each of them apart)
    layer 0 head 1 pattern              a head's attention weights
    layer 0 head 1 query norm           what a receiver's layer norm divides by
    layer 0 attention norm              the same for all heads of a layer, which share one layer norm as long as all
                                        of them read the same
    layer 0 mlp norm, final norm
    layer 0 head 1 query constant norm  what a receiver's layer norm divides the constant part of the stream by: biases,
    final constant norm                 and what no input changes
    token -> layer 0 head 1 query       an edge: what one component sends to one receiver
    token > layer 0 head 1 -> out       an edge of a path: that part of a head's output that comes from the token
    token * pos -> layer 0 head 1 pattern
                                        a product: what a query path and a key path add to a head's scores;
                                        `one` stands for what of a query or a key comes from no component:
                                        biases and constants, also by way of heads

Which of them a model has follows from its anatomy.

Longer than 400 lines: a kind of site, its spelling and where a model has it are one decision each.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

SIDES = ("query", "key", "value")


@dataclass(frozen=True)
class Component:
    """What writes to the residual stream: `kind` is token, pos, head or mlp."""

    kind: str
    layer: int = -1
    head: int = 0

    def __str__(self) -> str:
        match self.kind:
            case "head":
                return f"layer {self.layer} head {self.head}"
            case "mlp":
                return f"layer {self.layer} mlp"
            case _:
                return self.kind

    @cached_property
    def receivers(self) -> "tuple[Receiver, ...]":
        """What the component itself reads."""
        match self.kind:
            case "head":
                return tuple(Receiver(self.layer, side, self.head) for side in SIDES)
            case "mlp":
                return (Receiver(self.layer, "mlp"),)
            case _:
                return ()


TOKEN, POSITION = Component("token"), Component("pos")
# In a product, the part of a query or a key that comes from no component: biases and constants.
NO_COMPONENT = Component("one")


@dataclass(frozen=True)
class Receiver:
    """A reader of the residual stream: `kind` is query, key, value, mlp or out; `attention` for all sides of a layer.

    The output is behind the last layer, however many there are.
    """

    layer: int
    kind: str
    head: int = 0

    def __str__(self) -> str:
        match self.kind:
            case "out":
                return "out"
            case "mlp":
                return f"layer {self.layer} mlp input"
            case "attention":
                return f"layer {self.layer} attention"
            case side:
                return f"layer {self.layer} head {self.head} {side}"

    @cached_property
    def component(self) -> Component | None:
        """What the receiver is part of; None for the output."""
        match self.kind:
            case "out":
                return None
            case "mlp":
                return Component("mlp", self.layer)
            case _:
                return Component("head", self.layer, self.head)


OUT = Receiver(-1, "out")


@dataclass(frozen=True)
class Pattern:
    """The attention weights of a head: [batch, query, key]."""

    head: Component

    def __str__(self) -> str:
        return f"{self.head} pattern"


@dataclass(frozen=True)
class NormSite:
    """The divisor of a receiver's layer norm: [batch, pos]."""

    receiver: Receiver

    def __str__(self) -> str:
        match self.receiver.kind:
            case "out":
                return "final norm"
            case "mlp":
                return f"layer {self.receiver.layer} mlp norm"
            case _:
                return f"{self.receiver} norm"


@dataclass(frozen=True)
class ConstantNorm:
    """What a receiver's layer norm divides what is constant in the stream by: [batch, pos], as a rule its divisor."""

    receiver: Receiver

    def __str__(self) -> str:
        return str(NormSite(self.receiver)).removesuffix("norm") + "constant norm"


@dataclass(frozen=True)
class Path:
    """The part of the last head's output that comes from the origin by way of all heads in their order."""

    origin: Component
    heads: tuple[Component, ...]

    def __str__(self) -> str:
        return " > ".join(map(str, (self.origin, *self.heads)))


Sender: TypeAlias = Component | Path


def last_of(sender: Sender) -> Component:
    """The component that writes to the residual stream what comes on a way."""
    return sender.heads[-1] if isinstance(sender, Path) else sender


def through(sender: Sender, head: Component) -> Path:
    """What of a head's output comes from a sender."""
    match sender:
        case Path(origin, heads):
            return Path(origin, (*heads, head))
        case component:
            return Path(component, (head,))


@dataclass(frozen=True)
class Edge:
    sender: Sender
    receiver: Receiver

    def __str__(self) -> str:
        return f"{self.sender} -> {self.receiver}"


@dataclass(frozen=True)
class Read:
    """What a head's values or the output read of a way behind their layer norm, which hears the way all the same."""

    sender: Sender
    receiver: Receiver

    def __str__(self) -> str:
        return f"{self.sender} -> {self.receiver}{_BEHIND}"


@dataclass(frozen=True)
class Product:
    """A part of a head's scores: [batch, query, key]."""

    query: Sender
    key: Sender
    head: Component

    def __str__(self) -> str:
        return f"{self.query} * {self.key} -> {self.head} pattern"


Site: TypeAlias = Component | Receiver | Pattern | NormSite | ConstantNorm | Edge | Read | Product
_BEHIND = " behind its norm"


# ------------------------------------------------------------------------------------ reading

_NUMBER = "0|[1-9][0-9]{0,3}"  # without zeros before it, as it is written
_PLAIN = re.compile(
    r"(?P<initial>token|pos|one)|(?P<out>out)|(?P<final>final norm)"
    rf"|layer (?P<layer>{_NUMBER}) (?:head (?P<head>{_NUMBER})(?: (?P<side>query|key|value|pattern)(?P<normed> norm)?)?"
    r"|mlp(?P<mlp> input| norm)?|attention(?P<attention>| norm))"
)


def _plain(text: str) -> Site | None:
    found = _PLAIN.fullmatch(text)
    if found is None:
        return None
    if found["initial"]:
        return Component(found["initial"])
    if found["out"] or found["final"]:
        return OUT if found["out"] else NormSite(OUT)
    layer = int(found["layer"])
    if found["attention"] is not None:
        receiver = Receiver(layer, "attention")
        return NormSite(receiver) if found["attention"] else receiver
    if found["head"] is None:
        match found["mlp"]:
            case " input":
                return Receiver(layer, "mlp")
            case " norm":
                return NormSite(Receiver(layer, "mlp"))
            case _:
                return Component("mlp", layer)
    head = Component("head", layer, int(found["head"]))
    match found["side"]:
        case None:
            return head
        case "pattern":
            return None if found["normed"] else Pattern(head)
        case side:
            receiver = Receiver(layer, side, head.head)
            return NormSite(receiver) if found["normed"] else receiver


def _sender(text: str) -> Sender | None:
    parts = [_plain(part) for part in text.split(" > ")]
    components = [part for part in parts if isinstance(part, Component)]
    if len(components) < len(parts):
        return None
    origin, *heads = components
    if any(head.kind != "head" for head in heads):
        return None
    return Path(origin, tuple(heads)) if heads else origin


@lru_cache(maxsize=4096)
def parse_site(text: str) -> Site | None:
    """The site that a text spells; None where it spells none."""
    if text.endswith(_BEHIND):
        match parse_site(text.removesuffix(_BEHIND)):
            case Edge(sender, receiver) if _reads_behind_norm(receiver):
                return Read(sender, receiver)
            case _:
                return None
    left, arrow, right = text.partition(" -> ")
    if not arrow and text.endswith(" constant norm"):
        match _plain(text.replace(" constant norm", " norm")):
            case NormSite(receiver) if receiver.kind not in ("attention", "mlp"):
                return ConstantNorm(receiver)
            case _:
                return None
    if not arrow:
        plain = _plain(text)
        return None if plain == NO_COMPONENT else plain
    goal = _plain(right)
    query, star, key = left.partition(" * ")
    if star:
        first, second = _sender(query), _sender(key)
        if isinstance(goal, Pattern) and first is not None and second is not None:
            return Product(first, second, goal.head)
        return None
    sender = _sender(left)
    return Edge(sender, goal) if isinstance(goal, Receiver) and sender is not None else None


def _reads_behind_norm(receiver: Receiver) -> bool:
    """Queries and keys are read in products, and an MLP is one function with its norm."""
    return receiver.kind in ("value", "out")


def parse_sites(text: str) -> tuple[Site, ...] | None:
    """The sites that a text lists, with commas between them; None where something else is among them."""
    sites = [parse_site(part.strip()) for part in text.split(",")]
    found = tuple(site for site in sites if site is not None)
    return found if len(found) == len(sites) else None


def joined(*groups: Iterable[Site]) -> tuple[Site, ...]:
    """All sites of several groups, each once, in the order in which they come."""
    return tuple(dict.fromkeys(site for group in groups for site in group))


# ------------------------------------------------------------------------------------ anatomy


@dataclass(frozen=True)
class Anatomy:
    """Who can send to whom in a model of this size, in the order of the forward pass.

    A model may have no MLPs, and no norms: then nothing changes what is read of the stream.
    """

    n_layers: int
    n_heads: int
    has_mlps: bool = True
    has_norms: bool = True

    @cached_property
    def senders(self) -> tuple[Component, ...]:
        senders = [TOKEN, POSITION]
        for layer in range(self.n_layers):
            senders += [*self.heads(layer), *self.mlps(layer)]
        return tuple(senders)

    def mlps(self, layer: int) -> tuple[Component, ...]:
        return (Component("mlp", layer),) if self.has_mlps else ()

    def heads(self, layer: int) -> tuple[Component, ...]:
        return tuple(Component("head", layer, head) for head in range(self.n_heads))

    @cached_property
    def receivers(self) -> tuple[Receiver, ...]:
        receivers: list[Receiver] = []
        for layer in range(self.n_layers):
            receivers += [Receiver(layer, side, head) for side in SIDES for head in range(self.n_heads)]
            receivers += [receiver for mlp in self.mlps(layer) for receiver in mlp.receivers]
        return (*receivers, OUT)

    def senders_to(self, receiver: Receiver) -> tuple[Component, ...]:
        if receiver.kind == "out":
            return self.senders
        before = 2 + receiver.layer * (self.n_heads + self.has_mlps)
        return self.senders[: before + self.n_heads if receiver.kind == "mlp" else before]

    def ways_to(
        self, receiver: Receiver, is_cut: Callable[[Edge], bool], known: dict[Receiver, list[Sender]] | None = None
    ) -> list[Sender]:
        """All ways by which a receiver hears embeddings and MLPs; what comes on none of them is constant.

        `known` keeps what was found for a receiver, for whoever asks again with the same cuts.
        """
        known = {} if known is None else known
        if receiver not in known:
            ways: list[Sender] = []
            for sender in self.senders_to(receiver):
                if is_cut(Edge(sender, receiver)):
                    continue
                if sender.kind == "head":
                    ways += [through(way, sender) for way in self.ways_to(sender.receivers[2], is_cut, known)]
                else:
                    ways.append(sender)
            known[receiver] = [way for way in ways if isinstance(way, Component) or not is_cut(Edge(way, receiver))]
        return known[receiver]

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        return tuple(Edge(sender, receiver) for receiver in self.receivers for sender in self.senders_to(receiver))

    def has(self, site: Site) -> bool:
        """Whether a model of this size has such a place."""
        match site:
            case Component():
                return site in self.senders
            case Receiver():
                return site in self.receivers
            case Pattern(head):
                return head in self.senders
            case NormSite(receiver):
                return receiver in self.receivers or (receiver.kind == "attention" and receiver.layer < self.n_layers)
            case ConstantNorm(receiver):
                return receiver in self.receivers and receiver.kind != "mlp"
            case Edge(sender, receiver):
                return receiver in self.receivers and self._can_send(sender, receiver)
            case Read(sender, receiver):
                is_way = sender.kind != "head" if isinstance(sender, Component) else True
                return is_way and _reads_behind_norm(receiver) and self.has(Edge(sender, receiver))
            case Product(query, key, head):
                sides = zip((query, key), head.receivers, strict=False)
                sent = all(sender == NO_COMPONENT or self._can_send(sender, side) for sender, side in sides)
                return head in self.senders and sent

    def _can_send(self, sender: Sender, receiver: Receiver) -> bool:
        match sender:
            case Component():
                return sender in self.senders_to(receiver)
            case Path(origin, heads):
                steps = [Receiver(head.layer, "value", head.head) for head in heads]
                sent = (origin, *heads)
                return all(s in self.senders_to(r) for s, r in zip(sent, (*steps, receiver), strict=True))


def sides_of(receiver: Receiver, anatomy: Anatomy) -> tuple[Receiver, ...]:
    """The receivers that a norm is one of: all heads of a layer may share theirs."""
    if receiver.kind != "attention":
        return (receiver,)
    return tuple(side for head in anatomy.heads(receiver.layer) for side in head.receivers)
