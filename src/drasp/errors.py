"""Errors that are the user's to mend: one line, shown without a traceback."""


class DraspError(Exception):
    """Says which file or argument is wrong, what was found, what was expected, and what to do."""
