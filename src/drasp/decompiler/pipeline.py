"""The decompiler in one function: cut components, edges and lines as long as the answers stay the model's."""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path as FilePath
from typing import Literal, NamedTuple, get_args

from drasp.causal import FULL, Effort, evaluate
from drasp.causal import QUICK as QUICK_LOOK
from drasp.decompiler.checkpoint import Found, State
from drasp.decompiler.components import Cuttable, Graph
from drasp.decompiler.elimination import Move, eliminate, squeeze
from drasp.decompiler.harm import harm_by_line
from drasp.decompiler.lines import line_moves, operand_means, with_bias
from drasp.decompiler.result import Decompiled, Point
from drasp.decompiler.search import LOWEST, QUICK, THOROUGH, Search
from drasp.decompiler.ugs import PAPER_SETTINGS, UgsSettings, prune_by_gates
from drasp.errors import DraspError
from drasp.fitting.oracle import Oracle, answering
from drasp.language.syntax import Program
from drasp.naming.judge import TOLERANCE
from drasp.naming.pipeline import name_program
from drasp.records import PassRecord
from drasp.rewriting.simplify import simplify
from drasp.sites import Edge, Path, Receiver, Sender
from drasp.tasks import Task
from drasp.transformer import Transformer

METHODS = ("fast", "ugs")
Accept = Literal["causal", "answers"]
WORTH_OF_A_LINE = 0.01  # of agreement, in the last round
FRESH_INPUTS = 2000
MORE_LINES, MORE_OF_LINES = 2, 0.25  # that a complete program may have
MORE_TRIED = 2  # longer programs of the frontier, where the first do not do it by the model's means
MOST_NAMED = 20  # lines of a program that is named: each is tried by running all of it, many times


def _silent(_record: PassRecord) -> None:
    pass


def decompile(
    transformer: Transformer,
    task: Task,
    seed: int = 0,
    min_match: float = 0.9,
    max_lines: int = 40,
    report: Callable[[PassRecord], None] = _silent,
    quick: bool = False,
    checkpoint: FilePath | None = None,
    resume: bool = False,
    method: str = "fast",
    ugs: UgsSettings = PAPER_SETTINGS,
    accept: Accept = "causal",
) -> Decompiled:
    """The shortest program found that does what the model does, and answers like it on `min_match` of the inputs.

    `accept="answers"` picks by answers alone, as the paper does; the verdict says what is seen of the means.

    Finished passes are kept in the file `checkpoint`; with `resume` it goes on from there.
    `method` is "fast", backward elimination, or "ugs", the paper's own pruning, which takes `ugs` and far more time.
    """
    check_method(method)
    effort = QUICK if quick else THOROUGH
    settings = {"method": method, "quick": quick, "min_match": min_match, "max_lines": max_lines, "accept": accept}
    settings |= asdict(ugs) if method == "ugs" else {}
    search = Search(transformer, task, seed, report, effort, checkpoint, resume, settings, max_lines)
    try:
        graph = prune_by_gates(search, ugs) if method == "ugs" else _prune_by_elimination(search)
        return _result(search, graph, min_match, accept)
    except KeyboardInterrupt:
        search.store()
        raise


def check_method(method: str) -> None:
    if method not in METHODS:
        raise DraspError(f"--method {method}: no such method; there are {', '.join(METHODS)}")


def check_accept(accept: str) -> Accept:
    match accept:
        case "causal" | "answers":
            return accept
        case _:
            raise DraspError(f"--accept {accept}: no such criterion; there are {', '.join(get_args(Accept))}")


def _prune_by_elimination(search: Search) -> Graph:
    """Gives the graph as it was while agreement held: what it could not do without says why a program is long.

    First all goes whose value does not matter, then also what may be a constant: the first leaves programs that are
    complete, the second shorter ones that are enough.
    """
    state = State(search.components.whole())
    for purpose in (COMPLETE, SUFFICIENT):
        state = _cut_graph(search, state, purpose)
    if search.write(state.graph) is None:
        graph = state.graph
        state = search.once("write the program", partial(write_dense_graph, search), state)
        if simplify(_written(state)).lines > search.max_lines:
            search.once("squeeze lines", partial(squeeze_lines, search), state)
        return graph
    if search.effort.thorough:
        state = _cut_graph(search, state, FEWER_LINES)
    return state.graph


