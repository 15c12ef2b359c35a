"""Whether a program is the one that a model was compiled from: by its graph, its heads, its parts, and random strings.

The graph is compared with the truth's. What the parts do is compared with the model itself (or with any program that
has the same sites): where each head looks, and what becomes of the answers when a part's values are those of another
input. Both are asked where it matters: a head where replacing what it says changes logits that count, a part where the
swap changes an answer of one of the two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from drasp.edits import Edit, Replaced
from drasp.language import Interpreter
from drasp.language.interpreter import pattern_of
from drasp.language.syntax import ONE, Aggregate, ElementWise, Operand, Program, Select, Statement
from drasp.measure import Share, predictions
from drasp.rewriting.rewrite import dense_ops
from drasp.rewriting.simplify import simplify
from drasp.running import run
from drasp.sequences import Run, Sequences
from drasp.sites import Pattern
from drasp.tasks import Inputs, Task
from drasp.transformer import Transformer
from drasp.vocabulary import Output, Vocabulary
from truth.graph import Unit, components, graph_of, mentioned, unit_name, units, variables
from truth.heard import without_what_is_only_heard

# A model, or a program whose lines have that model's sites.
Subject: TypeAlias = Transformer | Program

PASSING = 0.9  # of attention, and of answers under interchange
PASSING_STRINGS = 0.95  # of random strings
FEWEST_CASES = 20  # under interchange, for a part to be judged by them
UNCLEAR = 0.02  # of the median margin: answers of the model that are nearer to another one do not count
TIED = 1e-3  # of the program's own median margin: two answers that are nearer than this are both given
CONSTANT = 0.99  # of attention that stays where it is when a query is replaced by its mean
READ = 0.01  # of the largest effect of any position: where it is less, a part is not read
ONE_HOT = 0.99  # of a variable in its largest direction
_PAIRS, _PROBES, _STRINGS = 400, 48, 400  # inputs


@dataclass(frozen=True)
class Score:
    """What of the truth's graph is missing and what is too much; attention and interchange by unit; random strings."""

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    attention: Mapping[str, float]
    interchange: Mapping[str, Share]
    strings: Share

    @property
    def same_graph(self) -> bool:
        return not self.missing and not self.extra

    @property
    def least_attention(self) -> float:
        return min(self.attention.values(), default=1.0)

    @property
    def least_interchange(self) -> float:
        tested = [share.value for share in self.interchange.values() if share.total >= FEWEST_CASES]
        return min(tested, default=1.0)

    @property
    def right(self) -> bool:
        parts = self.least_attention >= PASSING and self.least_interchange >= PASSING
        return self.same_graph and parts and self.strings.value >= PASSING_STRINGS


@torch.no_grad()
def score(truth: Program, found: Program, model: Subject, task: Task, seed: int = 0) -> Score:
    """How far `found` is the program `truth` that `model` was compiled from, on a task's inputs and beyond them."""
    truth, found = simplify(truth), simplify(found)
    known = units(truth)
    rng = np.random.default_rng([seed, 0])
    inputs = task.pool(_PROBES, rng)
    pools = inputs, random_strings(inputs, task.vocabulary, rng)
    weights = {unit: reading_weights(model, unit, inputs) for unit in known}
    folded = tables(truth, weights, pools)
    wanted = graph_of(truth, known, constant_queries(truth, weights, inputs), folded)
    constant, tabled = constant_queries(found, weights, inputs), same_functions(found, truth, folded)
    heard, read = (
        graph_of(program, known, constant, tabled, mentioned(truth))
        for program in (found, without_what_is_only_heard(found, inputs, task.output))
    )
    heads = [unit for unit in known if any(component.kind == "head" for component in unit)]
    parts = [unit for unit in known if not set(variables(truth, unit)) <= folded]
    pairs = InputPairs.draw(task, _PAIRS, seed)
    sides = Sides.of(truth, found, model, pairs.bases, task.output)
    return Score(
        missing=tuple(sorted(wanted - heard)),
        extra=tuple(sorted(read - wanted)),
        attention={unit_name(unit): overlap(model, found, unit, inputs, weights[unit]) for unit in heads},
        interchange={unit_name(unit): interchange(sides, unit, pairs) for unit in parts},
        strings=agreement_on_strings(sides, task, np.random.default_rng([seed, 1])),
    )


