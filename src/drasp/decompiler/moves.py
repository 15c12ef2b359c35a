"""What can be taken out of a graph: components, edges, ways and products, norms; and the lines of its program.

Lines are what a program is short in. Heads that do the same share their lines, so a head more or less may save none,
while a line gone takes what it stands for in all of them.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace

from torch import Tensor

from drasp.causal.mechanism import Mechanism
from drasp.decompiler.components import Cuttable, Graph
from drasp.decompiler.elimination import Move
from drasp.decompiler.search import Search
from drasp.language.syntax import ONE, Aggregate, ElementWise, Norm, Program, Project, Select
from drasp.sites import NO_COMPONENT, OUT, Component, Edge, Path, Read, Receiver, Sender, last_of, sides_of

Moves = Callable[[Search, Graph], Sequence[Move[Graph]]]


def _cutting(search: Search, name: Hashable, sites: Sequence[Cuttable]) -> Move[Graph]:
    def apply(graph: Graph) -> Graph | None:
        smaller = graph.cut([site for site in sites if graph.has(site)], search.means)
        return None if smaller.is_like(graph) else _with_free_norms(smaller)

    return Move(name, apply)


def _with_norms(search: Search, graph: Graph, norms: dict[Receiver, float | Tensor]) -> Graph:
    """The graph with other constant norms, and without what only a norm heard that is constant now."""
    return replace(graph, norms=norms).cut((), search.means)


def _with_free_norms(graph: Graph) -> Graph:
    """The graph with real layer norms wherever they cost no line: those of one one-hot variable are tables."""
    constant = {r: norm for r, norm in graph.norms.items() if is_dear(graph, r)}
    return graph if len(constant) == len(graph.norms) else replace(graph, norms=constant)


def is_dear(graph: Graph, receiver: Receiver) -> bool:
    """Whether a receiver's norm depends on more than one one-hot variable."""
    found = {_one_hot(graph, sender) for sender in graph.senders_to(receiver)}
    return graph.anatomy.has_norms and (None in found or len(found) > 1)


def _one_hot(graph: Graph, sender: Component) -> str | None:
    """The one-hot variable of which a component is a function, position by position; none where there is no such."""
    match sender.kind:
        case "token" | "pos":
            return sender.kind
        case "mlp":
            found = {_one_hot(graph, each) for each in graph.senders_to(sender.receivers[0])}
            return found.pop() if len(found) == 1 else None
        case _:
            return None


def _either_way(search: Search, graph: Graph, name: Hashable, sites: Sequence[Edge]) -> list[Move[Graph]]:
    """The cut, and the cut with the layer norms of its receivers as they are not: constant, or real again; and norms
    that still hear what is no longer read.

    What goes made up a part of the norm, too: by itself the cut would make all the rest larger. Where the norm is
    constant already, what is left may be too small for it.
    """
    if not search.is_sparse(graph):
        return [_cutting(search, name, sites)]
    cut, *unread = _heard_or_not(search, graph, name, sites)
    receivers = list(dict.fromkeys(edge.receiver for edge in sites))

    def changing(norms: Callable[[Graph], dict[Receiver, float | Tensor]]) -> Callable[[Graph], Graph | None]:
        def apply(graph: Graph) -> Graph | None:
            smaller = cut.apply(graph)
            changed = smaller and _with_norms(search, smaller, norms(smaller))
            return changed if smaller and changed and set(changed.norms) != set(smaller.norms) else None

        return apply

    def fixed(graph: Graph) -> dict[Receiver, float | Tensor]:
        live = graph.live_receivers()
        return {**{r: search.mean_norms[r] for r in receivers if r in live and is_dear(graph, r)}, **graph.norms}

    def real(graph: Graph) -> dict[Receiver, float | Tensor]:
        return {r: norm for r, norm in graph.norms.items() if r not in receivers}

    moves = unread or [cut]
    if any(graph.has_norm(r) for r in receivers):
        moves.append(Move(("norms constant", name), changing(fixed)))
    if any(r in graph.norms for r in receivers):
        moves.append(Move(("real norms", name), changing(real)))
    return moves


