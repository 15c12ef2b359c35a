"""Which tensors of the library come nearest to a given one: candidates, for the whole program to decide between."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product

import numpy as np
from jaxtyping import Bool, Float

from drasp.language.bases import Basis, One, Positions, Tokens
from drasp.language.syntax import DEFAULT_SCALE, PrimitiveTensor
from drasp.language.tensor_primitives import (
    NotApplicable,
    TensorPrimitive,
    build,
    parameter_kinds,
    special_entries,
    tensor_primitives,
)
from drasp.settings import DEFAULT, NamingSettings
from drasp.vocabulary import Vocabulary

Matrix = Float[np.ndarray, "rows columns"]

ZEROS = PrimitiveTensor("zeros")
_NO_POWER = 1e-12  # a sum of squares that is nothing but rounding
_OF_POSITIONS = ("window", "every_kth")
_BETWEEN_ORDERED = ("kth_diagonal", "next_above", "above", "below")
_OF_ORDERED_KEYS = ("decreasing", "increasing")
_PREFERENCE = {"to_token": 0, "kth_diagonal": 2, "every_kth": 3, "every_kth_key": 3}


@dataclass(frozen=True)
class Candidate:
    """`score` is the correlation with the tensor that it would replace, where the two sides are in use."""

    op: PrimitiveTensor
    special: PrimitiveTensor | None
    score: float

    @property
    def is_nothing(self) -> bool:
        return self.op.primitive == "zeros" and (self.special is None or self.special.primitive == "zeros")

    def times(self, factor: float) -> "Candidate":
        def scaled(op: PrimitiveTensor) -> PrimitiveTensor:
            return op if op.primitive == "zeros" else replace(op, scale=float(f"{op.scale * factor:.2g}"))

        return replace(self, op=scaled(self.op), special=self.special and scaled(self.special))

    def hard(self) -> "Candidate":
        """The candidate at the library's usual scale."""

        def hardened(op: PrimitiveTensor) -> PrimitiveTensor:
            return op if op.primitive == "zeros" else replace(op, scale=np.copysign(DEFAULT_SCALE, op.scale).item())

        return replace(self, op=hardened(self.op), special=self.special and hardened(self.special))


def candidates(
    tensor: Matrix,
    usage: Matrix,
    rows: Basis,
    columns: Basis,
    statement: str,
    shift: bool,
    chosen: NamingSettings = DEFAULT.naming,
) -> list[Candidate]:
    """The best of the library, at fitted scales; `shift` says that a row may be raised as a whole.

    `usage` says how often an entry plays a part. Special tokens may have a tensor of their own.
    """
    everywhere = np.ones_like(tensor, dtype=bool)
    nearest = partial(
        _nearest, tensor, usage, rows=rows, columns=columns, statement=statement, shift=shift, chosen=chosen
    )
    whole = [Candidate(op, None, score) for op, score in nearest(everywhere)]
    special = special_entries(rows, columns)
    if special is None or not special.any():
        return whole
    parts = [nearest(part) for part in (~special, special)]
    # The places of special tokens in the vocabulary are an accident.
    parts[1] = [(op, score) for op, score in parts[1] if isinstance(rows, One) or op.primitive not in _BETWEEN_ORDERED]
    # A correlation is the root of the share of the variance that is explained.
    power = [_power(_centred(tensor, usage * part, shift), usage * part) for part in (~special, special)]
    ordinary, others = (each / max(sum(power), _NO_POWER) for each in power)
    split = [
        Candidate(op, other, (ordinary * score**2 + others * other_score**2) ** 0.5)
        for (op, score), (other, other_score) in product(*parts)
    ]
    return whole + sorted(split, key=lambda c: -c.score)[: chosen.pairs]


