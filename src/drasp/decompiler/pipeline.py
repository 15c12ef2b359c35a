"""The decompiler in one function: cut components, edges and lines as long as the answers stay the model's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath

from drasp.decompiler.checkpoint import State
from drasp.decompiler.components import Graph
from drasp.decompiler.cutting import (
    Purpose,
    cut,
    settle_at_last,
    squeeze_lines,
    with_constant_norms,
    write_dense_graph,
    written,
)
from drasp.decompiler.moves import Moves, component_moves, edge_moves, line_moves, norm_moves, way_moves
from drasp.decompiler.picking import Accept, Naming, candidates, picked
from drasp.decompiler.result import Decompiled
from drasp.decompiler.search import Search, what_is_cut
from drasp.decompiler.ugs.method import prune_by_gates
from drasp.errors import DraspError
from drasp.memory import kept_memory
from drasp.model_files import ModelSource, load_model
from drasp.naming.pipeline import PASSES as NAMING_PASSES
from drasp.passes import Pass, Unit
from drasp.records import PassRecord
from drasp.rewriting.simplify import simplify
from drasp.settings import DEFAULT, EVIDENCE, PAPER_NAMING, PAPER_SETTINGS, QUICK, Settings, UgsSettings
from drasp.tasks import Task

METHODS = ("fast", "ugs")
CUTS = ("norms", "components", "edges", "norms again", "ways", "lines", "norms at last")  # what passes on graphs cut


def _silent(_record: PassRecord) -> None:
    pass


def decompile(
    model: ModelSource,
    task: Task,
    seed: int = 0,
    min_match: float = 0.9,
    max_lines: int = 40,
    report: Callable[[PassRecord], None] = _silent,
    settings: Settings = DEFAULT,
    checkpoint: FilePath | None = None,
    resume: bool = False,
    method: str = "fast",
    ugs: UgsSettings = PAPER_SETTINGS,
    accept: Accept = "causal",
    naming: Naming = "drasp",
) -> Decompiled:
    """The shortest program found that does what the model does, and answers like it on `min_match` of the inputs.

    `model` is whatever `load_model` takes: a folder, or a model in memory.

    `accept="answers"` picks by answers alone, as the paper does; the verdict says what is seen of the means.

    Finished passes are kept in the file `checkpoint`; with `resume` it goes on from there.
    `method` is "fast", backward elimination, or "ugs", the paper's own pruning, which takes `ugs` and far more time;
    `naming="paper"` gives the paper's primitives, in its order and with its thresholds.
    """
    check_method(method)
    _check_passes(settings)
    transformer = load_model(model)
    task = task.fitted(transformer.n_vocab, transformer.n_positions)
    asked = {
        "method": method,
        "quick": settings == QUICK,
        "min_match": min_match,
        "max_lines": max_lines,
        "accept": accept,
        "naming": naming,
    }
    asked |= {"ugs": ugs.to_json()} if method == "ugs" else {}
    asked |= {"paper_naming": PAPER_NAMING.to_json()} if naming == "paper" else {}
    asked |= {"search": settings.to_json(), "evidence": EVIDENCE.to_json()}
    with kept_memory(max(transformer.n_vocab, transformer.n_positions) ** 2):
        search = Search(transformer, task, seed, report, settings, checkpoint, resume, asked, max_lines)
        try:
            graph = prune_by_gates(search, ugs) if method == "ugs" else _prune_by_elimination(search)
            return picked(search, graph, min_match, accept, naming)
        except KeyboardInterrupt:
            search.store()
            raise


def check_method(method: str) -> None:
    if method not in METHODS:
        raise DraspError(f"method {method}: no such method; there are {', '.join(METHODS)}")


def _check_passes(settings: Settings) -> None:
    """Refuses to leave out what there is not."""
    names = tuple(step.name for step in NAMING_PASSES)
    for chosen, known in ((settings.without, CUTS), (settings.naming.without, names)):
        for name in chosen:
            if name not in known:
                raise DraspError(f"without {name}: no such pass; there are {', '.join(known)}")


def _always(_state: State, _search: Search) -> bool:
    return True


@dataclass(frozen=True)
class SearchPass(Pass[State, Search]):
    """A pass of the search, taken `when` it is worth its time; `step` is what it is called when it is left out.

    None is exact: each goes by the search's judge.
    """

    step: str = ""
    when: Callable[[State, Search], bool] = _always


def _prune_by_elimination(search: Search) -> Graph:
    """Gives the graph as it was while agreement held: what it could not do without says why a program is long.

    First all goes whose value does not matter, then also what may be a constant: the first leaves programs that are
    complete, the second shorter ones that are enough. Only where a program stays long, more goes than should.
    """
    chosen = search.settings
    state = State(search.components.whole())
    for purpose in (
        Purpose("what does not matter at all", complete=chosen.nothing_lost, freely=True, effects=True),
        Purpose("what hardly matters", complete=chosen.complete, effects=True),
        Purpose("what may be constant", complete=chosen.sufficient),
    ):
        state = _taken(search, _cuts(purpose), state)
    stays_long = (search.lines(state.graph) or search.max_lines) > chosen.long
    if stays_long:
        state = _taken(search, _cuts(Purpose("whatever it takes", lowest=chosen.lowest)), state)
    if search.write(state.graph) is not None:
        norms = SearchPass("cut norms of MLPs", "edges", _cut_norms_of_functions, step="norms at last")
        settle = SearchPass("settle what is left", "edges", partial(settle_at_last, not stays_long))
        return _taken(search, (norms, settle), state).graph
    write = SearchPass("write the program", "edges", write_dense_graph)
    squeeze = SearchPass("squeeze lines", "lines", squeeze_lines, when=_is_long)
    _taken(search, (write, squeeze), state)
    return state.graph


def _taken(search: Search, passes: Sequence[SearchPass], state: State) -> State:
    """The state after those of the passes that are worth their time, each kept in the checkpoint as it ends."""
    for each in passes:
        if each.step not in search.settings.without and each.when(state, search):
            state = search.once(each.name, lambda before, run=each.run: run(before, search), state)
    return state


def _cuts(purpose: Purpose) -> tuple[SearchPass, ...]:
    """Sites as long as lines cannot be counted, or need not be, from coarse to fine; then lines."""

    def cuts(step: str, moves: Moves, unit: Unit = "edges", when: Callable[[State, Search], bool] = _always):
        assert step in CUTS
        return SearchPass(f"cut {step}: {purpose.name}", unit, partial(cut, moves, purpose), step=step, when=when)

    lines = cuts("lines", line_moves, "lines", when=_can_be_written)
    if purpose.complete and not purpose.freely:
        # What stays too dense to be written needs more than single edges: looking for these takes long, in vain.
        return cuts("components", component_moves, when=_cannot_be_written), lines
    return (
        # What is cut makes up a part of the norms, too: where these may be constants, cuts change nothing else.
        cuts("norms", norm_moves, when=_is_sparse),  # a dense graph has more to lose than norms
        cuts("components", component_moves),
        cuts("edges", edge_moves),
        cuts("norms again", norm_moves, when=_is_sparse),
        cuts("ways", way_moves),
        lines,
    )


def _cut_norms_of_functions(state: State, search: Search) -> State:
    """The state with numbers for norms within MLPs, as far as they may be, also in what may be handed out besides."""
    left = state.graph
    for found in candidates(search.progress.found, search.settings, search.max_lines):
        if isinstance(found.left, Graph) and found.complete:
            without = with_constant_norms(search, found.left, found.complete)
            if what_is_cut(found.left) == what_is_cut(state.graph) != what_is_cut(without):
                left = without
    return state if left is state.graph else State(left)


def _is_sparse(state: State, search: Search) -> bool:
    return search.is_sparse(state.graph)


def _can_be_written(state: State, search: Search) -> bool:
    return search.write(state.graph) is not None


def _cannot_be_written(state: State, search: Search) -> bool:
    return search.write(state.graph) is None


def _is_long(state: State, search: Search) -> bool:
    return simplify(written(state)).lines > search.max_lines
