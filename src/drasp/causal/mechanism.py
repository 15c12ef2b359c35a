"""What the lines of a program stand for in a model, down to paths and products.

The sites of a line name components and edges. Here every variable is traced back to its senders: `token` and `pos`, an
MLP, or a path (`token > layer 0 head 1`: what an aggregate of `token` carries); every select to its products, a query
sender times a key sender in a head. So the same intervention can be made in the model and in programs of it. Nothing
of this is fitted: the sites fix it.

A component may have no line of its own: an MLP of one one-hot variable is a table, which has gone into whatever read
it. It is then *folded*: heard by way of another variable. And an MLP may have several lines, or a line and tables, each
for a part of what it reads: then it is *split*.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product

from drasp.errors import DraspError
from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Norm,
    Operand,
    Prediction,
    Program,
    Project,
    Select,
    Statement,
    once,
)
from drasp.rewriting.provenance import explicit, hearing, standing
from drasp.rewriting.tidy import SumsToOne
from drasp.sites import (
    NO_COMPONENT,
    OUT,
    POSITION,
    TOKEN,
    Anatomy,
    Component,
    Edge,
    NormSite,
    Path,
    Product,
    Receiver,
    Sender,
    Site,
    last_of,
    through,
)


@dataclass(frozen=True)
class Heard:
    """What a line hears of the model at a receiver, by way of an operand that stands for it, or folded into it."""

    operand: Operand
    sender: Sender
    receiver: Receiver
    folded: bool = False


class Mechanism:
    """What each line of a program stands for, and hears."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.statements: dict[str, Statement] = {s.name: s for s in explicit(program).statements}
        self.standing = standing(program)
        self.senders: dict[str, tuple[Sender, ...]] = {"token": (TOKEN,), "pos": (POSITION,), "one": (NO_COMPONENT,)}
        self.heard: dict[str, tuple[Heard, ...]] = {}
        for name, statement in self.statements.items():
            self.heard[name] = tuple(dict.fromkeys(self._hears(statement)))
            match statement:
                case Aggregate():
                    read = [h for h in self.heard[name] if h.receiver in _value_sides(statement)]
                    found = (through(h.sender, _head_of(h.receiver)) for h in read)
                    self.senders[name] = tuple(dict.fromkeys(found))
                case ElementWise():
                    self.senders[name] = self.components(name)
                case _:
                    pass

    @classmethod
    def of(cls, program: Program) -> "Mechanism":
        return once(program.of_numbers, cls, lambda: cls(program))

    def components(self, name: str) -> tuple[Component, ...]:
        """The heads or MLPs of a line."""
        return tuple(site for site in self.statements[name].sites if isinstance(site, Component))

    def _hears(self, statement: Statement) -> Iterator[Heard]:
        for receiver, operands in hearing(statement):
            yield from self._at(statement, receiver, operands)

    def _at(self, statement: Statement, receiver: Receiver, operands: tuple[Operand, ...]) -> Iterator[Heard]:
        """What is heard at a receiver, and by way of folded components behind it."""
        for site in statement.sites:
            if not isinstance(site, Edge) or site.receiver != receiver or isinstance(site.sender, Path):
                continue
            component = site.sender
            owners = [o for o in operands if component in self.standing[o.variable]]
            for owner in owners:
                own = [s for s in self.senders[owner.variable] if last_of(s) == component]
                yield from (Heard(owner, sender, receiver) for sender in own or [component])
            if not owners and component != NO_COMPONENT:
                yield from self._folded(statement, component, receiver, operands)

    def _folded(
        self, statement: Statement, component: Component, receiver: Receiver, operands: tuple[Operand, ...]
    ) -> Iterator[Heard]:
        inner = [r for r in component.receivers if r.kind in ("value", "mlp")]
        behind = [h for r in inner for h in self._at(statement, r, operands)]
        yield from behind
        if component.kind == "head" and behind:
            for h in behind:
                if h.receiver in inner:
                    yield Heard(h.operand, through(h.sender, component), receiver, folded=True)
        else:
            for operand in dict.fromkeys(h.operand for h in behind) or operands[:1]:
                yield Heard(operand, component, receiver, folded=True)

    # ------------------------------------------------------------------------------------ lines

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines that stand for something which can be taken from a source: not the prediction, nor biases."""
        return tuple(name for name, s in self.statements.items() if not self.is_exempt(s))

    @staticmethod
    def is_exempt(statement: Statement) -> bool:
        match statement:
            case Prediction():
                return True
            case Project(input=source):
                return source.variable == "one"
            case _:
                return False

    @cached_property
    def without_sites(self) -> tuple[str, ...]:
        """The lines that do not say what they stand for."""
        return tuple(name for name in self.lines if not self.statements[name].sites)

    @cached_property
    def unfounded(self) -> dict[str, tuple[Component, ...]]:
        """The embeddings that lines say they hear while reading nothing of them: no other variable has them folded in.

        A line that says it stands for more is harder to refute: all of that is taken from a source at once.
        """
        found = {
            name: tuple(c for c in (TOKEN, POSITION) if any(h.folded and h.sender == c for h in heard))
            for name, heard in self.heard.items()
        }
        return {name: senders for name, senders in found.items() if senders}

    def check(self, anatomy: Anatomy) -> None:
        """Raises where a line stands for what a model does not have."""
        for name, statement in self.statements.items():
            for component in (c for site in statement.sites for c in _mentioned(site)):
                if component not in anatomy.senders:
                    raise DraspError(
                        f"line {name}: the model has no {component}; expected the model that the program was made "
                        f"from, found one of {anatomy.n_layers} layers with {anatomy.n_heads} heads each"
                    )

    def products(self, select: str) -> tuple[Product, ...]:
        """What a select adds to the scores of its heads."""
        found: list[Product] = []
        for head in self.components(select):
            query, key, _ = head.receivers
            queries = [h.sender for h in self.heard[select] if h.receiver == query]
            keys = [h.sender for h in self.heard[select] if h.receiver == key]
            if select in self._with_bias:
                queries.append(NO_COMPONENT)
            found += [Product(q, k, head) for q, k in product(queries, keys)]
        return tuple(dict.fromkeys(found))

    def products_of(self, aggregate: str) -> frozenset[Product]:
        """What the weights of an aggregate are made of."""
        line = self.statements[aggregate]
        selectors = line.selectors if isinstance(line, Aggregate) else ()
        return frozenset(p for r in selectors for p in self.products(r.variable))

    @cached_property
    def _with_bias(self) -> frozenset[str]:
        """Selects that may have taken in the key-only select of their key, which the bias of queries makes.

        That one goes into a select whose query adds up to one; where there is none, or it has a line, it went nowhere.
        """
        selects = [s for s in self.statements.values() if isinstance(s, Select)]
        sums = SumsToOne.of(self.program)
        key_only = {(s.key, head) for s in selects if s.query == ONE for head in self.components(s.name)}
        return frozenset(
            s.name
            for s in selects
            if sums.holds(s.query)
            and s.query.variable != "one"
            and not any((s.key, head) in key_only for head in self.components(s.name))
        )

    def norm_sites(self, name: str) -> tuple[NormSite, ...]:
        return tuple(site for site in self.statements[name].sites if isinstance(site, NormSite))

    @cached_property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The lines that must be taken from a source with each line, since they share what they stand for."""
        stands = {name: self._stands_for(name) for name in self.lines}
        groups: dict[str, tuple[str, ...]] = {}
        for name, own in stands.items():
            group, sites = {name}, set(own)
            while wider := {n for n, other in stands.items() if n not in group and sites & other}:
                group |= wider
                sites |= set().union(*(stands[n] for n in wider))
            groups[name] = tuple(n for n in self.lines if n in group)
        return groups

    def _stands_for(self, name: str) -> set[object]:
        match self.statements[name]:
            case Select():
                return set(self.products(name))
            case Aggregate():
                return set(self.senders[name])
            case Norm():
                return set(self.norm_sites(name))
            case _:
                # Parts of a split MLP are told apart by what they read.
                return {name}

    # ---------------------------------------------------------------------------------- components

    @cached_property
    def ways(self) -> dict[Component, frozenset[str]]:
        """The variables by which each head and MLP is heard: its own lines, or those that it is folded into."""
        ways: dict[Component, set[str]] = {}
        for name, statement in self.statements.items():
            if isinstance(statement, Aggregate | ElementWise):
                for component in self.components(name):
                    ways.setdefault(component, set()).add(name)
            for h in self.heard[name]:
                if h.folded and h.operand.variable != "one":
                    ways.setdefault(last_of(h.sender), set()).add(h.operand.variable)
        return {component: frozenset(names) for component, names in ways.items()}

    def is_split(self, component: Component) -> bool:
        return len(self.ways.get(component, ())) > 1

    def readers(self, variable: str, component: Component) -> tuple[Receiver, ...]:
        """The receivers where lines hear a component by way of a variable; norms hear it where others do."""
        found = (
            h.receiver
            for heard in self.heard.values()
            for h in heard
            if h.operand.variable == variable and last_of(h.sender) == component and h.receiver.kind != "attention"
        )
        return tuple(dict.fromkeys(found))

    def mlp_inputs(self, name: str, mlp: Component, operand: Operand | None = None) -> tuple[Sender, ...]:
        """What a line hears at the input of an MLP, all of it or by way of one operand."""
        [receiver] = mlp.receivers
        found = (h.sender for h in self.heard[name] if h.receiver == receiver and operand in (None, h.operand))
        return tuple(dict.fromkeys(sender for sender in found if sender != NO_COMPONENT))

    @cached_property
    def edges(self) -> dict[Receiver, frozenset[Sender]]:
        """All that is heard, receiver by receiver; by the norm of an attention layer, at `layer 0 attention`."""
        edges: dict[Receiver, set[Sender]] = {}
        for name, heard in self.heard.items():
            for h in heard:
                edges.setdefault(h.receiver, set()).add(h.sender)
            if isinstance(self.statements[name], ElementWise):
                # Of MLPs that are one line, each hears those before it.
                for one, other in permutations(self.components(name), 2):
                    if one.layer < other.layer:
                        edges.setdefault(other.receivers[0], set()).add(one)
        return {receiver: frozenset(senders) for receiver, senders in edges.items()}

    @cached_property
    def products_of_heads(self) -> dict[Component, frozenset[Product]]:
        products: dict[Component, set[Product]] = {}
        for name, statement in self.statements.items():
            if isinstance(statement, Select):
                for found in self.products(name):
                    products.setdefault(found.head, set()).add(found)
        return {head: frozenset(found) for head, found in products.items()}

    def stands_for(self, name: str) -> str:
        """What a line stands for, in words: components, paths that are one of several, norms, edges to the output."""
        match self.statements[name]:
            case Select():
                return ", ".join(map(str, self.products(name)))
            case Aggregate():
                split = [s for s in self.senders[name] if self.is_split(last_of(s))]
                whole = [c for c in self.components(name) if not self.is_split(c)]
                return ", ".join(map(str, (*whole, *split)))
            case Project() | Prediction():
                return ", ".join(f"{h.sender} -> out" for h in self.heard[name] if h.receiver == OUT) or "out"
            case Norm():
                return ", ".join(map(str, self.norm_sites(name)))
            case _:
                return ", ".join(map(str, self.components(name)))


def _mentioned(site: Site) -> Iterator[Component]:
    """The components that a line's site names."""
    match site:
        case Component():
            yield site
        case Edge(sender=Component() as sender, receiver=receiver):
            yield from (c for c in (sender, receiver.component) if c not in (None, NO_COMPONENT))
        case NormSite(receiver) if receiver.component is not None:
            yield receiver.component
        case _:
            pass


def _value_sides(statement: Statement) -> set[Receiver]:
    return {site.receivers[2] for site in statement.sites if isinstance(site, Component) and site.kind == "head"}


def _head_of(receiver: Receiver) -> Component:
    head = receiver.component
    assert head is not None
    return head
