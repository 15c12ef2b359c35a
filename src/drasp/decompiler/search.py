"""What the passes share: pools of inputs with the model's answers, and how graphs and programs are judged on them."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from drasp.causal.evaluate import EvidenceEffort, Examination
from drasp.causal.trials import Amount, Trials, stacked
from drasp.decompiler.checkpoint import Found, Progress, State, load, store
from drasp.decompiler.components import Components, Graph
from drasp.decompiler.elimination import EliminationJudge
from drasp.decompiler.harm import harm_by_edge
from drasp.decompiler.lines import constants_of
from drasp.decompiler.outline import Outlines, Size
from drasp.decompiler.standards import Standards
from drasp.errors import DraspError
from drasp.fitting.descent import fit_tensors, minimise
from drasp.fitting.oracle import Oracle, answering
from drasp.input_files import content_digest
from drasp.language.syntax import ONE, ElementWise, Norm, Program, Select, once
from drasp.model_files import digest
from drasp.passes import Unit
from drasp.program_writer import TooLargeError
from drasp.records import Identity, PassRecord, drasp_version
from drasp.rewriting.simplify import simplify
from drasp.settings import DEFAULT, EVIDENCE, Settings
from drasp.sites import NormSite, sides_of
from drasp.tasks import EDITS, Inputs, Task
from drasp.transformer import Transformer, in_single_precision
from drasp.wiring import write_program


def agreement_on_all(accuracy: float, settings: Settings) -> float:
    """Asked for with a model that is right on so many inputs: of one that has learnt its task, no more than that.

    What is short does what the model was trained to do: its mistakes, near-ties as a rule, can hardly be followed.
    What a model does that is often wrong has little to do with the task.
    """
    if accuracy < settings.mastered:
        return settings.of_all
    return min(settings.of_all, max(settings.least_of_all, accuracy - settings.fewer))


def what_is_cut(graph: Graph) -> Hashable:
    """All that tells a graph from another but its constants."""
    return graph.kept, graph.closed, frozenset(graph.norms), frozenset(graph.bare)


class Search:
    """One decompilation in progress."""

    def __init__(
        self,
        transformer: Transformer,
        task: Task,
        seed: int,
        report: Callable[[PassRecord], None],
        settings: Settings = DEFAULT,
        checkpoint: Path | None = None,
        resume: bool = False,
        asked: Mapping[str, Any] | None = None,
        max_lines: int = 40,
    ) -> None:
        model_digest = digest(transformer)
        transformer = in_single_precision(transformer)
        self.transformer, self.task, self.seed, self.report, self.settings = transformer, task, seed, report, settings
        self.start, self.max_lines, self.checkpoint = time.perf_counter(), max_lines, checkpoint
        self.components = Components(transformer)
        self.anatomy, self.outlines = transformer.anatomy, Outlines.of(transformer, task.vocabulary)
        self.identity = Identity(model_digest, task.name, task.digest(), seed, dict(asked or {}), drasp_version())
        self.progress, self.stored = Progress(), Progress()
        if checkpoint is not None and resume:
            self.progress, before = load(checkpoint, self.components.anatomy, self.identity)
            self.stored = self.progress.copy()
            self.start -= before
        self.running, self.steps = "", 0
        self.spent: defaultdict[str, float] = defaultdict(float)  # seconds, on what is asked about
        inputs = self._draw_with_edits("fit", settings.inputs)
        self.fit = Oracle.of(transformer, task, inputs, batch_size=24)
        self.mean_size = float(inputs.sizes.float().mean())
        self.at_once = self._at_once()
        self.check = self.draw("check", settings.inputs, batch_size=30 * self.at_once)
        accuracy = self.check.right(lambda batch: batch.logits).value
        # Answers that are almost another one are decided by what may go; so are mistakes of a model that makes few.
        self.decisive = self.check.clear(EVIDENCE.clear)
        if accuracy >= settings.mastered:
            self.decisive = self.decisive.where_right()
        self.least_of_all = agreement_on_all(accuracy, settings)
        # Ranking moves takes fewer inputs than settling constants, which must not suit those inputs alone; fewer still
        # where each input holds many answers.
        long = self.fit.answers_each > settings.long_answers
        self.probe, self.tune = (self._some_of(inputs, step[long]) for step in (settings.probed, settings.tuned))
        self.means = self.components.means(self.probe)
        whole = self.components.whole()
        self.mean_norms = self.components.mean_norms(whole, whole.anatomy.receivers, self.probe)
        # A model that hears nothing of its input, and how far off it is.
        self.nothing = whole.cut(self.components.anatomy.edges, self.means)
        self.loss_of_nothing = self.probe.mean_loss(lambda batch: self.components.logits(self.nothing, batch))
        self.hopeless = settings.hopeless * self.loss_of_nothing
        self.refused: dict[Hashable, float] = {}
        self.counted: dict[Hashable, Size | None] = {}
        self.settled_means: dict[Hashable, Graph] = {}  # constants that settling makes of plain means
        self.norms_that_matter: dict[Hashable, bool] = {}
        self.examined: dict[Hashable, Examination] = {}
        self.tensors: WeakValueDictionary[Hashable, Tensor] = WeakValueDictionary()  # of programs, by their numbers

    def _at_once(self) -> int:
        """How much larger batches are where a pass has less to do: what takes time there is not the arithmetic.

        It has more to do by the tokens, and by the answers, since at each of these a head looks at all tokens.
        """
        shape, usual = self.anatomy, self.settings.middle_length

        def work(size: float, answers: float) -> float:
            looks = size * (shape.n_layers - 1) + answers
            return size * (shape.n_layers * self.transformer.d_model + shape.n_heads * looks)

        return max(1, round(work(usual, usual) / work(self.mean_size, self.fit.answers_each)))

    def _some_of(self, inputs: Inputs, every: int) -> Oracle:
        """Every so-many-th of the inputs, in three batches at least: few of all lengths would be half padding."""
        some = inputs.spread(every)
        size = max(1, min(24, len(some) // 3)) * self.at_once
        return Oracle.of(self.transformer, self.task, some, batch_size=size)

    def draw(self, pool: str, count: int, batch_size: int) -> Oracle:
        """A pool of inputs with the model's answers, drawn by a generator of its own: it depends on no other pool."""
        rng = np.random.default_rng([self.seed, *pool.encode()])
        return Oracle.draw(self.transformer, self.task, count, rng, batch_size)

    def fresh(self, count: int, batch_size: int) -> Oracle:
        """Inputs that no pass has seen, for the figures that are reported; or all, where the task lists them."""
        inputs = self.task.measured(count, np.random.default_rng([self.seed, *b"fresh"]))
        return Oracle.of(self.transformer, self.task, inputs, batch_size)

    def _draw_with_edits(self, pool: str, count: int) -> Inputs:
        """Inputs, some of them edited: constants that suit the task alone may hide what the model does otherwise."""
        rng = np.random.default_rng([self.seed, *pool.encode()])
        each = round(count * self.settings.edited / len(EDITS))
        edited = [self.task.edited(self.task.pool(each, rng), kind, rng) for kind in EDITS]
        inputs = [self.task.pool(count - each * len(EDITS), rng), *edited]
        return stacked(inputs, self.task.vocabulary.padding)

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
        """The time that the run has taken, before and after an interruption."""
        return time.perf_counter() - self.start

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Adds the seconds that its block takes to what was `spent` on that."""
        start = time.perf_counter()
        yield
        self.spent[what] += time.perf_counter() - start

    @cached_property
    def standards(self) -> Standards:
        return Standards(self.trials, self.settings)

    @cached_property
    def trials(self) -> Trials:
        """Inputs with sources, for a look at what cuts and names do to the mechanism."""
        rng = np.random.default_rng([self.seed, *b"trials"])
        chosen = self.settings
        times = min(chosen.most_times, max(chosen.least_times, chosen.middle_length / self.mean_size))
        amount = Amount(round(times * chosen.trials_from_task), round(times * chosen.trials_of_each_edit))
        return Trials.draw(self.transformer, self.task, amount, rng)

    def examination(self, effort: EvidenceEffort) -> Examination:
        """What programs are measured on in the end, drawn once for each effort."""
        return once(self.examined, effort, lambda: Examination.draw(self.transformer, self.task, effort, self.seed))

    @cached_property
    def slopes(self) -> Oracle:
        """A pool in small batches, whose slopes say how much each line matters."""
        return self.draw("slopes", self.settings.slopes_inputs, batch_size=4)

    def harm_by_edge(self, graph: Graph) -> dict[Hashable, float]:
        return {**harm_by_edge(self.components, graph, self.means, self.slopes)}

    def is_slight(self, before: Graph, after: Graph) -> bool:
        """Whether a graph says so nearly the same as another that only what is almost a tie can change."""
        return self.graph_loss(after) - self.graph_loss(before) <= self.settings.slight * self.loss_of_nothing

    def graph_loss(self, graph: Graph) -> float:
        """The mean divergence from the model, on few inputs."""
        logits = self.components.logits
        return once(graph.measured, (self, "loss"), lambda: self.probe.mean_loss(lambda batch: logits(graph, batch)))

    def graph_match(self, graph: Graph) -> float:
        """Agreement on the answers that decide."""
        logits = self.components.logits
        return once(graph.measured, (self, "match"), lambda: self.decisive.match(lambda b: logits(graph, b)).value)

    @torch.no_grad()
    def agreement(self, graph: Graph, target: float) -> float:
        """Agreement on the answers that decide; 0 where that is below the target, or on all answers too low."""
        missed, missed_of_all, total = 0, 0, len(self.check)
        least, least_of_all = target, min(self.least_of_all, target)
        if (self, "match") in graph.measured and (self, "all") in graph.measured:
            match, of_all = graph.measured[self, "match"], graph.measured[self, "all"]
            return match if match >= least - 1e-9 and of_all >= least_of_all - 1e-9 else 0.0
        most, most_of_all = ((1 - each) * total + 1e-9 for each in (least, least_of_all))
        for clear, batch in zip(self.decisive.batches, self.check.batches, strict=True):
            said = self.components.logits(graph, batch)
            missed += int((~self.check.agreeing(clear, said)).sum())
            missed_of_all += int((~self.check.agreeing(batch, said)).sum())
            if missed > most or missed_of_all > most_of_all:
                return 0.0
        graph.measured[self, "all"] = 1 - missed_of_all / total
        return once(graph.measured, (self, "match"), lambda: 1 - missed / total)

    def with_means(self, graph: Graph) -> Graph:
        """The same cuts with constants that nothing was fitted to: means of what was cut, and of norms."""
        cut = [edge for edge in graph.anatomy.edges if edge not in graph.kept]
        plain = self.components.whole().cut([*cut, *graph.closed], self.means)
        return replace(plain, norms={receiver: self.mean_norms[receiver] for receiver in graph.norms}, bare=graph.bare)

    def graph_judge(self, complete: float | None) -> EliminationJudge[Graph]:
        """Answers stay, heads look where they looked, edits tell; and so many answers stay whatever is left out."""
        logits, longer = self.components.logits, (self.tune, self.settings.longer_steps)

        def settle(graph: Graph, pool: Oracle, steps: int) -> Graph:
            """The graph with its constants fitted: one vector a receiver, and one number a norm that is constant."""
            live = graph.live_receivers()
            fixed = [receiver for receiver in live if receiver in graph.norms]

            def tuned(values: Sequence[Tensor]) -> Graph:
                constants = dict(zip(live, values, strict=False))
                norms = {r: log.exp() for r, log in zip(fixed, values[len(live) :], strict=True)}
                return replace(graph, constants={**graph.constants, **constants}, norms={**graph.norms, **norms})

            def loss(values: Sequence[Tensor]) -> Tensor:
                new = tuned(values)
                return torch.cat([pool.loss(b, logits(new, b)) for b in pool.batches]).mean()

            logs = [torch.tensor(graph.norms[r]).log() for r in fixed]
            settled = tuned(minimise(loss, [*(graph.constants[r] for r in live), *logs], steps))
            return replace(settled, norms={receiver: float(norm) for receiver, norm in settled.norms.items()})

        return EliminationJudge(
            stands=lambda graph: complete is None or self.standards.is_complement(graph, complete),
            loss=self.graph_loss,
            match=self.agreement,
            spare=self.standards.spare,
            # Most of what is tried fails, and a few inputs tell.
            settle=lambda graph: settle(graph, self.probe, self.settings.brief_steps),
            # One pass after another may ask this of the graph that it begins with.
            settle_longer=lambda graph: once(graph.measured, (self, "settled"), partial(settle, graph, *longer)),
            hopeless=self.hopeless,
            settings=self.settings,
            key=what_is_cut,
            refused=self.refused,
        )

    def program_judge(self) -> EliminationJudge[Program]:
        """The judge of programs that are squeezed: only their constants are settled."""

        def settle(program: Program, pool: Oracle, steps: int) -> Program:
            return fit_tensors(program, constants_of(program), pool, steps)

        return EliminationJudge(
            stands=lambda _: True,
            loss=lambda program: self.probe.mean_loss(answering(program)),
            match=lambda program, target: self.check.match_if(answering(program), target),
            spare=lambda _: 0.0,
            settle=lambda program: settle(program, self.probe, self.settings.brief_steps),
            settle_longer=lambda program: settle(program, self.tune, self.settings.longer_steps),
            hopeless=self.hopeless,
            settings=self.settings,
        )

    def write(self, graph: Graph) -> Program | None:
        """The graph's program, simplified, unless it is still too long, or large, to be shortened with care.

        Of a model of many tokens it has tables for a few of them: most of what is written is only looked at.
        """

        def written() -> Program | None:
            try:
                program = simplify(self.outlines.write(graph.edits, self.task.output))
            except TooLargeError:
                return None
            return program if program.lines <= self.settings.most_lines else None

        return once(graph.measured, (self, "program"), written) if self.is_sparse(graph) else None

    def program_of(self, found: Found) -> Program:
        """What is handed out of something that was found, with all its tables."""
        return found.left if isinstance(found.left, Program) else self._shared(simplify(self.written(found.left)))

    def _shared(self, program: Program) -> Program:
        """The program with the tensors of others in the place of equal ones: each may take a hundred megabytes.

        Two lines of one program keep a tensor each, which files need.
        """
        often: Counter[str] = Counter()

        def one_of(tensor: Tensor) -> Tensor:
            found = content_digest("", {"": tensor})
            often[found] += 1
            return self.tensors.setdefault((found, often[found]), tensor)

        return replace(program, tensors={name: one_of(tensor) for name, tensor in program.tensors.items()})

    def is_sparse(self, graph: Graph) -> bool:
        return len(graph.kept) <= self.settings.most_edges

    def edges_too_many(self, graph: Graph) -> int:
        """How many edges are too many for a program to be written; if it is paths that are, an edge has several."""
        return (graph.lines() - self.settings.most_written) // 3

    def written(self, graph: Graph) -> Program:
        return write_program(self.transformer, graph.edits, self.task.vocabulary, self.task.output)

    def lines(self, graph: Graph) -> int | None:
        """The number of lines of the graph's program, where it can be written."""
        size = self.size(graph)
        return None if size is None else size.lines

    def size(self, graph: Graph) -> Size | None:
        """The size of the graph's program, where it can be written; constants have no part in that."""

        def count() -> Size | None:
            program = self.write(graph)
            if program is None:
                return None
            functions = sum(len(s.inputs) for s in program.statements if isinstance(s, ElementWise))
            queries = sum(isinstance(s, Select) and s.query != ONE for s in program.statements)
            norms = sum(isinstance(s, Norm) and self.norm_matters(s) for s in program.statements)
            return Size(program.lines, norms, functions + queries)

        return once(self.counted, what_is_cut(graph), count)

    def norm_matters(self, line: Norm) -> bool:
        """Whether one of the model's norms that a line stands for changes answers."""
        sites = (site.receiver for site in line.sites if isinstance(site, NormSite))
        receivers = (side for receiver in sites for side in sides_of(receiver, self.anatomy))
        return any(once(self.norms_that_matter, r, partial(self.standards.norm_matters, r)) for r in receivers)

    def accept_graph(self, graph: Graph, _agreement: float, complete: float | None = None) -> None:
        """Keeps a graph that was found, with its agreement on all answers."""
        logits = self.components.logits
        match = once(graph.measured, (self, "all"), lambda: self.check.match(lambda b: logits(graph, b)).value)
        self.note(self.running, len(graph.kept), "edges", match)
        program = self.write(graph)
        if program is not None:
            # A copy, so that what was measured of the graph goes with it.
            self.progress.found.append(Found(match, replace(graph), program.lines, complete or 0.0))

    def accept_program(self, program: Program, match: float, own: Program | None = None) -> None:
        """Keeps a program that was found; `own` has the model's own tensors, where this one has others."""
        self.note(self.running, program.lines, "lines", match)
        program = self._shared(simplify(program))
        self.progress.found.append(Found(match, program, program.lines, 0.0, own))

    def note(self, name: str, left: int, unit: Unit, match: float) -> None:
        record = PassRecord(name, round(self.seconds, 2), left, unit, match)
        self.progress.passes.append(record)
        self.report(record)

    @cached_property
    def unseen(self) -> Oracle:
        """Inputs that no pass has looked at: what was chosen for its agreement on others has less of it here."""
        return self.draw("unseen", self.settings.unseen_inputs, batch_size=100)

    def judged(self, program: Program) -> float:
        return self.unseen.match(answering(program)).value
