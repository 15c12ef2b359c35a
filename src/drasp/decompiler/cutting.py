"""What the passes of the search do: cut a graph for a purpose, settle what is left, squeeze a program."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial

from drasp.decompiler.checkpoint import State
from drasp.decompiler.components import Graph
from drasp.decompiler.elimination import EliminationJudge, Move, always, eliminate, squeeze
from drasp.decompiler.harm import harm_by_line
from drasp.decompiler.lines import line_moves as program_line_moves
from drasp.decompiler.moves import Moves, component_moves, edge_moves, function_norm_moves, line_moves, norm_moves
from drasp.decompiler.search import Search, what_is_cut
from drasp.fitting.dropping import with_bias
from drasp.fitting.means import operand_means
from drasp.fitting.oracle import answering
from drasp.language.syntax import Program, once
from drasp.rewriting.simplify import simplify


@dataclass(frozen=True)
class Purpose:
    """What a round of cuts is for.

    `complete`: so many answers must stay when all that is cut comes from another input. `freely`: also what saves no
    line may go; else each cut must save some, as soon as there are lines to count, each of which may cost some
    agreement.
    `lowest`: so much agreement is enough, where that is less than the search asks for. `effects`: lines may only go if
    what is left keeps the effects that it has in the model, also when norms stay as they are.
    """

    name: str
    complete: float | None = None
    freely: bool = False
    lowest: float | None = None
    effects: bool = False


def cut(moves: Moves, purpose: Purpose, state: State, search: Search) -> State:
    """The state after backward elimination by these moves, as far as the purpose lets it go."""
    judge = search.graph_judge(purpose.complete)
    dense = search.write(state.graph) is None
    if purpose.freely or (dense and (purpose.complete or moves is norm_moves)):
        # What does not matter goes without any harm, and settling is dear, above all where much is left.
        judge = replace(judge, settles=False)
    # One backward pass tells more or less what all edges are worth; where there are few, each is looked at.
    harm = search.harm_by_edge if moves is edge_moves and not search.is_sparse(state.graph) else None
    accept, patience = partial(search.accept_graph, complete=purpose.complete), search.settings.patience
    target = partial(_target, search, purpose)
    worth = partial(saved, search) if moves is line_moves else None
    offered = partial(settled_moves, judge, moves) if moves is component_moves and judge.settles else moves
    graph = _with_better_constants(search, judge, state) if moves is line_moves else state.graph
    holds = partial(_keeps_effects, search, purpose.effects, moves is line_moves) if purpose.complete else always
    left = eliminate(graph, partial(offered, search), judge, target, accept, patience, harm, worth, holds)
    return State(left, settled=moves is line_moves and what_is_cut(left) == what_is_cut(graph))


def settled_moves(judge: EliminationJudge[Graph], moves: Moves, search: Search, graph: Graph) -> list[Move[Graph]]:
    """The moves, each of which also settles the constants it leaves, where that may be enough to make up for it.

    A whole component leaves much at once, and its mean need not do: that of all positions, say, is so short that norms
    make all the rest larger. So what is lost with it shows only when this has been made up for.
    """
    known: dict[Hashable, Graph] = {}

    def settled(move: Move[Graph]) -> Callable[[Graph], Graph | None]:
        def apply(before: Graph) -> Graph | None:
            after = move.apply(before)
            if after is None or search.graph_loss(after) >= search.hopeless or not judge.stands(after):
                return after
            return once(known, what_is_cut(after), lambda: judge.settle(after))

        return apply

    return [replace(move, apply=settled(move)) for move in moves(search, graph)]


def _with_better_constants(search: Search, judge: EliminationJudge[Graph], state: State) -> Graph:
    """The state's graph with plain means where they do as well, or what settling makes of these.

    What was settled for things that have gone since need not suit what is left. Where it is needed all the same, it is
    settled further, if that brings more agreement, which leaves more to lose.
    """
    graph = state.graph
    if state.settled:
        return graph
    plain = search.with_means(graph)
    enough = search.graph_match(graph) - search.settings.as_well
    longer = partial(once, search.settled_means, what_is_cut(graph), lambda: judge.settle_longer(plain))
    for constants in (lambda: plain, lambda: judge.settle(plain), longer) if plain.is_like(graph) else ():
        fresh = constants()
        if search.graph_match(fresh) >= enough and judge.spare(fresh) >= 0:
            return fresh
    return judge.improved(graph) or graph


def with_constant_norms(search: Search, graph: Graph, complete: float) -> Graph:
    """The graph with a number for each norm within an MLP that may be one, if it stays so `complete`.

    While edges are cut it is chance whether such a norm is among what is tried.
    """
    judge = replace(search.graph_judge(complete), settles=False)
    return eliminate(
        graph,
        partial(function_norm_moves, search),
        judge,
        lambda before, _: max(search.settings.target, search.graph_match(before) - search.settings.as_well),
        partial(search.accept_graph, complete=complete),
        search.settings.patience,
        holds=partial(_keeps_effects, search, True, False),
    )


def saved(search: Search, before: Graph, after: Graph) -> float:
    """How many lines fewer a graph has, by what they are worth; what functions and queries read less counts as well."""
    long, short = search.size(before), search.size(after)
    if long is None or short is None:
        return 0.0
    norms, reads, chosen = long.norms - short.norms, long.reads - short.reads, search.settings
    return long.lines - short.lines - (1 - chosen.worth_of_a_norm) * norms + chosen.worth_of_a_read * reads


def settle_at_last(held: bool, state: State, search: Search) -> State:
    """The last graph with plain means, or with constants that bring more agreement; `held` to a standard till now."""
    better = _with_better_constants(search, search.graph_judge(None), state)
    search.accept_graph(better, search.graph_match(better), _asked_for(search, better) if held else None)
    return State(better, settled=True)


def _asked_for(search: Search, graph: Graph) -> float | None:
    """The highest of the standards of completeness that a graph meets; for a high one, effects must be the model's."""
    chosen, found = search.settings, search.standards.complement(graph)
    if search.standards.interchange(graph) < chosen.interchange_after_cuts:
        found = min(found, chosen.sufficient)
    return next((least for least in (chosen.nothing_lost, chosen.complete, chosen.sufficient) if found >= least), None)


