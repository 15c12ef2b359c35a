"""All measures of a program against its model, in one call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch

from drasp.causal.attention import attention
from drasp.causal.complement import complement
from drasp.causal.edited import edited
from drasp.causal.evidence import Evidence, LineEvidence, causal_reasons, completeness_reasons, of_lines
from drasp.causal.interchange import Reference, interchanges
from drasp.causal.means import with_means
from drasp.causal.measures import NOT_APPLICABLE, Cases, Clear, Measure, differing, worst
from drasp.causal.mechanism import Mechanism
from drasp.causal.origins import origin_of
from drasp.causal.parts import part_effects
from drasp.causal.splice import splice
from drasp.causal.trials import SOURCES, Amount, Outcome, Trials, at_once, wanted
from drasp.forward import Forward
from drasp.language import Interpreter, Program
from drasp.language.syntax import ONE, ElementWise, Network, Select
from drasp.sequences import Run, Sequences
from drasp.settings import EVIDENCE
from drasp.tasks import EditKind, Inputs, Task
from drasp.transformer import Transformer

Key = TypeVar("Key", bound=str)
Asked: TypeAlias = tuple[Reference, Sequence[str]]
_TOKENS = 16_384  # in a batch on which only answers are compared


@dataclass(frozen=True)
class EvidenceEffort:
    """How many inputs agreement is measured on, and how many pairs the rest: `more` where `pairs` show too little.

    `in_model` is whether lines are taken from sources in the whole model: only that tells what is complete.
    """

    inputs: int
    pairs: Amount
    more: Amount
    in_model: bool = True


FULL = EvidenceEffort(EVIDENCE.inputs, Amount(*EVIDENCE.pairs), Amount(*EVIDENCE.more_pairs))
QUICK_LOOK = EvidenceEffort(EVIDENCE.quick_inputs, Amount(*EVIDENCE.quick_pairs), Amount(0, 0), in_model=False)


@dataclass(frozen=True, eq=False)
class Examination:
    """Inputs and pairs of a model and its task, drawn once, on which any number of programs are measured.

    `more` pairs are looked at where `trials` show too little.
    """

    trials: Trials
    more: Trials
    inputs: Inputs
    in_model: bool

    @classmethod
    def draw(
        cls,
        transformer: Transformer,
        task: Task,
        effort: EvidenceEffort = FULL,
        seed: int = 0,
        clear: Clear | None = None,
    ) -> "Examination":
        trials, more = (
            Trials.draw(transformer, task, amount, np.random.default_rng([seed, *stream.encode()]), clear)
            for stream, amount in (("evidence", effort.pairs), ("more evidence", effort.more))
        )
        inputs = task.measured(effort.inputs, np.random.default_rng([seed, *b"agreement"]))
        return cls(trials, more, inputs, effort.in_model)

    def evidence(self, program: Program, cut_down: Program | None = None) -> Evidence:
        """The evidence for a program: agreement, edited inputs, attention, interchange, splice and complement.

        `cut_down` is the program of the model cut down to what `program` keeps of it, with its own tensors; without,
        nothing is said of what lines were before they were named or approximated.
        """
        trials, more = self.trials, self.more
        mechanism = Mechanism.of(program)
        mechanism.check(trials.transformer.anatomy)
        if cut_down is not None and cut_down.digest == program.digest:
            cut_down = program  # all that is asked of both is found out once
        agreement = _agreement(trials, self.inputs, program, cut_down)
        by_edit = _joined_outcomes(edited(program, trials), edited(program, more))
        edits = {kind: _measure_of_edit(trials, kind, found) for kind, found in by_edit.items()}
        worst_edit = worst(edits)
        if worst_edit.status == "untested":
            # Where none of them changes answers often enough, all of them together may.
            worst_edit = Outcome.joined(list(by_edit.values())).cases.measure(trials.task.bins)
        failing = Outcome.joined(list(by_edit.values())).case if worst_edit.failed else None
        whole = Evidence(
            model_cut_down=agreement.get("model_cut_down", agreement["program"]),
            program=agreement["program"],
            mean_ablated=agreement.get("mean_ablated"),
            edited=worst_edit,
            attention=NOT_APPLICABLE,
            interchange=NOT_APPLICABLE,
            splice=NOT_APPLICABLE,
            complement=NOT_APPLICABLE,
            edits={**edits},
            has_cut_down=cut_down is not None,
            without_sites=mechanism.without_sites,
            edited_case=failing,
        )
        if mechanism.without_sites:
            return replace(whole, reasons=tuple(causal_reasons(whole)))
        lines = _lines(program, trials, more, cut_down, self.in_model)
        rest = _with_more(trials, complement(program, trials), lambda: complement(program, more))
        whole = replace(
            whole,
            attention=of_lines(lines, "attention_cut_down"),
            interchange=of_lines(lines, "interchange"),
            splice=of_lines(lines, "splice"),
            complement=_measure(trials, rest),
            complement_case=rest.case,
            lines=lines,
        )
        return _judged(whole, program, self.in_model)


def evaluate(
    program: Program,
    transformer: Transformer,
    task: Task,
    cut_down: Program | None = None,
    effort: EvidenceEffort = FULL,
    seed: int = 0,
    clear: Clear | None = None,
) -> Evidence:
    """The evidence for one program of a model, on inputs drawn for it."""
    return Examination.draw(transformer, task, effort, seed, clear).evidence(program, cut_down)


def _judged(evidence: Evidence, program: Program, in_model: bool) -> Evidence:
    """The evidence with its verdict; without a grade where nobody looked into the model."""
    reasons = [*causal_reasons(evidence), *_unfounded(program)]
    if reasons or not in_model:
        return replace(evidence, causal=not reasons, reasons=tuple(reasons))
    left_out = [*completeness_reasons(evidence), *_opaque(program)]
    return replace(evidence, causal=True, grade="sufficient" if left_out else "complete", reasons=tuple(left_out))


def _unfounded(program: Program) -> list[str]:
    return [
        f"{line} says that it hears {' and '.join(map(str, senders))}, and reads nothing of it"
        for line, senders in Mechanism.of(program).unfounded.items()
    ]


def _opaque(program: Program) -> list[str]:
    return [
        f"{s.name} is an MLP of {len(read)} variables without a name"
        for s in program.statements
        if isinstance(s, ElementWise)
        and isinstance(s.function, Network)
        and len(read := [v for v in s.inputs if v != ONE]) > EVIDENCE.most_variables
    ]


def _measure_of_edit(trials: Trials, kind: EditKind, found: Outcome) -> Measure:
    """The measure of an edit: not applicable where no input can be changed so, idle where that changes no answer."""
    there = any(bool((pairs.kinds == SOURCES.index(kind)).any()) for pairs in trials.batches)
    return found.cases.measure(trials.task.bins, possible=there)


def _measure(trials: Trials, found: Outcome) -> Measure:
    return found.cases.measure(trials.task.bins, trials.possible)


def _joined_outcomes(*runs: dict[Key, Outcome]) -> dict[Key, Outcome]:
    return {key: Outcome.joined([run[key] for run in runs if key in run]) for key in runs[0]}


@torch.no_grad()
def _agreement(trials: Trials, inputs: Inputs, program: Program, cut_down: Program | None) -> dict[str, Measure]:
    """The agreement with M on the task's own inputs: of P, of M|G, and of M with what P leaves out mean-ablated."""
    transformer, task = trials.transformer, trials.task
    answering: dict[str, Callable[[Sequences], Run[Any]]] = {"program": Interpreter.of(program).run}
    # Where nothing was replaced, M|G is P, and run once.
    if cut_down is not None and cut_down is not program:
        answering["model_cut_down"] = Interpreter.of(cut_down).run
    if not Mechanism.of(program).without_sites:
        answering["mean_ablated"] = Forward(transformer, with_means(program, trials))
    same = {name: torch.zeros(len(inputs)) for name in answering}
    for rows, batch in inputs.batches(at_once(_TOKENS, transformer)):
        where, valid = wanted(batch)
        sequences = Sequences(batch.ids, batch.positions, where)
        model = Forward(transformer)(sequences).logits
        for name, answer in answering.items():
            differs = differing(model, answer(sequences).logits, task.output) & valid
            same[name][rows] = (~differs.any(1)).float()
    found = {
        name: Cases(each, torch.zeros_like(each), inputs.lengths).measure(task.bins) for name, each in same.items()
    }
    if inputs.every:
        found = {name: _of_all(measure) for name, measure in found.items()}
    return {"model_cut_down": found["program"], **found}


