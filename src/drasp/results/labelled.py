"""An array whose axes have names, and a label for every place along them."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from drasp.errors import DraspError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 20  # rows and columns
_DIGITS = 2  # behind the point; more, where all numbers are so small that they have two of their own


@dataclass(frozen=True)
class Axis:
    """What an axis is, such as `query: token`, and what stands at each place along it."""

    name: str
    labels: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Numbers with named axes. `array["a", "b"]` finds a number by labels or places; NumPy takes it as it is.

    What a query does not see is NaN.
    """

    title: str
    values: np.ndarray
    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype) if copy or dtype is not None else self.values

    def __getitem__(self, key: Any) -> Any:
        """A number, or the part of the array that is left where fewer labels are given than there are axes."""
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > len(self.axes):
            names = ", ".join(axis.name for axis in self.axes)
            raise DraspError(f"{self.title}: {len(keys)} labels for {len(self.axes)} axes ({names})")
        places = tuple(self._place(axis, label) for axis, label in zip(self.axes, keys, strict=False))
        kept = self.axes[len(keys) :]
        found = self.values[places]
        return Labelled(self.title, found, kept) if kept else float(found)

    def _place(self, axis: Axis, label: Any) -> int:
        if isinstance(label, str):
            if label not in axis.labels:
                some = ", ".join(axis.labels[:12]) + (", …" if len(axis.labels) > 12 else "")
                raise DraspError(f"{self.title}: no {label!r} along {axis.name}; there are {some}")
            if axis.labels.count(label) > 1:
                raise DraspError(f"{self.title}: {label!r} stands more than once along {axis.name}; name its place")
            return axis.labels.index(label)
        if not hasattr(label, "__index__"):
            raise DraspError(f"{self.title}: {label!r} along {axis.name}; expected a label, or a place by its number")
        place = index(label)
        if not -len(axis.labels) <= place < len(axis.labels):
            raise DraspError(f"{self.title}: place {label} of {len(axis.labels)} along {axis.name}")
        return place

    def plot(self) -> "Figure":
        """A heatmap: the first axis downwards, the second to the right."""
        from drasp.report.figures import heatmap

        values, axes = (
            (self.values[None], (Axis("", ("",)), *self.axes)) if self.values.ndim == 1 else (self.values, self.axes)
        )
        rows, columns = axes
        return heatmap(self.title, values, rows.labels, columns.labels, rows.name, columns.name)

    def __str__(self) -> str:
        header, rows = self._table()
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)
        ]
        return "\n".join([f"{self.title} [{', '.join(axis.name for axis in self.axes)}]", *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(*self._table(), f"{self.title} [{', '.join(axis.name for axis in self.axes)}]")

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """The first rows and columns as texts, with a dot for nothing and a blank for what is not seen."""
        flat = self.values if self.values.ndim == 2 else self.values.reshape(1, -1)
        row_labels = self.axes[0].labels if self.values.ndim == 2 else ("",)
        columns = self.axes[-1].labels
        more = len(columns) > _SHOWN
        header = ["", *columns[:_SHOWN], *["…"][: int(more)]]
        part = flat[:_SHOWN, :_SHOWN]
        largest = np.abs(part[np.isfinite(part)]).max(initial=0.0)
        whole = not largest or np.array_equal(part, np.round(part), equal_nan=True)
        digits = 0 if whole else max(_DIGITS, 1 - int(np.floor(np.log10(largest))))
        rows = [
            [label, *(_text(float(x), digits) for x in values), *["…"][: int(more)]]
            for label, values in zip(row_labels[:_SHOWN], part, strict=True)
        ]
        if len(row_labels) > _SHOWN:
            rows.append(["…", *[""] * (len(header) - 1)])
        return header, rows


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table of texts as HTML, for notebooks."""

    def row(cells: Sequence[str], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}{row(header, 'th')}{''.join(row(each, 'td') for each in rows)}</table>"


def _text(x: float, digits: int) -> str:
    if np.isnan(x):
        return ""
    said = f"{x:.{digits}f}"
    return said if float(said) else "·"
