"""A program laid out over the layers of a model: which head and which MLP does what.

Everything comes as early as what it reads allows, so there are no more layers than the longest chain of reads needs.
Aggregates with the same selectors are one head, as far as they are in one layer; all functions of a layer share its
MLP. What no GPT-2 can hold is refused here, with its line, before any weight is made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from drasp.compiler.functions import CannotCompileError, Stage, held
from drasp.compiler.scores import ScoreTerm, lowered, picks_one
from drasp.compiler.values import Values
from drasp.language.bases import size
from drasp.language.checker import basis_of, variable_types
from drasp.language.interpreter import Interpreter
from drasp.language.syntax import (
    INITIAL_VARIABLES,
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Place,
    Program,
    ProgramError,
    Project,
    Select,
    Statement,
)
from drasp.rewriting.rewrite import fresh_name
from drasp.rewriting.simplify import simplify
from drasp.rewriting.tidy import without_unused

MAX_TOKENS = MAX_POSITIONS = 2000
"""A tensor between two variables has the square of that in entries: beyond this the compiler would work for minutes."""


@dataclass(frozen=True)
class HeadPlan:
    """One attention pattern, and the values that it mixes: pairs of an aggregate and what it is an aggregate of.

    `places` are the heads of the layer that do it; where there are several, each writes its part.
    """

    layer: int
    selectors: tuple[str, ...]
    scores: tuple[ScoreTerm, ...]
    values: tuple[tuple[str, str], ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class Cell:
    """A stage of a line's function, in the MLP of a layer."""

    layer: int
    line: str
    variable: str
    inputs: tuple[str, ...]
    stage: Stage


@dataclass(frozen=True)
class Output:
    """What a project reads, and its tensor; `one` for a bias."""

    line: str
    variable: str
    tensor: Float[Tensor, "dims n_vocab"]


@dataclass(frozen=True)
class CompilationPlan:
    """`sizes` are the dimensions of all variables, the stages between included."""

    program: Program
    sizes: Mapping[str, int]
    heads: tuple[HeadPlan, ...]
    cells: tuple[Cell, ...]
    outputs: tuple[Output, ...]
    activation: str

    @property
    def n_layers(self) -> int:
        """The number of layers, at least one: a GPT-2 without layers is nothing that others expect."""
        return 1 + max((part.layer for part in (*self.heads, *self.cells)), default=0)

    @property
    def n_heads(self) -> int:
        return 1 + max((place for head in self.heads for place in head.places), default=0)


def make_plan(program: Program) -> CompilationPlan:
    """The layers, heads and MLPs of a program; raises an error with the line that has none."""
    for count, most, what in (
        (len(program.vocabulary), MAX_TOKENS, "tokens"),
        (program.n_positions, MAX_POSITIONS, "positions"),
    ):
        if count > most:
            weights = 12 * count**2
            raise ProgramError(
                Place(),
                f"{count:,} {what}: a model with a dimension for each would have {weights:,} weights a layer; "
                f"expected at most {most:,}",
            )
    variable_types(program)  # says what is wrong, in lines that are not used as well
    return _Planner(_without_norms(without_unused(program))).plan()


def _without_norms(program: Program) -> Program:
    """The program, simplified if it has norms: those of one one-hot variable fold into what they divide."""
    norms = [statement for statement in program.statements if isinstance(statement, Norm)]
    if not norms:
        return program
    simpler = simplify(program)
    if any(isinstance(statement, Norm) for statement in simpler.statements):
        raise _refusal(norms[0], "a compiled model has layer norms of its own, and its heads and MLPs hold no others")
    return simpler


