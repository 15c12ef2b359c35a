"""Options that mean the same in every command that has them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from drasp.cli.catalogue import catalogue
from drasp.errors import DraspError

MAX_SEED = 2**32 - 1
MAX_SAMPLES = 1_000_000
MODEL_HELP = "A GPT-2 folder, or the name of a zoo model."


def among(*names: str) -> Callable[[str], list[str]]:
    """Names to what completes a shell's word by them."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def task_names(incomplete: str) -> list[str]:
    """The start of a task to the names of drasp's own that begin so."""
    return among(*(row[0] for row in catalogue()["tasks"]))(incomplete)


def model_names(incomplete: str) -> list[str]:
    """The start of a model to the zoo's names and the folders here that begin so."""
    folders = [path.name for path in Path().iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted({*among(*(row[0] for row in catalogue()["zoo"]), *folders)(incomplete)})


ModelName = Annotated[
    str, typer.Argument(autocompletion=model_names, metavar="MODEL", help=MODEL_HELP, show_default=False)
]
ProgramPath = Annotated[
    Path,
    typer.Argument(metavar="PROGRAM", help="A .drasp file, or a folder that holds program.drasp.", show_default=False),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        autocompletion=task_names,
        help="A task's name, or file.py:name; a model or a result of drasp knows its own.",
        show_default=False,
    ),
]
Device = Annotated[str, typer.Option("--device", help="Where to compute: cpu, or a device of torch's such as cuda.")]
NoProgress = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]


_held = ExitStack()


def hold(resource: AbstractContextManager[Any]) -> None:
    """Keeps a resource, such as the place that a result will have, until the command ends."""
    _held.enter_context(resource)


def release() -> None:
    _held.close()


def one_thread() -> None:
    """Makes torch use one thread: small tensors gain nothing by more, and sums would differ between machines."""
    import torch

    torch.set_num_threads(1)


def on_device(name: str) -> AbstractContextManager[Any]:
    """A device's name to a context in which models, programs and inputs are made there."""
    import torch

    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # a device without memory of its own cannot give anything back
    except (RuntimeError, AssertionError, NotImplementedError):
        raise DraspError(f"--device {name}: not available here; expected cpu, or a device that torch has") from None
    # Making a device the default costs some microseconds at every operation, and the CPU is the default anyway.
    return nullcontext() if device.type == "cpu" else device
