"""What the passes share: pools of inputs with the model's answers, and how graphs and programs are judged on them."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drasp.decompiler.checkpoint import Found, Progress, State, load, store
from drasp.decompiler.components import Components, Graph
from drasp.decompiler.elimination import Judge
from drasp.decompiler.harm import harm_by_edge
from drasp.decompiler.lines import constants_of
from drasp.errors import DraspError
from drasp.fitting.descent import fit_tensors, minimise
from drasp.fitting.head import refitted
from drasp.fitting.oracle import Oracle, answering
from drasp.language.syntax import Program
from drasp.model_files import digest
from drasp.records import Identity, PassRecord, Unit, drasp_version
from drasp.rewriting.parts import stored_selects
from drasp.rewriting.simplify import simplify
from drasp.tasks import Task
from drasp.transformer import Transformer
from drasp.wiring import write_program

# The agreement that the search keeps to. In the last round a line may go for a hundredth of the inputs, down to the
# lowest.
TARGET = 0.95
LOWEST = 0.92
_MASTERED = 0.9  # accuracy of a model that has learnt its task
_BRIEF_STEPS = 5
_LONGER_STEPS = 12
_POLISHING_STEPS = 30
_UNSEEN_INPUTS = 1000
_FEW_ANSWERS_INPUTS, _MANY_ANSWERS_INPUTS = 4000, 1200
_WITHIN_REACH = 0.4
_TRUE_ENOUGH = 0.995  # agreement that is not worth raising
_MOST_LINES = 60  # a program that is longer is squeezed, not shortened with care
_MOST_EDGES = 40
_SLOPES_INPUTS = 96
_MOST_WRITTEN = 300  # lines of a program that is only squeezed
_SHORT = 20  # lines


@dataclass(frozen=True)
class Effort:
    """How much is spent on the search."""

    inputs: int = 480  # on which constants are settled, and as many on which agreement decides
    graph_patience: int = 2  # failures in a row that end a pass on the graph; settling them is dear
    patience: int = 5  # and one on the program
    thorough: bool = True  # a last round of passes that gives up agreement for lines


THOROUGH = Effort()
QUICK = Effort(inputs=240, graph_patience=2, patience=2, thorough=False)


def _target(accuracy: float) -> float:
    """What is short does what the model was trained to do: where the model is wrong, it can hardly be followed.

    What a model does that is often wrong has little to do with the task.
    """
    return TARGET if accuracy < _MASTERED else min(TARGET, max(LOWEST, accuracy))


class Search:
    """One decompilation in progress."""

    def __init__(
        self,
        transformer: Transformer,
        task: Task,
        seed: int,
        report: Callable[[PassRecord], None],
        effort: Effort = THOROUGH,
        checkpoint: Path | None = None,
        resume: bool = False,
        settings: Mapping[str, Any] | None = None,
        max_lines: int = 40,
    ) -> None:
        self.transformer, self.task, self.seed, self.report, self.effort = transformer, task, seed, report, effort
        self.start, self.max_lines, self.checkpoint = time.perf_counter(), max_lines, checkpoint
        self.components = Components(transformer)
        self.identity = Identity(
            digest(transformer), task.name, task.digest(), seed, dict(settings or {}), drasp_version()
        )
        self.progress, self.stored = Progress(), Progress()
        if checkpoint is not None and resume:
            self.progress, before = load(checkpoint, self.components.anatomy, self.identity)
            self.stored = self.progress.copy()
            self.start -= before
        self.running, self.steps = "", 0
        self.fit = fit = self.draw("fit", effort.inputs, batch_size=24)
        self.check = self.draw("check", effort.inputs, batch_size=60)
        self.target = _target(self.check.right(lambda batch: batch.logits).value)
        # Ranking moves and settling constants take fewer inputs than deciding whether the result still agrees;
        # fewer still where each input holds many answers.
        many = fit.answers_each > 20
        self.probe, self.tune = (fit.part(20), fit.part(7)) if many else (fit.part(5), fit.part(2))
        self.last_fit = fit.part(2) if many else fit  # for what is fitted to a program that is about to be handed out
        self.means = self.components.means(self.probe)
        # A model that hears nothing of its input, and how far off it is.
        self.nothing = self.components.whole().cut(self.components.anatomy.edges, self.means)
        self.loss_of_nothing = self.probe.mean_loss(lambda batch: self.components.logits(self.nothing, batch))
        self.hopeless = 0.5 * self.loss_of_nothing

    def draw(self, pool: str, count: int, batch_size: int) -> Oracle:
        """Each pool has a generator of its own, so that none depends on what else was drawn."""
        rng = np.random.default_rng([self.seed, *pool.encode()])
        return Oracle.draw(self.transformer, self.task, count, rng, batch_size)

    def once(self, name: str, run: Callable[[State], State], state: State) -> State:
        """A pass; what it gives is stored, and not computed again when an interrupted run is resumed."""
        self.running = name
        self.steps += 1
        if self.steps <= len(self.progress.states):
            stored, state = self.progress.states[self.steps - 1]
            if stored != name:
                raise DraspError(f"{self.checkpoint}: expected pass {name}, found {stored}; remove it to begin again")
            return state
        state = run(state)
        self.progress.states.append((name, state))
        self.stored = self.progress.copy()
        self.store()
        return state

    def store(self) -> None:
        """Keeps what finished passes gave, and the time so far: that of a pass which is interrupted counts as well."""
        if self.checkpoint is not None and self.stored.states:
            store(self.checkpoint, self.stored, self.identity, self.seconds)

    @property
    def seconds(self) -> float:
        """That the run has taken, before and after an interruption."""
        return time.perf_counter() - self.start

    @cached_property
    def regression(self) -> Oracle:
        """A pool with enough answers for fits of many numbers, which find accidents in fewer."""
        count = _FEW_ANSWERS_INPUTS if self.fit.answers_each < 5 else _MANY_ANSWERS_INPUTS
        return self.draw("regression", count, batch_size=60)

    @cached_property
    def slopes(self) -> Oracle:
        """A pool in small batches, whose slopes say how much each line matters."""
        return self.draw("slopes", _SLOPES_INPUTS, batch_size=4)

    def harm_by_edge(self, graph: Graph) -> dict[Hashable, float]:
        return {**harm_by_edge(self.components, graph, self.means, self.slopes)}

    def pool_for(self, program: Program) -> Oracle:
        """For fits: long programs, which are slow and far from their end, do with fewer inputs."""
        return self.regression if program.lines <= _SHORT else self.fit

    def graph_judge(self) -> Judge[Graph]:
        logits = self.components.logits

        def settle(graph: Graph, pool: Oracle, steps: int) -> Graph:
            live = graph.live_receivers()

            def tuned(values: Sequence[Tensor]) -> Graph:
                return replace(graph, constants={**graph.constants, **dict(zip(live, values, strict=True))})

            def loss(values: Sequence[Tensor]) -> Tensor:
                new = tuned(values)
                return torch.cat([pool.loss(b, logits(new, b)) for b in pool.batches]).mean()

            return tuned(minimise(loss, [graph.constants[r] for r in live], steps))

        return Judge(
            loss=lambda graph: self.probe.mean_loss(lambda batch: logits(graph, batch)),
            match=lambda graph, target: self.check.match_if(lambda batch: logits(graph, batch), target),
            settle=lambda graph: settle(graph, self.probe, _BRIEF_STEPS),
            settle_longer=lambda graph: settle(graph, self.tune, _LONGER_STEPS),
            hopeless=self.hopeless,
            near=0.1,
        )

    def program_judge(self) -> Judge[Program]:
        def settle(program: Program, pool: Oracle, steps: int) -> Program:
            return fit_tensors(program, constants_of(program), pool, steps)

        def settle_longer(program: Program) -> Program:
            program = settle(program, self.tune, _LONGER_STEPS)
            pool = self.fit.part(4) if self.fit.answers_each > 20 else self.pool_for(program)
            return refitted(program, pool, rounds=1)

        return Judge(
            loss=lambda program: self.probe.mean_loss(answering(program)),
            match=lambda program, target: self.check.match_if(answering(program), target),
            settle=lambda program: settle(program, self.probe, _BRIEF_STEPS),
            settle_longer=settle_longer,
            hopeless=self.hopeless,
            near=0.05,  # programs have fewer constants, which make up for less
        )

    def fitted_head(self, graph: Graph, target: float) -> Program | None:
        """The graph's program with its projects fitted to the model's answers, if it agrees well enough."""
        # A look at fewer inputs spares the fit where it is out of reach.
        few = self.fit.part(10) if self.fit.answers_each > 20 else self.fit
        rough = refitted(simplify(self.written(graph)), few, rounds=1)
        if self.check.match_if(answering(rough), _WITHIN_REACH) == 0:
            return None
        program = refitted(rough, self.regression)
        match = self.check.match(answering(program)).value
        if match < target:
            return None
        self.accept_program(program, match)
        return program

    def write(self, graph: Graph) -> Program | None:
        """The graph's program, unless it is still too long to be shortened with care."""
        if not self.is_sparse(graph):
            return None
        program = self.written(graph)
        return program if simplify(program).lines <= _MOST_LINES else None

    def is_sparse(self, graph: Graph) -> bool:
        return len(graph.kept) <= _MOST_EDGES

    def edges_too_many(self, graph: Graph) -> int:
        """For a program to be written at all; where it is the paths that are too many, an edge has several."""
        return (graph.lines() - _MOST_WRITTEN) // 3

    def written(self, graph: Graph) -> Program:
        return write_program(self.transformer, graph.edits, self.task.vocabulary, self.task.output)

    def accept_graph(self, graph: Graph, match: float) -> None:
        self.note(self.running, len(graph.kept), "edges", match)
        program = self.write(graph)
        if program is not None:
            self._keep(program, match)

    def accept_program(self, program: Program, match: float) -> None:
        self.note(self.running, program.lines, "lines", match)
        self._keep(program, match)

    def note(self, name: str, left: int, unit: Unit, match: float) -> None:
        record = PassRecord(name, round(self.seconds, 2), left, unit, match)
        self.progress.passes.append(record)
        self.report(record)

    def _keep(self, program: Program, match: float) -> None:
        self.progress.found.append(Found(match, program, simplify(program).lines))

    @cached_property
    def unseen(self) -> Oracle:
        """Inputs that no pass has looked at: what was chosen for its agreement on others has less of it here."""
        return self.draw("unseen", _UNSEEN_INPUTS, batch_size=100)

    def judged(self, program: Program) -> float:
        return self.unseen.match(answering(program)).value

    def polished(self, program: Program) -> tuple[Program, float]:
        """Fitted as a whole to agree more often, where that helps: passes settle constants only, and briefly."""
        match = self.judged(program)
        if match >= _TRUE_ENOUGH:
            return program, match
        names = [*constants_of(program), *stored_selects(program)]
        fitted = fit_tensors(program, names, self.last_fit, _POLISHING_STEPS, Oracle.disagreement)
        fitted = refitted(fitted, self.regression)
        better = self.judged(fitted)
        return (fitted, better) if better > match else (program, match)
