"""The frontier of a search as users see it: programs by length, and which of them was picked."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from drasp.decompiler.result import Decompiled
from drasp.errors import DraspError
from drasp.language import Program
from drasp.records import FrontierRecord
from drasp.results.labelled import html_table

HEADER = ("", "lines", "answered alike", "by the model's means", "")
FrontierRow = tuple[str, str, str, str, str]


@dataclass(frozen=True, eq=False)
class Frontier:
    """The programs of a search from the shortest to the most faithful, as pruning left them.

    `picked` is the length of the pick among them; `named` is what names have made of it, None where it got none.
    """

    points: tuple[FrontierRecord, ...]
    programs: dict[int, Program] = field(repr=False)
    picked: int | None = None
    named: FrontierRecord | None = None

    @classmethod
    def of(cls, found: Decompiled) -> "Frontier":
        programs = {point.lines: point.program for point in found.frontier}
        named = found.final.record() if has_names(found.program, found.pick.cut_down) else None
        return cls(tuple(point.record() for point in found.frontier), programs, found.pick.lines, named)

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[FrontierRecord]:
        return iter(self.points)

    def __getitem__(self, lines: int) -> Program:
        """The program of so many lines."""
        if lines not in self.programs:
            there = ", ".join(map(str, self.programs))
            raise DraspError(f"the frontier has no program of {lines} lines; there are {there}")
        return self.programs[lines]

    def rows(self) -> list[FrontierRow]:
        """An arrow at the program handed out, lines, the share answered alike, whether by the model's means, a note.

        Where names have changed the pick's length or agreement, what it has become is a row of its own.
        """
        rows: list[FrontierRow] = []
        named = self.named
        for point in self.points:
            if point.lines != self.picked:
                rows.append(_row("", point, ""))
            elif named is None:
                rows.append(_row("→", point, "the pick"))
            elif (named.lines, named.match_accuracy) == (point.lines, point.match_accuracy):
                rows.append(_row("→", named, "the pick, with names"))
                named = None
            else:
                rows.append(_row("", point, "the pick, before naming"))
        return rows if named is None else [*rows, _row("→", named, "the pick, with names")]

    def __str__(self) -> str:
        table = [HEADER, *self.rows()]
        widths = [max(len(row[i]) for row in table) for i in range(4)]
        aligned = ([cell.rjust(width) for cell, width in zip(row, widths, strict=False)] for row in table)
        return "\n".join("  ".join((*cells, row[4])).rstrip() for cells, row in zip(aligned, table, strict=True))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(HEADER, self.rows())


def has_names(program: Program, pruned: Program) -> bool:
    """Whether the program says something else than what pruning left, beyond rounded numbers in its tensors."""
    return str(program) != str(pruned)


def interval_text(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"


def _row(arrow: str, point: FrontierRecord, note: str) -> FrontierRow:
    share = f"{point.match_accuracy:.3f}{interval_text(point.match_interval)}"
    return arrow, str(point.lines), share, (point.grade or "yes") if point.causal else "no", note
