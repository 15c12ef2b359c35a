"""`drasp tasks`, `drasp train`, `drasp zoo`."""

import typer


def register(app: typer.Typer) -> None:
    """Adds the commands of this module."""