@dataclass(frozen=True)
class Purpose:
    """What a round of cuts is for: whether what it leaves out must not matter, and may lines cost agreement."""

    name: str
    complete: bool = False
    for_lines: bool = False


COMPLETE = Purpose("what does not matter", complete=True)
SUFFICIENT = Purpose("what may be constant")
FEWER_LINES = Purpose("for fewer lines", for_lines=True)


def _cut_graph(search: Search, state: State, purpose: Purpose) -> State:
    passes = (
        ("components", _component_moves),
        ("edges", _edge_moves),
        ("norms", _norm_moves),
        ("ways", _way_moves),
        ("products", _product_moves),
    )
    for name, moves in passes[3:] if purpose.for_lines else passes:
        cut = partial(_cut, search, moves, purpose)
        state = search.once(f"cut {name}: {purpose.name}", cut, state)
    return state


# --------------------------------------------------------------------------------------- passes


def _cut(
    search: Search, moves: Callable[[Search, Graph], Sequence[Move[Graph]]], purpose: Purpose, state: State
) -> State:
    judge = search.graph_judge(purpose.complete)
    target = _worth_it(search, state.graph) if purpose.for_lines else _always(search.target)
    harm = search.harm_by_edge if moves is _edge_moves else None
    if moves is _norm_moves and not search.is_sparse(state.graph):
        # A dense graph gains little by it: only as far as nothing has to be settled.
        judge = replace(judge, hopeless=0.0)
    accept = partial(search.accept_graph, complete=purpose.complete)
    graph = eliminate(state.graph, partial(moves, search), judge, target, accept, search.effort.graph_patience, harm)
    return State(graph)


def write_dense_graph(search: Search, state: State) -> State:
    """As a long program; where there are very many edges, some go first, until it can be written at all."""
    judge, too_many = search.graph_judge(complete=False), search.edges_too_many
    moves = partial(_edge_moves, search)
    graph = squeeze(state.graph, moves, judge, search.harm_by_edge, too_many, search.accept_graph)
    program = search.written(graph)
    search.accept_program(program, search.check.match(answering(program)).value)
    return State(graph, program)


def squeeze_lines(search: Search, state: State) -> State:
    program = with_bias(simplify(_written(state)))
    means = operand_means(program, search.probe)
    shorter = squeeze(
        program,
        lambda now: line_moves(now, means),
        search.program_judge(),
        lambda now: harm_by_line(now, means, search.slopes),
        lambda now: simplify(now).lines - search.max_lines,
        search.accept_program,
    )
    return State(state.graph, shorter)


def _worth_it(search: Search, graph: Graph) -> Callable[[Graph], float | None]:
    """The agreement that a graph must have whose program is shorter: so much less for each line that it saves."""
    match = search.graph_match(graph)

    def lines_of(graph: Graph) -> int | None:
        program = search.write(graph)
        return None if program is None else simplify(program).lines

    before = lines_of(graph)

    def target(shorter: Graph) -> float | None:
        lines = lines_of(shorter)
        return None if lines is None or before is None else max(LOWEST, match - WORTH_OF_A_LINE * (before - lines))

    return target


def _written(state: State) -> Program:
    assert state.program is not None, "programs are squeezed once they have been written"
    return state.program


def _always(target: float) -> Callable[[object], float]:
    return lambda _: target


# ---------------------------------------------------------------------------------------- moves


def _cutting(search: Search, name: Hashable, sites: Sequence[Cuttable]) -> Move[Graph]:
    def apply(graph: Graph) -> Graph | None:
        smaller = graph.cut([site for site in sites if graph.has(site)], search.means)
        return None if smaller.is_like(graph) else smaller

    return Move(name, apply)


def _component_moves(search: Search, _graph: Graph) -> list[Move[Graph]]:
    """Components that nobody need hear, heads that may attend to everything alike, MLPs that may be left out."""
    anatomy = search.components.anatomy
    moves = [_cutting(search, str(s), [edge for edge in anatomy.edges if edge.sender == s]) for s in anatomy.senders]
    for head in (sender for sender in anatomy.senders if sender.kind == "head"):
        pattern = [edge for edge in anatomy.edges if edge.receiver in head.receivers[:2]]
        moves.append(_cutting(search, f"attention of {head}", pattern))
    return moves


