"""Programs as JSON, for other tools: what the text says, line by line, taken apart."""

import json
from typing import Any, cast

from drasp.language.bases import describe, labels
from drasp.language.checker import Activation, variable_types
from drasp.language.printer import statement_text
from drasp.language.remarks import remark
from drasp.language.syntax import Network, Operand, PrimitiveFunction, PrimitiveTensor, Program, Reference, TensorName

SCHEMA_VERSION = 1
_MOST_ENTRIES = 10_000  # of a tensor whose numbers are in the file; larger ones are in program.safetensors
_MOST_LABELS = 400


def to_json(program: Program) -> str:
    """`lines` are the statements; `tensors` those they name, with their numbers where there are not too many."""
    types = variable_types(program)
    lines: list[dict[str, Any]] = []
    for number, statement in enumerate(program.statements, 1):
        line: dict[str, Any] = {"number": number, "name": statement.name, "text": statement_text(statement)}
        line |= {"comment": remark(statement), "sites": [str(site) for site in statement.sites], "kind": statement.kind}
        line |= {name: _plain(part) for name, part in statement.parts.items()}
        line["tensors"] = list(statement.tensor_names)
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


def _plain(part: Any) -> Any:
    match part:
        case Operand(variable, norm):
            return {"variable": variable, "norm": norm}
        case Reference(variable):
            return variable
        case TensorName(name):
            return {"tensor": name}
        case PrimitiveTensor(primitive, arguments, scale):
            return {"primitive": primitive, "arguments": list(arguments), "scale": scale}
        case Network(name, activation, eps):
            return {"mlp": name, "activation": activation, "eps": eps}
        case PrimitiveFunction(primitive, arguments):
            return {"primitive": primitive, "arguments": list(arguments)}
        case tuple():
            return [_plain(each) for each in cast(tuple[Any, ...], part)]
        case _:
            return part
