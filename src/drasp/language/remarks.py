"""What stands behind `#`: the sites of a model that a line stands for, and then, behind `;`, a person's own words."""

from drasp.language.statements import Statement
from drasp.sites import Site, parse_sites


def remark(statement: Statement) -> str:
    """The text behind a statement's `#`; empty where there is none."""
    comment = " ".join(statement.comment.split())  # a comment ends with its line
    sites = ", ".join(map(str, statement.sites))
    if not sites and read_remark(comment) == ((), comment):
        return comment
    return f"{sites}; {comment}" if comment else sites


def read_remark(text: str) -> tuple[tuple[Site, ...], str]:
    """Sites and comment. What is before the first `;` is a comment too where it names anything but sites."""
    before, mark, after = text.partition(";")
    if mark and not before.strip():
        return (), after.strip()
    sites = parse_sites(before)
    return ((), text) if sites is None else (sites, after.strip())