def _edge_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    return [_cutting(search, edge, [edge]) for edge in search.components.anatomy.edges if edge in graph.kept]


def _way_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    """Ways through heads, each to one receiver, or to all that hear it; and senders to a head's attention."""
    if not search.is_sparse(graph):
        return []
    edges = [Edge(way, r) for r in graph.live_receivers() for way in graph.ways_to(r) if isinstance(way, Path)]
    by_way: dict[Sender, list[Cuttable]] = {}
    for edge in edges:
        by_way.setdefault(edge.sender, []).append(edge)
    return [
        *(_cutting(search, edge, [edge]) for edge in edges),
        *(_cutting(search, str(way), group) for way, group in by_way.items() if len(group) > 1),
        *_attention_moves(search, graph),
    ]


def _attention_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    """A sender that a head neither asks by nor looks for."""
    return [
        _cutting(search, f"{sender} in {head}", [Edge(sender, side) for side in head.receivers[:2]])
        for head in graph.used_heads()
        for sender in search.components.anatomy.senders_to(head.receivers[0])
    ]


def _product_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    """Products of two ways in a head's scores, and all of those with one query or one key."""
    if not search.is_sparse(graph):
        return []
    moves: list[Move[Graph]] = []
    for head in graph.used_heads():
        products = graph.products(head)
        moves += [_cutting(search, product, [product]) for product in products]
        for side in ("query", "key"):
            for way in dict.fromkeys(getattr(product, side) for product in products):
                group = [product for product in products if getattr(product, side) == way]
                if 1 < len(group) < len(products):
                    moves.append(_cutting(search, f"{way} as a {side} of {head}", group))
    return moves


def _norm_moves(search: Search, graph: Graph) -> list[Move[Graph]]:
    """A receiver's norm replaced by its mean, wherever the norm costs a line."""

    def fixing(receiver: Receiver, constant: float) -> Move[Graph]:
        return Move(f"norm at {receiver}", lambda graph: replace(graph, norms={**graph.norms, receiver: constant}))

    constants = search.components.mean_norms(graph, norm_lines(graph), search.probe)
    return [fixing(receiver, constant) for receiver, constant in constants.items()]


def norm_lines(graph: Graph) -> list[Receiver]:
    """Receivers with a norm in a line of its own: not MLPs, nor what reads one one-hot variable, which is a table."""
    return [
        receiver
        for receiver in graph.live_receivers()
        if receiver.kind != "mlp"
        and receiver not in graph.norms
        and [sender.kind for sender in graph.senders_to(receiver)] not in ([], ["token"], ["pos"])
    ]


# --------------------------------------------------------------------------------------- result


def dense_receivers(graph: Graph) -> tuple[str, ...]:
    """Receivers that still hear most of what they could, and more than two."""
    counts = {r: (len(graph.senders_to(r)), len(graph.anatomy.senders_to(r))) for r in graph.live_receivers()}
    return tuple(f"{r} ({kept} of {all_})" for r, (kept, all_) in counts.items() if kept > max(2, all_ / 2))


def _result(search: Search, graph: Graph, min_match: float, accept: Accept) -> Decompiled:
    """The frontier, measured on fresh inputs, and the pick, with names and evidence."""
    fresh = search.draw("fresh", FRESH_INPUTS, batch_size=100)
    points: list[Point] = []
    for found in _candidates(search.progress.found, search.max_lines):
        search.note("measure", found.lines, "lines", found.match)
        program = simplify(found.program)
        points.append(Point(program, fresh.match(answering(program)), found.complete))
    pruned = time.perf_counter()
    ends = [_end(search, pick, fresh, min_match) for pick in _promising(points, min_match, search.max_lines)]
    if accept == "causal" and not any(end.final.causal for end in ends):
        # Longer programs have more of the model, and may show its means.
        tried = {end.pick.lines for end in ends}
        others = [p for p in points if p.lines not in tried and p.match.value >= min_match]
        for pick in others[:MORE_TRIED]:
            ends.append(_end(search, pick, fresh, min_match))
            if ends[-1].final.causal:
                break
    pick, final = choose(ends, accept)
    known = {end.pick.lines: end.pick for end in ends}
    frontier = tuple(known.get(p.lines) or _with_evidence(search, p, p, QUICK_LOOK) for p in points)
    naming_seconds = time.perf_counter() - pruned
    return Decompiled(
        identity=search.identity,
        frontier=frontier,
        pick=pick,
        final=final,
        task_accuracy=fresh.right(answering(final.program)),
        passes=tuple(search.progress.passes),
        norms_constant=len(graph.norms),
        norms_kept=tuple(str(receiver) for receiver in norm_lines(graph)),
        dense=dense_receivers(graph),
        seconds=search.seconds,
        naming_seconds=naming_seconds,
        min_match=min_match,
        max_lines=search.max_lines,
    )


