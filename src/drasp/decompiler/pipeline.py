"""The decompiler in one function: cut components, edges and lines as long as the answers stay the model's."""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from drasp.decompiler.checkpoint import Found, State
from drasp.decompiler.components import Graph
from drasp.decompiler.elimination import Harm, Judge, Move, eliminate, squeeze
from drasp.decompiler.harm import harm_by_line
from drasp.decompiler.lines import Means, line_moves, linear_moves, operand_means, variable_moves, with_bias
from drasp.decompiler.result import Decompiled, Point
from drasp.decompiler.search import LOWEST, QUICK, THOROUGH, Search
from drasp.decompiler.splitting import split_moves
from drasp.decompiler.ugs import PAPER_SETTINGS, UgsSettings, prune_by_gates
from drasp.errors import DraspError
from drasp.fitting.oracle import Oracle, answering
from drasp.language.syntax import Program
from drasp.naming.judge import TOLERANCE
from drasp.naming.pipeline import name_program
from drasp.records import PassRecord
from drasp.rewriting.simplify import simplify
from drasp.sites import OUT, TOKEN, Component, Edge, Receiver
from drasp.tasks import Task
from drasp.transformer import Transformer

METHODS = ("fast", "ugs")
WORTH_OF_A_LINE = 0.01  # of agreement, in the last round
FRESH_INPUTS = 2000
MOST_GAIN = 0.05  # of agreement, that polishing may bring
MOST_NAMED = 20  # lines of a program that is named: each is tried by running all of it, many times

# Agreement that a program must have; none where it is not wanted at all.
Target = Callable[[Program], float | None]


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
    checkpoint: Path | None = None,
    resume: bool = False,
    method: str = "fast",
    ugs: UgsSettings = PAPER_SETTINGS,
) -> Decompiled:
    """The shortest program found that answers like the model on `min_match` of the inputs.

    Finished passes are kept in the file `checkpoint`; with `resume` it goes on from there.
    `method` is "fast", backward elimination, or "ugs", the paper's own pruning, which takes `ugs` and far more time.
    """
    check_method(method)
    effort = QUICK if quick else THOROUGH
    settings = {"method": method, "quick": quick, "min_match": min_match, "max_lines": max_lines}
    settings |= asdict(ugs) if method == "ugs" else {}
    search = Search(transformer, task, seed, report, effort, checkpoint, resume, settings, max_lines)
    try:
        graph = prune_by_gates(search, ugs) if method == "ugs" else _prune_by_elimination(search)
        return _result(search, graph, min_match)
    except KeyboardInterrupt:
        search.store()
        raise


def check_method(method: str) -> None:
    if method not in METHODS:
        raise DraspError(f"--method {method}: no such method; there are {', '.join(METHODS)}")


def _prune_by_elimination(search: Search) -> Graph:
    """Gives the graph as it was while agreement held: what it could not do without says why a program is long."""
    state = search.once("try a sketch", partial(sketch, search), State(search.components.whole()))
    if state.program is None:
        state = _cut_graph(search, state)
    graph = state.graph
    if state.program is None:
        state = search.once("write the program", partial(write_dense_graph, search), state)
    else:
        state = _shortened(search, state, _always(search.target))
    if simplify(_written(state)).lines > search.max_lines:
        state = search.once("squeeze lines", partial(squeeze_lines, search), state)
    match = search.check.match(answering(_written(state))).value
    if search.effort.thorough and match >= LOWEST:
        worth_it = _worth_it(_written(state), match)
        cut = partial(_cut_attention_for_lines, search, worth_it)
        state = search.once("cut attention for lines", cut, state)
        state = _shortened(search, state, worth_it)
        graph = state.graph
    return graph


def _cut_graph(search: Search, state: State) -> State:
    for name, cut in (
        ("cut components", _cut_components),
        ("cut edges", _cut_edges),
        ("make norms constant", _make_norms_constant),
    ):
        state = search.once(name, partial(cut, search), state)
    return State(state.graph, search.write(state.graph))


def _shortened(search: Search, state: State, target: Target) -> State:
    for name, shorten in (
        ("cut variables", _cut_variables),
        ("make MLPs linear", _make_mlps_linear),
        ("split MLPs", _split_mlps),
        ("cut lines", _cut_lines),
    ):
        state = search.once(name, partial(shorten, search, target), state)
    return state


# --------------------------------------------------------------------------------------- passes


