"""Element-wise functions by cases: which of them counts can follow, and how."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Float

from drasp.crasp.builder import ALWAYS, Builder, Guard
from drasp.crasp.exact import Form, rational
from drasp.crasp.syntax import CraspError, Formula, negation
from drasp.crasp.values import Case, Curve, Mixture, Payload, Vector, check_size
from drasp.language.interpreter import Interpreter
from drasp.language.syntax import Function, Network, PrimitiveFunction

Array = np.ndarray


def applied(
    builder: Builder,
    interpreter: Interpreter,
    function: Function,
    inputs: Sequence[tuple[Guard, tuple[Payload, ...]]],
    read: frozenset[int],
) -> list[Case]:
    """The cases of a function's result, given those of its inputs; `read` are the entries that anything reads."""
    tables = [(guard, values) for guard, values in inputs if all(isinstance(value, tuple) for value in values)]
    found = list(_table(interpreter, function, tables))
    for guard, values in inputs:
        if not all(isinstance(value, tuple) for value in values):
            for case in _cases(builder, interpreter, function, values, read):
                together = builder.both(guard, case.guard)
                if together is not None:
                    found.append(Case(together, case.value))
            check_size(len(found))
    return found


def _table(
    interpreter: Interpreter, function: Function, inputs: Sequence[tuple[Guard, tuple[Payload, ...]]]
) -> list[Case]:
    """What a function makes of vectors."""
    if not inputs:
        return []
    columns = zip(*(values for _, values in inputs), strict=True)
    rows = [torch.tensor([[float(x) for x in v] for v in column], dtype=torch.float64) for column in columns]  # pyright: ignore
    results = interpreter.apply(function, rows).tolist()
    return [Case(guard, tuple(map(rational, row))) for (guard, _), row in zip(inputs, results, strict=True)]


def _cases(
    builder: Builder, interpreter: Interpreter, function: Function, values: tuple[Payload, ...], read: frozenset[int]
) -> list[Case]:
    match function, values:
        case PrimitiveFunction("no_op"), (value,):
            return [Case(ALWAYS, value)]
        case PrimitiveFunction("keep", (i,)), _:
            return [Case(ALWAYS, values[int(i) - 1])]
        case PrimitiveFunction("harden"), (Mixture() as value,):
            return _harden(builder, value)
        case PrimitiveFunction("is_pure", (tau,)), (Mixture() as value,):
            return _is_pure(builder, value, rational(tau), read)
        case PrimitiveFunction("compare"), (Mixture() as value,):
            return _compare(builder, value, read)
        case PrimitiveFunction("balance_01", (n,)), (Mixture() as value,):
            return [Case(ALWAYS, _balance(value, n))]
        case Network(), _:
            return [Case(ALWAYS, _network(interpreter, function, values))]
        case PrimitiveFunction(name), _:
            raise CraspError(f"{name} of shares is no matter of linear inequalities between counts")


def _harden(builder: Builder, value: Mixture) -> list[Case]:
    """One-hot at the largest entry, the first of several."""
    entries = [value.entry(i) for i in range(value.dims)]
    cases: list[Case] = []
    for i, largest in enumerate(entries):
        formulas = [builder.positive(largest - other) for other in entries[:i]]
        formulas += [builder.not_negative(largest - other) for other in entries[i + 1 :]]
        guard = _guard(builder, formulas)
        if guard is not None:
            cases.append(Case(guard, tuple(Fraction(i == j) for j in range(value.dims))))
    return cases


def _guard(builder: Builder, formulas: Sequence[Formula]) -> Guard | None:
    guards = [builder.guard(formula) for formula in formulas]
    return None if None in guards else builder.both(*(guard for guard in guards if guard is not None))


def _split(builder: Builder, questions: Sequence[Sequence[tuple[Guard | None, int]]]) -> list[tuple[Guard, list[int]]]:
    """Every way to answer some questions, each of which has answers that exclude each other."""
    found: list[tuple[Guard, list[int]]] = [(ALWAYS, [])]
    for answers in questions:
        found = [
            (guard, [*values, value])
            for before, values in found
            for answer, value in answers
            if answer is not None and (guard := builder.both(before, answer)) is not None
        ]
        check_size(len(found))
    return found


