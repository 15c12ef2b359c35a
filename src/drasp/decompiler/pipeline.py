"""The decompiler in one function: cut components, edges and lines as long as the answers stay the model's."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path as FilePath
from typing import Literal, NamedTuple, get_args

from drasp.causal import FULL, Effort
from drasp.causal import QUICK as QUICK_LOOK
from drasp.decompiler.checkpoint import Found, State
from drasp.decompiler.components import Graph
from drasp.decompiler.constants import out_of_range
from drasp.decompiler.elimination import Judge, always, eliminate, squeeze
from drasp.decompiler.harm import harm_by_line
from drasp.decompiler.lines import line_moves as program_line_moves
from drasp.decompiler.lines import operand_means, with_bias
from drasp.decompiler.moves import (
    Moves,
    component_moves,
    edge_moves,
    line_moves,
    norm_lines,
    norm_moves,
    way_moves,
)
from drasp.decompiler.result import Decompiled, Point
from drasp.decompiler.search import LOWEST, NEARLY_ALL, QUICK, TARGET, THOROUGH, Search, what_is_cut
from drasp.decompiler.standards import HARDLY_ANY, LEAST_COMPLETE, LEAST_INTERCHANGE, LEAST_SUFFICIENT
from drasp.decompiler.ugs import PAPER_SETTINGS, UgsSettings, prune_by_gates
from drasp.errors import DraspError
from drasp.fitting.oracle import Oracle, answering
from drasp.language.syntax import Program
from drasp.model_files import ModelSource, load_model
from drasp.naming.judge import TOLERANCE
from drasp.naming.pipeline import name_program
from drasp.records import PassRecord
from drasp.rewriting.simplify import simplify
from drasp.tasks import Task

METHODS = ("fast", "ugs")
Accept = Literal["causal", "answers"]
WORTH_OF_A_LINE = 0.01  # of agreement
WORTH_OF_NOISE = 0.02  # the same, of a line that does not matter
WORTH_OF_A_READ = 1.0  # of a line: what functions and queries need not read makes them simpler
WORTH_OF_A_NORM = 0.3  # of a line: layer norm is there in every model, and a number in its place is not
FRESH_INPUTS = 2000
MORE_LINES, MORE_OF_LINES = 2, 0.25  # that a complete program may have
AS_WELL = 0.002  # less agreement: with constants that nothing was fitted to
LONG = 12  # lines: of a program that stays longer, what matters may go too
TRUER = 0.01  # that a longer program must agree more often to be on the frontier
SAVED_BY_NAMES = 3  # lines, at most, as a rule
MORE_TRIED = 3  # longer programs, where the first do not do it by the model's means
MOST_NAMED = 12  # lines of a program that is named: each is tried by running all of it, many times


def _silent(_record: PassRecord) -> None:
    pass


def decompile(
    model: ModelSource,
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

    `model` is whatever `load_model` takes: a folder, or a model in memory.

    `accept="answers"` picks by answers alone, as the paper does; the verdict says what is seen of the means.

    Finished passes are kept in the file `checkpoint`; with `resume` it goes on from there.
    `method` is "fast", backward elimination, or "ugs", the paper's own pruning, which takes `ugs` and far more time.
    """
    check_method(method)
    transformer = load_model(model)
    task = task.fitted(transformer.n_vocab, transformer.n_positions)
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
    for purpose in (NOTHING_LOST, COMPLETE, SUFFICIENT):
        state = _cut_graph(search, state, purpose)
    if (search.lines(state.graph) or search.max_lines) > LONG:
        state = _cut_graph(search, state, WHATEVER_IT_TAKES)
    if search.write(state.graph) is None:
        graph = state.graph
        state = search.once("write the program", partial(write_dense_graph, search), state)
        if simplify(_written(state)).lines > search.max_lines:
            search.once("squeeze lines", partial(squeeze_lines, search), state)
        return graph
    return search.once("settle what is left", partial(_settle_at_last, search), state).graph


def _settle_at_last(search: Search, state: State) -> State:
    """The last graph with plain means, or with constants that bring more agreement."""
    better = _with_better_constants(search, search.graph_judge(None), state)
    search.accept_graph(better, search.graph_match(better), _asked_for(search, better))
    return State(better, settled=True)


def _asked_for(search: Search, graph: Graph) -> float | None:
    """The highest of the standards of completeness that a graph meets."""
    found = search.standards.complement(graph)
    return next((least for least in (HARDLY_ANY, LEAST_COMPLETE, LEAST_SUFFICIENT) if found >= least), None)


