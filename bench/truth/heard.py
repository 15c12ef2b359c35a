"""What an MLP only hears: it makes up a part of its layer norm, and is not read."""

from dataclasses import replace

import torch

from drasp.activations import ACTIVATIONS
from drasp.causal.mechanism import Mechanism
from drasp.edits import Replaced
from drasp.language import Interpreter, Program
from drasp.language.syntax import ONE, ElementWise, Network
from drasp.measure import predictions
from drasp.running import run
from drasp.sequences import Sequences
from drasp.sites import Edge, last_of
from drasp.tasks import Inputs
from drasp.vocabulary import Output

_READ = 0.01  # of the answers: what changes fewer, once it has been divided by the norm, is only heard


@torch.no_grad()
def without_what_is_only_heard(program: Program, inputs: Inputs, output: Output) -> Program:
    """The program for its graph alone: functions with a norm inside are left what decides answers but for the norm."""
    mechanism = Mechanism.of(program)
    new: dict[str, ElementWise] = {}
    for line in program.statements:
        heard = _only_heard(program, line, inputs, output) if isinstance(line, ElementWise) else set[int]()
        if isinstance(line, ElementWise) and heard:
            gone = {line.inputs[i] for i in heard}
            edges = {Edge(last_of(h.sender), h.receiver) for h in mechanism.heard[line.name] if h.operand in gone}
            edges -= {Edge(last_of(h.sender), h.receiver) for h in mechanism.heard[line.name] if h.operand not in gone}
            kept = tuple(operand for operand in line.inputs if operand not in gone)
            new[line.name] = replace(line, inputs=kept, sites=tuple(s for s in line.sites if s not in edges))
    return replace(program, statements=tuple(new.get(s.name, s) for s in program.statements)) if new else program


def _only_heard(program: Program, line: ElementWise, inputs: Inputs, output: Output) -> set[int]:
    match line.function:
        case Network(name, activation, float(eps)):
            pass
        case _:
            return set()
    values = Interpreter.of(program).values(inputs.ids, inputs.positions, line.inputs)
    tensors = {key: tensor.to(values[0]) for key, tensor in program.tensors.items()}
    parts = [value @ tensors[f"{name}.{i}"] for i, value in enumerate(values)]
    stream = torch.stack(parts).sum(0)
    norm = (stream.square().mean(-1, keepdim=True) + eps).sqrt()
    real = torch.arange(inputs.ids.shape[1]) < inputs.sizes[:, None]
    sequences = Sequences(inputs.ids, inputs.positions)
    before = predictions(run(program, sequences).logits, output)[inputs.counted]

    def are_read(which: set[int]) -> bool:
        part = torch.stack([parts[i] for i in which]).sum(0)
        read = (stream - part + part[real].mean(0)) / norm
        hidden = ACTIVATIONS[activation](read @ tensors[f"{name}.hidden"] + tensors[f"{name}.hidden_bias"])
        said = hidden @ tensors[f"{name}.out"] + tensors[f"{name}.out_bias"]
        after = predictions(run(program, sequences, {line.name: Replaced(said)}).logits, output)[inputs.counted]
        return float((before != after).float().mean()) > _READ

    heard: set[int] = set()
    for i, operand in enumerate(line.inputs):
        if operand != ONE and not are_read({*heard, i}):
            heard.add(i)
    return heard
