"""One line of a program: its tensor, its value on an input, where its head looks, its evidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from drasp.causal import LineEvidence
from drasp.errors import DraspError
from drasp.language import Interpreter, Program, statement_text, variable_types
from drasp.language.bases import labels
from drasp.language.checker import Activation, Selector, basis_of
from drasp.language.interpreter import pattern_of
from drasp.language.remarks import remark
from drasp.language.syntax import Aggregate, Norm, Operand, Project, Select, Statement
from drasp.results.labelled import Axis, Labelled
from drasp.sequences import Sequences
from drasp.tasks.reading import read_tokens
from drasp.words import sentence

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Line:
    """A line of a program by its number; `evidence` is what was measured of it, where something was.

    `reached` is the program on the positions that inputs reach, where these are known: what is said of the line is said
    of these, as a model may never have learnt the others.
    """

    program: Program
    number: int
    evidence: LineEvidence | None = None
    reached: Program | None = None

    @property
    def statement(self) -> Statement:
        return self.program.statements[self.number - 1]

    @property
    def name(self) -> str:
        return self.statement.name

    @property
    def text(self) -> str:
        return statement_text(self.statement)

    @property
    def words(self) -> str:
        """What the line does, in a sentence without its subject: `looks for the position before`."""
        return sentence(self.reached or self.program, self.statement)

    @cached_property
    def tensor(self) -> Labelled:
        """The tensor of a select (query by key) or a project (input by token that is said).

        Of a norm it is G, input by input: its square is the sum of y_i G_ij y_j over its inputs y, and eps.
        """
        match self.statement:
            case Norm(inputs=inputs, op=op):
                names = tuple(
                    label if operand.variable == "one" else f"{operand.variable}={label}"
                    for operand in inputs
                    for label in self._labels(operand)
                )
                parts = [self.program.tensors[f"{op.name}.{i}"] for i in range(len(inputs))]
                factor = torch.cat(parts).detach().cpu()
                gram = (factor @ factor.T / factor.shape[1]).numpy()
                return Labelled(f"line {self.number}: square of {self.name}", gram, (Axis("input", names),) * 2)
            case Select(query=query, key=key):
                axes = (self._axis("query", query), self._axis("key", key))
            case Project(input=source):
                axes = (self._axis("input", source), Axis("said: token", self.program.vocabulary.tokens))
            case other:
                what = "selects, projects and norms have; of others give an input, to `on` or `plot`"
                raise DraspError(f"line {self.number}: {other.name} has no tensor; {what}")
        values = Interpreter.of(self.program).ops[self.name].detach().cpu().numpy()
        return Labelled(f"line {self.number}: op of {self.name}", values, axes)

    @property
    def seen(self) -> Labelled:
        """The tensor; from position to position NaN where the key is behind the query, which never sees it."""
        found = self.tensor
        match self.statement:
            case Select(query=Operand("pos"), key=Operand("pos")):
                return Labelled(
                    found.title, np.where(np.tri(*found.shape, dtype=bool), found.values, np.nan), found.axes
                )
            case _:
                return found

    def on(self, tokens: str | Sequence[str | int], offset: int = 0) -> Labelled:
        """The line's value on an input: a row for each position. A select's scores are NaN where nothing is seen."""
        ids, words = self._input(tokens, offset)
        value = self._recorded(self.name, ids, offset)
        kind = variable_types(self.program).get(self.name)
        here = Axis("position: token", words)
        match self.statement, kind:
            case Norm(), _:
                return Labelled(self._title, value, (here,))
            case _, Selector():
                seen = np.tri(len(ids), dtype=bool)
                axes = (Axis("query: token", words), Axis("key: token", words))
                return Labelled(self._title, np.where(seen, value, np.nan), axes)
            case _, Activation(basis):
                return Labelled(self._title, value, (here, Axis(self.name, labels(basis))))
            case _:
                return Labelled(self._title, value, (here, Axis("said: token", self.program.vocabulary.tokens)))

    def attention(self, tokens: str | Sequence[str | int], offset: int = 0) -> Labelled:
        """The weights by which an aggregate looks at an input: each row adds up to 1, and is NaN after its position."""
        if not isinstance(self.statement, Aggregate):
            raise DraspError(f"line {self.number}: {self.name} is no aggregate; only these attend")
        ids, words = self._input(tokens, offset)
        weights = self._recorded(pattern_of(self.name), ids, offset)
        weights = np.broadcast_to(weights, (len(ids), len(ids)))
        axes = (Axis("query: token", words), Axis("key: token", words))
        seen = np.tri(len(ids), dtype=bool)
        return Labelled(f"line {self.number}: attention of {self.name}", np.where(seen, weights, np.nan), axes)

    def plot(self, tokens: str | Sequence[str | int] | None = None, offset: int = 0) -> "Figure":
        """The tensor; or on an input the value, for an aggregate its attention. Needs `drasp[figures]`."""
        if tokens is None:
            return self.seen.plot()
        look = self.attention if isinstance(self.statement, Aggregate) else self.on
        return look(tokens, offset).plot()

    def __str__(self) -> str:
        behind = remark(self.statement)
        return f"{self.number}. {self.text}" + (f"  # {behind}" if behind else "")

    __repr__ = __str__

    @property
    def _title(self) -> str:
        return f"line {self.number}: {self.name}"

    def _axis(self, side: str, operand: Operand) -> Axis:
        return Axis(side if operand.variable == "one" else f"{side}: {operand.variable}", self._labels(operand))

    def _labels(self, operand: Operand) -> tuple[str, ...]:
        return ("always",) if operand.variable == "one" else labels(basis_of(self.program, operand))

    def _input(self, tokens: str | Sequence[str | int], offset: int) -> tuple[list[int], tuple[str, ...]]:
        """Tokens by names or ids, or one text with spaces between the names."""
        ids = read_tokens(tokens.split() if isinstance(tokens, str) else tokens, self.program.vocabulary, "the input")
        if offset < 0 or offset + len(ids) > self.program.n_positions:
            room = self.program.n_positions
            raise DraspError(f"{len(ids)} tokens at offset {offset} do not fit the program's {room} positions")
        return ids, tuple(self.program.vocabulary.tokens[i] for i in ids)

    def _recorded(self, place: str, ids: list[int], offset: int) -> np.ndarray:
        sequences = Sequences(torch.tensor([ids]), torch.arange(offset, offset + len(ids))[None])
        with torch.no_grad():
            return Interpreter.of(self.program).run(sequences, record=[place]).values[place][0].cpu().numpy()