def _is_pure(builder: Builder, value: Mixture, tau: Fraction, read: frozenset[int]) -> list[Case]:
    """The cases of whether each entry is above tau; and of one, less as many as are."""
    forms = [value.entry(i) - value.denominator * tau for i in range(value.dims)]
    wanted = [i for i in range(value.dims) if i in read or value.dims in read]
    above = [builder.positive(forms[i]) for i in wanted]
    cases: list[Case] = []
    for guard, bits in _split(
        builder, [[(_guard(builder, [f]), 1), (_guard(builder, [negation(f)]), 0)] for f in above]
    ):
        entries = dict(zip(wanted, bits, strict=True))
        vector = [entries.get(i, 0) for i in range(value.dims)]
        cases.append(Case(guard, tuple(map(Fraction, [*vector, 1 - sum(vector)]))))
    return cases


def _compare(builder: Builder, value: Mixture, read: frozenset[int]) -> list[Case]:
    """The sign of each difference. Differences that rounding could make, below 1e-6, count as none."""
    pairs = list(combinations(range(value.dims), 2))
    slack = Fraction(0) if _is_uniform(value) else Fraction(1, 10**6)
    questions: list[list[tuple[Guard | None, int]]] = []
    for index, (i, j) in enumerate(pairs):
        difference, least = value.entry(i) - value.entry(j), value.denominator * slack
        more, less = builder.positive(difference - least), builder.positive(difference * -1 - least)
        answers = [([more], 1), ([less], -1), ([negation(more), negation(less)], 0)]
        questions.append([(_guard(builder, f), sign) for f, sign in answers] if index in read else [])
    asked = [question for question in questions if question]
    cases: list[Case] = []
    for guard, signs in _split(builder, asked):
        given = iter(signs)
        cases.append(Case(guard, tuple(Fraction(next(given)) if q else Fraction(0) for q in questions)))
    return cases


def _is_uniform(value: Mixture) -> bool:
    """Whether shares are ratios of whole numbers of at most the length: then they differ by more than rounding."""
    whole = all(x.denominator == 1 for part in value.parts for x in part.vector)
    return whole and len({part.weight for part in value.parts}) == 1


# ------------------------------------------------------------------------- functions of one share


def _curve(
    value: Mixture, measure: Callable[[Vector], Fraction], function: Callable[[Array], Float[Array, "n dims"]]
) -> Curve:
    """A function of the mean of a measure of what is mixed."""
    measures = [measure(part.vector) for part in value.parts]
    numerator = Form.total((part.weight * x, part.count) for part, x in zip(value.parts, measures, strict=True))
    return Curve(numerator, value.denominator, float(min(measures)), float(max(measures)), function)


def _balance(value: Mixture, n: float) -> Curve:
    def function(lead: Array) -> Array:
        ones, zeros = np.clip(lead, 0, None) ** n, np.clip(-lead, 0, None) ** n
        return np.stack([ones, zeros, 1 - ones - zeros], -1)

    return _curve(value, lambda vector: vector[1] - vector[0], function)


def _network(interpreter: Interpreter, network: Network, values: tuple[Payload, ...]) -> Payload:
    """An MLP whose hidden layer sees one share: what it sees of all that is mixed lies on a line."""
    mixed = [i for i, value in enumerate(values) if not isinstance(value, tuple)]
    if len(mixed) > 1 or not isinstance(values[mixed[0]], Mixture):
        raise CraspError("an MLP of several variables that are shares is no matter of linear inequalities")
    place = mixed[0]
    value = values[place]
    assert isinstance(value, Mixture)
    source = interpreter.tensors[f"{network.name}.{place}"].double().numpy()
    points = np.array([[float(x) for x in part.vector] for part in value.parts])
    seen = points @ source
    centred = seen - seen[0]
    far = int(np.abs(centred).sum(1).argmax())
    line = centred[far]
    length = float(line @ line)
    along = centred @ line / length if length else np.zeros(len(seen))
    if np.abs(centred - along[:, None] * line).max() > 1e-6 * (1 + np.abs(seen).max()):
        raise CraspError("an MLP of several shares is no matter of linear inequalities; one share it may read")
    places = {part.vector: rational(float(x)) for part, x in zip(value.parts, along, strict=True)}

    def function(shares: Array) -> Array:
        rows = points[0] + shares[:, None] * (points[far] - points[0])
        inputs = [
            torch.tensor(rows if i == place else np.tile([float(x) for x in v], (len(shares), 1)), dtype=torch.float64)  # pyright: ignore
            for i, v in enumerate(values)
        ]
        return interpreter.apply(network, inputs).numpy()

    return _curve(value, places.__getitem__, function)