def _of_all(measure: Measure) -> Measure:
    """Agreement on all inputs that there are: it is known, however few they are, and has no interval."""
    passes = measure.value is not None and measure.value >= EVIDENCE.passing
    return replace(measure, interval=None, status="passed" if passes else "failed")


def _lines(
    program: Program, trials: Trials, more: Trials, cut_down: Program | None, in_model: bool
) -> tuple[LineEvidence, ...]:
    mechanism = Mechanism.of(program)
    origins = {line: origin_of(program, line, cut_down) for line in mechanism.lines}
    replaced = [line for line, origin in origins.items() if origin != "own"]
    asked: dict[str, Asked] = {"in model": (trials.transformer, mechanism.lines if in_model else [])}
    if cut_down is not None:
        asked["cut down"] = (cut_down, replaced)
    found_in = _interchanges(program, trials, more, asked)
    looks = attention(program, trials)
    spliced, parts = (splice(program, trials), part_effects(program, trials)) if in_model else ({}, {})
    looks_by = _looks_by(program, looks)
    looks_cut_down = looks
    if cut_down is not None:
        theirs = looks if cut_down is program else attention(cut_down, trials)
        looks_cut_down = _looks_cut_down(mechanism, Mechanism.of(cut_down), theirs)
    found: list[LineEvidence] = []
    for line, origin in origins.items():
        model, other = found_in["in model"].get(line), found_in.get("cut down", {}).get(line)
        measures = {
            "interchange": None if model is None else _measure(trials, model),
            "interchange_cut_down": None if other is None else _measure(trials, other),
        }
        failing = next(
            (
                o.case
                for o, m in ((other, measures["interchange_cut_down"]), (model, measures["interchange"]))
                if o is not None and m is not None and m.failed
            ),
            None,
        )
        found.append(
            LineEvidence(
                line,
                mechanism.stands_for(line),
                origin,
                looks_cut_down.get(line),
                looks_by.get(line),
                splice=spliced.get(line),
                case=failing,
                part=parts.get(line),
                kind=mechanism.statements[line].kind,
                **measures,
            )
        )
    return tuple(found)


