"""Where nothing fits: what goes into an operation, and what comes of it downstream.

For a path that ends in logits: samples of the operation's inputs, with the tokens that its result promotes. For a
path that ends in a query-key product: kinds of queries (k-means), with the keys they look for. All of it is data;
`text` prints it, and a report can draw it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from drasp.errors import DraspError
from drasp.language import Interpreter, Program, statement_text
from drasp.language.bases import labels
from drasp.language.checker import basis_of
from drasp.language.interpreter import pattern_of
from drasp.language.syntax import Aggregate, ElementWise, Operand, Project, Select, Statement
from drasp.rewriting.rewrite import dense_ops
from drasp.sequences import Sequences

_SHOWN = 4  # samples from each end
_ENTRIES = 4  # of a variable's value
_KINDS = 4  # of queries
_SAMPLES = 1500
_ONE_HOT = 0.95  # mean of the largest attention weight, from which on attention counts as one-hot


@dataclass(frozen=True)
class VariableValue:
    """A variable's value at some position, by its largest entries."""

    variable: str
    entries: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Sample:
    """`promoted` is a token's logit; with softmax, above the best of the other tokens."""

    inputs: tuple[VariableValue, ...]
    promoted: float


@dataclass(frozen=True)
class TokenEffect:
    """The inputs that speak most for a token, and those that speak most against it."""

    token: str
    most: tuple[Sample, ...]
    least: tuple[Sample, ...]


@dataclass(frozen=True)
class LogitPath:
    """From the operation through these lines to the logits."""

    lines: tuple[str, ...]
    tokens: tuple[TokenEffect, ...]


@dataclass(frozen=True)
class QueryKind:
    """A cluster of queries: how many of them there are, their mean, and the keys with the highest and lowest scores."""

    share: float
    query: tuple[VariableValue, ...]
    most: tuple[Sample, ...]
    least: tuple[Sample, ...]


@dataclass(frozen=True)
class AttentionPath:
    """From the operation through these lines to a selector; `side` is where it comes in, query or key."""

    lines: tuple[str, ...]
    side: str
    kinds: tuple[QueryKind, ...]


@dataclass(frozen=True)
class Explanation:
    line: int
    statement: str
    logits: tuple[LogitPath, ...]
    attention: tuple[AttentionPath, ...]
    warnings: tuple[str, ...]


@torch.no_grad()
def explain(program: Program, line: int, ids: Int[Tensor, "n pos"], positions: Int[Tensor, "n pos"]) -> Explanation:
    """What the element-wise operation of a line does, as seen on these inputs (padding should not be among them)."""
    if not 1 <= line <= program.lines:
        raise DraspError(f"line {line}: the program has lines 1 to {program.lines}")
    statement = program.statements[line - 1]
    if not isinstance(statement, ElementWise):
        raise DraspError(
            f"line {line}: `{statement_text(statement)}` is no element_wise_op; its tensor says what it does"
        )
    seen = _Seen(program, ids, positions)
    paths = list(_paths(program, statement.name))
    logits = tuple(seen.logit_path(statement, path) for path in paths if isinstance(path[-1], Project))
    attention = tuple(
        seen.attention_path(statement, path, side)
        for path in paths
        if isinstance(path[-1], Select)
        for side in _sides(path, statement.name)
    )
    warnings = tuple(dict.fromkeys(w for path in paths if (w := seen.warning(path)) is not None))
    return Explanation(line, statement_text(statement), logits, attention, warnings)


Path = tuple[Statement, ...]


def _paths(program: Program, name: str) -> Iterator[Path]:
    """All ways from a variable to a project or a select, as the statements on them."""
    for statement in program.statements:
        if name in {operand.variable for operand in statement.operands}:
            match statement:
                case Project() | Select():
                    yield (statement,)
                case Aggregate() | ElementWise():
                    for rest in _paths(program, statement.name):
                        yield (statement, *rest)
                case _:
                    pass  # a norm divides: it is part of the operand that reads it


def _sides(path: Path, start: str) -> list[str]:
    """On which side of the select the path comes in; it may be both."""
    select, before = path[-1], path[-2].name if len(path) > 1 else start
    assert isinstance(select, Select)
    return [side for side, operand in (("query", select.query), ("key", select.key)) if operand.variable == before]