def _nearest(
    tensor: Matrix,
    usage: Matrix,
    part: Bool[np.ndarray, "rows columns"],
    rows: Basis,
    columns: Basis,
    statement: str,
    shift: bool,
    chosen: NamingSettings,
) -> list[tuple[PrimitiveTensor, float]]:
    """The tensor of zeros, and those of the library that correlate most, with their correlation."""
    weights = usage * part
    mine = _centred(tensor, weights, shift)
    power = _power(mine, weights)
    found: list[tuple[PrimitiveTensor, float]] = []
    for op, matrix in library(rows, columns, statement, chosen):
        theirs = _centred(matrix, weights, shift)
        energy = _power(theirs, weights)
        if min(energy, power) < _NO_POWER:
            continue
        overlap = float((weights * mine * theirs).sum())
        score = abs(overlap) / (energy * power) ** 0.5
        if score > chosen.least_correlation:
            found.append((replace(op, scale=float(f"{overlap / energy:.2g}")), score))
    # Some differ only in what no input can tell apart (first and last, say): of these a positive one, rather a token
    # by its name than by its place, a step only where nothing else leads there, and many steps at last.
    found.sort(key=lambda pair: (-round(pair[1], 9), pair[0].scale < 0, _PREFERENCE.get(pair[0].primitive, 1)))
    distinct = {round(score, 9): (op, score) for op, score in reversed(found)}
    return [(ZEROS, 0.0), *list(reversed(distinct.values()))[: chosen.nearest]]


def _power(matrix: Matrix, weights: Matrix) -> float:
    return float((weights * matrix**2).sum())


def _centred(matrix: Matrix, weights: Matrix, shift: bool) -> Matrix:
    if not shift:
        return matrix
    totals = weights.sum(1, keepdims=True)
    means = (weights * matrix).sum(1, keepdims=True) / np.where(totals > 0, totals, 1)
    return matrix - means


def library(
    rows: Basis, columns: Basis, statement: str, chosen: NamingSettings = DEFAULT.naming
) -> tuple[tuple[PrimitiveTensor, Matrix], ...]:
    """Every tensor of the library that exists for these sides, once, with usual parameters."""
    return _all_of(tuple(tensor_primitives().values()), rows, columns, statement, chosen)


# What is registered is part of the key: a primitive that a notebook adds after the first use is seen.
@lru_cache(maxsize=8)
def _all_of(
    primitives: tuple[TensorPrimitive, ...], rows: Basis, columns: Basis, statement: str, chosen: NamingSettings
) -> tuple[tuple[PrimitiveTensor, Matrix], ...]:
    side = columns if isinstance(columns, Tokens) else rows
    vocabulary = side.vocabulary if isinstance(side, Tokens) else None
    found: dict[bytes, tuple[PrimitiveTensor, Matrix]] = {}
    for primitive in primitives:
        if not _means_something(primitive.name, rows, columns, chosen.least_ordered):
            continue
        kinds = parameter_kinds(primitive, statement)
        for arguments in _arguments(kinds, vocabulary, chosen) if kinds is not None else ():
            op = PrimitiveTensor(primitive.name, arguments, scale=1.0)
            try:
                matrix = build(op, None, rows, columns)
            except NotApplicable:
                continue
            found.setdefault(matrix.tobytes(), (op, matrix))
    return tuple(found.values())


def _means_something(primitive: str, rows: Basis, columns: Basis, least: int) -> bool:
    """Whether a primitive says something of these bases: orders need some tokens, and distances positions."""
    if primitive in _OF_POSITIONS:
        return isinstance(rows, Positions) and isinstance(columns, Positions)
    if primitive == "every_kth_key":
        return isinstance(columns, Positions)
    if primitive in _BETWEEN_ORDERED:
        return _is_ordered(rows, least) and _is_ordered(columns, least)
    return primitive not in _OF_ORDERED_KEYS or _is_ordered(columns, least)


def _is_ordered(basis: Basis, least: int) -> bool:
    match basis:
        case Tokens(vocabulary):
            return len(vocabulary) - len(vocabulary.special) >= least
        case _:
            return isinstance(basis, Positions)


def _arguments(
    kinds: tuple[str, ...], vocabulary: Vocabulary | None, chosen: NamingSettings
) -> Iterator[tuple[int | str, ...]]:
    """What a primitive's parameters are tried with; tables are written, not guessed."""
    tokens = vocabulary.tokens if vocabulary else ()
    offsets = [step for step in range(-chosen.offsets, chosen.offsets + 1) if step]
    ranges = {"int": range(chosen.whole_numbers), "offset": offsets, "token": tokens, "table": (), "followers": ()}
    return product(*(ranges[kind] for kind in kinds))
