"""The program of a compiled model: what every line stands for, and, where layer norms matter, the lines that they are.

Where the norms are nearly constant, the model's program is the source. Where they are not, the model computes something
else, and that has a program too: the source with every read divided by the norm in front of the reader. The stream is
known, Σ v·matrix over the variables that it holds, and so is each norm; functions of the library are then networks.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from drasp.compiler.functions import in_code
from drasp.compiler.plan import Cell, CompilationPlan, HeadPlan
from drasp.compiler.weights import Writer, attention, mlp
from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Prediction,
    Program,
    Project,
    Reference,
    Select,
    Statement,
    TensorName,
)
from drasp.rewriting.rewrite import fresh_name
from drasp.sites import OUT, POSITION, TOKEN, Component, Edge, NormSite, Receiver, Site, joined

# Of each variable, the components that write it to the stream.
Senders = Mapping[str, tuple[Component, ...]]


def with_sites(plan: CompilationPlan) -> Program:
    """The source program, each of whose lines says which heads, MLPs or edges of the model compute it."""
    senders, stages = _senders(plan), _stages(plan)

    def sites(statement: Statement) -> tuple[Site, ...]:
        match statement:
            case Select(name, query, key):
                heads = [c for head in plan.heads if name in head.selectors for c in _heads(head)]
                sides = ((head.receivers[i], o) for head in heads for i, o in enumerate((query, key)))
                return joined(heads, *(_edges(side, o.variable, senders, stages) for side, o in sides))
            case Aggregate(name, _, value):
                heads = senders[name]
                return joined(heads, *(_edges(h.receivers[2], value.variable, senders, stages) for h in heads))
            case ElementWise(name, inputs):
                first = stages[name][0]
                edges = (_edges(first.receivers[0], o.variable, senders, stages) for o in inputs)
                return joined(stages[name], *edges)
            case Project(_, source):
                return _edges_to_output(source.variable, senders)
            case _:
                assert isinstance(statement, Prediction), "a plan has no norms"
                return (OUT,)

    program = plan.program
    return replace(program, statements=tuple(replace(s, sites=sites(s)) for s in program.statements))


def _heads(head: HeadPlan) -> tuple[Component, ...]:
    return tuple(Component("head", head.layer, place) for place in head.places)


def _senders(plan: CompilationPlan) -> Senders:
    """`one` has none: it is in every reader's bias."""
    written: dict[str, tuple[Component, ...]] = {"token": (TOKEN,), "pos": (POSITION,), "one": ()}
    written |= {aggregate: _heads(head) for head in plan.heads for aggregate, _ in head.values}
    return written | {cell.variable: (Component("mlp", cell.layer),) for cell in plan.cells}


def _stages(plan: CompilationPlan) -> Senders:
    """The MLPs that compute each element-wise line, one after the other."""
    found: dict[str, tuple[Component, ...]] = {}
    for cell in plan.cells:
        found[cell.line] = (*found.get(cell.line, ()), Component("mlp", cell.layer))
    return found


def _edges(receiver: Receiver, variable: str, senders: Senders, stages: Senders) -> list[Edge]:
    """Needed where a variable's line stands for more than what sends it: the MLPs before its last."""
    more = len(stages.get(variable, ())) > 1
    return [Edge(sender, receiver) for sender in senders[variable]] if more else []


def _edges_to_output(variable: str, senders: Senders) -> tuple[Site, ...]:
    return tuple(Edge(sender, OUT) for sender in senders[variable]) or (OUT,)


def with_norms(writer: Writer) -> Program:
    """The exact program of a model whose layer norms matter, written from its layout."""
    return _NormedProgram(writer).program()