class _Planner:
    """Goes through the lines in their order. `ready` is when a variable is there: 2l + 1 and 2l + 2 in layer l."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.ops = Interpreter.of(program, torch.float64).ops
        self.selects = {s.name: s for s in program.statements if isinstance(s, Select)}
        self.ready: dict[str, int] = dict.fromkeys(INITIAL_VARIABLES, 0)
        self.values: dict[str, Values] = dict.fromkeys(INITIAL_VARIABLES, Values.ONE_HOT)
        self.sizes: dict[str, int] = {name: size(basis_of(program, Operand(name))) for name in INITIAL_VARIABLES}
        self.heads: dict[tuple[int, tuple[str, ...]], HeadPlan] = {}
        self.cells: list[Cell] = []
        self.activation = self.common_activation()

    def plan(self) -> CompilationPlan:
        for statement in self.program.statements:
            match statement:
                case Aggregate():
                    self.aggregate(statement)
                case ElementWise():
                    self.element_wise(statement)
                case _:
                    pass  # selects are read by aggregates, projects by what follows, and norms have been refused
        projects = {s.name: s for s in self.program.statements if isinstance(s, Project)}
        summed = [projects[reference.variable] for reference in self.program.prediction.logits]
        outputs = tuple(Output(s.name, s.input.variable, self.ops[s.name]) for s in summed)
        heads = tuple(sorted(self.heads.values(), key=lambda head: head.layer))
        return CompilationPlan(self.program, self.sizes, heads, tuple(self.cells), outputs, self.activation)

    def common_activation(self) -> str:
        """The activation of all stored networks; relu where there is none, which makes tables and steps exact."""
        found: str | None = None
        for statement in self.program.statements:
            match statement:
                case ElementWise(function=Network(activation=activation, eps=None)):
                    if found not in (None, activation):
                        raise _refusal(statement, f"its units are {activation}, those of an earlier line {found}")
                    found = activation
                case _:
                    pass
        return found or "relu"

    def aggregate(self, statement: Aggregate) -> None:
        name, value = statement.name, statement.value.variable
        selects = [self.selects[reference.variable] for reference in statement.selectors]
        read = [value, *(o.variable for select in selects for o in select.operands)]
        layer = (1 + max(self.ready[variable] for variable in read)) // 2
        key = layer, tuple(sorted(select.name for select in selects))
        head = self.heads.get(key) or self.new_head(layer, selects)
        self.heads[key] = replace(head, values=(*head.values, (name, value)))
        self.ready[name], self.sizes[name] = 2 * layer + 1, self.sizes[value]
        one_hot = picks_one(head.scores, self.program.n_positions) or value == "one"
        self.values[name] = self.values[value] if one_hot else min(self.values[value], Values.SHARES)

    def new_head(self, layer: int, selects: Sequence[Select]) -> HeadPlan:
        # What is the same for all keys adds the same to all scores, which softmax does not see.
        told_apart = [select for select in selects if select.key.variable != "one"]
        scores = [ScoreTerm(s.name, s.query.variable, s.key.variable, self.ops[s.name]) for s in told_apart]
        place = sum(head.layer == layer for head in self.heads.values())
        names = tuple(select.name for select in selects)
        scores = map(self.centred, lowered(scores, self.values, self.program.n_positions))
        return HeadPlan(layer, names, tuple(scores), (), (place,))

    def centred(self, score: ScoreTerm) -> ScoreTerm:
        """The score without what is the same for all keys, as far as a key's dimensions add up to one."""
        if self.values[score.key] < Values.SHARES:
            return score
        return replace(score, tensor=score.tensor - score.tensor.mean(1, keepdim=True))

    def element_wise(self, statement: ElementWise) -> None:
        inputs = tuple(operand.variable for operand in statement.inputs)
        bases = [basis_of(self.program, operand) for operand in statement.inputs]
        values = [self.values[variable] for variable in inputs]
        try:
            function = held(self.program, statement.function, bases, values, self.activation)
        except CannotCompileError as error:
            raise _refusal(statement, str(error)) from None
        for number, stage in enumerate(function.stages, 1):
            last = number == len(function.stages)
            name = statement.name if last else fresh_name(self.program, f"{statement.name}_{number}")
            layer = max(self.ready[variable] for variable in inputs) // 2
            self.cells.append(Cell(layer, statement.name, name, inputs, stage))
            self.ready[name], self.sizes[name] = 2 * layer + 2, stage.size
            inputs = (name,)
        self.values[statement.name] = function.values


def _refusal(statement: Statement, reason: str) -> ProgramError:
    return ProgramError(statement.place, f"`{statement.name}` cannot be compiled: {reason}")