def _interchanges(
    program: Program, trials: Trials, more: Trials, asked: Mapping[str, Asked]
) -> dict[str, dict[str, Outcome]]:
    """The outcomes of interchange, with more pairs for lines of which the first say too little."""
    first = interchanges(program, trials, asked)
    open_ones = {
        key: (reference, [line for line in lines if _is_open(_measure(trials, first[key][line]))])
        for key, (reference, lines) in asked.items()
    }
    second = interchanges(program, more, open_ones)
    return {
        key: first[key] | _joined_outcomes({line: first[key][line] for line in lines}, second[key])
        for key, (_, lines) in open_ones.items()
    }


def _with_more(trials: Trials, first: Outcome, again: Callable[[], Outcome]) -> Outcome:
    """The outcome, with more pairs where the first say too little."""
    return Outcome.joined([first, again()]) if _is_open(_measure(trials, first)) else first


def _is_open(found: Measure) -> bool:
    """Whether more cases could change what a measure says: some are there, but few; or the value passes and its
    interval does not. What no source has changed so far stays idle.
    """
    few = 0 < found.n < EVIDENCE.fewest_cases
    return few or (found.failed and found.value is not None and found.value >= EVIDENCE.passing)


def _looks_by(program: Program, looks: Mapping[str, Measure]) -> dict[str, Measure]:
    """The attention of aggregates, and for each select the worst of those that use it."""
    users = {s.name: [r.name for r in program.readers(s.name)] for s in program.statements if isinstance(s, Select)}
    found = {select: {name: looks[name] for name in names if name in looks} for select, names in users.items()}
    return {**looks, **{select: worst(measures) for select, measures in found.items() if measures}}


def _looks_cut_down(mechanism: Mechanism, other: Mechanism, looks: Mapping[str, Measure]) -> dict[str, Measure]:
    """The attention of M|G for each aggregate of P: the worst of its aggregates that stand for the same heads."""
    found: dict[str, Measure] = {}
    for line in mechanism.lines:
        heads = {c for c in mechanism.components(line) if c.kind == "head"}
        same = {name: m for name, m in looks.items() if heads & set(other.components(name))}
        if same and mechanism.statements[line].kind == "aggregate":
            found[line] = worst(same)
    return found
