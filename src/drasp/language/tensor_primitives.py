"""The library of tensors that `op=` and `special_op=` can name, and the decorator that extends it.

A primitive is a function from its rows and columns (queries and keys of a select, inputs and outputs of
a project) to a matrix with entries of at most 1; the program multiplies it by a scale. Where rows and
columns differ in number the pattern starts at the top left corner and is cut off. A key-only select and
a bias have the single row `one`: the vector form.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature

import numpy as np
from jaxtyping import Bool, Float

from drasp.errors import DraspError
from drasp.language.bases import Basis, One, Tokens, labels, size
from drasp.language.statements import DEFAULT_SCALE, PrimitiveTensor
from drasp.language.tables import FOLLOWERS, TABLE, TOKEN, UnknownLabelError, canonical_text, quote, read_table

Matrix = Float[np.ndarray, "rows columns"]

# Words that stand for an axis; a token of that name is written in quotes.
_AXES = ("k", "q", "inp", "out")
_PLACEHOLDER = re.compile(r"\{(\w+):(int|offset|token|table|followers)\}")
_PATTERNS = {"int": r"\d{1,9}", "offset": r"[+-]\s*\d{1,9}", "token": TOKEN, "table": TABLE, "followers": FOLLOWERS}


class NotApplicable(DraspError):  # noqa: N818 - says why, and is shown as part of a ProgramError
    """A primitive does not exist for these rows and columns."""


@dataclass(frozen=True)
class TensorPrimitive:
    """`select` and `project` are how it is written there (None: it has no meaning there)."""

    name: str
    select: str | None
    project: str | None
    matrix: Callable[..., Matrix]
    has_vector: bool


_REGISTRY: dict[str, TensorPrimitive] = {}


def tensor_primitive(
    select: str | None = None, project: str | None = None, *, vector: bool = False
) -> Callable[[Callable[..., Matrix]], Callable[..., Matrix]]:
    """Adds a tensor to the library, under the function's name.

    The texts are what stands between the parentheses of `op=(…)`, with parameters as `{m:int}`,
    `{j:offset}` (a signed step) or `{t:token}`; the function gets the bases of rows and columns and then
    the parameters in that order. `vector=True` says that it makes sense for the single row `one`.

        @tensor_primitive(select="k<q")
        def before(rows, columns):
            i, j = indices(rows, columns)
            return 1.0 * (j < i)
    """

    def add(matrix: Callable[..., Matrix]) -> Callable[..., Matrix]:
        name = matrix.__name__
        if name in _REGISTRY:
            raise DraspError(f"tensor primitive {name} exists already")
        for text in (select, project):
            if text is not None and len(signature(matrix).parameters) != 2 + len(_PLACEHOLDER.findall(text)):
                raise DraspError(f"tensor primitive {name}: {text!r} and the function differ in parameters")
        _REGISTRY[name] = TensorPrimitive(name, select, project, matrix, vector)
        return matrix

    return add


def tensor_primitives() -> Mapping[str, TensorPrimitive]:
    return _REGISTRY


def indices(rows: Basis, columns: Basis) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers as a column and column numbers as a row, ready to be compared."""
    return np.arange(size(rows))[:, None], np.arange(size(columns))[None, :]


@tensor_primitive(select="uniform selection", project="uniform selection", vector=True)
def zeros(rows: Basis, columns: Basis) -> Matrix:
    return np.zeros((size(rows), size(columns)))


@tensor_primitive(select="k==q", project="inp==out")
def diagonal(rows: Basis, columns: Basis) -> Matrix:
    i, j = indices(rows, columns)
    return 1.0 * (j == i)


@tensor_primitive(select="k==q{j:offset}", project="out==inp{j:offset}")
def kth_diagonal(rows: Basis, columns: Basis, step: int) -> Matrix:
    i, j = indices(rows, columns)
    return 1.0 * (j == i + step)


@tensor_primitive(select="(q-k)%{m:int}=={r:int}")
def every_kth(rows: Basis, columns: Basis, period: int, remainder: int) -> Matrix:
    _check_remainder(period, remainder)
    i, j = indices(rows, columns)
    return 1.0 * ((i - j) % period == remainder)