class _Seen:
    """The values of a program's variables on some inputs, all positions in one row after the other."""

    def __init__(self, program: Program, ids: Tensor, positions: Tensor) -> None:
        self.program, self.ids, self.positions = program, ids, positions
        self.interpreter = Interpreter.of(program)
        self.ops = dense_ops(program)
        count = ids.numel()
        generator = torch.Generator(torch.get_default_device()).manual_seed(0)
        self.chosen = torch.randperm(count, generator=generator)[:_SAMPLES]

    def values(self, operands: Sequence[Operand]) -> list[Float[Tensor, "samples _"]]:
        found = self.interpreter.values(self.ids, self.positions, operands)
        return [value.flatten(0, 1)[self.chosen] for value in found]

    def shown(self, operand: Operand, value: Float[Tensor, " dims"]) -> VariableValue:
        names = labels(basis_of(self.program, operand))
        largest = value.abs().argsort(descending=True)[:_ENTRIES].tolist()
        entries = tuple((names[i], float(value[i])) for i in largest if abs(float(value[i])) > 1e-3)
        return VariableValue(operand.variable, entries)

    def through(self, start: Tensor, path: Path, name: str) -> Tensor:
        """What becomes of a variable along a path, if it is attended to alone."""
        for statement in path:
            match statement:
                case ElementWise(inputs=inputs):
                    start = self.apply(statement, start, [i for i, v in enumerate(inputs) if v.variable == name])
                case _:
                    pass  # attention passes values on
            name = statement.name
        return start

    def apply(self, statement: ElementWise, start: Tensor, places: list[int]) -> Tensor:
        """An element-wise operation with some inputs given, and the others at their mean."""
        given = [
            start if i in places else value.mean(0).expand(len(start), -1)
            for i, value in enumerate(self.values(statement.inputs))
        ]
        return self.interpreter.apply(statement.function, given)

    # ------------------------------------------------------------------------------------------ logits

    def logit_path(self, function: ElementWise, path: Path) -> LogitPath:
        project = path[-1]
        assert isinstance(project, Project)
        [result] = self.values([Operand(function.name)])
        logits = self.through(result, path[:-1], function.name) @ self.ops[project.name]
        if self.program.output == "softmax":
            # The lead over the second best says the same to softmax, and more to the eye.
            logits = logits - logits.topk(min(2, logits.shape[1]), dim=1).values[:, -1:]
        tokens = self.program.vocabulary.tokens
        spread = logits.amax(0) - logits.amin(0)
        chosen = spread.argsort(descending=True)[:_ENTRIES].tolist()
        effects = tuple(self._token_effect(function, logits[:, i], tokens[i]) for i in chosen if spread[i] > 1e-3)
        return LogitPath(tuple(s.name for s in path), effects)

    def _token_effect(self, function: ElementWise, logits: Float[Tensor, " samples"], token: str) -> TokenEffect:
        most, least = self.ends(function.inputs, logits)
        return TokenEffect(token, most, least)

    def ends(self, operands: Sequence[Operand], scores: Tensor) -> tuple[tuple[Sample, ...], tuple[Sample, ...]]:
        """The samples with the highest scores and those with the lowest, no two alike."""
        inputs = self.values(operands)
        order = scores.argsort(descending=True).tolist()

        def first(indices: Sequence[int]) -> tuple[Sample, ...]:
            found: dict[tuple[VariableValue, ...], Sample] = {}
            for i in indices:
                values = tuple(
                    self.shown(o, v[i]) for o, v in zip(operands, inputs, strict=True) if o.variable != "one"
                )
                rounded = tuple(replace(v, entries=tuple((n, round(x, 2)) for n, x in v.entries)) for v in values)
                found.setdefault(rounded, Sample(rounded, round(float(scores[i]), 3)))
                if len(found) == _SHOWN:
                    break
            return tuple(found.values())

        return first(order), first(order[::-1])

    # --------------------------------------------------------------------------------------- attention

    def attention_path(self, function: ElementWise, path: Path, side: str) -> AttentionPath:
        select = path[-1]
        assert isinstance(select, Select)
        [result] = self.values([Operand(function.name)])
        mine = self.through(result, path[:-1], function.name)
        query, key = self.values([select.query, select.key])
        query, key = (mine, key) if side == "query" else (query, mine)
        scores = query @ self.ops[select.name] @ key.T
        scores = scores - scores.mean(1, keepdim=True)
        operands = function.inputs if side == "query" else (select.query,)
        others = (select.key,) if side == "query" else function.inputs
        described = torch.cat(self.values(operands), -1)
        kinds: list[QueryKind] = []
        for members in _clusters(described, _KINDS):
            most, least = self.ends(others, scores[members].mean(0))
            means = [value[members].mean(0) for value in self.values(operands)]
            typical = tuple(self.shown(o, m) for o, m in zip(operands, means, strict=True) if o.variable != "one")
            kinds.append(QueryKind(round(float(members.float().mean()), 3), typical, most, least))
        return AttentionPath(tuple(s.name for s in path), side, tuple(kinds))

    # ----------------------------------------------------------------------------------------- warnings

    def warning(self, path: Path) -> str | None:
        """Values are followed as if attended to alone; between two MLPs that is true of one-hot attention only."""
        last = max((i for i, s in enumerate(path) if isinstance(s, ElementWise)), default=-1)
        for statement in path[: max(last, 0)]:
            if isinstance(statement, Aggregate) and not self.is_one_hot(statement):
                later = path[last].name
                return (
                    f"`{statement.name}` mixes positions before `{later}`, which has no name or reads the mixture: "
                    f"what is shown through `{later}` holds only where one position is attended to alone"
                )
        return None

    def is_one_hot(self, aggregate: Aggregate) -> bool:
        if not aggregate.selectors:
            return False
        pattern = pattern_of(aggregate.name)
        inputs = Sequences(self.ids[:20], self.positions[:20])
        weights = self.interpreter.run(inputs, record=[pattern]).values[pattern]
        return float(weights.amax(-1).mean()) >= _ONE_HOT


