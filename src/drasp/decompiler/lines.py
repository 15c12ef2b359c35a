"""Moves on a program: a line or an input of one is taken away; and the tensors in which their means are left."""

from drasp.decompiler.elimination import Move
from drasp.fitting.dropping import Means, drop_input, drop_norm, drop_project, drop_select
from drasp.language.syntax import ONE, ElementWise, Network, Norm, Operand, Program, Project, Select, TensorName


def line_moves(program: Program, means: Means) -> list[Move[Program]]:
    """Everything that could go: selects, projects, norms, and inputs of norms and of element-wise functions."""
    moves: list[Move[Program]] = []
    for statement in program.statements:
        match statement:
            case Select(name):
                moves.append(Move(("select", name), lambda p, name=name: drop_select(p, name, means)))
            case Project(name, source) if source != ONE:
                moves.append(Move(("project", name), lambda p, name=name: drop_project(p, name, means)))
            case Norm(name, inputs):
                moves.append(Move(("norm", name), lambda p, name=name: drop_norm(p, name, means)))
                moves += _input_moves(name, inputs, means)
            case ElementWise(name, inputs, Network()):
                moves += _input_moves(name, inputs, means)
            case _:
                pass
    return moves


def _input_moves(name: str, inputs: tuple[Operand, ...], means: Means) -> list[Move[Program]]:
    return [Move(("input", name, v), lambda p, v=v: drop_input(p, name, v, means)) for v in inputs if v != ONE]


def constants_of(program: Program) -> list[str]:
    """The tensors that stand for constants: biases, and what key-only selects look for."""
    names: list[str] = []
    for statement in program.statements:
        match statement:
            case Select(query=query, op=TensorName(name)) if query == ONE:
                names.append(name)
            case Project(input=source, op=TensorName(name)) if source == ONE:
                names.append(name)
            case ElementWise(function=Network(name)):
                names += [f"{name}.hidden_bias", f"{name}.out_bias"]
            case _:
                pass
    return names
