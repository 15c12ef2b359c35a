"""The paper's own pruning: gates trained by gradient, in three stages, at many prices of a gate.

Stage 1 has gates on the edges between components, stage 2 on paths and stage 3 on products of queries and keys. Each
run of a stage minimises divergence from the model plus a coefficient times the number of open gates. Coefficients are
searched so that runs spread over the range of agreement; the best runs of a stage are continued in the next.

Where it differs from the paper: coefficients are in units of the loss of a model that has been cut off from its input
(so that they compare across tasks) and are never negative; that loss also stands for the unigram model's; gates of
stages 2 and 3 are sampled once for each copy of the batch instead of once a row; queries and keys have gates only in
stages 1 and 3; MLPs are not split.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.decompiler.checkpoint import State
from drasp.decompiler.components import Graph
from drasp.decompiler.gates import EdgeGates
from drasp.decompiler.program_gates import Gate, ProgramGates, path_gates, product_gates
from drasp.decompiler.search import Search
from drasp.fitting.oracle import Batch, answering
from drasp.language.syntax import Program
from drasp.rewriting.simplify import simplify
from drasp.rewriting.tidy import without_unused
from drasp.sites import OUT, POSITION, TOKEN, Edge

_FACTOR = 5.0  # from the known coefficients into the unknown
_SMALLEST, _LARGEST = 1e-5, 1e3  # coefficients
_CHECK_EVERY, _CHECKS = 50, 3  # a run is given up when the loss stays too high
_ENOUGH = 0.7  # agreement without which a model is not taken further
_NEAR = 0.2  # how much agreement later stages may give away

Result = TypeVar("Result")
Pruned = TypeVar("Pruned", covariant=True)


@dataclass(frozen=True)
class UgsSettings:
    """The defaults are the paper's: minutes for the smallest models, hours or days for larger ones."""

    runs: tuple[int, int, int] = (20, 20, 20)  # at most, in each stage
    continued: int = 4  # runs that go on to the next stage
    patience: tuple[int, int, int] = (1000, 500, 500)  # steps without undecided gates
    steps: int = 5000  # at most, in each run
    inputs: int = 10  # in a step
    masks: int = 12  # samples of the gates for each input
    batches: int = 200  # that are drawn, and used again and again
    intervals: int = 10  # of agreement
    coefficient: float = 0.01  # the first to be tried


PAPER_SETTINGS = UgsSettings()


@runtime_checkable
class Gates(Protocol[Pruned]):
    """What can be trained and pruned: `EdgeGates` or `ProgramGates`."""

    @property
    def theta(self) -> Float[Tensor, " gates"]: ...

    def rates(self) -> list[tuple[Tensor, float]]: ...

    def divergence(self, batch: Batch, masks: int, generator: torch.Generator) -> Float[Tensor, ""]: ...

    def pruned(self) -> Pruned: ...


@dataclass(frozen=True)
class Run(Generic[Result]):
    """What a coefficient led to; no result, and agreement 0, where the run was given up."""

    coefficient: float
    match: float = 0.0
    size: int = 0
    result: Result | None = None


@dataclass(frozen=True)
class Stage(Generic[Result]):
    """How its runs begin and are judged, and in what form they are stored for a search that is resumed."""

    name: str
    gates: Callable[[], Gates[Result]]
    match: Callable[[Result], float]
    size: Callable[[Result], int]
    accepted: Callable[[Result, float], None]
    stored: Callable[[Result], State]
    result: Callable[[State], Result | None]  # none where the run was given up
    patience: int
    runs: int
    first: float  # coefficient
    span: tuple[float, float]  # of agreement


# -------------------------------------------------------------------------------------- training