class End(NamedTuple):
    """A program of the frontier, and what is handed out of it."""

    pick: Point
    final: Point


def _end(search: Search, pick: Point, fresh: Oracle, min_match: float) -> End:
    """A program with names and its evidence; without names, should they turn out not to be true."""
    search.note("evidence", pick.lines, "lines", pick.match.value)
    pick = _with_evidence(search, pick, pick)
    named = _named(search, pick, fresh, min_match)
    if named is pick:
        return End(pick, pick)
    named = _with_evidence(search, named, pick)
    return End(pick, named if named.causal or not pick.causal else pick)


def _with_evidence(search: Search, point: Point, pick: Point, effort: Effort = FULL) -> Point:
    found = evaluate(point.program, search.transformer, search.task, pick.program, effort, search.seed)
    return replace(point, evidence=found)


def _candidates(found: Sequence[Found], max_lines: int) -> list[Found]:
    """From short to long, each truer than those before, or the first that is complete; only such as are short enough.

    Where none is, the truest. Of those with as many lines, a complete one, and that from which most has been cut.
    """
    best: list[Found] = []
    for _, each in sorted(enumerate(found), key=lambda pair: (pair[1].lines, not pair[1].complete, -pair[0])):
        if not best or each.match > best[-1].match or (each.complete and not any(f.complete for f in best)):
            best.append(each)
    short = [each for each in best if each.lines <= max_lines]
    return short or best[-1:]


def _named(search: Search, pick: Point, fresh: Oracle, min_match: float) -> Point:
    """The pick with names; as it is, should names turn out to cost too much on inputs that no pass has seen."""
    if pick.match.value < min_match or pick.lines > MOST_NAMED:
        return pick  # names would explain another function than the model's, or take longer than all that came before

    def report(name: str, program: Program, match: float) -> None:
        search.note(name, program.lines, "lines", match)

    program = name_program(pick.program, search.fit, search.check, search.trials, min_match, report)
    if search.judged(program) < search.judged(pick.program) - 2 * TOLERANCE:
        return pick
    return Point(program, fresh.match(answering(program)), pick.complete)


def _promising(points: Sequence[Point], min_match: float, max_lines: int) -> list[Point]:
    """The shortest that agrees well enough, and the shortest complete one that names may bring near it.

    Where there is none, the truest of those that are short enough.
    """
    good = [point for point in points if point.match.value >= min_match and point.lines <= max_lines]
    if not good:
        return [max(points, key=lambda point: (point.lines <= max_lines, point.match.value))]
    shortest = min(good, key=lambda point: point.lines)
    whole = [point for point in good if point.complete and point.lines <= 2 * most_lines(shortest.lines)]
    return list(dict.fromkeys([shortest, *whole[:1]]))


def most_lines(shortest: int) -> float:
    """How long a complete program may be where there is a sufficient one of so many lines."""
    return float(shortest + max(MORE_LINES, MORE_OF_LINES * shortest))


def choose(ends: Sequence[End], accept: Accept) -> End:
    """The shortest causal program, or a complete one that is not much longer; by answers, the shortest."""
    causal = [end for end in ends if end.final.causal]
    if accept == "answers" or not causal:
        return ends[0]
    shortest = min(causal, key=lambda end: end.final.lines)
    whole = [e for e in causal if e.final.grade == "complete" and e.final.lines <= most_lines(shortest.final.lines)]
    return min(whole, key=lambda end: end.final.lines, default=shortest)
