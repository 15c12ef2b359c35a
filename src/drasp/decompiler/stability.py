"""Several searches of one model: which programs they end with, and the one that is found most often.

Explanations are not unique, and a search begins with inputs drawn by its seed. Programs are the same where their lines
are, whatever the numbers in stored tensors; among those that do what the model does, the one found most often is
picked, and of equally frequent ones the shorter.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from drasp.decompiler.result import Decompiled
from drasp.language import statement_text
from drasp.records import SeedRecord
from drasp.rewriting.simplify import simplify


def lines_of(result: Decompiled) -> tuple[str, ...]:
    """The lines of a result's program in canonical order, without what they stand for."""
    return tuple(statement_text(statement) for statement in simplify(result.program).statements)


def most_found(results: Sequence[Decompiled]) -> Decompiled:
    """The result of several searches whose program was found most often, among those that do what the model does.

    Where none does, among all. It carries a record of every search.
    """
    texts = [lines_of(result) for result in results]
    groups = list(dict.fromkeys(texts))
    good = [r for r in results if r.verdict == "decompiled"] or list(results)
    counts = Counter(lines_of(result) for result in good)
    pick = min(good, key=lambda result: (-counts[lines_of(result)], result.final.lines))
    seeds = tuple(
        SeedRecord(r.identity.seed, r.verdict, r.grade, r.final.lines, r.final.match.value, 1 + groups.index(text))
        for r, text in zip(results, texts, strict=True)
    )
    return replace(pick, seeds=seeds, seconds=sum(result.seconds for result in results))
