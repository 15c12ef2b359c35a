"""How two programs differ once both are in canonical form."""

from difflib import unified_diff

from drasp.language import Program, statement_text
from drasp.rewriting.simplify import simplify

_SAME = 1e-5  # of the larger entry: tensors that differ by less are equal


def difference(first: Program, second: Program, first_name: str = "first", second_name: str = "second") -> list[str]:
    """Lines that only one has, and tensors of lines that both have; empty where the programs are equal."""
    one, other = simplify(first), simplify(second)
    before, after = _text(one), _text(other)
    lines = list(unified_diff(before, after, first_name, second_name, lineterm="", n=0))
    for statement in one.statements:
        if statement_text(statement) in after:
            lines += [text for name in statement.tensor_names if (text := _gap(one, other, name)) is not None]
    return lines


def _text(program: Program) -> list[str]:
    """Lines without numbers and comments, which say nothing about what is computed."""
    header = [f"vocab: {' '.join(program.vocabulary.tokens)}", f"positions: {program.n_positions}"]
    return header + [statement_text(statement) for statement in program.statements]


def _gap(one: Program, other: Program, name: str) -> str | None:
    tensor, twin = one.tensors[name].double(), other.tensors[name].double()
    if tensor.shape != twin.shape:
        return f"tensor {name}: {list(tensor.shape)} and {list(twin.shape)}"
    gap, scale = float((tensor - twin).abs().max()), max(float(tensor.abs().max()), float(twin.abs().max()))
    return f"tensor {name}: entries differ by up to {gap:.3g}, of {scale:.3g}" if gap > _SAME * scale else None
