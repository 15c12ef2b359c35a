"""Writes a program as stand-alone Python that needs NumPy alone: `program.py`.

Every D-RASP line stands above the line of Python that computes it. Functions of the library carry their
own source along, and the tensors are in the file: small ones as numbers, large ones packed.
"""

import ast
import base64
import keyword
import zlib
from collections.abc import Callable, Iterable
from inspect import getsource
from textwrap import dedent
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from drasp.errors import DraspError
from drasp.language.function_primitives import function_primitives
from drasp.language.interpreter import Interpreter
from drasp.language.printer import statement_text
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
    Statement,
)

_LITERAL_ENTRIES = 256  # tensors of at most this size are written as numbers
_LONG_SUM = 40  # longer sums are written as sum([…])

_HEAD = '''\
"""A D-RASP program as plain Python: needs NumPy alone.

VOCAB       the tokens; ids are places in this list
OUTPUT      what turns logits into a prediction: "softmax" or "sigmoid"
logits      logits(ids, offset=0) -> array [len(ids), len(VOCAB)]
"""

from __future__ import annotations

import base64
import math
import zlib

import numpy as np

VOCAB = {vocab}
OUTPUT = {output!r}
POSITIONS = {positions}


def logits(ids, offset=0):
    """The logits for the next token, at every position of the input."""
    ids = np.asarray(ids, dtype=int)
    if ids.ndim != 1 or not len(ids) or ids.min() < 0 or ids.max() >= len(VOCAB):
        raise ValueError(f"expected ids from 0 to {{len(VOCAB) - 1}}, found {{ids.tolist()}}")
    if offset < 0 or offset + len(ids) > POSITIONS:
        raise ValueError(f"{{len(ids)}} tokens at offset {{offset}} do not fit {{POSITIONS}} positions")
    token = np.eye(len(VOCAB))[ids]
    pos = np.eye(POSITIONS)[offset + np.arange(len(ids))]
    one = np.ones((len(ids), 1))
'''

_HELPERS = '''

def attend(scores):
    """Causal softmax: each query over the keys up to its own position."""
    scores = np.where(np.tri(len(scores), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def uniform(values):
    """Attention without a selector: the mean of all positions so far."""
    return values.cumsum(0) / np.arange(1, len(values) + 1)[:, None]


def norm(x, eps):
    return np.sqrt((x**2).mean(-1, keepdims=True) + eps)


def gelu_new(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def relu(x):
    return np.maximum(x, 0)


def silu(x):
    return x * (0.5 + 0.5 * np.tanh(0.5 * x))


def unpack(shape, kind, text):
    """A tensor from its packed bytes."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), kind).reshape(shape).astype(float)
'''

# Names that the file itself uses: a variable of the program that has one gets an underscore.
_TAKEN = {
    *("np", "math", "zlib", "base64", "VOCAB", "OUTPUT", "POSITIONS", "T", "ids", "offset", "logits"),
    *("attend", "uniform", "norm", "gelu_new", "gelu", "relu", "silu", "unpack", "sum", "len", "ValueError"),
}


def to_python(program: Program) -> str:
    """The text of `program.py`."""
    interpreter = Interpreter.of(program)  # checks the program and builds the primitives' tensors
    names = _Names(program)
    body: list[str] = []
    attention: dict[tuple[str, ...], str] = {}
    for number, statement in enumerate(program.statements, 1):
        body.append(f"    # {number}. {statement_text(statement)}")
        if isinstance(statement, Aggregate) and statement.selectors:
            selectors = tuple(selector.variable for selector in statement.selectors)
            if selectors not in attention:
                attention[selectors] = f"attention{len(attention) + 1}_"
                body.append(f"    {attention[selectors]} = attend({_sum(map(names.safe, selectors))})")
        body.append(f"    {_python(statement, names, attention)}")
    head = _HEAD.format(
        vocab=repr(list(program.vocabulary.tokens)), output=program.output, positions=program.n_positions
    )
    functions = "".join(f"\n\n{source}\n" for source in _function_sources(program))
    return head + "\n".join(body) + "\n" + _HELPERS + functions + "\n\n" + _tensor_table(program, interpreter)


