"""Programs on disk: `NAME.drasp` is the text, `NAME.safetensors` beside it holds the tensors it names."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from drasp.errors import DraspError
from drasp.language.json_form import to_json
from drasp.language.latex import to_latex
from drasp.language.numpy_source import to_python
from drasp.language.parser import parse
from drasp.language.printer import to_text
from drasp.language.syntax import Program, ProgramError

PRUNED = "pruned.drasp"
"""In a result's folder: the model cut down, with its own tensors, before lines were named."""


def program_files(program: Program) -> dict[str, bytes]:
    """The files that hold a program, by name: text, tensors, the stand-alone Python, LaTeX and JSON."""
    tensors = {name: tensor.detach().contiguous() for name, tensor in program.tensors.items()}
    return {
        "program.drasp": to_text(program).encode(),
        "program.safetensors": save(tensors),
        "program.py": to_python(program).encode(),
        "program.tex": to_latex(program).encode(),
        "program.json": to_json(program).encode(),
    }


def load_program(path: str | Path) -> Program:
    """Reads a `.drasp` file, or `program.drasp` in a folder. Nothing in it is run."""
    path = Path(path)
    file = path / "program.drasp" if path.is_dir() else path
    if file.suffix != ".drasp":
        raise DraspError(f"{file}: expected a .drasp file, or a folder that holds program.drasp")
    try:
        text = file.read_bytes().decode()
    except FileNotFoundError:
        raise DraspError(f"{file}: no such file; expected a .drasp file, or a folder that holds one") from None
    except UnicodeDecodeError as error:
        raise DraspError(f"{file}: not a UTF-8 text (byte {error.start})") from None
    try:
        return parse(text.replace("\r\n", "\n"), _read_tensors(file.with_suffix(".safetensors")))
    except ProgramError as error:
        raise error.in_file(str(file)) from None


def load_pruned(path: str | Path) -> Program | None:
    """The model cut down, which a result's folder holds beside `program.drasp`; None where it does not."""
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    is_result = path.is_dir() or path.name == "program.drasp"
    return load_program(folder / PRUNED) if is_result and (folder / PRUNED).is_file() else None


def _read_tensors(file: Path) -> Mapping[str, Tensor]:
    """A program that names no tensor needs no file."""
    if not file.exists():
        return {}
    try:
        place = torch.get_default_device()
        return {name: tensor.to(place) for name, tensor in load(file.read_bytes()).items()}
    except (SafetensorError, OSError) as error:
        raise DraspError(f"{file}: not a whole safetensors file ({error})") from None
