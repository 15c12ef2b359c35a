"""Programs and models in numbers of 60 digits, loop by loop: what error bounds are held to."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from mpmath import erf, exp, mp, mpf, pi, sqrt, tanh

from drasp.language.checker import op_bases
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
from drasp.layers import Linear, StreamNorm
from drasp.transformer import Transformer
from typed import known

mp.dps = 60

Number: TypeAlias = Any  # mpmath has no types
Vector = list[Number]
ACTIVATIONS: dict[str, Callable[[Number], Number]] = {
    "relu": lambda x: max(x, mpf(0)),
    "gelu": lambda x: x / 2 * (1 + erf(x / sqrt(mpf(2)))),
    "gelu_new": lambda x: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + mpf("0.044715") * x**3))),
}


def _numbers(tensor) -> list:
    """A tensor's numbers as they are stored."""
    return [_numbers(row) for row in tensor] if tensor.ndim > 1 else [mpf(float(x)) for x in tensor]


def _times(x: Vector, matrix: list[Vector]) -> Vector:
    terms = [(a, row) for a, row in zip(x, matrix, strict=True) if a]
    return [sum((a * row[j] for a, row in terms if row[j]), mpf(0)) for j in range(len(matrix[0]))]


def _plus(*vectors: Vector) -> Vector:
    return [sum(entries) for entries in zip(*vectors, strict=True)]


def _mixed(scores: Vector, values: list[Vector]) -> Vector:
    powers = [exp(score - max(scores)) for score in scores]
    return [sum(p * v[j] for p, v in zip(powers, values, strict=True)) / sum(powers) for j in range(len(values[0]))]


def _root_mean_square(x: Vector, eps: float) -> Number:
    return sqrt(sum(entry * entry for entry in x) / len(x) + mpf(eps))


def _sharpened(x: Vector, n: float) -> Vector:
    powers = [entry**n for entry in x]
    return [power / (sum(powers) or 1) for power in powers]


def _balance(x: Vector, n: float) -> Vector:
    ones, zeros = (max(d, mpf(0)) ** mpf(n) for d in (x[1] - x[0], x[0] - x[1]))
    return [ones, zeros, 1 - ones - zeros]


def _cartesian(vectors: list[Vector]) -> Vector:
    entries = vectors[0]
    for vector in vectors[1:]:
        entries = [min(entry, x) for entry in entries for x in vector]
    return [entry / (sum(entries) or 1) for entry in entries]


def _compared(x: Vector) -> Vector:
    differences = [a - b for i, a in enumerate(x) for b in x[i + 1 :]]
    return [mpf((d > mpf(1e-6)) - (d < mpf(-1e-6))) for d in differences]


def _difference_mod(first: Vector, second: Vector, m: float) -> Vector:
    pairs = [((i - j) % int(m), a * b) for i, a in enumerate(first) for j, b in enumerate(second)]
    return [sum((product for r, product in pairs if r == remainder), mpf(0)) for remainder in range(int(m))]


FUNCTIONS: dict[str, Callable[..., Vector]] = {
    "no_op": lambda v: v[0],
    "keep": lambda v, i: v[int(i) - 1],
    "maximum": lambda v: [max(pair) for pair in zip(*v, strict=True)],
    "sharpen": lambda v, n: _sharpened(v[0], n),
    "harden": lambda v: [mpf(i == v[0].index(max(v[0]))) for i in range(len(v[0]))],
    "is_pure": lambda v, tau: [mpf(x > mpf(tau)) for x in v[0]] + [mpf(1 - sum(x > mpf(tau) for x in v[0]))],
    "compare": lambda v: _compared(v[0]),
    "balance_01": lambda v, n: _balance(v[0], n),
    "cartesian": _cartesian,
    "difference_mod": lambda v, m: _difference_mod(v[0], v[1], m),
}


