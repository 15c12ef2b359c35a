"""The exact translation of a transformer into D-RASP, and how long it is without making it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drasp.edits import Edit
from drasp.errors import DraspError
from drasp.language.syntax import Program
from drasp.program_writer import MAX_NUMBERS, TooLargeError
from drasp.sites import OUT, NormSite, Receiver, Site
from drasp.transformer import Transformer
from drasp.vocabulary import Output, Vocabulary
from drasp.wiring import write_program

MAX_LINES = 20_000


@dataclass(frozen=True)
class TranslationSize:
    """The lines of a translation: those of the theorem, and what biases and exact norms add; the numbers in tensors."""

    theorem: int
    biases: int
    norms: int
    numbers: int

    @property
    def total(self) -> int:
        return self.theorem + self.biases + self.norms

    def __str__(self) -> str:
        return (
            f"{self.total:,} lines ({self.theorem:,} by the theorem, {self.biases:,} for the biases of queries, "
            f"{self.norms:,} for exact norms)"
        )


def theorem_lines(n_layers: int, n_heads: int, split_mlps: bool = False, has_mlps: bool = True) -> int:
    """The paper's formula. Split MLPs have one line for each variable that they read."""
    variables, lines = 2, 0
    for _ in range(n_layers):
        lines += (variables**2 + variables) * n_heads  # selects and aggregates
        variables += variables * n_heads
        mlps = (variables if split_mlps else 1) if has_mlps else 0
        lines += mlps
        variables += mlps
    return lines + variables + 2  # projects, bias, prediction


def translation_size(transformer: Transformer, edits: Mapping[Site, Edit] | None = None) -> TranslationSize:
    """How many lines `translate` would write, without writing them; with edits that make norms constant."""
    anatomy = transformer.anatomy
    theorem = theorem_lines(anatomy.n_layers, anatomy.n_heads, has_mlps=anatomy.has_mlps)
    norms = [NormSite(r) for r in (*(Receiver(i, "attention") for i in range(anatomy.n_layers)), OUT)]
    exact, numbers = _written(transformer, [anatomy.has_norms and norm not in (edits or {}) for norm in norms])
    linear, _ = _written(transformer, [False] * len(norms))
    return TranslationSize(theorem, linear - theorem, exact - linear, numbers)


def _written(transformer: Transformer, exact: Sequence[bool]) -> tuple[int, int]:
    """Lines, and numbers in their tensors; `exact` says it of the attention norm of each layer and the final norm."""
    n_vocab, d_model = transformer.token_embedding.shape
    variables, width = 2, n_vocab + transformer.n_positions  # of the stream, and the sum of their dimensions
    lines, numbers, has_constant = 0, 0, False
    for layer, norm in zip(transformer.layers, exact, strict=False):
        # An exact norm makes the stream's constant a variable; any other leaves it one.
        read, wide = variables + (norm and has_constant), width + (norm and has_constant)
        fixed = bool(layer.attention_norm.bias.any()) or (has_constant and not norm)
        lines += norm
        numbers += norm * wide * d_model
        for head in layer.attention.heads():
            has_query = fixed or bool(head.query_bias.any())
            lines += read**2 + has_query * read + read  # selects, key-only selects, aggregates
            numbers += wide**2 + has_query * wide
            has_constant = has_constant or fixed or bool(head.value_bias.any())
        has_constant = has_constant or bool(layer.attention.output.bias.any())
        variables, width = variables + read * layer.attention.n_heads, width + wide * layer.attention.n_heads
        if layer.mlp is not None:
            hidden, output = layer.mlp.hidden, layer.mlp.output
            numbers += (width + (transformer.anatomy.has_norms and has_constant)) * d_model
            numbers += sum(tensor.numel() for each in (hidden, output) for tensor in (each.weight, each.bias))
            lines, variables, width = lines + 1, variables + 1, width + d_model
    last = exact[-1] and has_constant
    numbers += exact[-1] * (width + last) * d_model + (width + last + 1) * n_vocab
    return lines + exact[-1] + variables + last + 2, numbers


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
    if size.numbers > MAX_NUMBERS:
        gigabytes = size.numbers * transformer.token_embedding.element_size() / 1e9
        raise TooLargeError(
            f"the translation would have tensors of {size.numbers:,} numbers ({gigabytes:.1f} GB); programs of at most "
            f"{MAX_NUMBERS:,} are built"
        )
    return write_program(transformer, edits or {}, vocabulary, output)