def _reads(graph: Graph, edge: Edge) -> list[Cuttable]:
    """All that a receiver reads of what comes along an edge, where its norm is real and can hear more than is read."""
    receiver = edge.receiver
    if not graph.has_norm(receiver) or receiver.kind == "mlp" or not graph.has(edge):
        return [edge]

    def comes_along(way: Sender) -> bool:
        return edge.sender in (way, last_of(way))

    match receiver.component:
        case Component() as head if receiver.kind in ("query", "key"):
            return [p for p in graph.products(head) if comes_along(p.query if receiver.kind == "query" else p.key)]
        case _:
            return [Read(way, receiver) for way in graph.ways_to(receiver) if comes_along(way)]


def _heard_or_not(search: Search, graph: Graph, name: Hashable, sites: Sequence[Edge]) -> list[Move[Graph]]:
    """The cut, and the same with norms that still hear what is no longer read."""
    unread = [site for edge in sites for site in _reads(graph, edge)]
    moves = [_cutting(search, name, sites)]
    return moves if set(unread) == set(sites) else [*moves, _cutting(search, ("norms hear", name), unread)]


def component_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    """Components that nobody need hear, and heads that may attend to everything alike."""
    anatomy = graph.anatomy
    moves: list[Move[Graph]] = []
    for sender in anatomy.senders:
        edges = [edge for edge in anatomy.edges if edge.sender == sender]
        moves += _either_way(search, graph, str(sender), edges)
    for head in (sender for sender in anatomy.senders if sender.kind == "head"):
        pattern = [edge for edge in anatomy.edges if edge.receiver in head.receivers[:2]]
        moves.append(_cutting(search, f"attention of {head}", pattern))
    return moves


def edge_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    edges = [edge for edge in graph.anatomy.edges if edge in graph.kept]
    return [move for edge in edges for move in _either_way(search, graph, edge, [edge])]


def way_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    """Ways through heads, each to one receiver, or to all that hear it."""
    if not search.is_sparse(graph):
        return []
    edges = [Edge(way, r) for r in graph.live_receivers() for way in graph.ways_to(r) if isinstance(way, Path)]
    by_way: dict[Sender, list[Edge]] = {}
    for edge in edges:
        by_way.setdefault(edge.sender, []).append(edge)
    groups = [
        move
        for way, group in by_way.items()
        if len(group) > 1
        for move in _heard_or_not(search, graph, str(way), group)
    ]
    return [*(move for edge in edges for move in _heard_or_not(search, graph, edge, [edge])), *groups]


def _product_groups(search: Search, graph: Graph) -> list[Move[Graph]]:
    """All products of a head's scores with one query or one key, and a sender in both."""
    moves: list[Move[Graph]] = []
    for head in graph.used_heads():
        products = graph.products(head)
        for side in ("query", "key"):
            for way in dict.fromkeys(getattr(product, side) for product in products):
                group = [product for product in products if getattr(product, side) == way]
                if 1 < len(group) < len(products):
                    moves.append(_cutting(search, f"{way} as a {side} of {head}", group))
        for sender in graph.anatomy.senders_to(head.receivers[0]):
            edges = [Edge(sender, side) for side in head.receivers[:2]]
            moves.append(_cutting(search, f"{sender} in {head}", edges))
    return moves


def norm_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    """A receiver's norm replaced by its mean, wherever the norm costs a line; or only what divides the constant."""
    constants = search.components.mean_norms(graph, norm_lines(graph), search.probe)
    fixed = [_fixing(search, f"norm at {receiver}", {receiver: constant}) for receiver, constant in constants.items()]
    return [*fixed, *_constant_moves(search, graph)]


def function_norm_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    """The norm within an MLP replaced by its mean: it costs no line, but is one thing less for the function to hear."""
    mlps = [r for r in graph.live_receivers() if r.kind == "mlp" and graph.has_norm(r) and is_dear(graph, r)]
    return [_fixing(search, f"norm at {r}", {r: search.mean_norms[r]}) for r in mlps]


