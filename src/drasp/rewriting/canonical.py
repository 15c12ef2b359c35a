"""One order of lines and of sums, whatever their names: programs that say the same have the same text."""

from collections.abc import Callable
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

Key = tuple[int, str, str]  # the depth of a line, what it reads, and all that it says


def canonical(program: Program) -> Program:
    """Lines in an order that depends only on what they say: by depth, then by kind; projects come last.

    What they read decides before their numbers, so that programs which differ in these alone have the same text.
    """
    keys = {"token": ("0", ""), "pos": ("1", ""), "one": ("2", "")}  # what is read, and all that is said
    depths = dict.fromkeys(keys, 0)
    tensors = dict(program.tensors)
    places: dict[str, tuple[bool, int, int, str, str]] = {}
    sorted_within: list[Statement] = []
    for statement in program.statements:
        new = _with_sorted_parts(statement, lambda name: (depths[name], *keys[name]), tensors)
        sorted_within.append(new)
        depth = depths[new.name] = 1 + max((depths[name] for name in new.reads), default=0)
        read = f"{new.kind} {' '.join(keys[name][0] for name in new.reads)}"
        said = content(
            replace(program, tensors=tensors), new.renamed({name: "".join(key) for name, key in keys.items()})
        )
        keys[new.name] = f"3 {_digest(read)}", _digest(repr(said))
        last = isinstance(new, Project | Prediction)
        places[new.name] = last, depth, STATEMENTS.index(type(new)), read, keys[new.name][1]
    statements = tuple(sorted(sorted_within, key=lambda statement: places[statement.name]))
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


def _with_sorted_parts(statement: Statement, key: Callable[[str], Key], tensors: dict[str, Tensor]) -> Statement:
    """Sums have no order: their parts stand by depth and by what they are, `one` at the end."""

    def by_key(operand: Operand) -> tuple[bool, Key, Key]:
        return operand == ONE, key(operand.variable), key(operand.norm) if operand.norm else (0, "", "")

    match statement:
        case Aggregate(selectors=selectors):
            return replace(statement, selectors=tuple(sorted(selectors, key=lambda r: key(r.variable))))
        case Prediction(logits=logits):
            return replace(statement, logits=tuple(sorted(logits, key=lambda r: key(r.variable))))
        case Norm(inputs=inputs) | ElementWise(inputs=inputs) if statement.stored is not None:
            order = sorted(range(len(inputs)), key=lambda i: by_key(inputs[i]))
            names = statement.source_names
            tensors |= {names[new]: tensors[names[old]] for new, old in enumerate(order)}
            return replace(statement, inputs=tuple(inputs[i] for i in order))
        case _:
            return statement
