"""Writes a result's files to a folder: all of them or none, and never over somebody else's."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from drasp.errors import DraspError

# What marks a folder as one that drasp wrote, and may write again.
MARK = "result.json"


def check_output_folder(folder: Path) -> None:
    """Before long work: can the result be written there?"""
    if folder.exists() and not folder.is_dir():
        raise DraspError(f"{folder}: expected a folder for the output, found a file")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise DraspError(f"{folder}: holds other files; name an empty or a new folder for the output")


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Every file is written whole beside its place and then moved there; the mark comes last."""
    check_output_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".drasp-", dir=folder) as temporary:
        for name, content in files.items():
            for place in (Path(temporary), folder):
                (place / name).parent.mkdir(exist_ok=True)
            (Path(temporary) / name).write_bytes(content)
        for name in sorted(files, key=lambda name: name == MARK):
            (Path(temporary) / name).replace(folder / name)


def write_file(file: Path, content: bytes) -> None:
    """One file beside others: written whole, then moved to its place."""
    with tempfile.NamedTemporaryFile(prefix=".drasp-", dir=file.parent, delete=False) as temporary:
        try:
            temporary.write(content)
            temporary.close()
            Path(temporary.name).chmod(0o644)
            Path(temporary.name).replace(file)
        except BaseException:
            Path(temporary.name).unlink(missing_ok=True)
            raise