def _constant_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    """What is constant in the stream, divided by a number where it is divided by a real norm: one, or all of them."""
    open_ones = [r for r in graph.live_receivers() if r.kind != "mlp" and graph.has_norm(r) and r not in graph.bare]

    def without(name: str, receivers: Sequence[Receiver]) -> Move[Graph]:
        def apply(graph: Graph) -> Graph | None:
            new = {r: search.mean_norms[r] for r in receivers if r not in graph.norms and r not in graph.bare}
            return replace(graph, bare={**graph.bare, **new}) if new else None

        return Move(name, apply)

    every = [without("constants", open_ones)] if len(open_ones) > 1 else []
    return [*every, *(without(f"constant at {receiver}", [receiver]) for receiver in open_ones)]


def _fixing(search: Search, name: str, constants: dict[Receiver, float]) -> Move[Graph]:
    def apply(graph: Graph) -> Graph | None:
        new = {r: c for r, c in constants.items() if r not in graph.norms}
        return _with_norms(search, graph, {**graph.norms, **new}) if new else None

    return Move(name, apply)


def norm_lines(graph: Graph) -> list[Receiver]:
    """Receivers with a norm in a line of its own: not MLPs, nor what reads one one-hot variable."""
    return [
        receiver
        for receiver in graph.live_receivers()
        if receiver.kind != "mlp" and receiver not in graph.norms and is_dear(graph, receiver)
    ]


# ------------------------------------------------------------------------------------------- lines


def line_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    """The lines of the graph's program and what MLPs read; all selects of one query or one key; heads and MLPs."""
    program = search.write(graph)
    if program is None:
        return []
    constants = search.components.mean_norms(graph, norm_lines(graph), search.probe)
    return [
        *_lines(search, graph, program, constants),
        *_constant_moves(search, graph),
        *_product_groups(search, graph),
        *(move for move in component_moves(search, graph) if move.apply(graph) is not None),
    ]


def _lines(search: Search, graph: Graph, program: Program, norms: dict[Receiver, float]) -> Iterator[Move[Graph]]:
    mechanism, anatomy = Mechanism.of(program), graph.anatomy
    for line in mechanism.lines:
        heard = mechanism.heard[line]
        match program.find(line):
            case Norm():
                sides = {r for site in mechanism.norm_sites(line) for r in sides_of(site.receiver, anatomy)}
                yield _fixing(search, f"line {line}", {r: c for r, c in norms.items() if r in sides})
            case Select():
                products = [product for product in mechanism.products(line) if graph.has(product)]
                yield _cutting(search, f"line {line}", products)
                # A key-only select may be folded into one that hardly asks.
                yield from (_cutting(search, product, [product]) for product in products if len(products) > 1)
            case Aggregate():
                senders = [way for way in mechanism.senders[line] if _begins(way)]
                yield _cutting(
                    search, f"line {line}", [Edge(way, r) for way in senders for r in graph.live_receivers()]
                )
            case Project():
                ways = [Edge(h.sender, OUT) for h in heard if h.receiver == OUT and _begins(h.sender)]
                yield from _heard_or_not(search, graph, f"line {line}", ways)
            case ElementWise():
                yield from _input_moves(search, graph, mechanism, line)
            case _:
                pass


def _input_moves(search: Search, graph: Graph, mechanism: Mechanism, line: str) -> Iterator[Move[Graph]]:
    """What an MLP reads, one by one, and all but one: an MLP of a one-hot variable is a table, and takes no line."""
    mlps = [mlp.receivers[0] for mlp in mechanism.components(line)]
    ways: dict[str, list[Edge]] = {}
    for heard in mechanism.heard[line]:
        if heard.receiver in mlps and heard.operand != ONE and _begins(heard.sender):
            ways.setdefault(heard.operand.variable, []).append(Edge(heard.sender, heard.receiver))
    for name, own in ways.items() if len(ways) > 1 else ():
        others = [edge for other, edges in ways.items() if other != name for edge in edges]
        yield from _either_way(search, graph, f"{name} of line {line}", own)
        if len(ways) > 2:
            yield from _either_way(search, graph, f"all but {name} of line {line}", others)


def _begins(sender: Sender) -> bool:
    """Whether a way can be cut: what begins at no component is constant already."""
    origin: Component = sender.origin if isinstance(sender, Path) else sender
    return origin != NO_COMPONENT