@dataclass(frozen=True)
class Purpose:
    """What a round of cuts is for.

    `complete`: so many answers must stay when all that is cut comes from another input. `freely`: also what saves no
    line may go; else each cut must save some, as soon as there are lines to count, each of which may cost some
    agreement.
    `lowest`: so much agreement is enough, where that is less than the search asks for.
    """

    name: str
    complete: float | None = None
    freely: bool = False
    lowest: float | None = None


NOTHING_LOST = Purpose("what does not matter at all", complete=HARDLY_ANY, freely=True)
COMPLETE = Purpose("what hardly matters", complete=LEAST_COMPLETE)
SUFFICIENT = Purpose("what may be constant", complete=LEAST_SUFFICIENT)
WHATEVER_IT_TAKES = Purpose("whatever it takes", lowest=LOWEST)


def _cut_graph(search: Search, state: State, purpose: Purpose) -> State:
    """Sites as long as lines cannot be counted, or need not be; then lines."""
    for name, moves in _passes(search, state.graph, purpose):
        if moves is norm_moves and not search.is_sparse(state.graph):
            continue  # a dense graph has more to lose than norms
        state = search.once(f"cut {name}: {purpose.name}", partial(_cut, search, moves, purpose), state)
    if search.write(state.graph) is None:
        return state
    return search.once(f"cut lines: {purpose.name}", partial(_cut, search, line_moves, purpose), state)


def _passes(search: Search, graph: Graph, purpose: Purpose) -> tuple[tuple[str, Moves], ...]:
    """The passes on sites, with their names, from coarse to fine."""
    if purpose.complete and not purpose.freely:
        # What stays too dense to be written needs more than single edges: looking for these takes long, in vain.
        return (("components", component_moves),) if search.write(graph) is None else ()
    # What is cut makes up a part of the norms, too: where these may be constants, cuts change nothing else.
    return (
        ("norms", norm_moves),
        ("components", component_moves),
        ("edges", edge_moves),
        ("norms again", norm_moves),
        ("ways", way_moves),
    )


# --------------------------------------------------------------------------------------- passes


def _cut(search: Search, moves: Moves, purpose: Purpose, state: State) -> State:
    judge = search.graph_judge(purpose.complete)
    dense = search.write(state.graph) is None
    if purpose.freely or (dense and (purpose.complete or moves is norm_moves)):
        # What does not matter goes without any harm, and settling is dear, above all where much is left.
        judge = replace(judge, settles=False)
    # One backward pass tells more or less what all edges are worth; where there are few, each is looked at.
    harm = search.harm_by_edge if moves is edge_moves and not search.is_sparse(state.graph) else None
    accept, patience = partial(search.accept_graph, complete=purpose.complete), search.effort.graph_patience
    target = partial(_target, search, purpose)
    worth = partial(saved, search) if moves is line_moves else None
    graph = _with_better_constants(search, judge, state) if moves is line_moves else state.graph
    holds = partial(_norms_may_go, search) if purpose.complete else always
    left = eliminate(graph, partial(moves, search), judge, target, accept, patience, harm, worth, holds)
    return State(left, settled=moves is line_moves and what_is_cut(left) == what_is_cut(graph))


def _with_better_constants(search: Search, judge: Judge[Graph], state: State) -> Graph:
    """The state's graph with plain means where they do as well, or what settling makes of these.

    What was settled for things that have gone since need not suit what is left. Where it is needed all the same, it is
    settled further, if that brings more agreement, which leaves more to lose.
    """
    graph = state.graph
    if state.settled:
        return graph
    plain = search.with_means(graph)
    enough = search.graph_match(graph) - AS_WELL
    for constants in (lambda: plain, lambda: judge.settle_longer(plain)) if plain.is_like(graph) else ():
        fresh = constants()
        if search.graph_match(fresh) >= enough and judge.spare(fresh) >= 0:
            return fresh
    return judge.improved(graph) or graph


def saved(search: Search, before: Graph, after: Graph) -> float:
    """How many lines fewer a graph has, by what they are worth; what functions and queries read less counts as well."""
    long, short = search.size(before), search.size(after)
    if long is None or short is None:
        return 0.0
    norms = long.norms - short.norms
    return long.lines - short.lines - (1 - WORTH_OF_A_NORM) * norms + WORTH_OF_A_READ * (long.reads - short.reads)


