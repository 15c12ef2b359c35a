"""The decompiler in one function: cut components, edges and lines as long as the answers stay the model's."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from drasp.decompiler.components import Edge, Graph, Sender
from drasp.decompiler.elimination import Move, eliminate
from drasp.decompiler.lines import Means, line_moves, linear_moves, operand_means, variable_moves, with_bias
from drasp.decompiler.oracle import Batch, Oracle, answering
from drasp.decompiler.result import Decompiled, PassRecord, Point
from drasp.decompiler.search import Found, Search
from drasp.decompiler.ugs import PAPER_SETTINGS, UgsSettings, prune_by_gates
from drasp.errors import DraspError
from drasp.language.syntax import Program
from drasp.measure import agreeing, predictions, share
from drasp.naming.judge import TOLERANCE
from drasp.naming.pipeline import name_program
from drasp.naming.simplify import simplify
from drasp.tasks import Task
from drasp.transformer import Transformer
from drasp.vocabulary import Output
from drasp.wiring import Receiver

METHODS = ("fast", "ugs")
# The agreement that the search keeps to. Graphs are held to less only while their programs are too long to be written.
TARGETS = (0.95, 0.9, 0.8, 0.6, 0.3, 0.0)
# In the end a line may go for a hundredth of the inputs, down to this.
LOWEST = 0.92
WORTH_OF_A_LINE = 0.01
FRESH_INPUTS = 2000


def _silent(_record: PassRecord) -> None:
    pass


def decompile(
    transformer: Transformer,
    task: Task,
    seed: int = 0,
    min_match: float = 0.9,
    max_lines: int = 40,
    report: Callable[[PassRecord], None] = _silent,
    method: str = "fast",
    ugs: UgsSettings = PAPER_SETTINGS,
) -> Decompiled:
    """The shortest program found that answers like the model on `min_match` of the inputs.

    `method` is "fast", backward elimination, or "ugs", the paper's own pruning, which takes `ugs` and far more time.
    """
    check_method(method)
    search = Search(transformer, task, np.random.default_rng(seed), report)
    graph = prune_by_gates(search, ugs) if method == "ugs" else _prune_by_elimination(search)
    return _result(search, graph, seed, min_match, max_lines, method)


def check_method(method: str) -> None:
    if method not in METHODS:
        raise DraspError(f"--method {method}: no such method; there are {', '.join(METHODS)}")


def _prune_by_elimination(search: Search) -> Graph:
    graph, program = sketch(search)
    if program is None:
        graph, program = _eliminate_from_graph(search)
    if program is not None:
        program = _eliminate_lines(search, program, _always(TARGETS[0]))
        _eliminate_lines(search, program, search.worth_it(program, WORTH_OF_A_LINE, LOWEST))
    return graph


def sketch(search: Search) -> tuple[Graph, Program | None]:
    """The token, the mean of all tokens, or both, projected: many models say no more than that.

    The program is None where this one does. It costs a few convex fits to see.
    """
    anatomy, whole = search.components.anatomy, search.components.whole()
    token, out = Sender("token"), Receiver(anatomy.n_layers, "out")
    heads = [sender for sender in anatomy.senders if sender.kind == "head" and sender.layer == 0]
    mean = {(token, Receiver(0, "v", head.head)) for head in heads} | {(head, out) for head in heads}
    for kept in ({(token, out)}, mean, {(token, out), *mean}):
        graph = whole.cut(whole.kept - kept, search.means)
        graph = replace(graph, norms={out: search.components.mean_norm(graph, out, search.probe)})
        if (program := search.fitted_head(graph, "try a sketch", TARGETS[0])) is not None:
            return graph, program
    return whole, None


def _eliminate_from_graph(search: Search) -> tuple[Graph, Program | None]:
    """From the whole model down to a graph whose program can be written."""
    graph, program = search.components.whole(), None
    for target in TARGETS:
        for name, moves in (
            ("cut components", _component_moves(search)),
            ("cut edges", _edge_moves(search)),
            ("make norms constant", _norm_moves(search)),
        ):
            accepted = search.accept_graph(name)
            graph = eliminate(graph, lambda _, moves=moves: moves, search.graph_judge(), _always(target), accepted)
        if (program := search.write(graph)) is not None:
            break
    return graph, program


def _always(target: float) -> Callable[[object], float]:
    return lambda _: target


def _eliminate_lines(search: Search, program: Program, target: Callable[[Program], float]) -> Program:
    judge = search.program_judge()
    for name in ("cut variables", "make MLPs linear", "cut lines"):
        program = with_bias(simplify(program))
        means = operand_means(program, search.probe)

        def moves(now: Program, name: str = name, means: Means = means) -> list[Move[Program]]:
            match name:
                case "cut variables":
                    return variable_moves(now, means)
                case "make MLPs linear":
                    return linear_moves(now, search.regression)
                case _:
                    return line_moves(now, means)

        program = eliminate(program, moves, judge, target, search.accept_program(name))
    return program


# ---------------------------------------------------------------------------------------- moves


def _cutting(search: Search, name: str, edges: Sequence[Edge]) -> Move[Graph]:
    def apply(graph: Graph) -> Graph | None:
        there = [edge for edge in edges if edge in graph.kept]
        return graph.cut(there, search.means) if there else None

    return Move(name, apply)


def _component_moves(search: Search) -> list[Move[Graph]]:
    """Components that nobody need hear, heads that may attend to everything alike, MLPs that may be left out."""
    anatomy = search.components.anatomy
    moves = [_cutting(search, str(s), [edge for edge in anatomy.edges if edge[0] == s]) for s in anatomy.senders]
    for head in (sender for sender in anatomy.senders if sender.kind == "head"):
        sides = [Receiver(head.layer, kind, head.head) for kind in "qk"]
        pattern = [edge for edge in anatomy.edges if edge[1] in sides]
        moves.append(_cutting(search, f"attention of {head}", pattern))
    return moves + [_bypassing(search, sender) for sender in anatomy.senders if sender.kind == "mlp"]


def _bypassing(search: Search, mlp: Sender) -> Move[Graph]:
    def apply(graph: Graph) -> Graph | None:
        return graph.bypass(mlp, search.means) if graph.is_used(mlp) else None

    return Move(f"bypass of {mlp}", apply)


def _edge_moves(search: Search) -> list[Move[Graph]]:
    return [_cutting(search, f"{s} to {r}", [(s, r)]) for s, r in search.components.anatomy.edges]


def _norm_moves(search: Search) -> list[Move[Graph]]:
    """A receiver's norm replaced by its mean, wherever the norm costs a line."""

    def fixing(receiver: Receiver) -> Move[Graph]:
        def apply(graph: Graph) -> Graph | None:
            if receiver not in norm_lines(graph):
                return None
            constant = search.components.mean_norm(graph, receiver, search.probe)
            return replace(graph, norms={**graph.norms, receiver: constant})

        return Move(f"norm at {receiver}", apply)

    return [fixing(receiver) for receiver in search.components.anatomy.receivers]


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


