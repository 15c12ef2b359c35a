"""Programs that are written only to be counted: of a model of many tokens, with tables for a few of them.

The lines of a program are the same however many rows its tables have, but for tokens that differ from all that are
kept; its tables may be of a hundred million numbers, and most cuts that are considered are never made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from drasp.edits import Edit
from drasp.language.syntax import Aggregate, ElementWise, Program, Project, Select
from drasp.program_writer import ProgramWriter
from drasp.sites import Site
from drasp.transformer import Transformer
from drasp.vocabulary import Output, Vocabulary
from drasp.wiring import write_program

MOST_ROWS = 512  # of a table that is only counted: it has fewer numbers than models of usual size have weights


@dataclass(frozen=True)
class Size:
    """The lines of a program, how many of them are norms that matter, and what its functions and queries read."""

    lines: int
    norms: int
    reads: int


@dataclass(frozen=True)
class Outlines:
    """A model, and the same with so few of its tokens and positions that programs are written at once."""

    whole: Transformer
    few: Transformer
    vocabulary: Vocabulary  # of the few

    @classmethod
    def of(cls, transformer: Transformer, vocabulary: Vocabulary) -> "Outlines":
        """The model itself twice, where it has no more tokens and positions than are kept."""
        tokens, positions = _kept(transformer.n_vocab), _kept(transformer.n_positions)
        if len(tokens) == transformer.n_vocab and len(positions) == transformer.n_positions:
            return cls(transformer, transformer, vocabulary)
        bias = transformer.unembedding_bias
        few = replace(
            transformer,
            token_embedding=transformer.token_embedding[tokens],
            position_embedding=transformer.position_embedding[positions],
            unembedding=transformer.unembedding[tokens],
            unembedding_bias=None if bias is None else bias[tokens],
        )
        return cls(transformer, few, Vocabulary.unnamed(len(tokens)))

    def write(self, edits: Mapping[Site, Edit], output: Output) -> Program:
        """The program of the few tokens and positions; refused where the tables of all of them would be too large."""
        program = write_program(self.few, edits, self.vocabulary, output)
        if self.few is not self.whole:
            self._make_room(program)
        return program

    def _make_room(self, program: Program) -> None:
        """Counts the tables of the same program of all tokens and positions, as if they were computed."""
        room, n_vocab = ProgramWriter(self.whole.token_embedding.dtype), self.whole.n_vocab
        sizes = {"token": n_vocab, "pos": self.whole.n_positions, "one": 1}
        for statement in program.statements:
            match statement:
                case Aggregate(name, value=value):
                    sizes[name] = sizes[value.variable]
                case ElementWise(name):
                    sizes[name] = self.whole.d_model
                case Select(query=query, key=key):
                    room.make_room(sizes[query.variable], sizes[key.variable])
                case Project(input=source):
                    room.make_room(sizes[source.variable], n_vocab)
                case _:
                    pass


def _kept(count: int) -> Tensor:
    """As many of so many rows as a table may have, evenly spread."""
    return torch.linspace(0, count - 1, min(count, MOST_ROWS)).round().long()
