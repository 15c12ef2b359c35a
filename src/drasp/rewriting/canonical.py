"""One order of lines and of sums, whatever their names: programs that say the same have the same text."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256

from torch import Tensor

from drasp.language.syntax import (
    ONE,
    STATEMENTS,
    Aggregate,
    ElementWise,
    Norm,
    Operand,
    Prediction,
    Program,
    Project,
    Statement,
    tensor_digest,
)
from drasp.rewriting.tidy import renumbered

Place = tuple[int, int, str, str]  # a line's depth, its kind, what it reads, and all that it says


def canonical(program: Program) -> Program:
    """Lines in an order that depends only on what they say: by depth, then by kind; projects come last.

    What they read decides before their numbers, so that programs which differ in these alone have the same text.
    """
    places: dict[str, Place] = {"token": (0, 0, "0", ""), "pos": (0, 0, "1", ""), "one": (0, 0, "2", "")}
    read = {name: place[2] for name, place in places.items()}  # in short, also by way of others
    said = dict(read)  # the same with numbers
    tensors = dict(program.tensors)
    sorted_within: list[Statement] = []
    for statement in program.statements:
        new = _with_sorted_parts(statement, places, tensors)
        sorted_within.append(new)
        depth = 1 + max((places[name][0] for name in new.reads), default=0)
        reads = " ".join(read[name] for name in new.reads)
        read[new.name] = f"3 {_digest(f'{new.kind} {reads}')}"
        said[new.name] = _digest(repr(content(replace(program, tensors=tensors), new.renamed(said))))
        places[new.name] = depth, STATEMENTS.index(type(new)), reads, said[new.name]

    def place(statement: Statement) -> tuple[bool, Place]:
        return isinstance(statement, Project | Prediction), places[statement.name]

    statements = tuple(sorted(sorted_within, key=place))
    return renumbered(replace(program, statements=statements, tensors=tensors))


def content(program: Program, statement: Statement) -> tuple[Statement, tuple[str, ...]]:
    """What a statement says, without its name; stored tensors by their numbers."""
    return words_of(statement), tuple(tensor_digest(program.tensors[name]) for name in statement.tensor_names)


def words_of(statement: Statement) -> Statement:
    """A statement without its name, its tensors and what is known of it."""
    said = replace(statement.with_stored(""), sites=(), comment="")
    return said if isinstance(said, Prediction) else replace(said, name="")


def _digest(said: str) -> str:
    return sha256(said.encode()).hexdigest()


def _with_sorted_parts(statement: Statement, places: Mapping[str, Place], tensors: dict[str, Tensor]) -> Statement:
    """Sums have no order: their parts stand as the lines do that they read, `one` at the end."""

    def by_place(operand: Operand) -> tuple[bool, Place, Place]:
        norm = places[operand.norm] if operand.norm else (0, 0, "", "")
        return operand == ONE, places[operand.variable], norm

    match statement:
        case Aggregate(selectors=selectors):
            return replace(statement, selectors=tuple(sorted(selectors, key=lambda r: places[r.variable])))
        case Prediction(logits=logits):
            return replace(statement, logits=tuple(sorted(logits, key=lambda r: places[r.variable])))
        case Norm(inputs=inputs) | ElementWise(inputs=inputs) if statement.stored is not None:
            order = sorted(range(len(inputs)), key=lambda i: by_place(inputs[i]))
            names = statement.source_names
            tensors |= {names[new]: tensors[names[old]] for new, old in enumerate(order)}
            return replace(statement, inputs=tuple(inputs[i] for i in order))
        case _:
            return statement
