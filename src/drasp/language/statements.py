"""D-RASP's statements as frozen dataclasses: those of the language's definition.

Two notations of the text form are sugar: a select without `q=` has the constant variable `one` as its query, and a
project without `inp=` has it as its input.

What holds for all statements (what they read, how that is mapped, which tensors they name) follows from their fields;
how they are written follows from a table that stands with each: parser, printer, JSON and page are driven by these.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast, get_args

from drasp.errors import DraspError
from drasp.sites import Site
from drasp.vocabulary import Output

DEFAULT_SCALE = 10_000.0
"""What the entries of a primitive tensor are multiplied by, so that softmax is nearly hard."""

INITIAL_VARIABLES = ("token", "pos", "one")


@dataclass(frozen=True)
class Place:
    """The place of something in a text; line 0 where there is no text."""

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


def _sites() -> Any:
    """A field for what of a model a line stands for, which is no part of what it says."""
    return field(default=(), repr=False)


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


# How an argument is written: `x/n1`; `x, y/n1`; `s1+s2` or `[]`; the same without a keyword; `A1` or `(k==q)`; only the
# one or the other of these; `mlp(F1, relu)` or `harden`; a number from 0 to 1.
Form: TypeAlias = Literal[
    "operand", "operands", "references", "sum", "tensor", "stored", "primitive", "function", "fraction"
]


@dataclass(frozen=True)
class Argument:
    """An argument of a call in the text form, and the field that it fills; an optional one may be left out."""

    keyword: str
    field: str
    form: Form
    optional: bool = False


T = TypeVar("T")
Same = TypeVar("Same", bound="BaseStatement")


class BaseStatement:
    """What the statements have in common.

    `prefix` and `tensor_prefix` are what the variable and its tensors are called before their number. `sites` are
    what of a model a line stands for; `comment` is a person's own words.
    """

    kind: ClassVar[str]
    prefix: ClassVar[str] = ""
    tensor_prefix: ClassVar[str] = ""
    arguments: ClassVar[tuple[Argument, ...]]

    sites: tuple[Site, ...]
    comment: str
    place: Place

    @cached_property
    def parts(self) -> dict[str, Any]:
        """What the statement says besides its name: the fields of its own kind, by their names."""
        common = ("name", "sites", "comment", "place")
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in common}  # pyright: ignore

    def _parts_of(self, kind: type[T]) -> tuple[T, ...]:
        groups = [cast(tuple[Any, ...], p if isinstance(p, tuple) else (p,)) for p in self.parts.values()]
        return tuple(part for group in groups for part in group if isinstance(part, kind))

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        return self._parts_of(Operand)

    @cached_property
    def references(self) -> tuple[Reference, ...]:
        return self._parts_of(Reference)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The names of all variables read, norms included, in the order in which they stand."""
        divided = [(operand.variable, operand.norm) for operand in self.operands]
        return (*(r.variable for r in self.references), *(name for pair in divided for name in pair if name))

    def map(
        self: Same,
        operand: Callable[[Operand], Operand] = lambda old: old,
        reference: Callable[[Reference], Reference] = lambda old: old,
    ) -> Same:
        """The statement with each operand and each reference put through a function."""

        def mapped(part: Any) -> Any:
            match part:
                case Operand():
                    return operand(part)
                case Reference():
                    return reference(part)
                case tuple():
                    return tuple(map(mapped, part))  # pyright: ignore
                case _:
                    return part

        return replace(self, **{name: mapped(part) for name, part in self.parts.items()})  # pyright: ignore

    def renamed(self: Same, names: Mapping[str, str]) -> Same:
        """Reads other variables instead."""

        def operand(old: Operand) -> Operand:
            norm = names.get(old.norm, old.norm) if old.norm else None
            return Operand(names.get(old.variable, old.variable), norm)

        return self.map(operand, lambda old: Reference(names.get(old.variable, old.variable)))

    @cached_property
    def stored(self) -> str | None:
        """The name of what it has stored: a tensor, or several whose names begin so."""
        return next((part.name for part in self._parts_of(TensorName) + self._parts_of(Network)), None)

    def with_stored(self: Same, name: str) -> Same:
        """Reads what is stored under another name."""
        parts = {
            key: replace(part, name=name) for key, part in self.parts.items() if isinstance(part, TensorName | Network)
        }
        return replace(self, **parts)  # pyright: ignore

    @cached_property
    def tensor_names(self) -> tuple[str, ...]:
        """The stored tensors that a statement reads, in the order in which they are applied."""
        return () if self.stored is None else (self.stored,)


