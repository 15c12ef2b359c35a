"""Tables of a study as files: Markdown, LaTeX, CSV, JSON, and a page with its figures, which are PDF and SVG."""

import base64
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from drasp.errors import DraspError
from drasp.input_files import is_folder
from drasp.output_folder import write_into
from drasp.records import WrongFieldError
from drasp.report.html import still_page
from drasp.study.figures import study_figures
from drasp.study.runs import runs_of
from drasp.study.store import STORE_FILE, Store
from drasp.study.tables import Cell, Table, all_tables
from drasp.study.unit_record import check_tabled
from drasp.terminal import one_line

_MADE = re.compile(r"tables\.(md|tex|json|html)|([a-h]\d?|cost|failed)\.csv|(frontiers|checkpoints)(-.+)?\.(pdf|svg)")
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"$|$",
}  # fmt: skip


def write_tables(folder: Path) -> tuple[list[Path], list[str]]:
    """Writes `tables/` in a study's folder; gives the files, and remarks on what they lack."""
    store = Store(folder)
    about = store.about() if is_folder(folder) else None
    if about is None:
        raise DraspError(f"{folder / STORE_FILE}: no such file; expected a folder that `drasp sweep` wrote")
    records, remarks = _records(store)
    if not records:
        raise DraspError(remarks[0] if remarks else f"{folder}: no unit is finished yet; `drasp sweep` goes on with it")
    tables = all_tables(records, store.units)
    figures: dict[str, bytes] = {}
    try:
        figures = study_figures(runs_of(records))
    except DraspError as error:
        remarks.append(str(error))
    command = one_line(f"drasp sweep {about['name']}.toml --out {folder.name}; drasp tables {folder.name}")
    made = Made(command.replace("`", "'"), _code(records))
    if len({record["code"] for record in records}) > 1:
        remarks.append(f"{folder}: its units are not all of the same code of drasp; tables.md says which are of which")
    files = {f"tables.{suffix}": write(tables, made).encode() for suffix, write in _WRITERS.items()}
    files["tables.html"] = _page(tables, made, figures)
    files |= {f"{table.key}.csv": _csv(table).encode() for table in tables} | figures
    place = folder / "tables"
    write_into(place, files, _MADE)
    return [place / name for name in files], remarks


def _records(store: Store) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of finished units, and what is wrong with those that are left out."""
    records: list[dict[str, Any]] = []
    remarks: list[str] = []
    for unit_id in sorted(store.finished()):
        try:
            record = store.record(unit_id)
            if record["status"] == "done":
                check_tabled(record)
            records.append(record)
        except DraspError as error:
            remarks.append(f"left out {error}")
        except WrongFieldError as error:
            remarks.append(f"left out {store.units / unit_id}: {error}")
    return records, remarks


@dataclass(frozen=True)
class Made:
    """How tables came about: by which commands, and by which code of drasp their units."""

    command: str
    code: str

    def note(self, table: Table) -> str:
        return f"{table.note} Made by `{self.command}`."


def _code(records: Sequence[Mapping[str, Any]]) -> str:
    counted = Counter((record["drasp_version"], record["code"]) for record in records)
    return "; ".join(f"{number} units by drasp {which} (code {code})" for (which, code), number in counted.items())


def _markdown(tables: Sequence[Table], made: Made) -> str:
    parts = [f"{made.code}.\n"]
    for table in tables:
        head = "| " + " | ".join(map(_in_markdown, table.columns)) + " |\n|" + "---|" * len(table.columns)
        rows = ["| " + " | ".join(_in_markdown(shown(cell)) for cell in row) + " |" for row in table.rows]
        parts.append("\n".join([f"## ({table.key}) {table.title}\n", made.note(table) + "\n", head, *rows]) + "\n")
    return "\n".join(parts)


def _latex(tables: Sequence[Table], made: Made) -> str:
    parts = [f"% {made.code}; needs booktabs.\n"]
    for table in tables:
        lines = [" & ".join(_in_latex(shown(cell)) for cell in row) + r" \\" for row in table.rows]
        parts.append(
            "\n".join(
                [
                    r"\begin{table}[ht]", r"\centering\small", rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}",
                    r"\toprule", " & ".join(map(_in_latex, table.columns)) + r" \\", r"\midrule", *lines,
                    r"\bottomrule", r"\end{tabular}", rf"\caption{{{_in_latex(f'{table.title}. {made.note(table)}')}}}",
                    r"\end{table}", "",
                ]
            )
        )  # fmt: skip
    return "\n".join(parts)


def _json(tables: Sequence[Table], made: Made) -> str:
    content = {"schema_version": 1, **asdict(made), "tables": [asdict(table) for table in tables]}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _page(tables: Sequence[Table], made: Made, figures: Mapping[str, bytes]) -> bytes:
    body = [f'<header class="top"><h1>Tables</h1><p class="lead">{escape(made.code)}</p></header><main>']
    for table in tables:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
        rows = ("".join(f"<td>{escape(shown(cell))}</td>" for cell in row) for row in table.rows)
        title, note = escape(f"({table.key}) {table.title}"), escape(made.note(table))
        lines = "".join(f"<tr>{row}</tr>" for row in rows)
        body.append(
            f'<section><h2>{title}</h2><p class="note">{note}</p><div class="scroll"><table><thead><tr>{head}</tr>'
            f"</thead><tbody>{lines}</tbody></table></div></section>"
        )
    pictures = {name.removesuffix(".svg"): content for name, content in figures.items() if name.endswith(".svg")}
    for name, content in pictures.items():
        source = f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"
        body.append(
            f'<figure><img src="{source}" alt="{escape(name)}"><figcaption>{escape(name)}</figcaption></figure>'
        )
    return still_page("Tables – drasp", ("base.css", "tables.css"), "".join([*body, "</main>"]))


_WRITERS: Mapping[str, Callable[[Sequence[Table], Made], str]] = {"md": _markdown, "tex": _latex, "json": _json}


def _csv(table: Table) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in table.rows)
    return stream.getvalue()


def shown(cell: Cell) -> str:
    match cell:
        case None:
            return "–"
        case float():
            return f"{cell:.3f}".rstrip("0").rstrip(".") if cell > 1 else f"{cell:.3f}"
        case _:
            return one_line(cell)


def _in_markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