@tensor_primitive(select="k%{m:int}=={r:int}", vector=True)
def every_kth_key(rows: Basis, columns: Basis, period: int, remainder: int) -> Matrix:
    """Of positions, for instance the odd ones: what a language of even length asks for."""
    _check_remainder(period, remainder)
    i, j = indices(rows, columns)
    return 1.0 * (j % period == remainder) + 0.0 * i


def _check_remainder(period: int, remainder: int) -> None:
    if period < 1 or remainder >= period:
        raise NotApplicable(f"the period must be at least 1 and above the remainder, found {period} and {remainder}")


@tensor_primitive(select="q-{m:int}<=k<=q-{n:int}")
def window(rows: Basis, columns: Basis, furthest: int, nearest: int) -> Matrix:
    if nearest > furthest:
        raise NotApplicable(f"the first distance must not be below the second, found {furthest} and {nearest}")
    i, j = indices(rows, columns)
    return 1.0 * ((j >= i - furthest) & (j <= i - nearest))


@tensor_primitive(select="k is first", vector=True)
def decreasing(rows: Basis, columns: Basis) -> Matrix:
    i, j = indices(rows, columns)
    count = size(columns)
    return (count - j + 0 * i) / count


@tensor_primitive(select="k is last", vector=True)
def increasing(rows: Basis, columns: Basis) -> Matrix:
    i, j = indices(rows, columns)
    return (j + 1 + 0 * i) / size(columns)


@tensor_primitive(select="k=={t:token}", project="out=={t:token}", vector=True)
def to_token(rows: Basis, columns: Basis, token: str) -> Matrix:
    """To BOS, SEP, EOS, or any other token."""
    if not isinstance(columns, Tokens):
        raise NotApplicable("only variables in the token basis have tokens to compare with")
    if token not in columns.vocabulary.ids:
        raise NotApplicable(f"token {token!r} is not in the vocabulary")
    i, j = indices(rows, columns)
    return 1.0 * (j == columns.vocabulary.ids[token]) + 0.0 * i


@tensor_primitive(select="k is next above q")
def next_above(rows: Basis, columns: Basis) -> Matrix:
    """Of the keys above the query the nearest most; nothing for the others."""
    i, j = indices(rows, columns)
    return np.where(j > i, 1 - (j - i - 1) / size(columns), 0.0)


@tensor_primitive(select="k>q")
def above(rows: Basis, columns: Basis) -> Matrix:
    i, j = indices(rows, columns)
    return 1.0 * (j > i)


@tensor_primitive(select="k<q")
def below(rows: Basis, columns: Basis) -> Matrix:
    i, j = indices(rows, columns)
    return 1.0 * (j < i)


@tensor_primitive(select="{t:table}", project="{t:table}", vector=True)
def table(rows: Basis, columns: Basis, text: str) -> Matrix:
    """Whole numbers, written out."""
    return 1.0 * _read(text, rows, columns, 0)


@tensor_primitive(select="{t:followers}", project="{t:followers}", vector=True)
def followers(rows: Basis, columns: Basis, text: str) -> Matrix:
    """1 for the columns named behind a row, -1 for all others."""
    return 1.0 * _read(text, rows, columns, -1)


def _read(text: str, rows: Basis, columns: Basis, missing: int) -> np.ndarray:
    try:
        return read_table(text, labels(rows), labels(columns), missing)
    except UnknownLabelError as error:
        raise NotApplicable(str(error)) from None


def build(op: PrimitiveTensor, special_op: PrimitiveTensor | None, rows: Basis, columns: Basis) -> Matrix:
    """The whole tensor: `op` on the rows of ordinary tokens, `special_op`, where given, on the special ones.

    A vector has its columns divided in the same way. The same array is given out again, and cannot be written to.
    """
    special = special_op and _Scaled(_REGISTRY[special_op.primitive], special_op.arguments, special_op.scale)
    return _built(_Scaled(_REGISTRY[op.primitive], op.arguments, op.scale), special, rows, columns)


@dataclass(frozen=True)
class _Scaled:
    primitive: TensorPrimitive
    arguments: tuple[int | str, ...]
    scale: float

    def matrix(self, rows: Basis, columns: Basis) -> Matrix:
        if isinstance(rows, One) and not self.primitive.has_vector:
            raise NotApplicable("this tensor compares two variables, and there is only one here")
        return self.scale * self.primitive.matrix(rows, columns, *self.arguments)