def write_dense_graph(search: Search, state: State) -> State:
    """As a long program; where there are very many edges, some go first, until it can be written at all."""
    judge, too_many = search.graph_judge(complete=None), search.edges_too_many
    moves = partial(edge_moves, search)
    graph = squeeze(state.graph, moves, judge, search.harm_by_edge, too_many, search.accept_graph)
    program = search.written(graph)
    search.accept_program(program, search.check.match(answering(program)).value)
    return State(graph, program)


def squeeze_lines(search: Search, state: State) -> State:
    program = with_bias(simplify(_written(state)))
    means = operand_means(program, search.probe)
    shorter = squeeze(
        program,
        lambda now: program_line_moves(now, means),
        search.program_judge(),
        lambda now: harm_by_line(now, means, search.slopes),
        lambda now: simplify(now).lines - search.max_lines,
        search.accept_program,
    )
    return State(state.graph, shorter)


def _target(search: Search, purpose: Purpose, before: Graph, after: Graph) -> float | None:
    """The agreement that a graph must have in place of another; none where it is not wanted."""
    usual = TARGET if purpose.lowest is None else purpose.lowest
    if purpose.freely:
        had = search.graph_match(before)
        if before.reads == after.reads and len(before.norms) == len(after.norms):
            return max(usual, min(NEARLY_ALL, had))  # less for norms to hear is no gain
        return max(usual, had - WORTH_OF_A_LINE) if search.is_slight(before, after) else NEARLY_ALL
    if search.lines(before) is None:
        return usual
    if search.lines(after) is None:
        return None
    # What does not matter at all may cost more: there it is noise that decides.
    price = WORTH_OF_A_LINE if search.standards.complement(after) < HARDLY_ANY else WORTH_OF_NOISE
    return max(usual, search.graph_match(before) - price * saved(search, before, after))


def _norms_may_go(search: Search, before: Graph, after: Graph) -> bool:
    """Whether norms that are constant now, or hear less, leave everything the effect that it has in the model.

    On the task's inputs a number may do for a norm which matters as soon as something comes from another input.
    """
    same_norms = after.norms.keys() | after.bare.keys() <= before.norms.keys() | before.bare.keys()
    if not search.is_sparse(after) or (same_norms and after.reads < before.reads):
        return True
    standards = search.standards
    return standards.interchange(after) >= min(LEAST_INTERCHANGE, standards.interchange(before))


def _written(state: State) -> Program:
    assert state.program is not None, "programs are squeezed once they have been written"
    return state.program


# --------------------------------------------------------------------------------------- result


def dense_receivers(graph: Graph) -> tuple[str, ...]:
    """Receivers that still hear most of what they could, and more than two."""
    counts = {r: (len(graph.senders_to(r)), len(graph.anatomy.senders_to(r))) for r in graph.live_receivers()}
    return tuple(f"{r} ({kept} of {all_})" for r, (kept, all_) in counts.items() if kept > max(2, all_ / 2))


def _result(search: Search, graph: Graph, min_match: float, accept: Accept) -> Decompiled:
    """The frontier, measured on fresh inputs, and the pick, with names and evidence."""
    fresh = search.fresh(FRESH_INPUTS, batch_size=100)
    points: list[Point] = []
    for found in _candidates(search.progress.found, search.max_lines):
        search.note("measure", found.lines, "lines", found.match)
        points.append(Point(found.program, fresh.match(answering(found.program)), found.complete))
    ends: list[End] = []
    for pick in _promising(points, min_match, search.max_lines):
        ends.append(_end(search, pick, fresh, min_match))
        if ends[-1].final.grade == "complete":
            break
    if accept == "causal" and not any(end.final.causal for end in ends):
        tried = {end.pick.lines for end in ends}
        for found in _longer(search.progress.found, tried, min_match, search.max_lines):
            pick = Point(found.program, fresh.match(answering(found.program)), found.complete)
            points = sorted([*(p for p in points if p.lines != pick.lines), pick], key=lambda point: point.lines)
            ends.append(_end(search, pick, fresh, min_match))
            if ends[-1].final.causal:
                break
    pick, final = choose(ends, accept)
    known = {end.pick.lines: end.pick for end in ends}
    frontier = tuple(known.get(p.lines) or _with_evidence(search, p, p, QUICK_LOOK) for p in points)
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
        constants_out_of_range=out_of_range(search.components, graph, search.probe),
        seconds=search.seconds,
        naming_seconds=search.spent["naming"],
        evidence_seconds=search.spent["evidence"],
        min_match=min_match,
        max_lines=search.max_lines,
    )


