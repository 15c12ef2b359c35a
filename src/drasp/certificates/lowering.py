"""A program, a model and a task's inputs as a certificate holds them: plain data that NumPy alone can compute with."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drasp.certificates.checker import packed
from drasp.certificates.functions import FUNCTIONS
from drasp.certificates.tree import Listed, Words
from drasp.errors import DraspError
from drasp.language.checker import op_bases, variable_types
from drasp.language.printer import statement_text
from drasp.language.syntax import (
    Aggregate,
    ElementWise,
    Function,
    Network,
    Norm,
    Operand,
    PrimitiveFunction,
    PrimitiveTensor,
    Program,
    Project,
    Select,
    Statement,
    to_text,
)
from drasp.language.tensor_primitives import build
from drasp.model_files import digest, named_weights
from drasp.tasks import Task
from drasp.transformer import Transformer


def lowered_program(program: Program) -> dict[str, Any]:
    """The program's text, the lines as steps, and the numbers of the tensors that they name."""
    variable_types(program)  # raises where a line is wrong
    library = {
        s.op_name: packed(np.array(build(s.op, s.special_op, *op_bases(program, s))))
        for s in program.statements
        if isinstance(s, Select | Project) and isinstance(s.op, PrimitiveTensor)
    }
    return {
        "digest": program.digest,
        "text": to_text(program),
        "vocabulary": list(program.vocabulary.tokens),
        "n_positions": program.n_positions,
        "output": program.output,
        "steps": [_step(statement) | {"text": statement_text(statement)} for statement in program.statements],
        "stored": {name: packed(_numbers(tensor)) for name, tensor in sorted(program.tensors.items())},
        "library": library,
    }


def _step(statement: Statement) -> dict[str, Any]:
    start: dict[str, Any] = {"name": statement.name, "kind": statement.kind}
    start["inputs"] = [_operand(operand) for operand in statement.operands]
    match statement:
        case Select() | Project():
            return start | {"op": statement.op_name}
        case Aggregate(selectors=selectors):
            return start | {"selectors": [selector.variable for selector in selectors]}
        case Norm(op=op, eps=eps):
            return start | {"op": op.name, "eps": eps}
        case ElementWise(name, function=function):
            return start | {"function": _function(name, function)}
        case _:
            return start | {"logits": [part.variable for part in statement.logits]}


def _function(line: str, function: Function) -> dict[str, Any]:
    match function:
        case Network(name, activation, eps):
            return {"mlp": name, "activation": activation, "eps": eps}
        case PrimitiveFunction(primitive, arguments):
            if primitive not in FUNCTIONS:
                known = ", ".join(FUNCTIONS)
                raise DraspError(f"line {line}: no error bounds are known for {primitive}; they are for {known}")
            return {"primitive": primitive, "arguments": list(arguments)}


def _operand(operand: Operand) -> list[str | None]:
    return [operand.variable, operand.norm]


def lowered_model(transformer: Transformer) -> dict[str, Any]:
    """The model's weights as they are stored, and its form."""
    if not transformer.is_gpt2:
        raise DraspError(
            "the model is no GPT-2 (other norms, no MLPs, heads of another width, a bias of the output): error bounds "
            "are known for GPT-2 alone; without the model, its program can be certified"
        )
    layers = [(layer.attention, layer.mlp) for layer in transformer.layers if layer.mlp is not None]
    return {
        "digest": digest(transformer),
        "eps": transformer.final_norm.eps,
        "layers": [
            {"heads": attention.n_heads, "scale": attention.scale, "activation": mlp.activation}
            for attention, mlp in layers
        ],
        "weights": {name: packed(_numbers(tensor)) for name, tensor in named_weights(transformer)},
    }


def lowered_task(task: Task, inputs: Words | Listed) -> dict[str, Any]:
    """What a task's inputs are, and what should be said to them."""
    start = {"name": task.name, "digest": task.digest()}
    match inputs:
        case Words(after=after, allowed=allowed, start=first, bos=bos):
            tables: Mapping[str, Any] = {"after": packed(after.astype(np.int32)), "allowed": packed(allowed)}
            return start | {"kind": "words", "start": first, "bos": bos, **tables}
        case Listed():
            columns = {column.name: packed(getattr(inputs, column.name)) for column in fields(inputs)}
            return start | {"kind": "listed", **columns}


def _numbers(tensor: Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    return tensor.to(torch.float64 if tensor.dtype == torch.float64 else torch.float32).contiguous().numpy()
