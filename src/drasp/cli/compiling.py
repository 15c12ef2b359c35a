"""`drasp compile`."""

from pathlib import Path
from typing import Annotated

import typer

from drasp.cli.options import (
    MAX_SEED,
    ProgramPath,
    Quiet,
    one_thread,
    task_names,
)
from drasp.terminal import SafeConsole, say

_TASK_HELP = "A task's name, or file.py:name: what to train on, and what the model's folder will say it is for."


def compile_(
    program: ProgramPath,
    out: Annotated[Path, typer.Option(help="Folder for the model; it must not exist.", show_default=False)],
    task: Annotated[str | None, typer.Option(autocompletion=task_names, help=_TASK_HELP, show_default=False)] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of all that is random in a disguise.")] = 0,
    rotate: Annotated[bool, typer.Option("--rotate", help="Random bases of the stream and of all heads.")] = False,
    gains: Annotated[bool, typer.Option("--gains", help="Random layer-norm gains and biases, undone behind.")] = False,
    noise: Annotated[float, typer.Option(help="Noise on every weight, as a share of what is around it.")] = 0.0,
    idle_heads: Annotated[int, typer.Option(help="Heads in every layer that do nothing.")] = 0,
    idle_mlps: Annotated[int, typer.Option(help="Hidden units in every MLP that do nothing.")] = 0,
    twin_heads: Annotated[int, typer.Option(help="Heads that come twice, each with half the output.")] = 0,
    superposition: Annotated[float, typer.Option(help="Share of the room that the stream's blocks need.")] = 1.0,
    norm_size: Annotated[float, typer.Option(help="The stream's constant; below 300, layer norms matter.")] = 1000.0,
    training_steps: Annotated[int, typer.Option(help="Steps of training on the task afterwards.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Write a GPT-2 that computes a program, which `transformers` loads; the model's own program is written beside it.

    Examples:

    drasp compile program.drasp --out model

    drasp compile program.drasp --task bin_majority --rotate --gains --noise 0.01 --seed 7 --out model
    """
    import time

    from drasp.cli import show
    from drasp.compiler import Disguise, compile_program
    from drasp.errors import DraspError
    from drasp.language import ProgramError, load_program, program_file
    from drasp.output_folder import check_output_folder
    from drasp.tasks import load_task

    begun = time.perf_counter()
    check_output_folder(out, new=True)
    one_thread()
    loaded, its_task = load_program(program), load_task(task) if task else None
    if its_task is not None and its_task.vocabulary.tokens != loaded.vocabulary.tokens:
        raise DraspError(f"--task {task}: its tokens are not those of {program}")
    if its_task is not None and its_task.n_positions > loaded.n_positions:
        needed, there = its_task.n_positions, loaded.n_positions
        raise DraspError(f"--task {task}: needs {needed} positions, but {program} has {there}")
    disguise = Disguise(
        rotate, gains, noise, idle_heads, idle_mlps, twin_heads, superposition, norm_size, training_steps, its_task
    )
    try:
        compiled = compile_program(loaded, disguise, seed)
    except ProgramError as error:
        raise error.in_file(str(program_file(program))) from None
    compiled.save(out, its_task)
    if not quiet:
        show.print_program(SafeConsole(highlight=False), compiled.program)
        say(f"\n{compiled.summary()}; {time.perf_counter() - begun:.1f} s; wrote {out}")
