"""Programs as JSON, for other tools: what the text says, line by line, taken apart."""

import json
from typing import Any, cast

from drasp.language.bases import describe, labels
from drasp.language.checker import Activation, variable_types
from drasp.language.printer import statement_text
from drasp.language.syntax import (
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Prediction,
    PrimitiveFunction,
    PrimitiveTensor,
    Program,
    Project,
    Select,
    Statement,
    TensorName,
    TensorOp,
    tensor_names,
)

SCHEMA_VERSION = 1
_MOST_ENTRIES = 10_000  # of a tensor whose numbers are in the file; larger ones are in program.safetensors
_MOST_LABELS = 400


def to_json(program: Program) -> str:
    """`lines` are the statements; `tensors` those they name, with their numbers where there are not too many."""
    types = variable_types(program)
    lines: list[dict[str, Any]] = []
    for number, statement in enumerate(program.statements, 1):
        line = {"number": number, "name": statement.name, "text": statement_text(statement)}
        line |= {"comment": statement.comment, **_parts(statement), "tensors": list(tensor_names(statement))}
        match types.get(statement.name):
            case Activation(basis):
                names = labels(basis)
                line["basis"] = describe(basis)
                line["directions"] = list(names) if len(names) <= _MOST_LABELS else None
            case _:
                pass
        lines.append(line)
    tensors: dict[str, dict[str, Any]] = {
        name: {
            "shape": list(tensor.shape),
            "values": cast(list[Any], tensor.tolist()) if tensor.numel() <= _MOST_ENTRIES else None,  # pyright: ignore
        }
        for name, tensor in program.tensors.items()
    }
    header = {
        "schema_version": SCHEMA_VERSION,
        "vocab": list(program.vocabulary.tokens),
        "special": list(program.vocabulary.special),
        "positions": program.n_positions,
        "output": program.output,
    }
    return json.dumps({**header, "lines": lines, "tensors": tensors}, ensure_ascii=False, indent=1) + "\n"


def _parts(statement: Statement) -> dict[str, Any]:
    match statement:
        case Select(query=query, key=key, op=op, special_op=special):
            sides = {"query": _operand(query), "key": _operand(key)}
            return {"kind": "select", **sides, "op": _op(op), "special_op": special and _op(special)}
        case Aggregate(selectors=selectors, value=value):
            return {"kind": "aggregate", "selectors": [s.variable for s in selectors], "value": _operand(value)}
        case ElementWise(inputs=inputs, function=function):
            return {"kind": "element_wise_op", "inputs": [_operand(i) for i in inputs], "function": _function(function)}
        case Norm(inputs=inputs, op=op, eps=eps):
            return {"kind": "norm", "inputs": [_operand(i) for i in inputs], "op": _op(op), "eps": eps}
        case Project(input=source, op=op, special_op=special):
            return {"kind": "project", "input": _operand(source), "op": _op(op), "special_op": special and _op(special)}
        case Prediction(output=output, logits=logits):
            return {"kind": "prediction", "output": output, "logits": [part.variable for part in logits]}


def _operand(operand: Operand) -> dict[str, Any]:
    return {"variable": operand.variable, "norm": operand.norm}


def _op(op: TensorOp) -> dict[str, Any]:
    match op:
        case TensorName(name):
            return {"tensor": name}
        case PrimitiveTensor(primitive, arguments, scale):
            return {"primitive": primitive, "arguments": list(arguments), "scale": scale}


def _function(function: Network | PrimitiveFunction) -> dict[str, Any]:
    match function:
        case Network(name, activation, eps):
            return {"mlp": name, "activation": activation, "eps": eps}
        case PrimitiveFunction(primitive, arguments):
            return {"primitive": primitive, "arguments": list(arguments)}
