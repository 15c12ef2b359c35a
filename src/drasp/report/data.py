"""A program as the data that the report page computes with: statements, bases, packed tensors."""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from drasp.language import Interpreter, Program, statement_text, variable_types
from drasp.language.bases import Basis, Named, One, Positions, Products, Space, Tokens
from drasp.language.checker import Activation
from drasp.language.syntax import (
    Aggregate,
    ElementWise,
    Function,
    Network,
    Norm,
    Operand,
    Prediction,
    PrimitiveFunction,
    Project,
    Select,
    Statement,
    TensorName,
    tensor_names,
)


def program_data(program: Program) -> dict[str, Any]:
    types = variable_types(program)
    return {
        "vocabulary": program.vocabulary.tokens,
        "special": program.vocabulary.special,
        "positions": program.n_positions,
        "output": program.output,
        "bases": {name: _basis(kind.basis) for name, kind in types.items() if isinstance(kind, Activation)},
        "statements": [_statement(statement) for statement in program.statements],
    }


def _basis(basis: Basis) -> dict[str, Any]:
    match basis:
        case Tokens():
            return {"kind": "token"}
        case Positions():
            return {"kind": "pos"}
        case One():
            return {"kind": "one"}
        case Space(count):
            return {"kind": "space", "size": count}
        case Named(names):
            return {"kind": "named", "names": names}
        case Products(factors):
            return {"kind": "product", "factors": [_basis(factor) for factor in factors]}


def _statement(statement: Statement) -> dict[str, Any]:
    common = {"name": statement.name, "text": statement_text(statement), "comment": statement.comment}
    return common | {"reads": _reads(statement)} | _fields(statement)


def _fields(statement: Statement) -> dict[str, Any]:
    match statement:
        case Select(query=query, key=key):
            return {"kind": "select", "query": _pair(query), "key": _pair(key), "op": op_name(statement)}
        case Aggregate(selectors=selectors, value=value):
            return {"kind": "aggregate", "selectors": [s.variable for s in selectors], "value": _pair(value)}
        case ElementWise(inputs=inputs, function=function):
            return {"kind": "element_wise_op", "inputs": [_pair(x) for x in inputs], "function": _function(function)}
        case Norm(inputs=inputs, op=op, eps=eps):
            return {"kind": "norm", "inputs": [_pair(x) for x in inputs], "op": op.name, "eps": eps}
        case Project(input=source):
            return {"kind": "project", "input": _pair(source), "op": op_name(statement)}
        case Prediction(logits=logits):
            return {"kind": "prediction", "logits": [part.variable for part in logits]}


def op_name(statement: Select | Project) -> str:
    """What the page calls a line's tensor: a stored one by its name, another by a name that no stored one can have."""
    return statement.op.name if isinstance(statement.op, TensorName) else f"op of {statement.name}"


def _pair(operand: Operand) -> tuple[str, str | None]:
    return operand.variable, operand.norm


def _function(function: Function) -> dict[str, Any]:
    match function:
        case Network(name, activation, eps):
            return {"network": name, "activation": activation, "eps": eps}
        case PrimitiveFunction(primitive, arguments):
            return {"primitive": primitive, "arguments": arguments}


def _reads(statement: Statement) -> list[str]:
    match statement:
        case Select(query=query, key=key):
            operands = [query, key]
        case Aggregate(selectors=selectors, value=value):
            return [*(s.variable for s in selectors), *_names([value])]
        case ElementWise(inputs=inputs) | Norm(inputs=inputs):
            operands = list(inputs)
        case Project(input=source):
            operands = [source]
        case Prediction(logits=logits):
            return [part.variable for part in logits]
    return _names(operands)


def _names(operands: list[Operand]) -> list[str]:
    return [name for operand in operands for name in (operand.variable, operand.norm) if name]


# -------------------------------------------------------------------------------------- tensors


def tensor_arrays(program: Program) -> dict[str, np.ndarray]:
    """All that the program's lines read; tensors of the library, a user's own among them, are made here."""
    interpreter = Interpreter(program, torch.float64)
    arrays: dict[str, np.ndarray] = {}
    for statement in program.statements:
        if isinstance(statement, Select | Project):
            arrays[op_name(statement)] = _narrowed(interpreter.ops[statement.name].cpu().numpy())
        for name in tensor_names(statement):
            arrays[name] = _narrowed(interpreter.tensors[name].detach().cpu().numpy())
    return arrays


def _narrowed(array: np.ndarray) -> np.ndarray:
    """As 32-bit numbers where that changes nothing."""
    narrow = array.astype("<f4")
    return narrow if np.array_equal(narrow, array) else array.astype("<f8")


def rounded(array: np.ndarray, bits: int) -> np.ndarray:
    """With the last `bits` bits of every 32-bit number cleared, rounding to nearest: they take no room when packed."""
    if not bits:
        return array
    patterns = array.astype("<f4").view("<u4")
    half = np.uint32(1 << (bits - 1))
    return ((patterns + half) & np.uint32(0xFFFFFFFF << bits & 0xFFFFFFFF)).view("<f4")


def packed(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Deflated together. Bytes are grouped by their place in a number, since the leading ones are much alike."""
    entries: list[dict[str, Any]] = []
    blocks: list[bytes] = []
    start = 0
    for name, array in arrays.items():
        width = array.dtype.itemsize
        block = np.ascontiguousarray(array).view(np.uint8).reshape(-1, width).T.tobytes()
        entries.append({"name": name, "shape": array.shape, "width": width, "start": start})
        blocks.append(block)
        start += len(block)
    return {"entries": entries, "data": base64.b64encode(zlib.compress(b"".join(blocks))).decode()}
