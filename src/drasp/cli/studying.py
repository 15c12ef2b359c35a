"""`drasp sweep`, `drasp tables`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drasp.cli.options import Quiet, hold
from drasp.errors import DraspError
from drasp.terminal import SafeConsole, one_line, say

if TYPE_CHECKING:
    from drasp.study.engine import Advance, Agenda


def sweep(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="What is wanted.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the study; if it is there, the study goes on.")],
    jobs: Annotated[int, typer.Option(min=1, help="How many units run at once, each on one thread.")] = 1,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on a Dask cluster, such as tcp://host:8786.")
    ] = None,
    worker: Annotated[
        bool, typer.Option("--worker", help="One of many that work in the same folder, as in a Slurm array.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run units again that have failed.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train and decompile many models, as a file says. Stopped at any time, the same command goes on.

    Example: drasp sweep studies/smoke.toml --out smoke --jobs 2

    Example: drasp sweep studies/paper.toml --out /shared/paper --worker
    """
    from drasp.output_folder import reserved
    from drasp.study import engine
    from drasp.study.spec import read_study
    from drasp.study.store import Store

    if worker and scheduler:
        raise DraspError("--worker: works without a scheduler; leave out one of the two")
    study = read_study(spec)
    store = Store(out)
    if not worker:
        hold(reserved(out))
    store.open(study.name, study.text)
    if retry_failed:
        engine.forget_failed(study, store)
    display = _SweepDisplay(quiet)
    try:
        if scheduler:
            from drasp.study.cluster import sweep_on

            plan = sweep_on(scheduler, study, store, display.watch)
        else:
            plan = engine.sweep(study, store, jobs, display.watch)
    except KeyboardInterrupt:
        raise DraspError("interrupted; what is finished is kept: the same command goes on") from None
    if plan.failed:
        raise DraspError(f"{out}: {_summary(plan, out)}")
    if not quiet:
        say(_summary(plan, out))


def tables(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that sweep wrote.", show_default=False)],
) -> None:
    """Make the tables and figures of a study: Markdown, LaTeX, CSV, JSON; figures as PDF and SVG.

    Example: drasp tables smoke
    """
    from drasp.study.report import write_tables

    files, remarks = write_tables(folder)
    for remark in remarks:
        say(f"drasp: {remark}", err=True)
    say(f"wrote {len(files)} files to {folder}/tables: {', '.join(file.name for file in files)}")


class _SweepDisplay:
    """A line for every unit that is finished; in a terminal also one that changes."""

    def __init__(self, quiet: bool) -> None:
        self._console = SafeConsole(stderr=True, quiet=quiet, highlight=False)

    def watch(self, progress: "Advance") -> None:
        from drasp.estimate import duration

        left = "" if progress.seconds_left is None else f", about {duration(progress.seconds_left)} left"
        line = f"[{progress.finished}/{progress.total}{left}]"
        if progress.unit is not None and progress.record is not None:
            line += f" {progress.unit.label}: {outcome(progress.record)}"
        self._console.print(one_line(line), soft_wrap=True)


def outcome(record: Mapping[str, Any]) -> str:
    """What became of a unit, in a few words."""
    if record["status"] == "failed":
        return f"failed: {record['reason']}"
    result = record["result"]
    seconds = f"{record['seconds']:.0f} s"
    if record["kind"] == "training":
        longest = list(result["accuracy"]["offset 0"].values())[-1]
        return f"{result['steps']:,} steps, {longest:.3f} right at the longest lengths, {seconds}"
    grade = f" ({result['grade']})" if result["grade"] else ""
    return f"{result['verdict']}{grade}, {result['lines']} lines, agreement {result['match_accuracy']:.3f}, {seconds}"


def _summary(plan: "Agenda", out: Path) -> str:
    failed = f", {len(plan.failed)} of them failed (--retry-failed runs these again)" if plan.failed else ""
    return f"{len(plan.finished)} units finished{failed}; their tables: drasp tables {out}"
