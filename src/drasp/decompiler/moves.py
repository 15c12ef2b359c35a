"""What can be taken out of a graph: components, edges, ways and products, norms; and the lines of its program.

Lines are what a program is short in. Heads that do the same share their lines, so a head more or less may save none,
while a line gone takes what it stands for in all of them.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace

from drasp.causal.mechanism import Mechanism
from drasp.decompiler.components import Cuttable, Graph
from drasp.decompiler.elimination import Move
from drasp.decompiler.search import Search
from drasp.language.syntax import ONE, Aggregate, ElementWise, Norm, Program, Project, Select
from drasp.rewriting.simplify import simplify
from drasp.sites import NO_COMPONENT, OUT, Anatomy, Component, Edge, Path, Product, Receiver, Sender

Moves = Callable[[Search, Graph], Sequence[Move[Graph]]]


def _cutting(search: Search, name: Hashable, sites: Sequence[Cuttable]) -> Move[Graph]:
    def apply(graph: Graph) -> Graph | None:
        smaller = graph.cut([site for site in sites if graph.has(site)], search.means)
        return None if smaller.is_like(graph) else smaller

    return Move(name, apply)


def _either_way(search: Search, graph: Graph, name: Hashable, sites: Sequence[Edge]) -> list[Move[Graph]]:
    """The cut, and where a receiver has its layer norm still, the cut with norms that stay what they were on average.

    What goes made up a part of the norm, too: by itself the cut would make all the rest larger.
    """
    cut = _cutting(search, name, sites)
    normed = [r for r in dict.fromkeys(edge.receiver for edge in sites) if r not in graph.norms]
    normed = normed if search.is_sparse(graph) else []

    def apply(graph: Graph) -> Graph | None:
        smaller = cut.apply(graph)
        if smaller is None:
            return None
        live = set(smaller.live_receivers())
        fixed = {r: search.mean_norms[r] for r in normed if r in live and r not in smaller.norms}
        return replace(smaller, norms={**smaller.norms, **fixed}) if fixed else None

    return [cut, Move(("norms constant", name), apply)] if normed else [cut]


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
    by_way: dict[Sender, list[Cuttable]] = {}
    for edge in edges:
        by_way.setdefault(edge.sender, []).append(edge)
    groups = [_cutting(search, str(way), group) for way, group in by_way.items() if len(group) > 1]
    return [*(_cutting(search, edge, [edge]) for edge in edges), *groups]


def product_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    """Products of two ways in a head's scores, all of those with one query or one key, and a sender in both."""
    if not search.is_sparse(graph):
        return []
    moves = _product_groups(search, graph)
    for head in graph.used_heads():
        moves += [_cutting(search, product, [product]) for product in graph.products(head)]
    return moves


def _product_groups(search: Search, graph: Graph) -> list[Move[Graph]]:
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
    """A receiver's norm replaced by its mean, wherever the norm costs a line."""
    constants = search.components.mean_norms(graph, norm_lines(graph), search.probe)
    return [_fixing(f"norm at {receiver}", {receiver: constant}) for receiver, constant in constants.items()]


def _fixing(name: str, constants: dict[Receiver, float]) -> Move[Graph]:
    def apply(graph: Graph) -> Graph | None:
        new = {r: c for r, c in constants.items() if r not in graph.norms}
        return replace(graph, norms={**graph.norms, **new}) if new else None

    return Move(name, apply)


def norm_lines(graph: Graph) -> list[Receiver]:
    """Receivers with a norm in a line of its own: not MLPs, nor what reads one one-hot variable, which is a table."""
    return [
        receiver
        for receiver in graph.live_receivers()
        if receiver.kind != "mlp"
        and receiver not in graph.norms
        and [sender.kind for sender in graph.senders_to(receiver)] not in ([], ["token"], ["pos"])
    ]


# ------------------------------------------------------------------------------------------- lines


def line_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    """The lines of the graph's program and what MLPs read; all selects of one query or one key; heads and MLPs."""
    program = search.write(graph)
    if program is None:
        return []
    constants = search.components.mean_norms(graph, norm_lines(graph), search.probe)
    return [
        *_lines(search, graph, simplify(program), constants),
        *_product_groups(search, graph),
        *(move for move in component_moves(search, graph) if move.apply(graph) is not None),
    ]


def _lines(search: Search, graph: Graph, program: Program, norms: dict[Receiver, float]) -> Iterator[Move[Graph]]:
    mechanism, anatomy = Mechanism.of(program), graph.anatomy
    for line in mechanism.lines:
        heard = mechanism.heard[line]
        match program.find(line):
            case Norm():
                sides = {r for site in mechanism.norm_sites(line) for r in _sides(site.receiver, anatomy)}
                yield _fixing(f"line {line}", {r: c for r, c in norms.items() if r in sides})
            case Select():
                yield _cutting(search, f"line {line}", _cuttable(mechanism.products(line)))
            case Aggregate():
                ways = [Edge(way, r) for way in mechanism.senders[line] for r in graph.live_receivers()]
                yield _cutting(search, f"line {line}", _cuttable(ways))
            case Project():
                ways = [Edge(h.sender, OUT) for h in heard if h.receiver == OUT]
                yield _cutting(search, f"line {line}", _cuttable(ways))
            case ElementWise(inputs=inputs):
                for operand in inputs if len(inputs) > 1 else ():
                    mlps = [mlp.receivers[0] for mlp in mechanism.components(line)]
                    ways = [Edge(h.sender, h.receiver) for h in heard if h.operand == operand and h.receiver in mlps]
                    if operand != ONE:
                        yield from _either_way(search, graph, f"{operand.variable} of line {line}", _edges(ways))
            case _:
                pass


def _sides(receiver: Receiver, anatomy: Anatomy) -> tuple[Receiver, ...]:
    """The receivers of a norm: all heads of a layer may share theirs."""
    if receiver.kind != "attention":
        return (receiver,)
    return tuple(side for head in anatomy.heads(receiver.layer) for side in head.receivers)


def _edges(sites: Sequence[Edge]) -> list[Edge]:
    """Those that can be cut: what begins at no component is constant already."""
    return [site for site in sites if _begins(site.sender)]


def _cuttable(sites: Sequence[Cuttable]) -> list[Cuttable]:
    return [site for site in sites if isinstance(site, Product) or _begins(site.sender)]


def _begins(sender: Sender) -> bool:
    origin: Component = sender.origin if isinstance(sender, Path) else sender
    return origin != NO_COMPONENT
