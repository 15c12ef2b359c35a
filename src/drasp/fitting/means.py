"""Means of what lines of a program read, for what goes to leave behind; and of values at large."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import torch
from jaxtyping import Bool
from torch import Tensor

from drasp.fitting.dropping import Means
from drasp.fitting.oracle import Batch, Oracle
from drasp.language import Interpreter
from drasp.language.syntax import ElementWise, Norm, Operand, Program

Key = TypeVar("Key")


def means_over(batches: Iterable[tuple[Mapping[Key, Tensor], Bool[Tensor, "_ _"]]]) -> dict[Key, Tensor]:
    """The mean of each value over all positions that are more than padding: values and such positions, by batches."""
    sums: dict[Key, Tensor] = {}
    count = 0
    for values, real in batches:
        count += int(real.sum())
        for name, value in values.items():
            total = value.expand(*real.shape, *value.shape[2:])[real].sum(0)  # a norm is one number at each
            sums[name] = sums[name] + total if name in sums else total
    return {name: total / count for name, total in sums.items()}


@torch.no_grad()
def operand_means(program: Program, oracle: Oracle) -> Means:
    """The mean of everything that a line reads, and of every function, over all positions of some inputs."""
    interpreter = Interpreter.of(program)
    found = {operand for statement in program.statements for operand in statement.operands}
    found |= {Operand("one", s.name) for s in program.statements if isinstance(s, Norm)}
    found |= {Operand(s.name) for s in program.statements if isinstance(s, ElementWise)}
    wanted = tuple(found)

    def values(batch: Batch) -> Mapping[Operand, Tensor]:
        return dict(zip(wanted, interpreter.values(batch.inputs.ids, batch.inputs.positions, wanted), strict=True))

    return means_over((values(batch), batch.real) for batch in oracle.batches)
