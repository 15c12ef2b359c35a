"""How much of a program has names, for its verdict."""

from collections.abc import Mapping


def names_told(primitives: Mapping[str, Mapping[str, int]]) -> str:
    """Counts of operations, by their kinds, to `3 of 5 operations named, 2 as tables`; below half, that is said."""
    named, tables, total = (
        sum(counts.get(which, 0) for counts in primitives.values()) for which in ("named", "tables", "total")
    )
    words = f"{named} of {total} operations named"
    if tables:
        words += f", {'one as a table' if tables == 1 else f'{tables} as tables'}"
    return f"mostly unnamed ({words})" if 2 * named < total else words