def sketch(search: Search, state: State) -> State:
    """The token, the mean of all tokens, or both, projected: many models say no more than that.

    There is no program where this one does. It costs a few convex fits to see.
    """
    anatomy, whole = search.components.anatomy, state.graph
    heads = anatomy.heads(0) if anatomy.n_layers else ()
    mean = {Edge(TOKEN, head.receivers[2]) for head in heads} | {Edge(head, OUT) for head in heads}
    for kept in ({Edge(TOKEN, OUT)}, mean, {Edge(TOKEN, OUT), *mean}):
        graph = whole.cut(whole.kept - kept, search.means)
        graph = replace(graph, norms=search.components.mean_norms(graph, [OUT], search.probe))
        if (program := search.fitted_head(graph, search.target)) is not None:
            return State(graph, program)
    return state


def _cut_components(search: Search, state: State) -> State:
    moves = _component_moves(search)
    return _less_graph(search, lambda _: moves, search.graph_judge(), state)


def _cut_edges(search: Search, state: State) -> State:
    moves = _edge_moves(search)
    return _less_graph(search, lambda _: moves, search.graph_judge(), state, search.harm_by_edge)


def _make_norms_constant(search: Search, state: State) -> State:
    """In a dense graph, which gains little by it, only as far as nothing has to be settled."""
    judge = search.graph_judge()
    if not search.is_sparse(state.graph):
        judge = replace(judge, hopeless=0.0)
    return _less_graph(search, partial(_norm_moves, search), judge, state)


def _less_graph(
    search: Search,
    moves: Callable[[Graph], Sequence[Move[Graph]]],
    judge: Judge[Graph],
    state: State,
    harm: Harm[Graph] | None = None,
) -> State:
    target, patience = _always(search.target), search.effort.graph_patience
    return State(eliminate(state.graph, moves, judge, target, search.accept_graph, patience, harm))


def write_dense_graph(search: Search, state: State) -> State:
    """As a long program; where there are very many edges, some go first, until it can be written at all."""
    moves = _edge_moves(search)
    judge, too_many = search.graph_judge(), search.edges_too_many
    graph = squeeze(state.graph, lambda _: moves, judge, search.harm_by_edge, too_many, search.accept_graph)
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


def _cut_attention_for_lines(search: Search, target: Target, state: State) -> State:
    """Heads need not see all that they see: where agreement suffers, but lines are saved, many selects at once."""

    def graph_target(graph: Graph) -> float | None:
        program = search.write(graph)
        return None if program is None else target(program)

    judge, moves, patience = search.graph_judge(), _attention_moves(search), search.effort.graph_patience
    graph = eliminate(state.graph, lambda _: moves, judge, graph_target, search.accept_graph, patience)
    return state if graph is state.graph else State(graph, search.write(graph))


def _cut_variables(search: Search, target: Target, state: State) -> State:
    return _less_program(search, variable_moves, target, state)


def _make_mlps_linear(search: Search, target: Target, state: State) -> State:
    return _less_program(search, lambda now, _: linear_moves(now, search.pool_for(now)), target, state)


def _split_mlps(search: Search, target: Target, state: State) -> State:
    """Where that makes no more lines: parts that read one-hot variables are tables, and join what follows."""

    def no_longer(program: Program) -> float | None:
        return target(program) if simplify(program).lines <= most else None

    most = simplify(_written(state)).lines
    return _less_program(search, lambda now, _: split_moves(now, search.probe), no_longer, state)


def _cut_lines(search: Search, target: Target, state: State) -> State:
    return _less_program(search, line_moves, target, state)


def _less_program(
    search: Search,
    moves: Callable[[Program, Means], list[Move[Program]]],
    target: Target,
    state: State,
) -> State:
    program = with_bias(simplify(_written(state)))
    means = operand_means(program, search.probe)
    judge, patience = search.program_judge(), search.effort.patience
    shorter = eliminate(program, lambda now: moves(now, means), judge, target, search.accept_program, patience)
    return State(state.graph, shorter)


def _worth_it(program: Program, match: float) -> Target:
    """The agreement that a shorter program must have: so much less for each line that it saves."""
    lines = simplify(program).lines
    return lambda shorter: max(LOWEST, match - WORTH_OF_A_LINE * (lines - simplify(shorter).lines))


def _written(state: State) -> Program:
    assert state.program is not None, "programs are shortened once they have been written"
    return state.program


def _always(target: float) -> Callable[[object], float]:
    return lambda _: target


