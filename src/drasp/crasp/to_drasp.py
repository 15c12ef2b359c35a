"""From C-RASP to D-RASP, by the second half of the theorem's proof.

Every formula becomes a linear function of variables that is 0 or 1 at each position. A comparison Σ λ #φ + c ≥ 0 takes
three lines: an element-wise sum of λ φ at each position, its mean over all positions so far, and whether that is
negative. The constant c is c times the count of the first token, which therefore must stand at the beginning of every
string and nowhere else: without it no D-RASP program without positions can tell aa from aaa. Where the vocabulary has
no such token, c is c times the count of position 0, which is outside the theorem.

Of the extension, remainders of positions become tables of `pos`, counts of single distances are followed, and
comparisons in which all counts have one period.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TypeAlias

import torch
from torch import Tensor

from drasp.crasp.syntax import (
    And,
    Compare,
    Constant,
    Count,
    CountName,
    CraspError,
    CraspProgram,
    Difference,
    Expression,
    Formula,
    FormulaName,
    Local,
    Not,
    Number,
    Or,
    Periodic,
    Relation,
    Residue,
    Sum,
    Times,
    Token,
    Truth,
)
from drasp.language import Program
from drasp.language.syntax import (
    Aggregate,
    ElementWise,
    Network,
    Operand,
    Prediction,
    PrimitiveFunction,
    PrimitiveTensor,
    Project,
    Reference,
    Select,
    Statement,
    TensorName,
)
from drasp.vocabulary import Output, Vocabulary

MAX_LOCAL = 6  # counts of single distances in one comparison
MOST = 2**52  # sums up to this are exact in float64


def to_drasp(
    said: Mapping[str, CraspProgram],
    vocabulary: Vocabulary,
    output: Output = "sigmoid",
    positions: int = 152,
    first: str = "BOS",
) -> Program:
    """The D-RASP program that says each token where its C-RASP program holds, on strings of at most that length.

    With a softmax output, one token has to be said at each position.
    """
    for token in said:
        if token not in vocabulary.ids:
            raise CraspError(f"token {token!r} is said, but is not in the vocabulary")
    return _DraspWriter(vocabulary, positions, first).program(said, output)


@dataclass(frozen=True)
class AffineForm:
    """Σ row · variable + constant; rows are sorted by the names of variables."""

    rows: tuple[tuple[str, tuple[float, ...]], ...] = ()
    constant: float = 0.0

    @classmethod
    def total(cls, parts: Iterable[tuple[float, "AffineForm"]], constant: float = 0.0) -> "AffineForm":
        rows: dict[str, list[float]] = {}
        for factor, part in parts:
            constant += factor * part.constant
            for name, row in part.rows:
                before = rows.get(name, [0.0] * len(row))
                rows[name] = [x + factor * y for x, y in zip(before, row, strict=True)]
        kept = sorted((name, tuple(row)) for name, row in rows.items() if any(row))
        return cls(tuple(kept), constant)

    @property
    def negated(self) -> "AffineForm":
        return AffineForm.total([(-1.0, self)], 1.0)


# A linear combination of counts: of what, in which relation, how often; and its constant.
_Counts: TypeAlias = dict[tuple[AffineForm, Relation | None], int]


@dataclass
class _DraspWriter:
    vocabulary: Vocabulary
    positions: int
    first: str
    statements: list[Statement] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    known: dict[object, AffineForm] = field(default_factory=dict)

    def program(self, said: Mapping[str, CraspProgram], output: Output) -> Program:
        answers: dict[str, AffineForm] = {}
        for token, program in said.items():
            names: dict[str, Expression | AffineForm] = {}
            for definition in program.definitions:
                match definition.expression:
                    case Count() | CountName() | Constant() | Sum() | Difference() | Times():
                        names[definition.name] = definition.expression
                    case formula:
                        names[definition.name] = self.formula(formula, names)
            found = names[program.answer.name]
            assert isinstance(found, AffineForm)
            answers[token] = found
        # What holds is said with logit 1, what does not has -1.
        count = len(self.vocabulary)
        bias = torch.full((1, count), -1.0, dtype=torch.float64)
        rows: dict[str, Tensor] = {}
        for token, answer in answers.items():
            place = self.vocabulary.ids[token]
            bias[0, place] += 2 * answer.constant
            for name, row in answer.rows:
                rows.setdefault(name, torch.zeros(len(row), count, dtype=torch.float64))[:, place] = 2 * torch.tensor(
                    row
                )
        parts: list[str] = []
        for number, (name, tensor) in enumerate([*sorted(rows.items()), ("one", bias)], 1):
            parts.append(f"logits{number}")
            self.tensors[f"R{number}"] = tensor
            self.statements.append(Project(parts[-1], Operand(name), TensorName(f"R{number}")))
        self.statements.append(Prediction(output, tuple(map(Reference, parts))))
        return Program(self.vocabulary, self.positions, tuple(self.statements), self.tensors)

    # --------------------------------------------------------------------------------- formulas

    def formula(self, formula: Formula, names: Mapping[str, Expression | AffineForm]) -> AffineForm:
        match formula:
            case Token(symbol):
                row = tuple(float(token == symbol) for token in self.vocabulary.tokens)
                return AffineForm.total([(1.0, AffineForm((("token", row),)))])
            case Truth(value):
                return AffineForm((), float(value))
            case FormulaName(name):
                found = names[name]
                assert isinstance(found, AffineForm)
                return found
            case Not(body):
                return self.formula(body, names).negated
            case And(parts):
                return self.all_of([self.formula(part, names) for part in parts])
            case Or(parts):
                return self.all_of([self.formula(part, names).negated for part in parts]).negated
            case Compare(left, operator, right):
                counts: _Counts = {}
                constant = self.gather(left, 1, counts, names) + self.gather(right, -1, counts, names)
                return self.compare(counts, constant, operator)
            case Residue(period, remainder):
                return self.at_positions(lambda i: i % period == remainder)

    def at_positions(self, holds: Callable[[int], bool]) -> AffineForm:
        return AffineForm((("pos", tuple(float(holds(i)) for i in range(self.positions))),))

    def all_of(self, parts: Sequence[AffineForm]) -> AffineForm:
        """1 where all are 1: a rectifier of their sum, or a table where all depend on the token alone."""
        variables = {name for part in parts for name, _ in part.rows}
        total = AffineForm.total([(1.0, part) for part in parts])
        if variables <= {"token"}:
            return self.of_tokens(total, len(parts))
        if len(set(parts)) == 1:
            return parts[0]
        return self.network(AffineForm.total([(1.0, total)], 1.0 - len(parts)), positive=True)

    def of_tokens(self, total: AffineForm, most: int) -> AffineForm:
        """The form that says where a function of the token has its largest value."""
        row = dict(total.rows).get("token", (0.0,) * len(self.vocabulary))
        reached = tuple(float(x + total.constant >= most) for x in row)
        return AffineForm((), reached[0]) if len(set(reached)) == 1 else AffineForm((("token", reached),))

    def network(self, sum_: AffineForm, positive: bool = False) -> AffineForm:
        """A line whose result is the sum, or its positive part."""
        key = ("network", sum_, positive)
        if key not in self.known:
            name = f"m{1 + sum(isinstance(s, ElementWise) for s in self.statements)}"
            tensor = f"F{name[1:]}"
            rows = sum_.rows or (("one", (0.0,)),)
            signs = torch.tensor([[1.0] if positive else [1.0, -1.0]], dtype=torch.float64)
            for i, (_, row) in enumerate(rows):
                self.tensors[f"{tensor}.{i}"] = torch.tensor(row, dtype=torch.float64)[:, None]
            self.tensors[f"{tensor}.hidden"] = signs
            self.tensors[f"{tensor}.hidden_bias"] = signs[0] * sum_.constant
            self.tensors[f"{tensor}.out"] = signs.T.contiguous()
            self.tensors[f"{tensor}.out_bias"] = torch.zeros(1, dtype=torch.float64)
            inputs = tuple(Operand(variable) for variable, _ in rows)
            self.statements.append(ElementWise(name, inputs, Network(tensor, "relu")))
            self.known[key] = AffineForm(((name, (1.0,)),))
        return self.known[key]

    # ------------------------------------------------------------------------------ comparisons

    def gather(self, number: Number, factor: int, counts: _Counts, names: Mapping[str, Expression | AffineForm]) -> int:
        """Adds a multiple of a number to a linear combination of counts, and gives its constant."""
        match number:
            case Constant(value):
                return factor * value
            case CountName(name):
                return self.gather(names[name], factor, counts, names)  # pyright: ignore[reportArgumentType]
            case Count(body, relation):
                key = (self.formula(body, names), relation)
                counts[key] = counts.get(key, 0) + factor
                return 0
            case Sum(parts):
                return sum(self.gather(part, factor, counts, names) for part in parts)
            case Difference(left, right):
                return self.gather(left, factor, counts, names) + self.gather(right, -factor, counts, names)
            case Times(times, body):
                return self.gather(body, factor * times, counts, names)

    def compare(self, counts: _Counts, constant: int, operator: str) -> AffineForm:
        kept = {key: factor for key, factor in counts.items() if factor}
        opposite = {key: -factor for key, factor in kept.items()}
        match operator:
            case ">=":
                return self.not_negative(kept, constant)
            case "<=":
                return self.not_negative(opposite, -constant)
            case ">":
                return self.not_negative(opposite, -constant).negated
            case "<":
                return self.not_negative(kept, constant).negated
            case "==":
                return self.all_of([self.not_negative(kept, constant), self.not_negative(opposite, -constant)])
            case _:
                return self.compare(counts, constant, "==").negated

    def not_negative(self, counts: _Counts, constant: int) -> AffineForm:
        local = [key for key in counts if isinstance(key[1], Local)]
        periods = {relation for _, relation in counts if isinstance(relation, Periodic)}
        if len(local) > MAX_LOCAL:
            raise CraspError(f"a comparison of {len(local)} counts of single distances, expected at most {MAX_LOCAL}")
        if periods and (len(periods) > 1 or constant or any(not isinstance(r, Periodic) for _, r in counts)):
            raise CraspError("a comparison of a periodic count with anything but counts of the same period")
        if periods:
            relation = periods.pop()
            found = self.mean_not_negative({body: factor for (body, _), factor in counts.items()}, 0, relation)
            # Where no position is counted all counts are 0.
            return self.any_of([found, self.reaches_back(relation.remainder).negated])
        plain = {body: factor for (body, relation), factor in counts.items() if relation is None}
        cases: list[AffineForm] = []
        values = [self.at_distance(*key) for key in local]
        for bits in product((0, 1), repeat=len(local)):
            shift = sum(bit * counts[key] for bit, key in zip(bits, local, strict=True))
            chosen = [value if bit else value.negated for bit, value in zip(bits, values, strict=True)]
            cases.append(self.all_of([*chosen, self.mean_not_negative(plain, constant + shift, None)]))
        return self.any_of(cases)

    def any_of(self, parts: Sequence[AffineForm]) -> AffineForm:
        return parts[0] if len(parts) == 1 else self.all_of([part.negated for part in parts]).negated

    def mean_not_negative(
        self, counts: Mapping[AffineForm, int], constant: int, relation: Periodic | None
    ) -> AffineForm:
        """Whether Σ factor · count + constant is at least 0, from the mean of its summands."""
        if constant == -1:
            # Whole numbers are at least 1 where they are above 0, which needs no constant.
            return self.mean_not_negative({body: -x for body, x in counts.items()}, 0, relation).negated
        parts = [(float(factor), body) for body, factor in counts.items()]
        if constant:
            first = self.formula(Token(self.first), {}) if self.first in self.vocabulary.ids else None
            parts.append((float(constant), first or self.at_positions(lambda i: i == 0)))
        if sum(abs(factor) for factor, _ in parts) * self.positions >= MOST:
            raise CraspError(
                f"a comparison with coefficients too large for exact sums: {max(map(abs, counts.values()))}"
            )
        total = AffineForm.total(parts)
        if not total.rows:
            return AffineForm((), float(total.constant >= 0))
        key = ("mean", total, relation)
        if key not in self.known:
            summand = self.network(total)
            self.known[key] = self.above(self.aggregate(summand, relation), -0.5 / self.positions)
        return self.known[key]

    def above(self, value: AffineForm, threshold: float) -> AffineForm:
        ((name, _),) = value.rows
        result = f"h{1 + sum(isinstance(s, ElementWise) for s in self.statements)}"
        function = PrimitiveFunction("is_pure", (threshold,))
        self.statements.append(ElementWise(result, (Operand(name),), function))
        return AffineForm(((result, (1.0, 0.0)),))

    def aggregate(self, value: AffineForm, relation: Relation | None) -> AffineForm:
        ((name, row),) = value.rows
        selectors: tuple[Reference, ...] = ()
        if relation is not None:
            selectors = (Reference(self.select(relation)),)
        result = f"a{1 + sum(isinstance(s, Aggregate) for s in self.statements)}"
        self.statements.append(Aggregate(result, selectors, Operand(name)))
        return AffineForm(((result, row),))

    def select(self, relation: Relation) -> str:
        name = f"s_{relation.name}"
        if all(statement.name != name for statement in self.statements):
            match relation:
                case Local(distance):
                    op = PrimitiveTensor("kth_diagonal", (-distance,))
                case Periodic(period, remainder):
                    op = PrimitiveTensor("every_kth", (period, remainder))
            self.statements.append(Select(name, Operand("pos"), Operand("pos"), op))
        return name

    def at_distance(self, body: AffineForm, relation: Relation | None) -> AffineForm:
        """Whether a formula holds at the position that lies so far back, and there is one."""
        assert isinstance(relation, Local)
        if relation.distance == 0:
            return body
        key = ("local", body, relation)
        if key not in self.known:
            there = self.above(self.aggregate(self.network(body), relation), 0.5)
            self.known[key] = self.all_of([there, self.reaches_back(relation.distance)])
        return self.known[key]

    def reaches_back(self, distance: int) -> AffineForm:
        """Whether there is a position that lies so far back."""
        everywhere = AffineForm((), 1.0)
        return self.mean_not_negative({everywhere: 1}, -distance - 1, None) if distance else everywhere