def _result(
    search: Search, graph: Graph, seed: int, min_match: float, max_lines: int, method: str = "fast"
) -> Decompiled:
    """Agreement on fresh inputs for the best program of each length, as far as longer ones agree more."""
    fresh = Oracle.draw(search.transformer, search.task, FRESH_INPUTS, search.rng, batch_size=100)
    best: dict[int, Found] = {}
    for found in search.found:
        if found.lines not in best or found.match > best[found.lines].match:
            best[found.lines] = found
    points: list[Point] = []
    reached = 0.0
    for _, found in sorted(best.items()):
        if found.match > reached or not points:
            polished = search.polished(found)
            reached = polished.match
            points.append(Point(polished.neat(), fresh.match(answering(polished.program))))
    pick = choose(points, min_match, max_lines)
    pruned = time.perf_counter()
    final = _named(search, pick, fresh, min_match)
    naming_seconds = time.perf_counter() - pruned
    run = answering(final.program)
    with torch.no_grad():
        right = torch.cat([_right(batch, run(batch), search.task.output) for batch in fresh.batches])
    return Decompiled(
        task=search.task.name,
        seed=seed,
        frontier=tuple(points),
        pick=pick,
        final=final,
        task_accuracy=share(right),
        passes=tuple(search.passes),
        norms_constant=len(graph.norms),
        norms_kept=tuple(str(receiver) for receiver in norm_lines(graph)),
        seconds=time.perf_counter() - search.start,
        naming_seconds=naming_seconds,
        min_match=min_match,
        max_lines=max_lines,
        method=method,
    )


def _named(search: Search, pick: Point, fresh: Oracle, min_match: float) -> Point:
    """The pick with names; as it is, should names turn out to cost too much on inputs that no pass has seen."""
    program = name_program(pick.program, search.fit, search.check, min_match)
    named = Point(program, fresh.match(answering(program)))
    return named if named.match.value >= pick.match.value - 2 * TOLERANCE else pick


def choose(points: Sequence[Point], min_match: float, max_lines: int) -> Point:
    """The shortest that agrees well enough; where there is none, the truest of those that are short enough."""
    good = [point for point in points if point.match.value >= min_match and point.lines <= max_lines]
    if good:
        return min(good, key=lambda point: point.lines)
    return max(points, key=lambda point: (point.lines <= max_lines, point.match.value))


def _right(batch: Batch, logits: Tensor, output: Output) -> Tensor:
    targets = batch.inputs.targets
    where = batch.where if targets.ndim == 2 else batch.where[..., None].expand(-1, -1, targets.shape[-1])
    return agreeing(predictions(logits, output), targets.gather(1, where), batch.valid)