def program_logits(program: Program, ids: Sequence[int], offset: int) -> list[Vector]:
    """The logits at every position of an input."""
    n, tensors = len(ids), {name: _numbers(tensor) for name, tensor in program.tensors.items()}
    values: dict[str, list] = {
        "token": [[mpf(x == j) for j in range(len(program.vocabulary))] for x in ids],
        "pos": [[mpf(offset + i == j) for j in range(program.n_positions)] for i in range(n)],
        "one": [[mpf(1)] for _ in ids],
    }

    def read(operand: Operand, i: int) -> Vector:
        return [x / (values[operand.norm][i] if operand.norm else 1) for x in values[operand.variable][i]]

    def op(line: Select | Project) -> list[Vector]:
        if isinstance(line.op, TensorName):
            return tensors[line.op.name]
        return _numbers(build(line.op, line.special_op, *op_bases(program, line)))

    def stream(name: str, inputs: Sequence[Operand], i: int) -> Vector:
        return _plus(*(_times(read(operand, i), tensors[f"{name}.{m}"]) for m, operand in enumerate(inputs)))

    def applied(line: ElementWise, i: int) -> Vector:
        match line.function:
            case PrimitiveFunction(primitive, arguments):
                return FUNCTIONS[primitive]([read(v, i) for v in line.inputs], *arguments)
            case Network(name, activation, eps):
                x = stream(name, line.inputs, i)
                x = [entry / (1 if eps is None else _root_mean_square(x, eps)) for entry in x]
                hidden = _plus(_times(x, tensors[f"{name}.hidden"]), tensors[f"{name}.hidden_bias"])
                hidden = [ACTIVATIONS[activation](h) for h in hidden]
                return _plus(_times(hidden, tensors[f"{name}.out"]), tensors[f"{name}.out_bias"])

    for line in program.statements:
        match line:
            case Select(name, query, key):
                A = op(line)
                values[name] = [
                    [sum(a * b for a, b in zip(row, read(key, j), strict=True)) for j in range(i + 1)]
                    for i, row in enumerate(_times(read(query, i), A) for i in range(n))
                ]
            case Aggregate(name, selectors, value):
                scores = [
                    [sum((values[s.variable][i][j] for s in selectors), mpf(0)) for j in range(i + 1)] for i in range(n)
                ]
                values[name] = [_mixed(scores[i], [read(value, j) for j in range(i + 1)]) for i in range(n)]
            case ElementWise(name):
                values[name] = [applied(line, i) for i in range(n)]
            case Norm(name, inputs, tensor, eps):
                values[name] = [_root_mean_square(stream(tensor.name, inputs, i), eps) for i in range(n)]
            case Project(name, source):
                R = op(line)
                values[name] = [_times(read(source, i), R) for i in range(n)]
            case Prediction(logits=parts):
                values["logits"] = [_plus(*(values[part.variable][i] for part in parts)) for i in range(n)]
    return values["logits"]


def model_logits(model: Transformer, ids: Sequence[int], offset: int) -> list[Vector]:
    """The logits at every position of an input; scores are divided by the root of the heads' width."""

    def norm(x: Vector, layer: StreamNorm) -> Vector:
        centred = [entry - sum(x) / len(x) for entry in x]
        root = _root_mean_square(centred, layer.eps)
        parts = zip(centred, _numbers(layer.gain), _numbers(layer.bias), strict=True)
        return [entry / root * gain + bias for entry, gain, bias in parts]

    def linear(x: Vector, layer: Linear) -> Vector:
        return _plus(_times(x, _numbers(layer.weight)), _numbers(layer.bias))

    wte, wpe = _numbers(model.token_embedding), _numbers(model.position_embedding)
    stream = [_plus(wte[x], wpe[offset + i]) for i, x in enumerate(ids)]
    for layer in model.layers:
        inner = [linear(norm(x, layer.attention_norm), layer.attention.qkv) for x in stream]
        heads, d = layer.attention.n_heads, model.d_model
        width = d // heads
        mixed: list[Vector] = [[] for _ in ids]
        for head in range(heads):
            q, k, v = ([x[part * d + head * width :][:width] for x in inner] for part in range(3))
            for i in range(len(ids)):
                seen = range(i + 1)
                scores = [sum(a * b for a, b in zip(q[i], k[j], strict=True)) / sqrt(mpf(width)) for j in seen]
                mixed[i] += _mixed(scores, v[: i + 1])
        stream = [_plus(x, linear(m, layer.attention.output)) for x, m in zip(stream, mixed, strict=True)]
        mlp = known(layer.mlp)
        act = ACTIVATIONS[mlp.activation]
        hidden = [[act(h) for h in linear(norm(x, layer.mlp_norm), mlp.hidden)] for x in stream]
        stream = [_plus(x, linear(h, mlp.output)) for x, h in zip(stream, hidden, strict=True)]
    unembedding = [list(column) for column in zip(*_numbers(model.unembedding), strict=True)]
    return [_times(norm(x, model.final_norm), unembedding) for x in stream]
