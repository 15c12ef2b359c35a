"""The paper's pruning as a whole: its stages, each with runs at many prices of an open gate.

Stage 1 prunes components, with linear norms, stage 2 paths, with MLPs split or, where that agrees too seldom, whole,
and stage 3 products of queries and keys. Stage 0 is stage 1 with the model's own norms; nothing goes on from it. Each
run minimises divergence from the model plus λ times the number of open gates. λ is searched so that runs spread over
the range of agreement; the best runs of a stage are continued in the next.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from drasp.decompiler.checkpoint import State
from drasp.decompiler.components import Graph
from drasp.decompiler.search import Search
from drasp.decompiler.ugs.circuit import Circuit, as_paths, as_products, whole
from drasp.decompiler.ugs.coefficients import GateRun, next_coefficient, representative
from drasp.decompiler.ugs.gates import Effort, Gates, Training, unigram_loss
from drasp.decompiler.ugs.running import answers_of, mean_log_variances, means_of
from drasp.decompiler.ugs.storing import kept_of, run_of
from drasp.decompiler.ugs.writing import count_lines, finest, program_of
from drasp.language.syntax import Program
from drasp.rewriting.simplify import simplify
from drasp.settings import UgsSettings
from drasp.sites import OUT, POSITION, TOKEN, Edge
from drasp.vocabulary import Output


@dataclass(frozen=True)
class Stage:
    """Runs that begin with one circuit. `own` is the program of the model cut down, where MLPs are split."""

    number: int
    name: str
    circuit: Circuit
    runs: int
    first: float  # coefficient
    span: tuple[float, float]  # of agreement
    own: Program | None = None


@dataclass(frozen=True)
class Continued:
    """A run that later stages go on from, and the run of the first stage that it goes back to."""

    run: GateRun
    origin: GateRun


class Method:
    """What the runs of all stages share."""

    def __init__(self, search: Search, settings: UgsSettings) -> None:
        self.search, self.settings, self.model = search, settings, search.transformer
        self.output: Output = search.task.output
        size = settings.inputs
        drawn = [search.draw(f"gates {i}", size, batch_size=size) for i in range(settings.batches)]
        self.batches = [batch for oracle in drawn for batch in oracle.batches]
        self.unigram = unigram_loss(self.batches, self.output)
        self.real = whole(self.model, None)
        norms = mean_log_variances(self.real, search.probe)
        if not self.model.anatomy.has_norms:
            norms = torch.zeros_like(norms)
        self.linear = replace(self.real, log_variances=norms)

    @property
    def in_paper(self) -> float:
        """What a coefficient is multiplied by to be the paper's λ: its loss is over the size of the vocabulary."""
        return self.unigram / self.model.n_vocab

    @torch.no_grad()
    def match(self, circuit: Circuit) -> float:
        return self.search.check.match(answers_of(circuit)).value

    # ------------------------------------------------------------------------------------- runs

    def explore(self, stage: Stage) -> list[GateRun]:
        """Runs at coefficients that spread agreement over the span."""
        done: list[GateRun] = []
        coefficient: float | None = stage.first
        while coefficient is not None and len(done) < stage.runs:
            done.append(self.run(stage, coefficient, done))
            tried = [(run.match, run.coefficient) for run in done]
            coefficient = next_coefficient(tried, stage.span, self.settings)
        return done

    def run(self, stage: Stage, coefficient: float, done: Sequence[GateRun]) -> GateRun:
        """A run, or what is known of it from an interrupted search."""
        price = coefficient * self.in_paper
        name = f"{stage.name}: λ {coefficient:.3g}, the paper's {price:.3g}"

        def trained(_: State) -> State:
            run = self.trained(stage, coefficient, done)
            self.search.note(f"{name}; {run.ending} after {run.steps} steps", run.size, "edges", run.match)
            if run.circuit is not None and run.circuit.log_variances is not None:
                self.accept(run, stage.own)
            return State(self.search.nothing, kept=kept_of(run))

        kept = self.search.once(name, trained, State(self.search.nothing)).kept
        assert kept is not None
        return run_of(kept, self.model)

    def trained(self, stage: Stage, coefficient: float, done: Sequence[GateRun]) -> GateRun:
        # One generator a run: what a run draws does not depend on those before it, which need not be run again.
        seed = 1_000_003 * self.search.seed + self.search.steps
        generator = torch.Generator(torch.get_default_device()).manual_seed(seed)
        settings, number = self.settings, stage.number
        gates = Gates(stage.circuit, self.search.probe, self.settings)
        training = Training(gates, coefficient * self.in_paper, self.output)
        effort = Effort(settings.patience[number], settings.steps, settings.masks)
        # Where the output hears nothing only its bias can differ, and that has one best value: one such run is enough.
        alone = next((run for run in done if run.circuit is not None and not run.circuit.edges), None)
        ending, steps = training.run(self.batches, effort, self.unigram, alone is not None, generator)
        if ending == "given up":
            return GateRun(coefficient, steps=steps)
        if ending == "cut off" and alone is not None:
            return replace(alone, coefficient=coefficient, ending=ending, steps=steps)
        circuit = gates.pruned()
        return GateRun(coefficient, self.match(circuit), circuit.size, circuit, ending, steps)

    def accept(self, run: GateRun, own: Program | None) -> None:
        """Keeps the program of a run, unless it is far too long."""
        assert run.circuit is not None
        circuit = finest(run.circuit)
        if count_lines(circuit) <= self.search.settings.most_written:
            self.search.accept_program(self.written(circuit), run.match, own)

    def written(self, circuit: Circuit) -> Program:
        return simplify(program_of(circuit, self.search.task.vocabulary, self.output))

    # ----------------------------------------------------------------------------------- stages

    def components(self, number: int, circuit: Circuit, lowest: float) -> list[GateRun]:
        """Stages 0 and 1; where nothing agrees well, also one run that is paid for its gates."""
        settings = self.settings
        name = ("stage 0, components with their own norms", "stage 1, components")[number]
        stage = Stage(number, name, circuit, settings.runs[number], settings.coefficient, (lowest, 1.0))
        runs = self.explore(stage) if stage.runs else []
        if number == 1 and max((run.match for run in runs), default=0.0) < settings.enough:
            runs.append(self.run(stage, -settings.coefficient, runs))
        return runs

    def finer(
        self, number: int, name: str, parents: Sequence[Continued], begin: Callable[[Circuit], Circuit], split: bool
    ) -> list[Continued]:
        """Stages 2 and 3: runs that continue others, and those others where there is nothing to prune."""
        found: list[Continued] = []
        for i, parent in enumerate(parents, 1):
            assert parent.run.circuit is not None
            circuit = begin(parent.run.circuit)
            if not circuit.gates:
                found.append(Continued(replace(parent.run, circuit=circuit, size=circuit.size), parent.origin))
                continue
            own = self.written(finest(_circuit(parent.origin))) if split and circuit.mlps else None
            runs = max(1, self.settings.runs[number] // len(parents))
            span = (max(0.0, parent.run.match - self.settings.given_away), parent.run.match)
            first = abs(parent.run.coefficient)  # below 0 it is one that was tried at last
            stage = Stage(number, f"{name}, from {i}", circuit, runs, first, span, own)
            found += [Continued(run, parent.origin) for run in self.explore(stage)]
        return found

    def best(self, runs: Sequence[Continued]) -> list[Continued]:
        """The runs to go on with."""
        chosen = representative([each.run for each in runs], self.settings.continued)
        return [next(each for each in runs if each.run is run) for run in chosen]


def _circuit(run: GateRun) -> Circuit:
    assert run.circuit is not None
    return run.circuit


def prune_by_gates(search: Search, settings: UgsSettings) -> Graph:
    """Leaves programs with the search, and returns the truest graph of stage 1."""
    method = Method(search, settings)
    bigram = replace(method.linear, edges=tuple(e for e in method.linear.edges if _is_bigram(e)))
    lowest = method.match(bigram)

    def without_layers(_: State) -> State:
        method.accept(GateRun(math.inf, lowest, bigram.size, bigram, "settled"), None)
        return State(search.nothing)

    search.once("without any layer", without_layers, State(search.nothing))
    first = method.components(1, method.linear, lowest)
    truest = max(first, key=lambda run: run.match)
    if truest.circuit is not None and truest.match >= settings.enough:
        finer_stages(search, method, first)
    # Nothing goes on from stage 0, so it comes last.
    method.components(0, method.real, lowest)
    return graph_of(truest.circuit or bigram)


def finer_stages(search: Search, method: Method, first: Sequence[GateRun]) -> None:
    """Stages 2 and 3, from the best runs of stage 1; with whole MLPs where split ones agree too seldom."""
    parents = method.best([Continued(run, run) for run in first])

    def stages(split: bool) -> list[Continued]:
        paths = "stage 2, paths, MLPs split" if split else "stage 2, paths"

        def begin(circuit: Circuit) -> Circuit:
            return as_paths(circuit, split, lambda c, ways: means_of(c, ways, search.probe))

        return method.finer(2, paths, parents, begin, split)

    can_split = any(e.receiver.kind == "mlp" for run in parents for e in _circuit(run.run).edges)
    runs, split = stages(split=can_split), can_split
    if can_split and max(each.run.match for each in runs) < method.settings.splits:
        runs, split = stages(split=False), False
    method.finer(3, "stage 3, products", method.best(runs), as_products, split)


def _is_bigram(edge: Edge) -> bool:
    return edge.receiver == OUT and edge.sender in (TOKEN, POSITION)


def graph_of(circuit: Circuit) -> Graph:
    """A circuit of components as the graph that other methods find."""
    anatomy, start = circuit.model.anatomy, whole(circuit.model, None)
    constants = {r: circuit.bias(r) - start.bias(r) for r in anatomy.receivers}
    norms = {r: float(circuit.root(r)) for r in anatomy.receivers} if anatomy.has_norms else {}
    return Graph(anatomy, frozenset(circuit.edges), constants, norms)