class _Names:
    """Python names for the program's variables."""

    def __init__(self, program: Program) -> None:
        self.names: dict[str, str] = {"token": "token", "pos": "pos", "one": "one"}
        taken = _TAKEN | set(function_primitives()) | set(self.names.values())
        for statement in program.statements:
            name = statement.name
            while keyword.iskeyword(name) or keyword.issoftkeyword(name) or name in taken:
                name += "_"
            taken.add(name)
            self.names[statement.name] = name

    def safe(self, variable: str) -> str:
        return self.names[variable]

    def operand(self, operand: Operand) -> str:
        variable = self.safe(operand.variable)
        return f"({variable} / {self.safe(operand.norm)})" if operand.norm else variable

    def combined(self, line: Norm | ElementWise) -> str:
        pairs = zip(line.inputs, line.source_names, strict=True)
        return _sum(f'{self.operand(operand)} @ T["{name}"]' for operand, name in pairs)


def _sum(terms: Iterable[str]) -> str:
    terms = list(terms)
    # Python's own parser nests a chain of additions, and does not nest without end.
    return f"sum([{', '.join(terms)}])" if len(terms) > _LONG_SUM else " + ".join(terms)


def _python(statement: Statement, names: _Names, attention: dict[tuple[str, ...], str]) -> str:
    name = names.safe(statement.name)
    match statement:
        case Select(query=query, key=key):
            return f'{name} = {names.operand(query)} @ T["{statement.op_name}"] @ {names.operand(key)}.T'
        case Aggregate(selectors=(), value=value):
            return f"{name} = uniform({names.operand(value)})"
        case Aggregate(selectors=selectors, value=value):
            weights = attention[tuple(selector.variable for selector in selectors)]
            return f"{name} = {weights} @ {names.operand(value)}"
        case Norm(eps=eps):
            return f"{name} = norm({names.combined(statement)}, {eps!r})"
        case ElementWise():
            return _element_wise(statement, name, names)
        case Project(input=source):
            return f'{name} = {names.operand(source)} @ T["{statement.op_name}"]'
        case Prediction(logits=logits):
            return f"return {_sum(names.safe(part.variable) for part in logits)}"


def _element_wise(statement: ElementWise, name: str, names: _Names) -> str:
    match statement.function:
        case Network(network, activation, eps):
            lines = [f"{name} = {names.combined(statement)}"]
            if eps is not None:
                lines.append(f"{name} = {name} / norm({name}, {eps!r})")
            hidden = f'{activation}({name} @ T["{network}.hidden"] + T["{network}.hidden_bias"])'
            return "\n    ".join([*lines, f'{name} = {hidden} @ T["{network}.out"] + T["{network}.out_bias"]'])
        case PrimitiveFunction(primitive, arguments):
            values = ", ".join(["np", f"[{', '.join(map(names.operand, statement.inputs))}]", *map(repr, arguments)])
            return f"{name} = {primitive}({values})"


def _function_sources(program: Program) -> list[str]:
    used = {
        s.function.primitive
        for s in program.statements
        if isinstance(s, ElementWise) and isinstance(s.function, PrimitiveFunction)
    }
    return [_source_without_decorator(function_primitives()[name].function) for name in sorted(used)]


def _source_without_decorator(function: Callable[..., Any]) -> str:
    try:
        source = dedent(getsource(function))
    except (OSError, TypeError):
        name = function.__name__
        raise DraspError(
            f"element-wise function {name}: its source cannot be read, so program.py cannot carry it"
        ) from None
    definition = ast.parse(source).body[0]
    return "\n".join(source.splitlines()[definition.lineno - 1 :])


def _tensor_table(program: Program, interpreter: Interpreter) -> str:
    tensors: dict[str, Tensor] = {}
    for statement in program.statements:
        for name in statement.tensor_names:
            tensors[name] = program.tensors[name]
        if isinstance(statement, Select | Project) and not statement.tensor_names:
            tensors[statement.op_name] = interpreter.ops[statement.name]
    rows = "".join(f'    "{name}": {_tensor_source(tensor)},\n' for name, tensor in tensors.items())
    return f"T = {{\n{rows}}}\n"


def _tensor_source(tensor: Tensor) -> str:
    array = tensor.detach().to(torch.float64 if tensor.dtype == torch.float64 else torch.float32).cpu().numpy()
    if array.size <= _LITERAL_ENTRIES:
        return f"np.array({_numbers(array)})"
    kind = "<f8" if array.dtype == np.float64 else "<f4"
    packed = base64.b64encode(zlib.compress(array.astype(kind).tobytes())).decode()
    return f'unpack({array.shape}, "{kind}", "{packed}")'


def _numbers(array: Float[np.ndarray, "..."]) -> str:
    if array.ndim == 1:
        return f"[{', '.join(str(entry) for entry in array)}]"
    return f"[{', '.join(_numbers(row) for row in array)}]"
