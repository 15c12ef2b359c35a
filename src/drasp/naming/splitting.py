"""An MLP of several variables as a sum of MLPs of one variable each; readers of the sum read every part."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from torch import Tensor

from drasp.fitting.dropping import without_input
from drasp.fitting.means import operand_means
from drasp.fitting.oracle import Oracle
from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Program,
    Project,
    Reference,
    Select,
    Statement,
)
from drasp.rewriting.rewrite import fresh_name
from drasp.rewriting.tidy import without_unused


def split(program: Program, name: str, oracle: Oracle) -> Program | None:
    """The program with an MLP as a sum of parts: each is the MLP with the means of its other inputs."""
    whole = program.find(name)
    if not isinstance(whole, ElementWise) or not isinstance(whole.function, Network):
        return None
    variables = [operand for operand in whole.inputs if operand != ONE]
    if len(variables) < 2:
        return None
    means = operand_means(program, oracle)
    parts: list[ElementWise] = []
    for operand in variables:
        part, own = _copied(program, whole, fresh_name(program, f"{name}_{operand.variable}"))
        program = program.with_tensors(own)
        for other in variables:
            if other != operand:
                part, tensors = without_input(program, part, other, means)
                program = program.with_tensors(tensors)
        if parts:
            bias = next(n for n in part.tensor_names if n.endswith(".out_bias"))
            program = program.with_tensors({bias: program.tensors[bias] - means[Operand(name)]})
        parts.append(part)
    statements: list[Statement] = []
    for statement in program.statements:
        statements += parts if statement is whole else [statement]
    return as_sum(replace(program, statements=tuple(statements)), name, [part.name for part in parts])


def _copied(program: Program, whole: ElementWise, name: str) -> tuple[ElementWise, dict[str, Tensor]]:
    """The same function by another name, with tensors of its own."""
    after = fresh_name(program, f"F_{name}")
    copy = replace(whole.with_stored(after), name=name)
    pairs = zip(copy.tensor_names, whole.tensor_names, strict=True)
    return copy, {new: program.tensors[old] for new, old in pairs}


def as_sum(program: Program, name: str, parts: Sequence[str]) -> Program:
    """The program in which what read the variable reads the parts; they stand where it stood."""
    return _Sum(program, {name: tuple(parts)}).result()


class _Sum:
    """`parts` says which variables have become sums, and of what."""

    def __init__(self, program: Program, parts: dict[str, tuple[str, ...]]) -> None:
        self.program, self.parts = program, parts
        self.tensors = dict(program.tensors)

    def result(self) -> Program:
        *lines, _ = self.program.statements
        statements = [new for statement in lines for new in self.expanded(statement)]
        prediction = self.program.prediction
        prediction = replace(prediction, logits=self.references(prediction.logits))
        return without_unused(replace(self.program, statements=(*statements, prediction), tensors=self.tensors))

    def expanded(self, statement: Statement) -> list[Statement]:
        match statement:
            case Select(name, query, key):
                pairs = list(product(self.operands(query), self.operands(key)))
                names = self.names(name, len(pairs))
                return [replace(statement, name=n, query=q, key=k) for n, (q, k) in zip(names, pairs, strict=True)]
            case Aggregate(name, selectors, value):
                values = self.operands(value)
                heard = self.references(selectors)
                names = self.names(name, len(values))
                return [
                    replace(statement, name=n, selectors=heard, value=v) for n, v in zip(names, values, strict=True)
                ]
            case Project(name, source):
                sources = self.operands(source)
                names = self.names(name, len(sources))
                return [replace(statement, name=n, input=v) for n, v in zip(names, sources, strict=True)]
            case Norm(inputs=inputs) | ElementWise(inputs=inputs) if statement.stored is not None:
                named = zip(inputs, statement.source_names, strict=True)
                read = [(operand, self.tensors[name]) for old, name in named for operand in self.operands(old)]
                new = replace(statement, inputs=tuple(operand for operand, _ in read))
                self.tensors |= dict(zip(new.source_names, (tensor for _, tensor in read), strict=True))
                return [new]
            case _:
                return [statement]

    def names(self, name: str, count: int) -> tuple[str, ...]:
        """For the statements that one becomes; those that read it will read them all."""
        if count == 1:
            return (name,)
        self.parts[name] = tuple(fresh_name(self.program, f"{name}_{i}") for i in range(count))
        return self.parts[name]

    def operands(self, old: Operand) -> list[Operand]:
        return [replace(old, variable=name) for name in self.parts.get(old.variable, (old.variable,))]

    def references(self, old: tuple[Reference, ...]) -> tuple[Reference, ...]:
        return tuple(Reference(name) for r in old for name in self.parts.get(r.variable, (r.variable,)))