class _WithTensor(BaseStatement):
    """A line with one tensor, which is stored or of the library."""

    name: str

    @cached_property
    def op_name(self) -> str:
        """What exports call the tensor: by its name if it is stored, else by a name that no stored one can have."""
        return self.stored or f"op of {self.name}"


@dataclass(frozen=True)
class Select(_WithTensor):
    kind = "select"
    prefix, tensor_prefix = "s", "A"
    arguments = (
        Argument("q", "query", "operand", optional=True),
        Argument("k", "key", "operand"),
        Argument("op", "op", "tensor"),
        Argument("special_op", "special_op", "primitive", optional=True),
    )

    name: str
    query: Operand
    key: Operand
    op: TensorOp
    special_op: PrimitiveTensor | None = None
    sites: tuple[Site, ...] = _sites()
    comment: str = ""
    place: Place = _place()


@dataclass(frozen=True)
class Aggregate(BaseStatement):
    """Softmax over the sum of the selectors; uniform where there is none."""

    kind = "aggregate"
    prefix = "a"
    arguments = (Argument("s", "selectors", "references"), Argument("v", "value", "operand"))

    name: str
    selectors: tuple[Reference, ...]
    value: Operand
    sites: tuple[Site, ...] = _sites()
    comment: str = ""
    place: Place = _place()


class _Combining(BaseStatement):
    """A line whose inputs are added up first, each times a stored tensor of its own."""

    inputs: tuple[Operand, ...]

    @cached_property
    def source_names(self) -> tuple[str, ...]:
        """These tensors, one for each input; none where a function of the library takes the inputs as they are."""
        return () if self.stored is None else tuple(f"{self.stored}.{i}" for i in range(len(self.inputs)))

    @cached_property
    def tensor_names(self) -> tuple[str, ...]:
        return self.source_names


@dataclass(frozen=True)
class ElementWise(_Combining):
    kind = "element_wise_op"
    prefix, tensor_prefix = "m", "F"
    arguments = (Argument("", "inputs", "operands"), Argument("func", "function", "function"))

    name: str
    inputs: tuple[Operand, ...]
    function: Function
    sites: tuple[Site, ...] = _sites()
    comment: str = ""
    place: Place = _place()

    @cached_property
    def tensor_names(self) -> tuple[str, ...]:
        match self.function:
            case Network(name):
                parts = ("hidden", "hidden_bias", "out", "out_bias")
                return (*self.source_names, *(f"{name}.{part}" for part in parts))
            case PrimitiveFunction():
                return ()


@dataclass(frozen=True)
class Norm(_Combining):
    """The root of the mean square, plus eps, of a weighted sum of variables: a layer norm's divisor."""

    kind = "norm"
    prefix, tensor_prefix = "n", "N"
    arguments = (Argument("", "inputs", "operands"), Argument("op", "op", "stored"), Argument("eps", "eps", "fraction"))

    name: str
    inputs: tuple[Operand, ...]
    op: TensorName
    eps: float
    sites: tuple[Site, ...] = _sites()
    comment: str = ""
    place: Place = _place()


@dataclass(frozen=True)
class Project(_WithTensor):
    kind = "project"
    prefix, tensor_prefix = "logits", "R"
    arguments = (
        Argument("inp", "input", "operand", optional=True),
        Argument("op", "op", "tensor"),
        Argument("special_op", "special_op", "primitive", optional=True),
    )

    name: str
    input: Operand
    op: TensorOp
    special_op: PrimitiveTensor | None = None
    sites: tuple[Site, ...] = _sites()
    comment: str = ""
    place: Place = _place()


@dataclass(frozen=True)
class Prediction(BaseStatement):
    kind = "prediction"
    arguments = (Argument("", "logits", "sum"),)

    output: Output
    logits: tuple[Reference, ...]
    sites: tuple[Site, ...] = _sites()
    comment: str = ""
    place: Place = _place()

    @property
    def name(self) -> str:
        return "prediction"


Statement: TypeAlias = Select | Aggregate | ElementWise | Norm | Project | Prediction
STATEMENTS: tuple[type[Statement], ...] = (Select, Aggregate, ElementWise, Norm, Project, Prediction)
"""All kinds of statements, in the order in which lines of the same depth stand in a canonical program."""

CALLS: Mapping[str, type[Statement]] = {
    call: kind for kind in STATEMENTS for call in (get_args(Output) if kind is Prediction else (kind.kind,))
}
"""What each call of the text form makes; a prediction is written as what turns logits into one."""
