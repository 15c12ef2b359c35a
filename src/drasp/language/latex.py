r"""Programs in LaTeX, laid out as in the paper: `\input{program.tex}` in a document with fancyvrb, xcolor and tikz.

A tensor without a name is a letter in a circle; what has a tensor, and the tensor, share a colour.
"""

from string import ascii_lowercase

from drasp.language.bases import describe
from drasp.language.checker import op_bases
from drasp.language.printer import statement_text
from drasp.language.remarks import remark
from drasp.language.syntax import Prediction, Program, Project, Select, Statement

_COLOURS = ("0.12,0.47,0.71", "0.85,0.37,0.01", "0.17,0.63,0.17", "0.84,0.15,0.16", "0.58,0.40,0.74", "0.55,0.34,0.29")
_HEAD = r"""% needs \usepackage{fancyvrb,xcolor,tikz}
\providecommand{\circled}[1]{\tikz[baseline=(c.base)]{\node[shape=circle,draw,inner sep=0.5pt] (c) {\scriptsize #1};}}
"""


def to_latex(program: Program) -> str:
    circles = _circles(program)
    colours = "".join(
        f"\\definecolor{{drasp{number}}}{{rgb}}{{{_COLOURS[number % len(_COLOURS)]}}}\n"
        for number, statement in enumerate(program.statements)
        if isinstance(statement, Select | Project)
    )
    lines = [_line(number, statement, circles) for number, statement in enumerate(program.statements)]
    code = "\\begin{Verbatim}[commandchars=\\\\\\{\\}]\n" + "\n".join(lines) + "\n\\end{Verbatim}\n"
    return _HEAD + colours + code + _legend(program, circles)


def _circles(program: Program) -> dict[str, str]:
    """A letter for each select or project whose tensor has no name."""
    unnamed = [s.name for s in program.statements if isinstance(s, Select | Project) and s.stored]
    return {name: ascii_lowercase[i] if i < 26 else str(i) for i, name in enumerate(unnamed)}


def _line(number: int, statement: Statement, circles: dict[str, str]) -> str:
    head, _, rest = statement_text(statement).partition(" = ")
    match statement:
        case Select() | Project():
            sides, _, op = rest.partition("op=")
            tensors = f"\\circled{{{circles[head]}}}" if head in circles else _escaped(op[:-1])
            # A colour ends with its line.
            parts = f"op={tensors}".replace(", special_op=", ",\n\t\tspecial_op=").split("\n")
            coloured = "\n".join(_coloured(part, number) for part in parts)
            text = f"{_coloured(head, number)} = {_escaped(sides)}{coloured})"
        case Prediction():
            text = f"{head} = {_escaped(rest)}".replace("+", "+\n\t\t\t")
        case _:
            text = f"{head} = {_escaped(rest)}"
    behind = remark(statement)
    return f"{number + 1}. {text}\t# {_escaped(behind)}" if behind else f"{number + 1}. {text}"


def _coloured(text: str, number: int) -> str:
    inside = text.lstrip("\t")
    return "\t" * (len(text) - len(inside)) + f"\\textcolor{{drasp{number}}}{{{inside}}}"


def _escaped(text: str) -> str:
    return "".join({"\\": "\\textbackslash{}", "{": "\\{", "}": "\\}"}.get(c, c) for c in text)


def _legend(program: Program, circles: dict[str, str]) -> str:
    """What the circles stand for, as comments: the numbers are in program.safetensors."""
    lines: list[str] = []
    for statement in program.statements:
        if isinstance(statement, Select | Project) and statement.name in circles:
            rows, columns = map(describe, op_bases(program, statement))
            lines.append(f"% {circles[statement.name]}: tensor {statement.stored}, {rows} by {columns}\n")
    return "".join(lines)
