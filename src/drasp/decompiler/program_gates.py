"""Gates on the tensors of a program: each scales one between 0 and 1, and may leave a learnt constant behind.

Stage 2 of the paper's pruning has gates on what the output and MLPs read (in a program these are paths), stage 3 on
selects (in a program these are products of a query and a key).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.decompiler.gates import CONSTANT_RATE, START, sample_masks
from drasp.decompiler.lines import constants_of, drop_line, operand_means
from drasp.fitting.oracle import Batch, Oracle, answering
from drasp.language.syntax import (
    ONE,
    ElementWise,
    Network,
    Operand,
    Program,
    Project,
    Select,
    TensorName,
)
from drasp.rewriting.tidy import bias_of


@dataclass(frozen=True)
class Gate:
    """Of the line `name`: its tensor, and what it reads through it. Selects leave no constant and have no operand."""

    name: str
    tensor: str
    operand: Operand | None = None


def path_gates(program: Program) -> list[Gate]:
    """What the output and MLPs read."""
    gates: list[Gate] = []
    for statement in program.statements:
        match statement:
            case Project(name, source, TensorName(tensor)) if source != ONE:
                gates.append(Gate(name, tensor, source))
            case ElementWise(name, inputs, Network(network, eps=None)):
                gates += [Gate(name, f"{network}.{i}", v) for i, v in enumerate(inputs) if v != ONE]
            case _:
                pass
    return gates


def product_gates(program: Program) -> list[Gate]:
    """Selects, those without a query among them."""
    return [Gate(s.name, name) for s in program.statements if isinstance(s, Select) for name in s.tensor_names]


class ProgramGates:
    """The gates of a program, and the constants that are trained with them: ablations, and the program's own."""

    def __init__(self, program: Program, gates: Sequence[Gate], oracle: Oracle) -> None:
        self.program, self.gates, self.oracle = program, tuple(gates), oracle
        self.theta = torch.full((len(gates),), START).requires_grad_()
        means = operand_means(program, oracle)
        read = dict.fromkeys(gate.operand for gate in gates if gate.operand)
        self.ablations = {operand: means[operand].clone().requires_grad_() for operand in read}
        self.constants = {name: program.tensors[name].clone().requires_grad_() for name in constants_of(program)}

    def rates(self) -> list[tuple[Tensor, float]]:
        return [(tensor, CONSTANT_RATE) for tensor in (*self.ablations.values(), *self.constants.values())]

    def divergence(self, batch: Batch, masks: int, generator: torch.Generator) -> Float[Tensor, ""]:
        """From the model, over so many samples of the gates: a program at a time, each on the whole batch."""
        programs = [self.masked(row) for row in sample_masks(self.theta, masks, generator)]
        return torch.stack([self.oracle.loss(batch, answering(p)(batch)).mean() for p in programs]).mean()

    def masked(self, masks: Float[Tensor, " gates"]) -> Program:
        """The program with these masks; it has all its lines still."""
        tensors = {**self.program.tensors, **self.constants}
        for gate, mask in zip(self.gates, masks, strict=True):
            tensor = tensors[gate.tensor]
            # What is trained learns only where it is whole, and ablations only where the tensor is gone.
            tensors[gate.tensor] = mask * (tensor if float(mask.detach()) == 1 else tensor.detach())
            if gate.operand is not None:
                ablation = self.ablations[gate.operand]
                left = (1 - mask) * (ablation if float(mask.detach()) == 0 else ablation.detach()) @ tensor
                target, through = self._constant_of(gate)
                tensors[target] = tensors[target] + (left if through is None else left @ tensors[through])
        return self.program.with_tensors(tensors)

    def _constant_of(self, gate: Gate) -> tuple[str, str | None]:
        """The tensor that takes in what a gate leaves behind, and the tensor that is in between."""
        if (suffix := gate.tensor.rfind(".")) >= 0:
            network = gate.tensor[:suffix]
            return f"{network}.hidden_bias", f"{network}.hidden"
        bias = bias_of(self.program)
        assert bias is not None
        return bias.tensor_names[0], None

    @torch.no_grad()
    def pruned(self) -> Program:
        """Without the lines whose gates have closed, with what has been learnt."""
        kept = (self.theta > 0).float()
        program = self.masked(kept)
        program = program.with_tensors({name: tensor.detach() for name, tensor in program.tensors.items()})
        # The tensors that go are 0, so whatever the drops leave behind of them is too; only an MLP that has lost all
        # its inputs has a constant of its own.
        means = operand_means(program, self.oracle)
        for gate, keep in zip(self.gates, kept, strict=True):
            if not float(keep):
                program = drop_line(program, gate.name, gate.operand, means) or program
        return program