# ---------------------------------------------------------------------------------------- moves


def _cutting(search: Search, name: Hashable, edges: Sequence[Edge]) -> Move[Graph]:
    def apply(graph: Graph) -> Graph | None:
        there = [edge for edge in edges if edge in graph.kept]
        return graph.cut(there, search.means) if there else None

    return Move(name, apply)


def _component_moves(search: Search) -> list[Move[Graph]]:
    """Components that nobody need hear, heads that may attend to everything alike, MLPs that may be left out."""
    anatomy = search.components.anatomy
    moves = [_cutting(search, str(s), [edge for edge in anatomy.edges if edge.sender == s]) for s in anatomy.senders]
    for head in (sender for sender in anatomy.senders if sender.kind == "head"):
        pattern = [edge for edge in anatomy.edges if edge.receiver in head.receivers[:2]]
        moves.append(_cutting(search, f"attention of {head}", pattern))
    return moves + [_bypassing(search, sender) for sender in anatomy.senders if sender.kind == "mlp"]


def _bypassing(search: Search, mlp: Component) -> Move[Graph]:
    def apply(graph: Graph) -> Graph | None:
        return graph.bypass(mlp, search.means) if graph.is_used(mlp) else None

    return Move(f"bypass of {mlp}", apply)


def _edge_moves(search: Search) -> list[Move[Graph]]:
    return [_cutting(search, edge, [edge]) for edge in search.components.anatomy.edges]


def _attention_moves(search: Search) -> list[Move[Graph]]:
    """A sender that a head neither asks by nor looks for."""
    anatomy = search.components.anatomy
    return [
        _cutting(search, f"{sender} in {head}", [Edge(sender, side) for side in head.receivers[:2]])
        for head in anatomy.senders
        if head.kind == "head"
        for sender in anatomy.senders_to(head.receivers[0])
    ]


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


def _result(search: Search, graph: Graph, min_match: float) -> Decompiled:
    """Agreement on fresh inputs for the best program of each length, as far as longer ones agree more."""
    fresh = search.draw("fresh", FRESH_INPUTS, batch_size=100)
    points: list[Point] = []
    reached = -1.0
    for found in _candidates(search.progress.found, search.max_lines):
        search.note("polish and measure", found.lines, "lines", found.match)
        # Longer ones than the one that will be picked are there for comparison only; others may be out of reach.
        near = found.match >= min_match - MOST_GAIN
        in_question = near and not any(point.match.value >= min_match for point in points)
        program, match = (
            search.polished(found.program) if in_question else (found.program, search.judged(found.program))
        )
        if match > reached:
            reached = match
            points.append(Point(simplify(program), fresh.match(answering(program))))
    pick = choose(points, min_match, search.max_lines)
    pruned = time.perf_counter()
    final = _named(search, pick, fresh, min_match)
    naming_seconds = time.perf_counter() - pruned
    return Decompiled(
        identity=search.identity,
        frontier=tuple(points),
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


def _candidates(found: Sequence[Found], max_lines: int) -> list[Found]:
    """From short to long, each truer than those before; what is too long only where nothing is short enough."""
    best: list[Found] = []
    for each in sorted(found, key=lambda f: (f.lines, -f.match)):
        if not best or each.match > best[-1].match:
            best.append(each)
    short = [each for each in best if each.lines <= max_lines]
    return short or best[-1:]


def _named(search: Search, pick: Point, fresh: Oracle, min_match: float) -> Point:
    """The pick with names; as it is, should names turn out to cost too much on inputs that no pass has seen."""
    if pick.match.value < min_match or pick.lines > MOST_NAMED:
        return pick  # names would explain another function than the model's, or take longer than all that came before

    def report(name: str, program: Program, match: float) -> None:
        search.note(name, program.lines, "lines", match)

    program = name_program(pick.program, search.last_fit, search.check, min_match, report)
    if search.judged(program) < search.judged(pick.program) - 2 * TOLERANCE:
        return pick
    return Point(program, fresh.match(answering(program)))


def choose(points: Sequence[Point], min_match: float, max_lines: int) -> Point:
    """The shortest that agrees well enough; where there is none, the truest of those that are short enough."""
    good = [point for point in points if point.match.value >= min_match and point.lines <= max_lines]
    if good:
        return min(good, key=lambda point: point.lines)
    return max(points, key=lambda point: (point.lines <= max_lines, point.match.value))
