"""Means of what lines of a program read, for what goes to leave behind."""

import torch
from torch import Tensor

from drasp.fitting.dropping import Means
from drasp.fitting.oracle import Oracle
from drasp.language import Interpreter
from drasp.language.syntax import (
    ElementWise,
    Norm,
    Operand,
    Program,
)


@torch.no_grad()
def operand_means(program: Program, oracle: Oracle) -> Means:
    """The mean of everything that a line reads, and of every function, over all positions of some inputs."""
    interpreter = Interpreter.of(program)
    wanted = {operand for statement in program.statements for operand in statement.operands}
    wanted |= {Operand("one", s.name) for s in program.statements if isinstance(s, Norm)}
    wanted |= {Operand(s.name) for s in program.statements if isinstance(s, ElementWise)}
    sums: dict[Operand, Tensor] = {}
    count = 0
    for batch in oracle.batches:
        values = interpreter.values(batch.inputs.ids, batch.inputs.positions, tuple(wanted))
        count += int(batch.real.sum())
        for operand, value in zip(wanted, values, strict=True):
            part = value[batch.real].sum(0)
            sums[operand] = sums[operand] + part if operand in sums else part
    return {operand: total / count for operand, total in sums.items()}