# --------------------------------------------------------------------------- what is run, and where


def places(subject: Subject, unit: Unit) -> list[Any]:
    """Where a subject says what a unit says: sites of a model, variables of a program."""
    return list(unit) if isinstance(subject, Transformer) else variables(subject, unit)


def pattern_places(subject: Subject, unit: Unit) -> list[Any]:
    match subject:
        case Transformer():
            return [Pattern(head) for head in unit]
        case Program():
            lines = [line for line in subject.statements if isinstance(line, Aggregate) and components(line) & unit]
            return [pattern_of(line.name) for line in lines]


def ran(
    subject: Subject, inputs: Inputs, edits: Mapping[Any, Edit] | None = None, record: Sequence[Any] = ()
) -> Run[Any]:
    return run(subject, Sequences(inputs.ids, inputs.positions), edits or {}, record)  # pyright: ignore


def real(inputs: Inputs) -> Bool[Tensor, "n width"]:
    """Where there are tokens and not padding."""
    return torch.arange(inputs.ids.shape[1]) < inputs.sizes[:, None]


# --------------------------------------------------------------------------------------- answers


def margins(logits: Float[Tensor, "n width n_vocab"], output: Output) -> Float[Tensor, "n width"]:
    """How far each answer is from being another one."""
    if output == "sigmoid":
        return logits.abs().amin(-1)
    first, second = logits.topk(2, dim=-1).values.unbind(-1)
    return first - second


def median_margin(subject: Subject, inputs: Inputs, output: Output) -> float:
    return float(margins(ran(subject, inputs).logits, output)[inputs.counted].median())


def differing(a: Tensor, b: Tensor, output: Output) -> Bool[Tensor, "n width"]:
    """Where two logits mean another answer."""
    other = predictions(a, output) != predictions(b, output)
    return other.any(-1) if output == "sigmoid" else other


def alike(model: Tensor, found: Tensor, output: Output, tied: float) -> Bool[Tensor, "n width"]:
    """Where a program answers as the model does; of two answers that it gives alike, one has to be the model's."""
    said = predictions(model, output)
    if output == "sigmoid":
        return ((predictions(found, output) == said) | (found.abs() <= tied)).all(-1)
    near = found >= found.amax(-1, keepdim=True) - tied
    return near.gather(-1, said[..., None])[..., 0] & (near.sum(-1) <= 2)


def random_strings(inputs: Inputs, vocabulary: Vocabulary, rng: np.random.Generator) -> Inputs:
    """The inputs with every ordinary token another one at random; lengths, offsets and special tokens stay."""
    ordinary = len(vocabulary) - len(vocabulary.special)
    drawn = torch.as_tensor(rng.integers(0, ordinary, tuple(inputs.ids.shape)))
    return with_ids(inputs, torch.where(inputs.ids < ordinary, drawn, inputs.ids))


def with_ids(inputs: Inputs, ids: Tensor) -> Inputs:
    return Inputs(ids, inputs.sizes, inputs.lengths, inputs.offsets, inputs.counted, inputs.targets)