@lru_cache(maxsize=64)
def _built(op: _Scaled, special_op: _Scaled | None, rows: Basis, columns: Basis) -> Matrix:
    tensor = op.matrix(rows, columns)
    if special_op is not None:
        special = special_entries(rows, columns)
        if special is None:
            raise NotApplicable("special_op= needs a variable in the token basis, which has special tokens")
        tensor = np.where(special, special_op.matrix(rows, columns), tensor)
    tensor.setflags(write=False)
    return tensor


def special_entries(rows: Basis, columns: Basis) -> Bool[np.ndarray, "rows columns"] | None:
    """Marks on the entries that `special_op=` is for, rows or a vector's columns; None where these are no tokens."""
    split = columns if isinstance(rows, One) else rows
    if not isinstance(split, Tokens):
        return None
    special = np.array([token in split.vocabulary.special for token in split.vocabulary.tokens])
    return np.broadcast_to(special if isinstance(rows, One) else special[:, None], (size(rows), size(columns)))


# ------------------------------------------------------------------------------------- text form


def _pattern(template: str) -> re.Pattern[str]:
    """Spaces are free around operators; words stay apart."""
    pieces: list[str] = []
    for piece in re.split(r"(\{\w+:\w+\}|\s+|\w+)", template):
        if placeholder := _PLACEHOLDER.fullmatch(piece):
            pieces.append(f"({_PATTERNS[placeholder.group(2)]})")
        elif piece.isspace():
            pieces.append(r"\s+")
        elif piece:
            pieces.extend([re.escape(piece)] if piece.isalnum() else [re.escape(c) for c in piece])
    return re.compile(r"\s*".join(pieces))


def parse_primitive(text: str, statement: str) -> tuple[str, tuple[int | str, ...]] | None:
    """The primitive and its arguments that a text between parentheses names; None where there is none."""
    # Templates without a token come first, so that `k==q` is the diagonal and not a token called q.
    entries = sorted(_REGISTRY.values(), key=lambda p: ":token}" in (_template(p, statement) or ""))
    for primitive in entries:
        template = _template(primitive, statement)
        match = template and _pattern(template).fullmatch(text.strip())
        if template and match:
            kinds = [kind for _, kind in _PLACEHOLDER.findall(template)]
            arguments = [_argument(text, kind) for text, kind in zip(match.groups(), kinds, strict=True)]
            if all(argument is not None for argument in arguments):
                return primitive.name, tuple(a for a in arguments if a is not None)
    return None


def print_primitive(op: PrimitiveTensor, statement: str) -> str:
    """`(k==q-1)`, with `*scale` where the scale is not the default."""
    template = _template(_REGISTRY[op.primitive], statement) or ""
    values = iter(op.arguments)
    text = _PLACEHOLDER.sub(lambda m: _text(next(values), m.group(2)), template)
    return f"({text})" if op.scale == DEFAULT_SCALE else f"({text})*{print_number(op.scale)}"


def known_texts(statement: str) -> Sequence[str]:
    """How the library's tensors are written in a statement, for messages."""
    templates = (_template(primitive, statement) for primitive in _REGISTRY.values())
    return [_PLACEHOLDER.sub(lambda m: f"<{m.group(2)}>", text) for text in templates if text]


def parameter_kinds(primitive: TensorPrimitive, statement: str) -> tuple[str, ...] | None:
    """What a primitive's parameters are in a statement: int, offset, token …; None where it has no meaning there."""
    template = _template(primitive, statement)
    return None if template is None else tuple(kind for _, kind in _PLACEHOLDER.findall(template))


def _template(primitive: TensorPrimitive, statement: str) -> str | None:
    return primitive.select if statement == "select" else primitive.project


def _argument(text: str, kind: str) -> int | str | None:
    if kind in ("table", "followers"):
        return canonical_text(text)
    if kind != "token":
        return int(re.sub(r"\s", "", text))
    if text in _AXES:
        return None
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except ValueError:
        return None


def _text(value: int | str, kind: str) -> str:
    if isinstance(value, int):
        return f"{value:+d}" if kind == "offset" else str(value)
    return quote(value, avoid=_AXES) if kind == "token" else value


def print_number(x: float) -> str:
    """The shortest text that reads back the same: 2 and 0.5 and 1e-05."""
    return repr(x).removesuffix(".0")