def write_dense_graph(state: State, search: Search) -> State:
    """The state's graph as a long program; of very many edges some go first, until it can be written at all."""
    judge, too_many = search.graph_judge(complete=None), search.edges_too_many
    moves = partial(edge_moves, search)
    graph = squeeze(state.graph, moves, judge, search.harm_by_edge, too_many, search.accept_graph)
    program = search.written(graph)
    search.accept_program(program, search.check.match(answering(program)).value)
    return State(graph, program)


def squeeze_lines(state: State, search: Search) -> State:
    """The state with as short a program as is asked for, whatever that costs."""
    program = with_bias(simplify(written(state)))
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
    chosen = search.settings
    usual = chosen.target if purpose.lowest is None else purpose.lowest
    if purpose.freely:
        had = search.graph_match(before)
        if before.reads == after.reads and len(before.norms) == len(after.norms):
            return max(usual, min(chosen.nearly_all, had))  # less for norms to hear is no gain
        return max(usual, had - chosen.worth_of_a_line) if search.is_slight(before, after) else chosen.nearly_all
    if search.lines(before) is None:
        return usual
    if search.lines(after) is None:
        return None
    # What does not matter at all may cost more: there it is noise that decides.
    harmless = search.standards.is_complement(after, chosen.nothing_lost)
    price = chosen.worth_of_noise if harmless else chosen.worth_of_a_line
    wanted = max(usual, search.graph_match(before) - price * saved(search, before, after))
    return wanted if wanted <= 1 else None  # what makes a program longer by more than it can agree better


def _keeps_effects(search: Search, closely: bool, by_line: bool, before: Graph, after: Graph) -> bool:
    """Whether heads and MLPs keep, when they come from another input, the effect that they have in the model.

    On the task's inputs a number may do for a norm which matters as soon as something comes from another input, and
    what goes may always say the same as something that stays. For a program that is only enough, new constant norms
    alone count, and clear answers; else, `closely`, what norms hear no more, what lines cost, and answers that are near
    to another.
    """
    same_norms = after.norms.keys() | after.bare.keys() <= before.norms.keys() | before.bare.keys()
    only_cut = same_norms and after.reads < before.reads
    counts = not only_cut or (closely and (by_line or _norms_hear_less(before, after)))
    if not search.is_sparse(after) or not counts:
        return True
    chosen, standards = search.settings, search.standards
    least = chosen.interchange_after_cuts if only_cut else chosen.interchange
    # What was lost before is not held against what goes now, nor an answer or two that happen to change.
    if standards.keeps_effects(after, least, closely):
        return True
    had = standards.interchange(before, closely) - chosen.by_chance
    return had < least and standards.keeps_effects(after, had, closely)


def _norms_hear_less(before: Graph, after: Graph) -> bool:
    """Whether a norm that stays as it was hears fewer senders than before, which makes all that is left larger."""
    real = [receiver for receiver in after.live_receivers() if after.has_norm(receiver) and before.has_norm(receiver)]
    return any(len(after.senders_to(receiver)) < len(before.senders_to(receiver)) for receiver in real)


def written(state: State) -> Program:
    assert state.program is not None, "programs are squeezed once they have been written"
    return state.program