@dataclass(frozen=True)
class Sides:
    """Who is compared, and how near to another an answer may be: in model and truth to be clear, in `found` a tie."""

    truth: Program
    found: Program
    model: Subject
    output: Output
    clear_in_model: float
    clear_in_truth: float
    tied: float

    @classmethod
    def of(cls, truth: Program, found: Program, model: Subject, inputs: Inputs, output: Output) -> "Sides":
        of_model, of_truth, of_found = (median_margin(subject, inputs, output) for subject in (model, truth, found))
        return cls(truth, found, model, output, UNCLEAR * of_model, UNCLEAR * of_truth, TIED * of_found)

    def clear(self, model: Tensor, truth: Tensor) -> Bool[Tensor, "n width"]:
        """Where an answer counts. What is a tie in the truth is decided in its model by noise."""
        in_model = margins(model, self.output) > self.clear_in_model
        return in_model & (margins(truth, self.output) > self.clear_in_truth)

    def alike(self, model: Tensor, found: Tensor) -> Bool[Tensor, "n width"]:
        return alike(model, found, self.output, self.tied)


def agreement_on_strings(sides: Sides, task: Task, rng: np.random.Generator) -> Share:
    """The share of random strings on which all answers are the model's, as far as these are clear."""
    strings = random_strings(task.pool(_STRINGS, rng), task.vocabulary, rng)
    model, truth, found = (ran(subject, strings).logits for subject in (sides.model, sides.truth, sides.found))
    asked = strings.counted & sides.clear(model, truth)
    same = (sides.alike(model, found) | ~asked).all(-1)[asked.any(-1)]
    return Share(int(same.sum()), len(same))


# ------------------------------------------------------------------------------------- attention


def reading_weights(model: Subject, unit: Unit, inputs: Inputs) -> Float[Tensor, "n width"]:
    """How much the logits that count change when what a unit says at one position is replaced by its mean."""
    n, width = inputs.ids.shape
    asked = places(model, unit)
    before = ran(model, inputs, record=asked)
    each = torch.arange(n).repeat_interleave(width)  # a copy of each input for each of its positions
    column = torch.arange(width).repeat(n)
    edits: dict[Any, Edit] = {}
    for place in asked:
        value = before.values[place].expand(n, width, -1)[each].clone()
        value[torch.arange(n * width), column] = before.values[place].expand(n, width, -1)[real(inputs)].mean(0)
        edits[place] = Replaced(value)
    after = ran(model, inputs.rows(each), edits).logits
    change = after - before.logits[each]
    change = change - change.mean(-1, keepdim=True)  # what all tokens have in common hardly ever decides an answer
    counted = inputs.counted[each]
    moved = (change.abs().amax(-1) * counted).sum(-1).view(n, width)
    return moved * real(inputs)


def weighted_overlap(
    a: Float[Tensor, "n query key"], b: Float[Tensor, "n query key"], weights: Float[Tensor, "n query"]
) -> float:
    """Σ min(a, b) over the keys, averaged over the queries; 1 where no query has any weight."""
    total = float(weights.sum())
    return float((torch.minimum(a, b).sum(-1) * weights).sum()) / total if total else 1.0


def overlap(model: Subject, found: Program, unit: Unit, inputs: Inputs, weights: Float[Tensor, "n width"]) -> float:
    """How far the program's lines for a head look where the head does, by the worst of them; 0 where there is none."""
    shape = (*inputs.ids.shape, inputs.ids.shape[1])
    asked, ours = pattern_places(model, unit), pattern_places(found, unit)
    theirs = ran(model, inputs, record=asked).values
    mean = torch.stack([theirs[place].expand(shape) for place in asked]).mean(0)
    values = ran(found, inputs, record=ours).values
    return min((weighted_overlap(values[place], mean, weights) for place in ours), default=0.0)


def constant_queries(program: Program, weights: Mapping[Unit, Tensor], inputs: Inputs) -> set[str]:
    """The selects whose query might as well be its mean: all heads that use them look where they did."""
    ops, interpreter = dense_ops(program), Interpreter.of(program)
    found: set[str] = set()
    for select in program.statements:
        if not isinstance(select, Select) or select.query == ONE:
            continue
        users = [line for line in program.readers(select.name) if isinstance(line, Aggregate)]
        weight = sum(
            (weights[unit] for unit in weights if any(components(line) & unit for line in users)), torch.zeros(1)
        )
        if not float(weight.sum()):
            continue
        query, key = interpreter.values(inputs.ids, inputs.positions, [select.query, select.key])
        rows = query @ ops[select.name].to(query)
        mean = (rows * weight[..., None]).sum((0, 1)) / weight.sum()
        scores = (key @ mean)[:, None].expand(*inputs.ids.shape, -1)
        patterns = [pattern_of(line.name) for line in users]
        before = ran(program, inputs, record=patterns).values
        after = ran(program, inputs, {select.name: Replaced(scores)}, patterns).values
        if all(weighted_overlap(before[name], after[name], weight) >= CONSTANT for name in patterns):
            found.add(select.name)
    return found


