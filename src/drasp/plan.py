"""What has to be computed of a model for given edits and records: found from the output back to the embeddings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from drasp.edits import Edit, Replaced, Scaled, Shifted
from drasp.errors import DraspError
from drasp.sites import (
    NO_COMPONENT,
    OUT,
    SIDES,
    Anatomy,
    Component,
    ConstantNorm,
    Edge,
    NormSite,
    Path,
    Pattern,
    Product,
    Read,
    Receiver,
    Sender,
    Site,
)


@dataclass
class Plan:
    """Which receivers are read and which components computed, and what of each is asked for by itself."""

    anatomy: Anatomy
    edits: Mapping[Site, Edit]
    record: frozenset[Site]
    edges: dict[Receiver, dict[Component, Edit]] = field(default_factory=dict)
    paths: dict[Receiver, list[Path]] = field(default_factory=dict)
    products: dict[Component, list[Product]] = field(default_factory=dict)
    recorded: dict[Receiver, list[Component]] = field(default_factory=dict)  # senders whose edges are
    gated: set[Receiver] = field(default_factory=set)  # where rows of a batch differ in what they hear
    special: set[Receiver] = field(default_factory=set)  # that are more than a sum and a shift
    read: set[Receiver] = field(default_factory=set)
    needed: set[Component] = field(default_factory=set)
    apart: set[Component] = field(default_factory=set)  # needed as values of their own, not only in the stream
    inner: set[Component] = field(default_factory=set)  # whose parts are edited or asked for
    asked: set[Component] = field(default_factory=set)  # of which a part is asked for, whatever becomes of the output
    watched: set[Receiver] = field(default_factory=set)  # where something is recorded, whatever becomes of it
    patterns: set[Component] = field(default_factory=set)  # heads whose weights are asked for
    roots: set[Receiver] = field(default_factory=set)  # receivers whose norm's divisor is edited or asked for
    bare: dict[Receiver, float | Tensor] = field(default_factory=dict)  # what divides the constants of receivers
    reads: dict[Receiver, list[Sender]] = field(default_factory=dict)  # ways that are edited behind the norm
    stream: bool = False  # whether some receiver reads it whole

    def __post_init__(self) -> None:
        for site in dict.fromkeys((*self.edits, *self.record)):
            if not self.anatomy.has(site):
                size = f"{self.anatomy.n_layers} layers of {self.anatomy.n_heads} heads"
                raise DraspError(f"the model has no site {site}: it has {size}")
            self._note(site)
        self._read(OUT)
        for component in reversed(self.anatomy.senders):
            if self.computes(component):
                self._compute(component)

    def _note(self, site: Site) -> None:
        match site:
            case Component():
                self.apart.add(site)
                if site in self.record:
                    self.needed.add(site)
            case Edge(sender, receiver):
                self._note_edge(site, sender, receiver)
            case Read(sender, receiver):
                self.reads.setdefault(receiver, []).append(sender)
                self.roots.add(receiver)
                self._note_part(site, receiver)
            case Product(head=head):
                self.products.setdefault(head, []).append(site)
                self.patterns.add(head)
                for receiver in head.receivers[:2]:
                    self._note_part(site, receiver)
            case Pattern(head):
                self.patterns.add(head)
                self._note_inside(site, head)
            case NormSite(Receiver(layer, "attention")):
                for receiver in (r for head in self.anatomy.heads(layer) for r in head.receivers):
                    self.roots.add(receiver)
                    self._note_part(site, receiver)
            case NormSite(receiver):
                self.roots.add(receiver)
                self._note_part(site, receiver)
            case ConstantNorm(receiver):
                self._note_constant(site, receiver)
            case Receiver():
                self._note_part(site, site)
                if site in self.record or not isinstance(self.edits[site], Shifted):
                    self.special.add(site)

    def _note_edge(self, edge: Edge, sender: Sender, receiver: Receiver) -> None:
        self._note_part(edge, receiver)
        if edge in self.record or isinstance(sender, Path):
            self.special.add(receiver)
        if isinstance(sender, Path):
            self.paths.setdefault(receiver, []).append(sender)
            return
        if edge in self.record:
            self.recorded.setdefault(receiver, []).append(sender)
            self._take(sender)
        edit = self.edits.get(edge)
        if edit is not None:
            self.edges.setdefault(receiver, {})[sender] = edit
        if isinstance(edit, Scaled) and isinstance(edit.by, Tensor) and not self._is_replaced(receiver):
            self.gated.add(receiver)

    def _note_constant(self, site: ConstantNorm, receiver: Receiver) -> None:
        match self.edits.get(site):
            case Replaced(by) if site not in self.record:
                self.bare[receiver] = by
                self.roots.add(receiver)
                self._note_part(site, receiver)
                # What heads make of constants has to be known, head by head.
                self.inner.update(c for c in self.anatomy.senders_to(receiver) if c.kind == "head")
            case _:
                raise DraspError(f"{site}: a constant's norm can be replaced, and not edited otherwise or recorded")

    def _note_part(self, site: Site, receiver: Receiver) -> None:
        if site in self.record:
            self.watched.add(receiver)
        if receiver.component is not None:
            self._note_inside(site, receiver.component)

    def _note_inside(self, site: Site, component: Component) -> None:
        """Parts of a component are computed where the component is; what is recorded, in any case."""
        self.inner.add(component)
        if site in self.record:
            self.needed.add(component)
            self.asked.add(component)

    def computes(self, component: Component) -> bool:
        return component in self.needed and (not self._is_replaced(component) or component in self.asked)

    def _is_replaced(self, site: Site) -> bool:
        return isinstance(self.edits.get(site), Replaced)

    def _compute(self, component: Component) -> None:
        looks = not self._is_replaced(Pattern(component))
        for receiver in component.receivers:
            if looks or receiver.kind == "value" or receiver in self.watched:
                self._read(receiver)
        for product in self.products.get(component, ()):
            for sender, side in zip((product.query, product.key), component.receivers, strict=False):
                self.roots.add(side)
                for part in self.ways_to(side) if sender == NO_COMPONENT else (sender,):
                    self._take(part)

    def _read(self, receiver: Receiver) -> None:
        for way in self.reads.get(receiver, ()):
            self._take(way)  # behind the norm, whatever comes before it
        if receiver in self.read or (self._is_replaced(receiver) and receiver not in self.watched):
            return
        self.read.add(receiver)
        for way in self.paths.get(receiver, ()):
            self._take(way)
        if receiver in self.edges:
            for sender in self.heard(receiver):
                self._take(sender)
        else:
            self.stream = True
            self.needed.update(self.anatomy.senders_to(receiver))

    def heard(self, receiver: Receiver) -> list[Component]:
        """The senders to a receiver that are not cut."""
        edits = self.edges.get(receiver, {})
        return [s for s in self.anatomy.senders_to(receiver) if not isinstance(edits.get(s), Replaced)]

    def ways_to(self, receiver: Receiver) -> list[Sender]:
        """All ways by which a receiver reads embeddings and MLPs."""
        return self.anatomy.ways_to(
            receiver, lambda edge: self._is_replaced(edge) or self._is_replaced(Read(edge.sender, edge.receiver))
        )

    def _take(self, sender: Sender) -> None:
        """A sender is needed by itself."""
        match sender:
            case Path(origin, heads):
                self._take(origin)
                self.needed.update(heads)
                self.asked.update(heads)
                self.inner.update(heads)
                self.patterns.update(heads)
                self.roots.update(head.receivers[2] for head in heads)
            case component:
                self.needed.add(component)
                self.apart.add(component)

    def is_plain(self, layer: int) -> bool:
        """Whether a layer's heads all read the stream, and nobody asks for any of them, or a part, by itself."""
        return all(h in self.needed and h not in self.apart and h not in self.inner for h in self.anatomy.heads(layer))

    def norm_sites(self, receiver: Receiver) -> Sequence[NormSite]:
        """The sites at which a receiver's norm is edited: its own, and that of all heads of its layer."""
        own = NormSite(receiver)
        return (own, NormSite(Receiver(receiver.layer, "attention"))) if receiver.kind in SIDES else (own,)
