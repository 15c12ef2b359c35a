"""D-RASP as frozen dataclasses: a program is a header, a list of statements, and the tensors they name.

The statements are those of the language's definition. Two notations of the text form are sugar: a select
without `q=` has the constant variable `one` as its query, and a project without `inp=` has it as its input.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor

from drasp.errors import DraspError
from drasp.sites import Site
from drasp.vocabulary import Output, Vocabulary

DEFAULT_SCALE = 10_000.0
"""What the entries of a primitive tensor are multiplied by, so that softmax is nearly hard."""

INITIAL_VARIABLES = ("token", "pos", "one")


@dataclass(frozen=True)
class Place:
    """Where something stands in a text; line 0 where there is no text."""

    line: int = 0
    column: int = 0


class ProgramError(DraspError):
    """What is wrong with a program, with the place and, as far as it helps, what was found and expected."""

    def __init__(self, place: Place, problem: str, source: str = "program") -> None:
        self.place, self.problem, self.source = place, problem, source
        super().__init__(f"{source}:{place.line}:{place.column}: {problem}" if place.line else f"{source}: {problem}")

    def in_file(self, source: str) -> "ProgramError":
        return ProgramError(self.place, self.problem, source)


def _place() -> Any:
    """A field that says where a node was read; nodes are equal wherever they stand."""
    return field(default=Place(), compare=False, repr=False)


@dataclass(frozen=True)
class Operand:
    """A variable, or a variable divided by a norm (`a1/n2`)."""

    variable: str
    norm: str | None = None
    place: Place = _place()


ONE = Operand("one")


@dataclass(frozen=True)
class Reference:
    """The name of a selector or of a logits variable, where it is used."""

    variable: str
    place: Place = _place()


@dataclass(frozen=True)
class TensorName:
    """`op=A1`: a tensor kept beside the text."""

    name: str
    place: Place = _place()


@dataclass(frozen=True)
class PrimitiveTensor:
    """`op=(k==q-1)`: a tensor of the library, times a scale."""

    primitive: str
    arguments: tuple[int | str, ...] = ()
    scale: float = DEFAULT_SCALE
    place: Place = _place()


TensorOp: TypeAlias = TensorName | PrimitiveTensor


@dataclass(frozen=True)
class Network:
    """`func=mlp(F1, gelu_new)`: an MLP on a weighted sum of its inputs; with `eps=`, layer-normed first."""

    name: str
    activation: str
    eps: float | None = None
    place: Place = _place()


@dataclass(frozen=True)
class PrimitiveFunction:
    """`func=sharpen(3)`: a function of the library."""

    primitive: str
    arguments: tuple[float, ...] = ()
    place: Place = _place()


Function: TypeAlias = Network | PrimitiveFunction


@dataclass(frozen=True)
class Select:
    name: str
    query: Operand
    key: Operand
    op: TensorOp
    special_op: PrimitiveTensor | None = None
    sites: tuple[Site, ...] = ()
    comment: str = ""
    place: Place = _place()


@dataclass(frozen=True)
class Aggregate:
    """Softmax over the sum of the selectors; uniform where there is none."""

    name: str
    selectors: tuple[Reference, ...]
    value: Operand
    sites: tuple[Site, ...] = ()
    comment: str = ""
    place: Place = _place()


@dataclass(frozen=True)
class ElementWise:
    name: str
    inputs: tuple[Operand, ...]
    function: Function
    sites: tuple[Site, ...] = ()
    comment: str = ""
    place: Place = _place()


@dataclass(frozen=True)
class Norm:
    """The root of the mean square, plus eps, of a weighted sum of variables: a layer norm's divisor."""

    name: str
    inputs: tuple[Operand, ...]
    op: TensorName
    eps: float
    sites: tuple[Site, ...] = ()
    comment: str = ""
    place: Place = _place()


@dataclass(frozen=True)
class Project:
    name: str
    input: Operand
    op: TensorOp
    special_op: PrimitiveTensor | None = None
    sites: tuple[Site, ...] = ()
    comment: str = ""
    place: Place = _place()


@dataclass(frozen=True)
class Prediction:
    output: Output
    logits: tuple[Reference, ...]
    sites: tuple[Site, ...] = ()
    comment: str = ""
    place: Place = _place()

    @property
    def name(self) -> str:
        return "prediction"


Statement: TypeAlias = Select | Aggregate | ElementWise | Norm | Project | Prediction


@dataclass(frozen=True)
class Program:
    """Two programs are equal when their texts are; the tensors are held beside them."""

    vocabulary: Vocabulary
    n_positions: int
    statements: tuple[Statement, ...]
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor], compare=False, repr=False)

    @property
    def lines(self) -> int:
        return len(self.statements)

    @property
    def output(self) -> Output:
        match self.statements[-1] if self.statements else None:
            case Prediction(output=output):
                return output
            case _:
                raise ProgramError(Place(), "the program ends without `prediction = …`")

    def __str__(self) -> str:
        from drasp.language.printer import listing

        return listing(self)


def tensor_names(statement: Statement) -> tuple[str, ...]:
    """The stored tensors that a statement reads, in the order in which they are applied."""
    match statement:
        case Select(op=TensorName(name)) | Project(op=TensorName(name)):
            return (name,)
        case Norm(inputs=inputs, op=TensorName(name)):
            return tuple(f"{name}.{i}" for i in range(len(inputs)))
        case ElementWise(inputs=inputs, function=Network(name)):
            sources = tuple(f"{name}.{i}" for i in range(len(inputs)))
            return (*sources, *(f"{name}.{part}" for part in ("hidden", "hidden_bias", "out", "out_bias")))
        case _:
            return ()