def same_functions(program: Program, truth: Program, which: set[str]) -> set[str]:
    """The functions of one variable in a program that stand for the MLPs of some in the truth."""
    mlps = {c for line in truth.statements if line.name in which for c in components(line)}
    return {line.name for line in program.statements if _read_alone(line) and components(line) & mlps}


def _read_alone(line: Statement) -> Operand | None:
    """The variable that a function reads, where it is the only one."""
    read = [operand for operand in line.inputs if operand != ONE] if isinstance(line, ElementWise) else []
    return read[0] if len(read) == 1 and not read[0].norm else None


def tables(program: Program, weights: Mapping[Unit, Tensor], pools: Sequence[Inputs]) -> set[str]:
    """The functions of one variable that is one-hot wherever they are read, and hence linear in it."""
    found: set[str] = set()
    for line in program.statements:
        operand = _read_alone(line)
        if operand is None:
            continue
        weight = [weights[unit] for unit in weights if components(line) & unit]
        if not weight:
            continue
        total = torch.stack(weight).sum(0)
        read = total > READ * total.max()
        values = [Interpreter.of(program).values(pool.ids, pool.positions, [operand])[0] for pool in pools]
        if all(bool((value.amax(-1)[read] > ONE_HOT).all()) for value in values):
            found.add(line.name)
    return found


# ----------------------------------------------------------------------------------- interchange


@dataclass(frozen=True)
class InputPairs:
    """Inputs, and for each another of the same size: from the task at an offset of its own, or a random string."""

    bases: Inputs
    sources: Inputs

    @classmethod
    def draw(cls, task: Task, count: int, seed: int) -> "InputPairs":
        rng = np.random.default_rng([seed, 2])
        lengths = rng.choice(np.array(task.lengths), count)
        bases, others = task.inputs(lengths, rng), task.inputs(lengths, rng)
        strings = random_strings(bases, task.vocabulary, rng)
        half = torch.arange(count) < count // 2
        sources = Inputs(
            torch.where(half[:, None], others.ids, strings.ids),
            bases.sizes,
            bases.lengths,
            torch.where(half, others.offsets, bases.offsets),
            bases.counted,
            bases.targets,
        )
        same = (bases.sizes == others.sizes).nonzero()[:, 0]
        return cls(bases.rows(same), sources.rows(same))


def interchange(sides: Sides, unit: Unit, pairs: InputPairs) -> Share:
    """Of the answers that a swap of the unit's values changes, in the model or the program, those that stay alike."""
    model, truth, found = (_swapped(subject, unit, pairs) for subject in (sides.model, sides.truth, sides.found))
    changed = differing(*model, sides.output) | differing(*found, sides.output)
    asked = changed & pairs.bases.counted & sides.clear(model[1], truth[1])
    return Share(int((sides.alike(model[1], found[1]) & asked).sum()), int(asked.sum()))


def _swapped(subject: Subject, unit: Unit, pairs: InputPairs) -> tuple[Tensor, Tensor]:
    """Logits on the bases before and after a unit's values are those on the sources."""
    asked = places(subject, unit)
    values = ran(subject, pairs.sources, record=asked).values
    edits: dict[Any, Edit] = {place: Replaced(values[place]) for place in asked}
    before = ran(subject, pairs.bases).logits
    return before, ran(subject, pairs.bases, edits).logits if edits else before
