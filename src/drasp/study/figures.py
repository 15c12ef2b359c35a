"""Figures of a study: Pareto frontiers in several groups, and models through their training."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from drasp.report.figures import figure_files
from drasp.study.runs import Decompilation, alike_but_for, first_of_each, grouped
from drasp.study.spec import LONGEST
from drasp.training.recipe import OFFSETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("pdf", "svg")
_GENERALISING = {True: "length-generalises", False: "does not"}
Groups = Mapping[str, Sequence[Decompilation]]


def study_figures(runs: Sequence[Decompilation]) -> dict[str, bytes]:
    """All figures as files; none of what there is nothing of."""
    return figure_files(partial(_drawn, runs), FORMATS)


def _drawn(runs: Sequence[Decompilation]) -> "dict[str, Figure]":
    usual = [run for run in runs if run.spec["longest"] == LONGEST]
    real = [run for run in usual if run.result["norms"]["kept"]]
    shorter = [run for group in alike_but_for("longest", runs) for run in group]
    groups: dict[str, tuple[str, Groups]] = {
        "frontiers": ("all models", grouped(usual, lambda run: run.spec["task"])),
        "frontiers-real_norms": ("programs with real norms", grouped(real, lambda run: _GENERALISING[run.generalises])),
        "frontiers-lengths": ("inputs up to", grouped(shorter, lambda run: f"{run.name}: {run.spec['longest']}")),
    }
    for task, of_task in grouped(usual, lambda run: run.spec["task"]).items():
        groups[f"frontiers-{task}"] = task, grouped(of_task, lambda run: run.architecture)
    drawn = {name: _frontiers(title, group) for name, (title, group) in groups.items() if group}
    stepped = grouped((run for run in first_of_each(usual) if run.model.get("step")), lambda run: run.model["training"])
    for training, early in stepped.items():
        last = [run for run in first_of_each(usual) if run.identity == (None, training, None)]
        name = f"checkpoints-{early[0].architecture}-{early[0].model['seed']}"
        drawn[name] = _checkpoints(name.removeprefix("checkpoints-"), [*early, *last])
    return drawn


def _frontiers(title: str, groups: Groups) -> "Figure":
    """A line for each decompilation, dashed where a program has real norms; a colour for each group."""
    figure, axes = _axes(title)
    for number, (name, runs) in enumerate(sorted(groups.items())):
        for index, run in enumerate(runs):
            points = run.result["frontier"]
            style = "--" if run.result["norms"]["kept"] else "-"
            axes.plot(
                [p[0] for p in points], [p[1] for p in points], style, marker="o", markersize=2, linewidth=0.8,
                color=f"C{number % 10}", label=name if index == 0 else None,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel("lines of code")
    axes.set_ylabel("match accuracy")
    axes.legend(fontsize=5, frameon=False, loc="lower right")
    return figure


def _checkpoints(title: str, runs: Sequence[Decompilation]) -> "Figure":
    """How often the model is right, by length, and how far a program agrees with it, through one training."""
    figure, axes = _axes(title)
    chosen = sorted(runs, key=lambda run: run.result["steps"])
    steps = [run.result["steps"] for run in chosen]
    for name in chosen[0].result["accuracy"][OFFSETS[0]]:
        right = [run.result["accuracy"][OFFSETS[0]][name] for run in chosen]
        axes.plot(steps, right, linewidth=0.8, marker="o", markersize=2, label=f"right at {name}")
    for decompiled, marker in ((True, "*"), (False, "x")):
        found = [run for run in chosen if run.decompiled is decompiled]
        label = "program agrees" + ("" if decompiled else ", not decompiled")
        axes.scatter(
            [run.result["steps"] for run in found], [run.result["match_accuracy"] for run in found], marker=marker,
            s=18, linewidths=0.8, color="black", label=label if found else None, zorder=3,
        )  # fmt: skip
    axes.set_xlabel("steps")
    axes.set_ylabel("share")
    axes.legend(fontsize=5, frameon=False)
    return figure


def _axes(title: str) -> "tuple[Figure, Any]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 2.6), layout="constrained")
    axes: Any = figure.add_subplot()
    axes.set_title(title, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
