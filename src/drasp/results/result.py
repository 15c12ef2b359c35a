"""A decompilation's result in Python: from a run or from its folder, it shows itself and gives its lines."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path

from drasp.causal import Evidence
from drasp.decompiler.result import Decompiled
from drasp.errors import DraspError
from drasp.language import Program, load_program, load_pruned
from drasp.output_folder import MARK
from drasp.records import CertificateRecord, FrontierRecord, Record, read_record
from drasp.report.examples import draw_examples, fitted_to_program
from drasp.results.files import write_result
from drasp.results.frontier import Frontier, has_names, interval_text
from drasp.results.labelled import html_table
from drasp.results.line import Line
from drasp.rewriting.positions import within
from drasp.tasks import TASKS, Task, load_task
from drasp.transformer import Transformer
from drasp.words import names_told, paragraph

_GRADES = {"complete": "what is left out of the model does not matter", "sufficient": "what is left out matters"}


@dataclass(frozen=True, eq=False)
class Result:
    """A program with its verdict and evidence. `result[2]` and `result["a1"]` are its lines.

    `pruned` is the model cut down, before lines were named. `task` and `model` are there where they are known.
    """

    program: Program
    record: Record
    frontier: Frontier
    pruned: Program
    task: Task | None = None
    model: Transformer | None = None

    @classmethod
    def of(cls, found: Decompiled, model: str, task: Task, transformer: Transformer) -> "Result":
        return cls(found.program, found.record(model), Frontier.of(found), found.pick.cut_down, task, transformer)

    @property
    def verdict(self) -> str | None:
        return self.record.verdict

    @property
    def grade(self) -> str | None:
        return self.record.grade

    @cached_property
    def evidence(self) -> Evidence | None:
        """What was measured of the program against its model; None where nothing was."""
        return _evidence(self.record)

    @property
    def certificate(self) -> CertificateRecord | None:
        """What was proved or refuted on all inputs up to a length; None where not all inputs can be listed."""
        return self.record.certificate

    @property
    def lines(self) -> list[Line]:
        return [self[number] for number in range(1, self.program.lines + 1)]

    def __getitem__(self, line: int | str) -> Line:
        """A line by its number, from 1 on, or by the name of its variable."""
        names = [statement.name for statement in self.program.statements]
        if isinstance(line, str) and line not in names:
            raise DraspError(f"no line is called {line!r}; there are {', '.join(names)}")
        if not hasattr(line, "__index__") and not isinstance(line, str):
            raise DraspError(f"line {line!r}: expected a line's number, from 1 on, or the name of its variable")
        number = names.index(line) + 1 if isinstance(line, str) else line
        if not 1 <= number <= len(names):
            raise DraspError(f"line {number}: the program's lines are 1 to {len(names)}")
        measured = self.evidence.lines if self.evidence else ()
        found = next((each for each in measured if each.line == names[number - 1]), None)
        return Line(self.program, number, found, self._reached)

    def __len__(self) -> int:
        return self.program.lines

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines)

    def save(self, folder: str | Path) -> None:
        """Writes the result's folder, with its report, as `drasp decompile` does."""
        examples = draw_examples(self.program, self.task, self.model)
        write_result(Path(folder), self.program, self.pruned, self.frontier.programs, self.record, examples)

    @property
    def words(self) -> str:
        """What the program does, as a paragraph."""
        return paragraph(self._reached)

    @cached_property
    def _reached(self) -> Program:
        """The program on the positions that inputs reach, as far as that is known."""
        return within(self.program, self.task.reach if self.task else self.record.positions)

    def summary(self) -> str:
        """The verdict, and what it rests on, in one line."""
        record, grade = self.record, f" ({self.grade})" if self.grade else ""
        parts = [f"{record.lines} lines"]
        parts += [names_told(record.primitives)] if record.primitives is not None else []
        if record.match_accuracy is not None:
            of_all = "all " if record.samples and record.match_interval is None else ""
            share = f"{record.match_accuracy:.3f}{interval_text(record.match_interval)}"
            parts.append(f"{share} of {of_all}{record.samples or 0:,} inputs answered alike")
        if record.task_accuracy is not None:
            parts.append(f"{record.task_accuracy:.3f} right")
        meaning = f"; {_GRADES[self.grade]}" if self.grade in _GRADES else ""
        return f"{self.verdict or record.method}{grade}: {', '.join(parts)}{meaning}"

    def __str__(self) -> str:
        parts = [str(self.program), self.summary()]
        parts += [f"- {reason}" for reason in self.record.reasons or ()]
        if self.evidence is not None:
            parts += [f"  {name}: {said}" for name, said in self._measures()]
        if self.certificate is not None:
            parts.append(f"  {self.certificate.line}")
        if len(self.frontier):
            parts.append(f"\n{self.frontier}")
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        evidence, reasons = self.evidence, self.record.reasons or ()
        rows = [
            (each.line, each.stands_for, each.origin, *map(_shown, (each.attention, each.interchange, each.splice)))
            for each in (evidence.lines if evidence else ())
        ]
        header = ("line", "stands for", "is", "attention", "interchange", "splice")
        return "".join(
            [
                f"<pre>{escape(str(self.program))}</pre><p><b>{escape(self.summary())}</b></p>",
                f"<ul>{''.join(f'<li>{escape(reason)}</li>' for reason in reasons)}</ul>" if reasons else "",
                html_table(header, rows) if rows else "",
                html_table(("measure", ""), self._measures()) if evidence else "",
                f"<p>{escape(self.certificate.line)}</p>" if self.certificate else "",
                self.frontier._repr_html_() if len(self.frontier) else "",
            ]
        )

    def _measures(self) -> list[tuple[str, str]]:
        assert self.evidence is not None
        names = ("edited", "attention", "interchange", "splice", "complement")
        return [(name, str(getattr(self.evidence, name))) for name in names]


def load_result(folder: str | Path, task: str | Path | Task | None = None) -> Result:
    """Reads the folder of a result. Nothing that it names is run: a task of one's own is given again."""
    place = Path(folder)
    record = read_record(place) if place.is_dir() else None
    if record is None:
        raise DraspError(f"{place}: no {MARK}; expected a folder that `drasp decompile` or `drasp translate` wrote")
    program = load_program(place)
    its_task = load_task(task) if task is not None else TASKS.get(record.task or "")
    points = record.frontier or ()
    programs = {point.lines: load_program(place / "frontier" / f"{point.lines}.drasp") for point in points}
    pruned = load_pruned(place) or program
    frontier = Frontier(points, programs, record.pruned_lines, _named(record, program, pruned))
    return Result(program, record, frontier, pruned, its_task and fitted_to_program(its_task, program, place))


def _named(record: Record, program: Program, pruned: Program) -> FrontierRecord | None:
    """The program handed out, as a row of the frontier; None where it got no names."""
    if record.match_accuracy is None or not has_names(program, pruned) or (evidence := _evidence(record)) is None:
        return None
    return FrontierRecord(record.lines, record.match_accuracy, record.match_interval, evidence.causal, evidence.grade)


def _evidence(record: Record) -> Evidence | None:
    return Evidence.of_record(json.loads(json.dumps(record.causal)), MARK)  # as a file would have it


def _shown(measure: object | None) -> str:
    return "" if measure is None else str(measure)
