"""D-RASP as frozen dataclasses: a program is a header, a list of statements, and the tensors they name.

The statements are in `statements.py`, which is a part of this module to all but those that a program itself needs to
write its text.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from html import escape
from typing import Any, TypeVar

import torch
from torch import Tensor

from drasp.language.printer import listing, program_text
from drasp.language.statements import *  # noqa: F403
from drasp.language.statements import Place, Prediction, ProgramError, Statement
from drasp.vocabulary import Output, Vocabulary

Found = TypeVar("Found")


@dataclass(frozen=True)
class Program:
    """Two programs are equal when their texts are; the tensors are held beside them."""

    vocabulary: Vocabulary
    n_positions: int
    statements: tuple[Statement, ...]
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor], compare=False)

    @property
    def lines(self) -> int:
        return len(self.statements)

    @property
    def prediction(self) -> Prediction:
        match self.statements[-1] if self.statements else None:
            case Prediction() as prediction:
                return prediction
            case _:
                raise ProgramError(Place(), "the program ends without `prediction = …`")

    @property
    def output(self) -> Output:
        return self.prediction.output

    def find(self, name: str) -> Statement | None:
        """The statement that defines a variable."""
        return next((statement for statement in self.statements if statement.name == name), None)

    def readers(self, name: str) -> list[Statement]:
        return [statement for statement in self.statements if name in statement.reads]

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "Program":
        """The same lines with other numbers in some or all of their tensors.

        Where shapes stay as they are, so does all that follows from lines and shapes.
        """
        new = replace(self, tensors={**self.tensors, **tensors})
        if all(name in self.tensors and t.shape == self.tensors[name].shape for name, t in tensors.items()):
            new.of_shape.update(self.of_shape)
        return new

    @cached_property
    def digest(self) -> str:
        """The digest of the text and of all numbers: equal for programs that are the same to the last bit."""
        return digest(to_text(self), self.tensors)

    @cached_property
    def of_shape(self) -> dict[Hashable, Any]:
        """What has been found out about the program's lines and the shapes of its tensors, for `once`."""
        return {}

    @cached_property
    def of_numbers(self) -> dict[Hashable, Any]:
        """The same where it depends on the numbers in the tensors too."""
        return {}

    def __str__(self) -> str:
        return listing(self.statements)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def to_text(program: Program) -> str:
    """The whole program, with the header that names its vocabulary: what the parser reads back as the same program."""
    return program_text(program.vocabulary, program.n_positions, program.statements)


def once(found: dict[Hashable, Any], key: Hashable, find: Callable[[], Found]) -> Found:
    """What has been found out before, or is found out now."""
    if key not in found:
        found[key] = find()
    return found[key]


def tensor_digest(tensor: Tensor) -> str:
    """The digest of the numbers, whatever their precision."""
    return sha256(tensor.detach().to("cpu", torch.float64).flatten().numpy().data).hexdigest()


def digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """The digest of a text and the tensors beside it, with their names and shapes."""
    named = (f"{name} {list(t.shape)} {tensor_digest(t)}" for name, t in sorted(tensors.items()))
    return sha256("\n".join([text, *named]).encode()).hexdigest()
