"""Programs on disk: `NAME.drasp` is the text, `NAME.safetensors` beside it holds the tensors it names."""

from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors.torch import save

from drasp.errors import DraspError
from drasp.input_files import is_folder, is_there, on_default_device, read_tensors_if_there, read_text, read_together
from drasp.language.checker import variable_types
from drasp.language.json_form import to_json
from drasp.language.latex import to_latex
from drasp.language.numpy_source import to_python
from drasp.language.parser import parse
from drasp.language.syntax import Program, ProgramError, to_text

PRUNED = "pruned.drasp"
"""In a result's folder: the model cut down, with its own tensors, before lines were named."""


def _tensors(program: Program) -> bytes:
    return save({name: tensor.detach().contiguous() for name, tensor in program.tensors.items()})


EXPORTS: Mapping[str, Callable[[Program], bytes]] = {
    "drasp": lambda program: to_text(program).encode(),
    "safetensors": _tensors,
    "py": lambda program: to_python(program).encode(),
    "json": lambda program: to_json(program).encode(),
    "tex": lambda program: to_latex(program).encode(),
}
"""By suffix, what a program is written as: text, tensors, stand-alone Python, JSON and LaTeX."""


def program_files(program: Program) -> dict[str, bytes]:
    """The files that hold a program, by name: one for each of `EXPORTS`."""
    return {f"program.{suffix}": written(program) for suffix, written in EXPORTS.items()}


def load_program(path: str | Path) -> Program:
    """Reads a correct program, from a `.drasp` file or `program.drasp` in a folder. Nothing in it is run."""
    program = read_program(path)
    try:
        variable_types(program)
    except ProgramError as error:
        raise error.in_file(str(program_file(Path(path)))) from None
    return program


def read_program(path: str | Path) -> Program:
    """Reads a program that may have mistakes, such as tensors that are missing, for `check` to find."""
    file = program_file(Path(path))
    if file.suffix != ".drasp":
        raise DraspError(f"{file}: expected a .drasp file, or a folder that holds program.drasp")
    text, tensors = read_together(
        file.parent,
        lambda: (
            read_text(file, "a .drasp file, or a folder that holds one"),
            # A program that names no tensor needs no file of them.
            read_tensors_if_there(file.with_suffix(".safetensors")),
        ),
    )
    try:
        return parse(text.replace("\r\n", "\n"), on_default_device(tensors or {}))
    except ProgramError as error:
        raise error.in_file(str(file)) from None


def program_file(path: Path) -> Path:
    """The file that a user means by a path: itself, or the program in a folder."""
    return path / "program.drasp" if is_folder(path) else path


def load_pruned(path: str | Path) -> Program | None:
    """The model cut down, which a result's folder holds beside `program.drasp`; None where it does not."""
    path = Path(path)
    file = program_file(path)
    pruned = file.with_name(PRUNED)
    return load_program(pruned) if file.name == "program.drasp" and is_there(pruned) else None