class End(NamedTuple):
    """A program of the frontier, and what is handed out of it."""

    pick: Point
    final: Point


def _end(search: Search, pick: Point, fresh: Oracle, min_match: float) -> End:
    """A program with names and its evidence; without names, should they not be true, or less complete at no gain."""
    named = _named(search, pick, fresh, min_match)
    search.note("evidence", named.lines, "lines", named.match.value)
    if named is not pick and named.match.value >= min(min_match, pick.match.value):
        named = _with_evidence(search, named, pick)
        if named.grade == "complete" or (named.causal and _leaves_something_out(named)):
            return End(_with_evidence(search, pick, pick, QUICK_LOOK), named)  # the pick is no better
    pick = _with_evidence(search, pick, pick)
    better = named.causal and not (pick.grade == "complete" and pick.lines <= named.lines)
    return End(pick, named if better or (named.evidence and not pick.causal) else pick)


def _leaves_something_out(point: Point) -> bool:
    """Whether a program is not complete for what it is, and not for its names."""
    assert point.evidence is not None
    own = [line.interchange for line in point.evidence.lines if not line.replaced]
    return point.evidence.complement.failed or any(found is not None and found.failed for found in own)


def _with_evidence(search: Search, point: Point, pick: Point, effort: Effort = FULL) -> Point:
    with search.timed("evidence"):
        found = search.examination(effort).evidence(point.program, pick.program)
    return replace(point, evidence=found)


def _candidates(found: Sequence[Found], max_lines: int) -> list[Found]:
    """From short to long, each truer than those before, or the first that is so complete, of those that are short.

    Where none is, the truest. Of those with as many lines, a complete one, and that from which most has been cut.
    """

    def order(numbered: tuple[int, Found]) -> tuple[int, bool, int]:
        number, each = numbered
        return each.lines, each.complete < LEAST_COMPLETE, -number

    best: list[Found] = []
    for _, each in sorted(enumerate(found), key=order):
        if not best or (
            each.lines > best[-1].lines
            and (each.match >= best[-1].match + TRUER or each.complete > max(f.complete for f in best))
        ):
            best.append(each)
    short = [each for each in best if each.lines <= max_lines]
    return short or best[-1:]


def _longer(found: Sequence[Found], tried: set[int], min_match: float, max_lines: int) -> list[Found]:
    """A few of the longer programs that were met on the way, the last of their lengths, with ever larger steps.

    They have more of the model, and may show its means where the shortest do not.
    """
    by_lines = {each.lines: each for each in found if min(tried) < each.lines <= max_lines and each.match >= min_match}
    others = [by_lines[lines] for lines in sorted(by_lines.keys() - tried)]
    return [others[2**i - 1] for i in range(MORE_TRIED) if 2**i <= len(others)]


def _named(search: Search, pick: Point, fresh: Oracle, min_match: float) -> Point:
    """The pick with names; as it is, should names turn out to cost too much on inputs that no pass has seen."""
    if pick.match.value < min_match or pick.lines > MOST_NAMED:
        return pick  # names would explain another function than the model's, or take longer than all that came before

    def report(name: str, program: Program, match: float) -> None:
        search.note(name, program.lines, "lines", match)

    with search.timed("naming"):
        program = name_program(pick.program, search.fit, search.check, search.trials, min_match, report)
    if search.judged(program) < search.judged(pick.program) - TOLERANCE:
        return pick
    return Point(program, fresh.match(answering(program)), pick.complete)


def _promising(points: Sequence[Point], min_match: float, max_lines: int) -> list[Point]:
    """The shortest that agrees well enough, and the shortest complete ones that names may bring near it.

    Where there is none, the truest of those that are short enough.
    """
    good = [point for point in points if point.match.value >= min_match and point.lines <= max_lines]
    if not good:
        return [max(points, key=lambda point: (point.lines <= max_lines, point.match.value))]
    shortest = min(good, key=lambda point: point.lines)
    found = [shortest]
    for complete in (LEAST_COMPLETE, HARDLY_ANY):
        whole = [point for point in good if point.complete >= complete]
        found += [point for point in whole[:1] if point.lines <= most_lines(shortest.lines) + SAVED_BY_NAMES]
    return list(dict.fromkeys(found))


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