class _NormedProgram:
    """Writes layer by layer. A variable here is the source's divided by `scale`: values are read through norms."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self.plan = writer, writer.layout.plan
        self.senders = _senders(self.plan)
        self.scale = {"token": 1.0, "pos": 1.0, "one": 1.0}
        self.statements: list[Statement] = []
        self.tensors: dict[str, Tensor] = {}

    def program(self) -> Program:
        plan = self.plan
        for layer in range(plan.n_layers):
            heads = [head for head in plan.heads if head.layer == layer]
            cells = [cell for cell in plan.cells if cell.layer == layer]
            norm = self.norm(attention(layer)) if heads else ""
            for head in heads:
                self.add_head(head, norm)
            norm = self.norm(mlp(layer)) if cells else ""
            for cell in cells:
                self.add_cell(cell, norm)
        norm = self.norm(OUT)
        projects = [self.add_project(i, norm) for i in range(len(plan.outputs))]
        references = tuple(Reference(name) for name in projects)
        self.statements.append(Prediction(plan.program.output, references, (OUT,)))
        return replace(plan.program, statements=tuple(self.statements), tensors=self.tensors)

    def fresh(self, name: str) -> str:
        made = replace(self.plan.program, statements=(*self.plan.program.statements, *self.statements))
        return fresh_name(replace(made, tensors=self.tensors), name)

    def unused(self, line: str) -> str:
        """A line's own name, or another where the line is there already: heads of several layers may share a select."""
        return self.fresh(line) if any(s.name == line for s in self.statements) else line

    def store(self, name: str, tensor: Tensor) -> TensorName:
        self.tensors[name] = tensor.to(torch.get_default_dtype()).contiguous()
        return TensorName(name)

    def norm(self, receiver: Receiver) -> str:
        stream = self.writer.stream(receiver)
        name = self.fresh(f"n{1 + sum(isinstance(s, Norm) for s in self.statements)}")
        op = self.fresh(name.upper())
        for i, (variable, rows) in enumerate(stream.items()):
            self.store(f"{op}.{i}", self.scale[variable] * (rows - rows.mean(1, keepdim=True)))
        inputs = tuple(map(Operand, stream))
        self.statements.append(Norm(name, inputs, TensorName(op), self.writer.shape.eps, (NormSite(receiver),)))
        return name

    def read(self, variable: str, norm: str, receiver: Receiver) -> tuple[Operand, float]:
        """What is read, and by how much it must be multiplied to be the source's variable, typically."""
        if variable == "one":
            return ONE, 1.0
        return Operand(variable, norm), self.scale[variable] * self.writer.norms[receiver]

    def add_head(self, head: HeadPlan, norm: str) -> None:
        here, heads, names = attention(head.layer), _heads(head), list[str]()
        for score in head.scores:
            (query, q), (key, k) = self.read(score.query, norm, here), self.read(score.key, norm, here)
            name = self.unused(score.line)
            op = self.store(self.fresh(f"A_{name}"), q * k * score.tensor)
            self.statements.append(Select(name, query, key, op, None, heads))
            names.append(name)
        references = tuple(map(Reference, names))
        for aggregate, value in head.values:
            operand, self.scale[aggregate] = self.read(value, norm, here)
            self.statements.append(Aggregate(aggregate, references, operand, heads))

    def add_cell(self, cell: Cell, norm: str) -> None:
        units = in_code(cell.stage, self.writer.layout.codes[cell.variable])
        decoder = self.writer.layout.decoders[cell.variable]
        name = self.fresh(f"F_{cell.variable}")
        read = [self.read(variable, norm, mlp(cell.layer)) for variable in cell.inputs]
        for i, ((_, factor), matrix) in enumerate(zip(read, units.maps, strict=True)):
            self.store(f"{name}.{i}", factor * matrix)
        self.store(f"{name}.hidden", torch.eye(len(units.bias)))
        self.store(f"{name}.hidden_bias", units.bias)
        self.store(f"{name}.out", units.out @ decoder)
        self.store(f"{name}.out_bias", units.out_bias @ decoder)
        inputs, function = tuple(operand for operand, _ in read), Network(name, self.plan.activation)
        self.scale[cell.variable] = 1.0
        self.statements.append(ElementWise(cell.variable, inputs, function, self.senders[cell.variable]))

    def add_project(self, number: int, norm: str) -> str:
        output = self.plan.outputs[number]
        operand, factor = self.read(output.variable, norm, OUT)
        name = self.unused(output.line)
        op = self.store(self.fresh(f"R_{name}"), factor * output.tensor)
        sites = _edges_to_output(output.variable, self.senders)
        self.statements.append(Project(name, operand, op, None, sites))
        return name
