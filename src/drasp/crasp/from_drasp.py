"""From D-RASP to C-RASP: a formula for each token, which says where the program says it.

Every variable is followed by cases (`values.py`). Tokens are cases to begin with; an aggregate counts its keys' cases,
weighted by softmax; element-wise functions split cases; a token is said where its logits, a linear inequality of counts
in each case, are above 0 (sigmoid) or the largest (softmax). What has no such form is refused, with its line.

With `precision` = p, results of aggregate and element_wise_op are rounded downwards to multiples of 2^-p. Then every
variable takes finitely many values and all that the theorem covers has a form: that is the construction of its proof.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import product

import numpy as np
import torch

from drasp.crasp.builder import ALWAYS, Builder, Guard
from drasp.crasp.distances import NO_DISTANCES, Distances, distances_of, merged
from drasp.crasp.exact import Form, rational, softmax_levels
from drasp.crasp.functions import applied
from drasp.crasp.rounding import construction_size, rounded
from drasp.crasp.syntax import CraspError, CraspProgram, Formula, Local, Periodic, Token, Truth, conjunction, negation
from drasp.crasp.values import Case, Mixture, Part, Payload, Vector, check_size, is_positive, joint, simplified
from drasp.language import Program, ProgramError, statement_text, variable_types
from drasp.language.bases import size
from drasp.language.checker import Activation
from drasp.language.interpreter import Interpreter
from drasp.language.syntax import Aggregate, ElementWise, Network, Norm, Operand, Prediction, Project, Select, Statement


def to_crasp(program: Program, precision: int | None = None) -> dict[str, CraspProgram]:
    """The C-RASP program of where each token that is ever said is said; raises with the line that has none."""
    return _Export(program, precision).programs()


class _Export:
    def __init__(self, program: Program, precision: int | None) -> None:
        self.program, self.precision = program, precision
        self.types = variable_types(program)
        self.interpreter = Interpreter(program, torch.float64)
        self.builder = Builder(program.vocabulary.tokens)
        tokens = program.vocabulary.tokens
        one_hot = [tuple(Fraction(i == j) for j in range(len(tokens))) for i in range(len(tokens))]
        self.values: dict[str, list[Case]] = {
            "token": [Case(frozenset({(Token(t), True)}), v) for t, v in zip(tokens, one_hot, strict=True)],
            "one": [Case(ALWAYS, (Fraction(1),))],
        }
        self.selects: dict[str, Select] = {}
        self.projects: dict[str, Project] = {}

    def programs(self) -> dict[str, CraspProgram]:
        if self.precision is not None:
            construction_size(self.program, self.precision)
        said: dict[str, Formula] = {}
        for statement in self.program.statements:
            try:
                match statement:
                    case Select():
                        self.selects[statement.name] = statement
                    case Aggregate():
                        self.values[statement.name] = self.settled(self.aggregate(statement))
                    case ElementWise():
                        self.values[statement.name] = self.settled(self.element_wise(statement))
                    case Norm():
                        self.values[statement.name] = self.norm(statement)
                    case Project():
                        self.projects[statement.name] = statement
                    case _:
                        said = self.said(statement)
            except ProgramError:
                raise
            except CraspError as error:
                raise self.refusal(statement, str(error)) from None
        return {
            token: self.builder.program("said", formula) for token, formula in said.items() if formula != Truth(False)
        }

    def refusal(self, statement: Statement, reason: str) -> ProgramError:
        text = statement_text(statement)
        short = text if len(text) <= 90 else f"{text[:87]}…"
        return ProgramError(statement.place, f"`{short}` is outside C-RASP: {reason}")

    def settled(self, cases: list[Case]) -> list[Case]:
        """Rounded, where that is asked for."""
        if self.precision is None:
            return cases
        return rounded(self.builder, cases, self.precision)

    # ---------------------------------------------------------------------------------- reading

    def read(self, operand: Operand) -> list[Case]:
        if operand.variable == "pos":
            raise CraspError("it reads `pos` as such, and C-RASP knows positions only by their distances")
        cases = self.values[operand.variable]
        if operand.norm is None:
            return cases
        divided: list[Case] = []
        for guard, (value, norm) in joint(self.builder, [cases, self.values[operand.norm]]):
            assert isinstance(norm, tuple)
            scale = 1 / norm[0]
            match value:
                case tuple():
                    divided.append(Case(guard, tuple(rational(float(x * scale)) for x in value)))
                case Mixture():
                    divided.append(Case(guard, value.mapped(lambda v, s=scale: tuple(x * s for x in v))))
                case _:
                    raise CraspError(f"it divides `{operand.variable}`, a function of a share, by a norm")
        return divided

    def check_finite(self, operand: Operand, role: str) -> None:
        if not all(isinstance(case.value, tuple) for case in self.read(operand)):
            raise CraspError(f"its {role} `{operand.variable}` is a share, which takes unboundedly many values")

    def op(self, statement: Select | Project) -> np.ndarray:
        return self.interpreter.ops[statement.name].double().cpu().numpy()

    @cached_property
    def used(self) -> dict[str, frozenset[int]]:
        """The entries of each variable that anything reads."""
        found: dict[str, set[int]] = {}

        def note(operand: Operand, rows: np.ndarray | None) -> None:
            kind = self.types[operand.variable]
            count = size(kind.basis) if isinstance(kind, Activation) else 0
            entries = range(count) if rows is None else np.flatnonzero(np.abs(rows).sum(1)).tolist()
            found.setdefault(operand.variable, set()).update(entries)

        for statement in self.program.statements:
            match statement:
                case Select(query=query, key=key):
                    note(query, self.op(statement))
                    note(key, self.op(statement).T)
                case Project(input=source):
                    note(source, self.op(statement))
                case ElementWise(function=Network()) | Norm():
                    for operand, source in zip(statement.operands, statement.source_names, strict=True):
                        note(operand, self.interpreter.tensors[source].double().cpu().numpy())
                case _:
                    for operand in statement.operands:
                        note(operand, None)
        return {name: frozenset(entries) for name, entries in found.items()}

    # ------------------------------------------------------------------------------- aggregates

    def aggregate(self, statement: Aggregate) -> list[Case]:
        distances, selects = NO_DISTANCES, []
        for reference in statement.selectors:
            select = self.selects[reference.variable]
            try:
                if select.query == Operand("pos") and select.key == Operand("pos"):
                    distances = merged(distances, distances_of(self.op(select)))
                else:
                    self.check_finite(select.query, "query")
                    self.check_finite(select.key, "key")
                    selects.append(select)
            except CraspError as error:
                raise self.refusal(select, str(error)) from None
        queries = joint(self.builder, [self.read(select.query) for select in selects])
        value = self.read(statement.value)
        if not all(isinstance(case.value, tuple) for case in value):
            raise CraspError(f"it aggregates `{statement.value.variable}`, a share: a mean of shares is no count")
        keys = joint(self.builder, [*(self.read(select.key) for select in selects), value])
        check_size(len(queries) * len(keys) * distances.classes)
        ops = [self.op(select) for select in selects]
        cases: list[Case] = []
        for guard, query in queries:
            rows = [_floats(vector) @ op for vector, op in zip(query, ops, strict=True)]
            scores = [
                sum(float(row @ _floats(vector)) for row, vector in zip(rows, key, strict=False)) + distance
                for _, key in keys
                for distance in distances.scores
            ]
            if self.precision is not None:
                _check_rational(scores)
            cases += self.levels(guard, keys, distances, scores)
            check_size(len(cases))
        return cases

    def levels(
        self,
        query: Guard,
        keys: Sequence[tuple[Guard, tuple[Payload, ...]]],
        distances: Distances,
        scores: Sequence[float],
    ) -> list[Case]:
        """One case for each level of keys that may be the highest that is there."""
        cases: list[Case] = []
        none_above = query
        levels = softmax_levels(scores)
        for number, level in enumerate(levels):
            parts: dict[tuple[int, Vector, Fraction], Form] = {}
            for index, weight in level.items():
                key, place = divmod(index, distances.classes)
                vector = keys[key][1][-1]
                assert isinstance(vector, tuple)
                count = self.counted(keys[key][0], distances, place)
                known = place if place < len(distances.single) else -1
                parts[known, vector, weight] = parts.get((known, vector, weight), Form()) + count
            mixture = Mixture(tuple(Part(count, w, v) for (_, v, w), count in parts.items()))
            present = self.builder.positive(Form.total((Fraction(1), part.count) for part in mixture.parts))
            last = number == len(levels) - 1
            here = self.builder.both(none_above, ALWAYS if last else self.builder.guard(present) or frozenset())
            places = {known for known, _, _ in parts}
            single = distances.single[places.pop()] if len(places) == 1 and -1 not in places else None
            if here is not None and present != Truth(False):
                cases += [Case(here, simplified(mixture))] if single is None else self.picked(here, mixture)
            absent = self.builder.guard(negation(present))
            below = None if absent is None else self.builder.both(none_above, absent)
            if below is None:
                break
            if single is not None and len(level) == len(keys):
                # Nothing lies so far back: there are few positions yet.
                return cases + self.few(below, keys, distances, scores, single)
            none_above = below
        return cases

    def few(
        self,
        guard: Guard,
        keys: Sequence[tuple[Guard, tuple[Payload, ...]]],
        distances: Distances,
        scores: Sequence[float],
        most: int,
    ) -> list[Case]:
        """The cases where there are at most so many positions: whatever stands at each of them."""
        check_size(len(keys) ** most)
        cases: list[Case] = []
        for count in range(1, most + 1):
            beyond = Form.total((Fraction(1), self.builder.count(key, Local(count))) for key, _ in keys)
            none = self.builder.guard(negation(self.builder.positive(beyond)))
            for chosen in product(range(len(keys)), repeat=count):
                there = [self.builder.positive(self.builder.count(keys[k][0], Local(d))) for d, k in enumerate(chosen)]
                guards = [guard, keys[chosen[0]][0], none, *map(self.builder.guard, there[1:])]
                if any(g is None for g in guards):
                    continue
                together = self.builder.both(*(g for g in guards if g is not None))
                if together is not None:
                    places = [k * distances.classes + distances.place(d) for d, k in enumerate(chosen)]
                    weights = softmax_levels([scores[place] for place in places])[0]
                    parts = [(weight, keys[chosen[d]][1][-1]) for d, weight in weights.items()]
                    cases.append(Case(together, _mean(parts)))
        return cases

    def picked(self, guard: Guard, mixture: Mixture) -> list[Case]:
        """What a hard select of a single distance gives: the vector at that position."""
        cases: list[Case] = []
        for vector in dict.fromkeys(part.vector for part in mixture.parts):
            there = Form.total((Fraction(1), part.count) for part in mixture.parts if part.vector == vector)
            one = self.builder.guard(self.builder.positive(there))
            together = None if one is None else self.builder.both(guard, one)
            if together is not None:
                cases.append(Case(together, vector))
        return cases

    def counted(self, key: Guard, distances: Distances, place: int) -> Form:
        singles = distances.single
        if place < len(singles):
            return self.builder.count(key, Local(singles[place]))
        remainder = place - len(singles)
        relation = Periodic(distances.period, remainder) if distances.period > 1 else None
        count = self.builder.count(key, relation)
        for distance in singles:
            if distance % distances.period == remainder:
                count = count - self.builder.count(key, Local(distance))
        return count

    # --------------------------------------------------------------------------- element by element

    def element_wise(self, statement: ElementWise) -> list[Case]:
        inputs = joint(self.builder, [self.read(operand) for operand in statement.inputs])
        read = self.used.get(statement.name, frozenset())
        return applied(self.builder, self.interpreter, statement.function, inputs, read)

    def norm(self, statement: Norm) -> list[Case]:
        """A norm of what takes finitely many values is a table."""
        variables = [self.read(operand) for operand in statement.inputs]
        if not all(isinstance(case.value, tuple) for cases in variables for case in cases):
            raise CraspError(
                "it divides by the root of a sum of squares of shares, which is no linear function of counts"
            )
        cases: list[Case] = []
        for guard, values in joint(self.builder, variables):
            sources = [self.interpreter.tensors[name].double().cpu().numpy() for name in statement.source_names]
            stream = sum(_floats(v) @ source for v, source in zip(values, sources, strict=True))
            root = float(np.sqrt(np.mean(np.square(stream)) + statement.eps))
            cases.append(Case(guard, (rational(root, 1e-12),)))
        return cases

    # ---------------------------------------------------------------------------------- answers

    def said(self, statement: Prediction) -> dict[str, Formula]:
        names = [reference.variable for reference in statement.logits]
        projects = [self.projects[name] for name in names]
        variables: list[list[Case]] = []
        for project in projects:
            try:
                variables.append(self.read(project.input))
            except CraspError as error:
                raise self.refusal(project, str(error)) from None
        tensors = [[list(map(rational, row)) for row in self.op(project).tolist()] for project in projects]
        tokens = self.program.vocabulary.tokens
        answers: dict[str, list[tuple[Guard, Formula]]] = {token: [] for token in tokens}
        for guard, values in joint(self.builder, variables):

            def above(weights: Callable[[list[Fraction]], Fraction], values: tuple[Payload, ...] = values) -> Formula:
                rows = [[weights(row) for row in tensor] for tensor in tensors]
                return is_positive(self.builder, Fraction(0), list(zip(values, rows, strict=True)))

            for t, token in enumerate(tokens):
                if statement.output == "sigmoid":
                    answers[token].append((guard, above(lambda row, t=t: row[t])))
                else:
                    # The largest logit, the first of several.
                    first = (above(lambda row, t=t, s=s: row[t] - row[s]) for s in range(t))
                    other = (negation(above(lambda row, t=t, s=s: row[s] - row[t])) for s in range(t + 1, len(tokens)))
                    answers[token].append((guard, conjunction([*first, *other])))
        return {token: self.builder.cases(cases) for token, cases in answers.items()}


def _mean(parts: Sequence[tuple[Fraction, Payload]]) -> Vector:
    total = sum(weight for weight, _ in parts)
    vectors = [(weight / total, vector) for weight, vector in parts if isinstance(vector, tuple)]
    return tuple(sum((w * v[d] for w, v in vectors), Fraction(0)) for d in range(len(vectors[0][1])))


def _floats(vector: Payload) -> np.ndarray:
    assert isinstance(vector, tuple)
    return np.array([float(x) for x in vector])


def _check_rational(scores: Sequence[float]) -> None:
    """The theorem asks that softmax weights are fractions."""
    for level in softmax_levels(scores):
        for i, weight in level.items():
            exact = np.exp(scores[i] - max(scores[j] for j in level))
            if weight.denominator > 10_000 or abs(float(weight) - exact) > 1e-9 * exact:
                raise CraspError(
                    f"its scores differ by {scores[i] - max(scores[j] for j in level):.6g}, which is not the logarithm "
                    "of a simple fraction, as the theorem asks"
                )
