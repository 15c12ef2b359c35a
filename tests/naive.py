"""D-RASP's definition, word for word and loop by loop: slow, and independent of the interpreter."""

import math
from typing import NamedTuple

import numpy as np

from drasp.language.checker import Activation, variable_types
from drasp.language.syntax import (
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Prediction,
    PrimitiveFunction,
    Program,
    Project,
    Select,
    TensorName,
)
from drasp.language.tensor_primitives import build

ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_new": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}
FUNCTIONS = {
    "no_op": lambda v: v[0],
    "sharpen": lambda v, n: [x**n / (sum(y**n for y in v[0]) or 1.0) for x in v[0]],
    "harden": lambda v: [1.0 * (i == max(range(len(v[0])), key=lambda j: v[0][j])) for i in range(len(v[0]))],
    "is_pure": lambda v, tau: [1.0 * (x > tau) for x in v[0]] + [1.0 - sum(x > tau for x in v[0])],
    "compare": lambda v: [_sign(x - y) for i, x in enumerate(v[0]) for y in v[0][i + 1 :]],
    "maximum": lambda v: [max(x, y) for x, y in zip(*v, strict=True)],
    "keep": lambda v, i: v[int(i) - 1],
    "cartesian": lambda v: _cartesian(v),
    "balance_01": lambda v, n: [
        max(v[0][1] - v[0][0], 0) ** n,
        max(v[0][0] - v[0][1], 0) ** n,
        1 - max(v[0][1] - v[0][0], 0) ** n - max(v[0][0] - v[0][1], 0) ** n,
    ],
}


def _sign(x):
    return 0.0 if abs(x) <= 1e-6 else math.copysign(1.0, x)


def _cartesian(vectors):
    entries = vectors[0]
    for vector in vectors[1:]:
        entries = [min(entry, x) for entry in entries for x in vector]
    total = sum(entries) or 1.0
    return [entry / total for entry in entries]


class NaiveEdit(NamedTuple):
    """The entry of an edit: so much of the old value, and this on top; nothing of the old at all where `keep` is 0."""

    keep: float
    plus: np.ndarray


def run(
    program: Program, ids: list[int], offset: int, edits: dict[str, NaiveEdit] | None = None
) -> dict[str, np.ndarray]:
    """Every variable on one input; selectors are NaN where a query cannot see a key.

    What an aggregate pays attention to is there as `a1 pattern`. Edits are made entry by entry.
    """
    n = len(ids)
    types = variable_types(program)
    tensors = {name: tensor.double().numpy() for name, tensor in program.tensors.items()}
    values: dict[str, np.ndarray] = {
        "token": np.array([[1.0 * (x == j) for j in range(len(program.vocabulary))] for x in ids]),
        "pos": np.array([[1.0 * (offset + i == j) for j in range(program.n_positions)] for i in range(n)]),
        "one": np.ones((n, 1)),
    }

    def settle(name: str, value: np.ndarray) -> None:
        values[name] = value
        edit = (edits or {}).get(name)
        if edit is not None:
            values[name] = np.empty(value.shape)
            for place in np.ndindex(value.shape):
                old = edit.keep * value[place] if edit.keep else 0.0 * np.nan_to_num(value[place])
                values[name][place] = np.nan if np.isnan(value[place]) else old + edit.plus[place]

    for name in list(values):
        settle(name, values[name])

    def read(operand: Operand, i: int) -> np.ndarray:
        divisor = values[operand.norm][i] if operand.norm else 1.0
        return values[operand.variable][i] / divisor

    def op(statement, rows, columns) -> np.ndarray:
        match statement.op:
            case TensorName(name):
                return tensors[name]
            case primitive:
                return build(primitive, statement.special_op, rows, columns)

    def basis(operand: Operand):
        found = types[operand.variable]
        assert isinstance(found, Activation)
        return found.basis

    def stream(name: str, inputs, i: int) -> np.ndarray:
        return np.sum([read(operand, i) @ tensors[f"{name}.{m}"] for m, operand in enumerate(inputs)], 0)

    for statement in program.statements:
        match statement:
            case Select(name, query, key):
                A = op(statement, basis(query), basis(key))
                scores = np.full((n, n), np.nan)
                for i in range(n):
                    for s in range(i + 1):
                        scores[i, s] = read(query, i) @ A @ read(key, s)
                settle(name, scores)
            case Aggregate(name, selectors, value):
                pattern = np.zeros((n, n))
                for i in range(n):
                    scores = [sum(values[r.variable][i, s] for r in selectors) for s in range(i + 1)]
                    weights = [math.exp(score - max(scores)) for score in scores]
                    pattern[i, : i + 1] = [w / sum(weights) for w in weights]
                settle(f"{name} pattern", pattern)
                weights = values[f"{name} pattern"]
                settle(name, np.array([sum(weights[i, s] * read(value, s) for s in range(n)) for i in range(n)]))
            case ElementWise(name, inputs, Network(network, activation, eps)):
                rows = []
                for i in range(n):
                    x = stream(network, inputs, i)
                    if eps is not None:
                        x = x / math.sqrt(np.mean(x**2) + eps)
                    hidden = x @ tensors[f"{network}.hidden"] + tensors[f"{network}.hidden_bias"]
                    rows.append(
                        np.array([ACTIVATIONS[activation](h) for h in hidden]) @ tensors[f"{network}.out"]
                        + tensors[f"{network}.out_bias"]
                    )
                settle(name, np.array(rows))
            case ElementWise(name, inputs, PrimitiveFunction(primitive, arguments)):
                f = FUNCTIONS[primitive]
                settle(name, np.array([f([list(read(v, i)) for v in inputs], *arguments) for i in range(n)]))
            case Norm(name, inputs, tensor, eps):
                squares = [np.mean(stream(tensor.name, inputs, i) ** 2) for i in range(n)]
                settle(name, np.array([math.sqrt(square + eps) for square in squares]))
            case Project(name, source):
                R = op(statement, basis(source), basis(Operand("token")))
                settle(name, np.array([read(source, i) @ R for i in range(n)]))
            case Prediction(output, logits):
                total = np.sum([values[reference.variable] for reference in logits], 0)
                if output == "sigmoid":
                    values["prediction"] = 0.5 * (1 + np.tanh(0.5 * total))  # no overflow
                else:
                    powers = np.exp(total - total.max(1, keepdims=True))
                    values["prediction"] = powers / powers.sum(1, keepdims=True)
                values["logits"] = total
    return values
