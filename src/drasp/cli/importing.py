"""`drasp import`."""

from pathlib import Path
from typing import Annotated

import typer

from drasp.cli.options import Quiet
from drasp.terminal import say


def import_(
    file: Annotated[Path, typer.Argument(help="A checkpoint: .pt, .pth or .safetensors.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the model; it must not exist.", show_default=False)],
    activation: Annotated[
        str | None, typer.Option(help="Of its MLPs, where the file does not say: relu, gelu, gelu_new or silu.")
    ] = None,
    norm: Annotated[str | None, typer.Option(help="Where the file does not say: layer, rms or none.")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Of a layer, where a nanoGPT does not say.")] = None,
    quiet: Quiet = False,
) -> None:
    """Write a checkpoint of TransformerLens or nanoGPT as a folder that drasp reads.

    It is a GPT-2 folder where that form can say what the model is, which `transformers` loads too.

    Examples:

    drasp import model.pt --activation relu --out model

    drasp import out/ckpt.pt --out model
    """
    from drasp.activations import ACTIVATIONS
    from drasp.errors import DraspError
    from drasp.importing import import_checkpoint
    from drasp.model_files import model_files
    from drasp.output_folder import check_output_folder, write_files

    check_output_folder(out, new=True)
    if activation is not None and activation not in ACTIVATIONS:
        raise DraspError(f"--activation {activation}: no such activation; there are {', '.join(ACTIVATIONS)}")
    match norm:
        case None | "layer" | "rms" | "none":
            imported = import_checkpoint(file, activation, norm, heads)
        case _:
            raise DraspError(f"--norm {norm}: no such norm; there are layer, rms and none")
    write_files(out, model_files(imported.shape, imported.weights), new=True)
    if not quiet:
        say(imported.summary())
        if imported.assumed:
            say(f"assumed, since the file does not say: {imported.assumed}")
        say(f"wrote {imported.form} to {out}")
