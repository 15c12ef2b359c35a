"""A program as the data that the report page computes with: statements, bases, packed tensors."""

import base64
import zlib
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from drasp.language import Interpreter, Program, statement_text, variable_types
from drasp.language.bases import Basis, Named, One, Positions, Products, Space, Tokens
from drasp.language.checker import Activation
from drasp.language.remarks import remark
from drasp.language.syntax import (
    DEFAULT_SCALE,
    Network,
    Operand,
    PrimitiveFunction,
    PrimitiveTensor,
    Project,
    Reference,
    Select,
    Statement,
    TensorName,
)
from drasp.language.tensor_primitives import tensor_primitives


def program_data(program: Program) -> dict[str, Any]:
    types = variable_types(program)
    return {
        "vocabulary": program.vocabulary.tokens,
        "special": program.vocabulary.special,
        "positions": program.n_positions,
        "output": program.output,
        "bases": {name: _basis(kind.basis) for name, kind in types.items() if isinstance(kind, Activation)}
        | dict.fromkeys(_says_tokens(program), _basis(Tokens(program.vocabulary))),
        "statements": [_statement(statement) for statement in program.statements],
        "library": {kind: _library(kind) for kind in ("select", "project")} | {"scale": DEFAULT_SCALE},
    }


def _says_tokens(program: Program) -> list[str]:
    """Variables of unnamed directions that a project takes for tokens as they are: the space is the vocabulary."""
    types = variable_types(program)
    found: list[str] = []
    for statement in program.statements:
        match statement:
            case Project(input=Operand(name), op=PrimitiveTensor("diagonal")):
                match types[name]:
                    case Activation(Space(count)) if count == len(program.vocabulary):
                        found.append(name)
                    case _:
                        pass
            case _:
                pass
    return found


def _library(statement: str) -> list[dict[str, Any]]:
    """How the tensors of the library are written in a statement, and which of them have a vector form."""
    texts = ((p, p.select if statement == "select" else p.project) for p in tensor_primitives().values())
    return [{"name": p.name, "text": text, "vector": p.has_vector} for p, text in texts if text is not None]


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
    line = {"name": statement.name, "text": statement_text(statement), "comment": remark(statement)}
    line |= {"kind": statement.kind, "reads": statement.reads}
    line |= {name: _plain(part) for name, part in statement.parts.items()}
    return line | {"op": statement.op_name} if isinstance(statement, Select | Project) else line


def _plain(part: Any) -> Any:
    match part:
        case Operand(variable, norm):
            return variable, norm
        case Reference(name) | TensorName(name) | PrimitiveTensor(name):
            return name
        case Network(name, activation, eps):
            return {"network": name, "activation": activation, "eps": eps}
        case PrimitiveFunction(primitive, arguments):
            return {"primitive": primitive, "arguments": arguments}
        case tuple():
            return [_plain(each) for each in cast(tuple[Any, ...], part)]
        case _:
            return part


# -------------------------------------------------------------------------------------- tensors


def tensor_arrays(program: Program) -> dict[str, np.ndarray]:
    """All that the program's lines read; tensors of the library, a user's own among them, are made here."""
    interpreter = Interpreter.of(program, torch.float64)
    arrays: dict[str, np.ndarray] = {}
    for statement in program.statements:
        if isinstance(statement, Select | Project):
            arrays[statement.op_name] = _narrowed(interpreter.ops[statement.name].cpu().numpy())
        for name in statement.tensor_names:
            arrays[name] = _narrowed(interpreter.tensors[name].detach().cpu().numpy())
    return arrays


def _narrowed(array: np.ndarray) -> np.ndarray:
    """The array in 32-bit numbers where that changes nothing."""
    narrow = array.astype("<f4")
    return narrow if np.array_equal(narrow, array) else array.astype("<f8")


def rounded(array: np.ndarray, bits: int) -> np.ndarray:
    """The array with the last `bits` bits of every 32-bit number cleared, to nearest: they take no room when packed."""
    if not bits:
        return array
    patterns = array.astype("<f4").view("<u4")
    half = np.uint32(1 << (bits - 1))
    return ((patterns + half) & np.uint32(0xFFFFFFFF << bits & 0xFFFFFFFF)).view("<f4")


def packed(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Arrays deflated together, with bytes grouped by their place in a number: the leading ones are much alike."""
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
