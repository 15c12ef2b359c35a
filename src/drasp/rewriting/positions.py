"""A program on its first positions: the same logits there, and none behind."""

from dataclasses import replace

import torch
from torch import Tensor

from drasp.language.bases import Basis, Positions, Products, size
from drasp.language.checker import basis_of, check, op_bases
from drasp.language.syntax import ElementWise, Norm, Program, Project, Select, Statement
from drasp.rewriting.rewrite import dense_ops, fresh_name, with_op


def within(program: Program, positions: int | None) -> Program:
    """The program on so many positions; as it is, where it has no more, where it is not known how many, or where a
    function takes none so few or makes other directions of them.

    Its tensors lose what belongs to the positions behind. Those of the library are stored, as they may name such a
    position.
    """
    if positions is None or not 0 < positions < program.n_positions:
        return program
    ops, tensors, statements = dense_ops(program), dict(program.tensors), list[Statement]()
    for statement in program.statements:
        match statement:
            case Select(name) | Project(name):
                stored = fresh_name(replace(program, tensors=tensors), f"T_{name}")
                rows, columns = (_kept(basis, positions) for basis in op_bases(program, statement))
                tensors[stored] = ops[name][rows][:, columns]
                statements.append(with_op(statement, stored))
                continue
            case Norm() | ElementWise():
                for name, operand in zip(statement.source_names, statement.inputs, strict=bool(statement.source_names)):
                    tensors[name] = program.tensors[name][_kept(basis_of(program, operand), positions)]
            case _:
                pass
        statements.append(statement)
    used = {name for statement in statements for name in statement.tensor_names}
    kept = {name: tensor for name, tensor in tensors.items() if name in used}
    part = replace(program, n_positions=positions, statements=tuple(statements), tensors=kept)
    return program if check(part) else part


def _kept(basis: Basis, positions: int) -> Tensor:
    """The directions of a basis that are met on the first positions."""
    match basis:
        case Positions(count):
            return torch.arange(min(count, positions))
        case Products(factors):
            kept = torch.zeros(1, dtype=torch.long)
            for factor in factors:
                kept = (kept[:, None] * size(factor) + _kept(factor, positions)).flatten()
            return kept
        case _:
            return torch.arange(size(basis))
