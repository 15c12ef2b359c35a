"""The exact translation of a transformer into D-RASP, and how long it is without making it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drasp.edits import Edit
from drasp.errors import DraspError
from drasp.language.syntax import Program
from drasp.sites import OUT, NormSite, Receiver, Site
from drasp.transformer import Transformer
from drasp.vocabulary import Output, Vocabulary
from drasp.wiring import write_program

MAX_LINES = 20_000


@dataclass(frozen=True)
class Size:
    """The lines of a translation: those of the theorem, and what biases and exact layer norms add."""

    theorem: int
    biases: int
    norms: int

    @property
    def total(self) -> int:
        return self.theorem + self.biases + self.norms

    def __str__(self) -> str:
        return (
            f"{self.total:,} lines ({self.theorem:,} by the theorem, {self.biases:,} for the biases of queries, "
            f"{self.norms:,} for exact layer norms)"
        )


def theorem_lines(n_layers: int, n_heads: int, split_mlps: bool = False) -> int:
    """The paper's formula. Split MLPs have one line for each variable that they read."""
    variables, lines = 2, 0
    for _ in range(n_layers):
        lines += (variables**2 + variables) * n_heads  # selects and aggregates
        variables += variables * n_heads
        lines += variables if split_mlps else 1
        variables += variables if split_mlps else 1
    return lines + variables + 2  # projects, bias, prediction


def translation_size(transformer: Transformer, edits: Mapping[Site, Edit] | None = None) -> Size:
    """How many lines `translate` would write, without writing them; with edits that make norms constant."""
    theorem = theorem_lines(len(transformer.layers), transformer.n_heads)
    norms = [NormSite(r) for r in (*(Receiver(i, "attention") for i in range(len(transformer.layers))), OUT)]
    exact = _lines_written(transformer, [norm not in (edits or {}) for norm in norms])
    linear = _lines_written(transformer, [False] * len(norms))
    return Size(theorem, linear - theorem, exact - linear)


def _lines_written(transformer: Transformer, exact: Sequence[bool]) -> int:
    """`exact` says it of the attention norm of each layer and of the final norm."""
    heads, variables, lines = transformer.n_heads, 2, 0
    for number in range(len(transformer.layers)):
        # From the second layer on the stream has a constant, which an exact norm makes a variable.
        norm = exact[number]
        read = variables + (norm and number > 0)
        lines += norm + heads * (read**2 + read + read)  # selects, key-only selects, aggregates
        variables += heads * read
        lines += 1
        variables += 1
    norm = exact[-1]
    return lines + norm + variables + (norm and bool(transformer.layers)) + 2


def translate(
    transformer: Transformer,
    vocabulary: Vocabulary | None = None,
    output: Output = "softmax",
    edits: Mapping[Site, Edit] | None = None,
) -> Program:
    """The program that gives the logits of a transformer, or of what edits make of it."""
    vocabulary = vocabulary or Vocabulary.unnamed(transformer.n_vocab)
    if len(vocabulary) != transformer.n_vocab:
        raise DraspError(f"the vocabulary has {len(vocabulary)} tokens, but the model has {transformer.n_vocab}")
    size = translation_size(transformer, edits)
    if size.total > MAX_LINES:
        raise DraspError(f"the translation would have {size}; programs of at most {MAX_LINES:,} lines are built")
    return write_program(transformer, edits or {}, vocabulary, output)
