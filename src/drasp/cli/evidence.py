"""Evidence in a terminal: a row for each line of a program, then what holds for all of it."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drasp.causal import DifferingCase, Evidence, Measure
from drasp.language import Program

_STYLES = {"passed": "green", "failed": "bold red", "untested": "yellow", "not_applicable": "dim"}
_COLUMNS = ("line", "stands for", "is", "attention", "interchange, cut down", "interchange, model", "splice")
_NARROWEST = 14  # of what a line stands for: a head
_ORIGINS = {"own": "the model's own", "approximated": "approximated", "named": "named", "unknown": "unknown"}
_GRADES = {
    "complete": "what is left out of the model does not matter",
    "sufficient": "the model cut down to the program answers alike, but what is left out matters",
}
_MOST_TOKENS = 40  # of an input that is shown


def print_evidence(console: Console, program: Program, evidence: Evidence) -> None:
    """Prints the measures of every line, of the whole, the verdict, and a case for each line that fails."""
    if evidence.without_sites:
        names = ", ".join(evidence.without_sites)
        said = f"lines that do not say what of the model they stand for: {names}"
        console.print(f"{said}; only agreement and edited inputs can be measured", soft_wrap=True)
    else:
        _print_lines(console, evidence)
    console.print()
    _print_whole(console, evidence)
    console.print()
    _print_verdict(console, program, evidence)
    for line in evidence.lines:
        if line.case is not None:
            failed = "; ".join(line.failures())
            _print_case(console, f"{line.line} ({failed})", line.case, "taken from")
    if evidence.edited_case is not None:
        _print_case(console, "edited inputs", evidence.edited_case, "changed to")
    if evidence.complement.failed and evidence.complement_case is not None:
        _print_complement(console, evidence.complement_case)


def _print_lines(console: Console, evidence: Evidence) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in _COLUMNS:
        table.add_column(column, overflow="fold", min_width=_NARROWEST if column == "stands for" else None)
    for line in evidence.lines:
        looks = _looks(line.attention_cut_down, line.attention)
        measures = (line.interchange_cut_down, line.interchange, line.splice)
        table.add_row(
            Text(line.line, "bold cyan"), line.stands_for, _ORIGINS[line.origin], looks, *map(_cell, measures)
        )
    console.print(table)
    for line in evidence.lines:
        if line.part is not None and line.part.dormant:
            shares = f"from another input it changes {line.part.part:.0%} of the answers, all of its component"
            said = f"{line.line} may be a dormant path: {shares} {line.part.component:.0%}"
            console.print(said, style="yellow", markup=False, soft_wrap=True)


def _looks(cut_down: Measure | None, own: Measure | None) -> Text:
    """The overlap of the model cut down, and that of the program where it is another."""
    if own is None or cut_down is None or own == cut_down:
        return _cell(cut_down or own)
    return Text.assemble(_cell(cut_down), "; here ", _cell(own))


def _cell(measure: Measure | None) -> Text:
    return Text("") if measure is None else Text(str(measure), _STYLES[measure.status])


def _print_whole(console: Console, evidence: Evidence) -> None:
    cut_down = "agreement, model cut down" if evidence.has_cut_down else "(the model cut down is not at hand)"
    rows: list[tuple[str, Measure | None]] = [(cut_down, evidence.model_cut_down if evidence.has_cut_down else None)]
    rows += [("agreement", evidence.program), ("edited inputs", evidence.edited)]
    rows += [(f"  {kind}", measure) for kind, measure in evidence.edits.items()]
    if not evidence.without_sites:
        rows += [("complement", evidence.complement), ("agreement, rest at its means", evidence.mean_ablated)]
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, measure in rows:
        interval = "" if measure is None or measure.interval is None else "[{:.3f}, {:.3f}]".format(*measure.interval)
        ties = f"{measure.ties:.1%} by ties" if measure is not None and measure.ties else ""
        table.add_row(name, _cell(measure), interval, "" if measure is None else measure.status.replace("_", " "), ties)
    console.print(table)


def _print_verdict(console: Console, program: Program, evidence: Evidence) -> None:
    if evidence.causal and evidence.grade is not None:
        style = "bold green" if evidence.grade == "complete" else "bold yellow"
        said = Text.assemble((f"causal, {evidence.grade}", style), f": {_GRADES[evidence.grade]}")
    else:
        said = Text.assemble(
            ("not causal", "bold red"), f": {program.lines} lines that answer alike are all that is known"
        )
    console.print(said, soft_wrap=True)
    for reason in evidence.reasons:
        console.print(f"- {reason}", markup=False, soft_wrap=True)


def _print_case(console: Console, what: str, case: DifferingCase, how: str) -> None:
    lines = [
        f"\n{what}",
        f"  {_shown(case.tokens, case.position)}   (offset {case.offset})",
        f"  {how} {_shown(case.source, case.position)}   (offset {case.source_offset})",
        f"  after position {case.position} ({case.tokens[case.position]}) "
        f"the model says {case.model} (before: {case.model_before}), "
        f"the program {case.program} (before: {case.program_before})",
    ]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _print_complement(console: Console, case: DifferingCase) -> None:
    lines = [
        "\ncomplement",
        f"  {_shown(case.tokens, case.position)}   (offset {case.offset}): the model says {case.model}",
        f"  {_shown(case.source, case.position)}   (offset {case.source_offset}): {case.model_before}",
        f"  the first, with all that the program leaves out from the second: {case.program}",
    ]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _shown(tokens: tuple[str, ...], position: int) -> str:
    """The tokens up to a position, the last of them where there are many."""
    first = max(0, position + 1 - _MOST_TOKENS)
    return ("… " if first else "") + " ".join(tokens[first : position + 1])