class Training:
    """Gates and constants, trained together."""

    def __init__(self, gates: Gates[object], price: float) -> None:
        self.gates, self.price = gates, price
        groups = [{"params": [gates.theta], "lr": 0.1}, *({"params": [t], "lr": rate} for t, rate in gates.rates())]
        self.optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.995), weight_decay=0)

    def step(self, batch: Batch, masks: int, generator: torch.Generator) -> float:
        """The divergence before the step."""
        theta = self.gates.theta
        self.optimiser.zero_grad()
        divergence = self.gates.divergence(batch, masks, generator)
        (divergence + self.price * theta.sigmoid().sum()).backward()
        torch.nn.utils.clip_grad_norm_([theta], 5.0)
        self.optimiser.step()
        return float(divergence.detach())


def is_undecided(theta: Float[Tensor, " gates"]) -> bool:
    return bool((theta.detach().abs() < 1).any())


class Stages:
    """What the runs of all stages share."""

    def __init__(self, search: Search, settings: UgsSettings) -> None:
        self.search, self.settings = search, settings
        size = settings.inputs
        drawn = [search.draw(f"gates {i}", size, batch_size=size) for i in range(settings.batches)]
        self.batches = [batch for oracle in drawn for batch in oracle.batches]
        self.unigram_loss = search.loss_of_nothing
        whole = search.components.whole()
        self.bigram = whole.cut(whole.kept - {Edge(TOKEN, OUT), Edge(POSITION, OUT)}, search.means)

    def train(self, gates: Gates[object], coefficient: float, patience: int) -> bool:
        """Whether it came to something better than a model that knows nothing of its input."""
        training = Training(gates, coefficient * self.unigram_loss)
        # One generator a run: what a run draws does not depend on those before it, which need not be run again.
        generator = torch.Generator(torch.get_default_device()).manual_seed(
            1_000_003 * self.search.seed + self.search.steps
        )
        decided = above = 0
        total = 0.0
        for step in range(1, self.settings.steps + 1):
            index = int(torch.randint(len(self.batches), (), generator=generator))
            total += training.step(self.batches[index], self.settings.masks, generator)
            decided = 0 if is_undecided(gates.theta) else decided + 1
            if decided >= patience:
                break
            if step % _CHECK_EVERY == 0:
                above = above + 1 if total > _CHECK_EVERY * self.unigram_loss else 0
                total = 0.0
                if above == _CHECKS:
                    return False
        return True

    # ------------------------------------------------------------------------------------- runs

    def explore(self, stage: Stage[Result]) -> list[Run[Result]]:
        """Runs at coefficients that spread agreement over the span."""
        done: list[Run[Result]] = []
        coefficient: float | None = stage.first
        while coefficient is not None and len(done) < stage.runs:
            attempt = partial(self._attempt, stage, coefficient)
            name = f"{stage.name} at {coefficient:.3g}"
            result = stage.result(self.search.once(name, attempt, State(self.search.nothing)))
            if result is None:
                done.append(Run(coefficient))
            else:
                done.append(Run(coefficient, stage.match(result), stage.size(result), result))
            tried = [(run.match, run.coefficient) for run in done]
            coefficient = next_coefficient(tried, stage.span, self.settings.intervals)
        return done

    def _attempt(self, stage: Stage[Result], coefficient: float, given_up: State) -> State:
        gates = stage.gates()
        if not self.train(gates, coefficient, stage.patience):
            return given_up
        result = gates.pruned()
        stage.accepted(result, stage.match(result))
        return stage.stored(result)

    def edges(self) -> list[Run[Graph]]:
        """Stage 1."""
        search, settings = self.search, self.settings
        return self.explore(
            Stage(
                name="gates on edges",
                gates=lambda: EdgeGates(search.components, search.probe),
                match=self.match,
                size=lambda graph: len(graph.kept),
                accepted=search.accept_graph,
                stored=State,
                result=lambda state: state.graph if state.graph.kept else None,
                patience=settings.patience[0],
                runs=settings.runs[0],
                first=settings.coefficient,
                span=(self.match(self.bigram), 1.0),
            )
        )

    def match(self, graph: Graph) -> float:
        return self.search.check.match(lambda batch: self.search.components.logits(graph, batch)).value

    def lines(
        self, name: str, stage: int, parents: Sequence[Run[Program]], gates_of: Callable[[Program], list[Gate]]
    ) -> list[Run[Program]]:
        """Stages 2 and 3: runs that continue others, and those others where there is nothing to prune."""
        search, settings = self.search, self.settings
        found: list[Run[Program]] = []
        for parent in parents:
            program = parent.result
            if program is None or not (gates := gates_of(program)):
                found.append(parent)
                continue
            found += self.explore(
                Stage(
                    name=name,
                    gates=lambda program=program, gates=gates: ProgramGates(program, gates, search.probe),
                    match=lambda program: search.check.match(answering(program)).value,
                    size=lambda program: simplify(program).lines,
                    accepted=search.accept_program,
                    stored=lambda program: State(search.nothing, program),
                    result=lambda state: state.program,
                    patience=settings.patience[stage],
                    runs=max(1, settings.runs[stage] // len(parents)),
                    first=parent.coefficient,
                    span=(max(0.0, parent.match - _NEAR), parent.match),
                )
            )
        return found


def next_coefficient(
    tried: Sequence[tuple[float, float]], span: tuple[float, float], intervals: int = 10
) -> float | None:
    """For pairs of agreement and coefficient, the one to try next; None where nothing is left to try.

    It aims at the highest interval of agreement that holds no run: between those on both sides, or a factor beyond.
    """
    low, high = span
    if high - low < 1e-9:
        return None
    places = [math.floor(intervals * (match - low) / (high - low)) for match, _ in tried]
    placed = [(min(place, intervals - 1), *pair) for place, pair in zip(places, tried, strict=True)]
    for i in reversed(range(intervals)):
        if any(place == i for place, *_ in placed):
            continue
        above = [(match, -coefficient) for place, match, coefficient in placed if place > i]
        below = [(match, -coefficient) for place, match, coefficient in placed if place < i]
        if above and below:
            new = math.sqrt(min(above)[1] * max(below)[1])
        elif above:
            new = max(-c for _, c in above) * _FACTOR
        else:
            new = min(-c for _, c in below) / _FACTOR
        known = any(abs(math.log(new / coefficient)) < 0.01 for _, coefficient in tried)
        if _SMALLEST <= new <= _LARGEST and not known:
            return new
    return None


def representative(runs: Sequence[Run[Result]], count: int) -> list[Run[Result]]:
    """Of the runs that no other beats in both size and agreement, some that are spread evenly."""
    best: list[Run[Result]] = []
    for run in sorted((run for run in runs if run.result is not None), key=lambda run: (run.size, -run.match)):
        if not best or run.match > best[-1].match:
            best.append(run)
    if len(best) <= count:
        return best
    # The truest is always among them.
    return [best[-1 - round(i * (len(best) - 1) / max(1, count - 1))] for i in range(count)]


def prune_by_gates(search: Search, settings: UgsSettings) -> Graph:
    """Leaves programs with the search, and returns the truest graph of stage 1."""
    stages = Stages(search, settings)

    def without_layers(_: State) -> State:
        search.accept_graph(stages.bigram, stages.match(stages.bigram))
        return State(stages.bigram)

    search.once("without any layer's edges", without_layers, State(search.nothing))
    runs = stages.edges()
    truest = max(runs, key=lambda run: run.match)
    if truest.result is None or truest.match < _ENOUGH:
        return truest.result or stages.bigram
    parents: list[Run[Program]] = []
    for run in representative(runs, settings.continued):
        if run.result is not None and (short := search.write(run.result)) is not None:
            program = without_unused(search.written(run.result))
            parents.append(Run(run.coefficient, run.match, short.lines, program))
    paths = stages.lines("gates on paths", 1, parents, path_gates)
    stages.lines("gates on products", 2, representative(paths, settings.continued), product_gates)
    return truest.result