def _clusters(points: Float[Tensor, "n dims"], count: int) -> list[Tensor]:
    """k-means, begun with points far from each other; the marks of each cluster's members, largest cluster first."""
    centres = points[:1]
    for _ in range(count - 1):
        distances = torch.cdist(points, centres).amin(1)
        if float(distances.amax()) < 1e-4:
            break
        centres = torch.cat([centres, points[distances.argmax()][None]])
    nearest = torch.cdist(points, centres).argmin(1)
    for _ in range(20):
        used = [i for i in range(len(centres)) if (nearest == i).any()]
        centres = torch.stack([points[nearest == i].mean(0) for i in used])
        nearest = torch.cdist(points, centres).argmin(1)
    members = [nearest == i for i in range(len(centres)) if (nearest == i).any()]
    return sorted(members, key=lambda m: -int(m.sum()))


# ------------------------------------------------------------------------------------------------- text


def text(explanation: Explanation) -> str:
    """What a person reads in a terminal."""
    lines = [f"{explanation.line}. {explanation.statement}"]
    for path in explanation.logits:
        for effect in path.tokens:
            lines.append(f"\n{effect.token}, through {', '.join(path.lines)}")
            lines += _ends(effect.most, effect.least)
    for path in explanation.attention:
        lines.append(f"\nattention by {', '.join(path.lines)}, where this is the {path.side}")
        for kind in path.kinds:
            lines.append(f"  {kind.share:.0%} of the queries, like {_values(kind.query)}: keys")
            lines += _ends(kind.most, kind.least)
    lines += [f"\nwarning: {warning}" for warning in explanation.warnings]
    return "\n".join(lines)


def _ends(most: Sequence[Sample], least: Sequence[Sample]) -> list[str]:
    first, last = (
        [f"  {sample.promoted:+9.2f}   {_values(sample.inputs)}" for sample in samples]
        for samples in (most, reversed(least))
    )
    return [*first, "          …", *last]


def _values(values: tuple[VariableValue, ...]) -> str:
    return "; ".join(
        f"{value.variable}: " + (" ".join(f"{name}={x:.2g}" for name, x in value.entries) or "0") for value in values
    )
