"""Small tensors written out between the parentheses of `op=(…)`.

    a: a=-2 b=2; BOS: a=5 *=-1     whole numbers: rows, their columns; `*` is whatever is not named
    a=5 EOS=-5                     the same for every row: `*: a=5 EOS=-5`; so a tensor with one row is written
    BOS->a; a->a b; b->b EOS       1 where the column is named behind its row, -1 elsewhere

Labels are those of the basis; one that is not a plain word stands in JSON's quotes.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int

from drasp.errors import DraspError

TOKEN = r'"(?:[^"\\]|\\.)*"|\w+'
_LABEL = rf"(?:{TOKEN}|\*)"
_ENTRY = rf"{_LABEL}\s*=\s*[+-]?\d{{1,9}}"
_ENTRIES = rf"{_ENTRY}(?:\s+{_ENTRY})*"
_ROW = rf"{_LABEL}\s*:\s*{_ENTRIES}"
_FOLLOWED = rf"{_LABEL}\s*->\s*(?:{TOKEN})(?:\s+(?:{TOKEN}))*"
TABLE = rf"{_ROW}(?:\s*;\s*{_ROW})*|{_ENTRIES}"
FOLLOWERS = rf"{_FOLLOWED}(?:\s*;\s*{_FOLLOWED})*"

_PART = re.compile(
    rf"\s*;?\s*(?:(?P<row>{_LABEL})\s*(?::|->)|(?P<column>{_LABEL})(?:\s*=\s*(?P<value>[+-]?\d+))?)", re.DOTALL
)

# A row's label (None: `*`) and its columns with their numbers.
Row = tuple[str | None, dict[str | None, int]]
Whole = Int[np.ndarray, "rows columns"]


class UnknownLabelError(DraspError):
    """A table names a row or column that the tensor does not have."""


def quote(token: str, avoid: Sequence[str] = ()) -> str:
    """A token as it stands in a program's text: bare where it is a plain word."""
    return (
        token if re.fullmatch(r"\w+", token, re.ASCII) and token not in avoid else json.dumps(token, ensure_ascii=False)
    )


def _unquoted(text: str) -> str | None:
    if text == "*":
        return None
    return str(json.loads(text)) if text.startswith('"') else text


def _rows(text: str) -> Iterator[Row]:
    row: Row | None = None
    for part in _PART.finditer(text):
        if part["row"] is not None:
            if row:
                yield row
            row = (_unquoted(part["row"]), {})
        else:
            row = row or (None, {})
            row[1][_unquoted(part["column"])] = int(part["value"] or 1)
    if row:
        yield row


def read_table(text: str, rows: Sequence[str], columns: Sequence[str], missing: int) -> Whole:
    """The numbers that a text stands for; `missing` is what an entry has that nothing is said of."""
    matrix = np.full((len(rows), len(columns)), missing)
    row_places = {label: i for i, label in enumerate(rows)}
    column_places = {label: j for j, label in enumerate(columns)}
    # What `*` stands for is set first, so that what is named overrides it.
    for label, entries in sorted(_rows(text), key=lambda row: row[0] is not None):
        values = np.full(len(columns), entries.get(None, missing))
        for column, value in entries.items():
            if column is not None:
                values[_place(column_places, column)] = value
        matrix[slice(None) if label is None else _place(row_places, label)] = values
    return matrix


def _place(places: dict[str, int], label: str) -> int:
    if label not in places:
        raise UnknownLabelError(f"{quote(label)} is not a direction of the variable, expected one of {_some(places)}")
    return places[label]


def _some(places: dict[str, int]) -> str:
    labels = [quote(label) for label in places]
    return ", ".join(labels[:8] + ["…"] * (len(labels) > 8))


def canonical_text(text: str) -> str | None:
    """The same table as this module writes it; None where a label is not JSON."""
    try:
        rows = list(_rows(text))
    except ValueError:
        return None
    if "->" in _PART.sub(_arrow, text):
        return "; ".join(f"{_label(label)}->{' '.join(map(_label, entries))}" for label, entries in rows)
    texts = [(label, " ".join(f"{_label(c)}={value}" for c, value in entries.items())) for label, entries in rows]
    return "; ".join(_row_text(label, entries, alone=len(rows) == 1) for label, entries in texts)


def _arrow(part: re.Match[str]) -> str:
    return "->" if part["row"] is not None and part.group().endswith("->") else ""


def _row_text(label: str | None, entries: str, alone: bool) -> str:
    """A row; where it is alone and stands for all, without a label."""
    return entries if label is None and alone else f"{_label(label)}: {entries}"


def _label(label: str | None) -> str:
    return "*" if label is None else quote(label)


def write_table(matrix: Whole, rows: Sequence[str], columns: Sequence[str]) -> str:
    """The shortest text of this kind: a row's commonest number is its `*`, and so is the commonest row."""
    texts = [_entries_text(values, columns) for values in matrix]
    [(common, _)] = Counter(texts).most_common(1)
    return min((_rows_text(rows, texts, shared) for shared in ("", common)), key=len)


def _rows_text(rows: Sequence[str], texts: list[str], shared: str) -> str:
    """The rows' text, with `*` for those that have the shared text; then a row without a number in it must be named."""
    named = [
        _row_text(label, text or "*=0", alone=False)
        for label, text in zip(rows, texts, strict=True)
        if text != shared and (text or shared)
    ]
    return "; ".join([*named, *([_row_text(None, shared, alone=not named)] if shared else [])])


def _entries_text(values: Int[np.ndarray, " columns"], columns: Sequence[str]) -> str:
    numbers = [int(value) for value in values]
    [(usual, _)] = Counter(numbers).most_common(1)
    entries = [f"{quote(c)}={v}" for c, v in zip(columns, numbers, strict=True) if v != usual]
    written = [*entries, *([f"*={usual}"] if usual else [])]
    # What is not 0 is easier to read than what is, and a `*` for the rest.
    plain = [f"{quote(c)}={v}" for c, v in zip(columns, numbers, strict=True) if v]
    return " ".join(plain if len(plain) <= len(written) else written)


def write_followers(matrix: Whole, rows: Sequence[str], columns: Sequence[str]) -> str:
    """Rows with at least one positive entry, and the columns of these; a row that is alone is `*`."""
    names = [quote(label) for label in rows] if len(rows) > 1 else ["*"]
    return "; ".join(
        f"{name}->{' '.join(quote(c) for c, v in zip(columns, values, strict=True) if v > 0)}"
        for name, values in zip(names, matrix, strict=True)
        if (values > 0).any()
    )
