"""A study's tables, from the records of its finished units."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from drasp.input_files import read_tensors_if_there
from drasp.study import paper
from drasp.study.runs import Decompilation, Records, alike_but_for, architecture, first_of_each, grouped, runs_of
from drasp.study.spec import LONGEST
from drasp.tasks.algorithmic import ALGORITHMIC
from drasp.training.recipe import GENERALISES, OFFSETS

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """`note` says what is counted, of how many models, and what the paper has."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str


def all_tables(records: Records, units: Path) -> list[Table]:
    """Every table of which there is a row."""
    runs = runs_of(records)
    usual = [run for run in runs if run.spec["longest"] == LONGEST]
    first = list(first_of_each(usual))
    algorithms = {task.name for task in ALGORITHMIC}
    made = [
        complete_results("a1", "algorithms", [run for run in usual if run.spec["task"] in algorithms]),
        complete_results("a2", "formal languages", [run for run in usual if run.spec["task"] not in algorithms]),
        frontiers(usual),
        seeds(first, units),
        checkpoints(first),
        lengths(runs),
        stages(first),
        primitives(first),
        stability(usual),
        length_generalisation(first),
        cost(records),
        failures(records),
    ]
    return [table for table in made if table.rows]


def complete_results(key: str, tasks: str, runs: Sequence[Decompilation]) -> Table:
    bins = ("1-50", "51-100", "101-150")
    rows = []
    for run in runs:
        result = run.result
        accuracy = [_percent(result["accuracy"][offsets].get(name)) for offsets in OFFSETS for name in bins]
        known = paper.MODELS.get(run.name.partition(" seed")[0])
        theirs = known and (" / ".join(f"{x:g}" for x in known.accuracy), _yes(known.linear_norm), _yes(known.split))
        rows.append(
            (
                run.name, run.spec["method"], run.spec["seed"], *accuracy, _yes(result["norms"]["kept"] == 0),
                "{}/{}".format(*_single_mlps([run])), result["match_accuracy"], result["lines"], result["verdict"],
                result["grade"], *(result["evidence"].get(k) for k in ("edited", "interchange", "complement")),
                *(theirs or (None, None, None)),
            )
        )  # fmt: skip
    columns = (
        "model", "method", "search seed", *(f"{name}, offset 0" for name in bins),
        *(f"{name}, random" for name in bins), "all norms constant", "MLPs of one input", "agreement", "lines",
        "verdict", "grade", "edited", "interchange", "complement", "paper: accuracy", "paper: linear norm",
        "paper: MLPs split",
    )  # fmt: skip
    note = (
        f"{_models(runs)}, {len(runs)} decompilations. Accuracy in per cent. The paper's linear norm asks that all "
        "norms can be linear at once at 0.9 agreement; ours says whether every norm of the program became a number. "
        "The paper's accuracy is that of one model of the same name, at offset 0."
    )
    return Table(key, f"Complete results: {tasks}", columns, tuple(rows), note)


def frontiers(runs: Sequence[Decompilation]) -> Table:
    rows = [
        (
            run.name,
            run.spec["task"],
            run.spec["seed"],
            lines,
            match,
            _yes(causal),
            _yes(run.result["norms"]["kept"] > 0),
        )
        for run in runs
        for lines, match, causal in run.result["frontier"]
    ]
    columns = ("model", "task", "search seed", "lines", "agreement", "causal", "with real norms")
    return Table("b", "Pareto frontiers", columns, tuple(rows), f"{_models(runs)}; programs as pruning left them.")


def seeds(runs: Sequence[Decompilation], units: Path) -> Table:
    """Models that differ in the seed of their training; of each the first search."""
    groups = grouped(
        (run for run in runs if "training" in run.model and not run.model["step"]), lambda run: run.architecture
    )
    rows = []
    for name, group in groups.items():
        if len(group) < 2:
            continue
        good = [run for run in group if run.decompiled]
        by_graph: dict[tuple[str, ...], list[Decompilation]] = defaultdict(list)
        for run in good:
            by_graph[tuple(run.result["graph"])].append(run)
        programs = {tuple(run.result["program"]) for run in good}
        correlation = _mean([each for same in by_graph.values() for each in _correlations(same, units)])
        known = paper.SEEDS.get(name)
        theirs = (
            ""
            if known is None
            else f"{known.decompiled}, {known.generalised}, {known.graphs}, {known.programs}, "
            + ("–" if known.correlation is None else f"{known.correlation:.2f}")
        )
        answers = sum(run.result["verdict"] != "not_decompilable" for run in group)
        generalised = sum(run.generalises for run in group)
        rows.append(
            (name, len(group), len(good), answers, generalised, len(by_graph), len(programs), correlation, theirs)
        )
    columns = (
        "model", "seeds", "decompiled", "agree (also answers_only)", "length-generalised", "unique graphs",
        "unique programs", "mean correlation", "paper, of 10",
    )  # fmt: skip
    note = (
        f"{sum(row[1] for row in rows)} models, of each the first search. Graphs and programs of those decompiled. "
        "Correlation: Pearson's, over all pairs with equal graphs, of the tensors of selects and projects in pruned "
        "programs that read no MLP. The paper counts as decompiled what agrees on 0.9; ours must be causal, too. Its "
        "five figures: "
        "decompiled, length-generalised, unique graphs, unique programs, mean correlation."
    )
    return Table("c", "Seeds", columns, tuple(rows), note)


def checkpoints(runs: Sequence[Decompilation]) -> Table:
    trainings = {run.model["training"] for run in runs if run.model.get("step")}
    chosen = sorted(
        (run for run in runs if run.model.get("training") in trainings),
        key=lambda run: (run.architecture, run.model["seed"], run.result["steps"]),
    )
    rows = []
    for run in chosen:
        shares = [_percent(x) for x in run.result["accuracy"][OFFSETS[0]].values()]
        known = paper.MODELS.get(f"{run.architecture}-{run.result['steps']}")
        theirs = "" if known is None else " / ".join(f"{x:g}" for x in known.accuracy)
        told = run.result["match_accuracy"], run.result["lines"], run.result["verdict"], run.result["grade"]
        rows.append(
            (run.architecture, run.model["seed"], run.result["steps"], " / ".join(map(str, shares)), *told, theirs)
        )
    columns = ("model", "seed", "step", "right, offset 0", "agreement", "lines", "verdict", "grade", "paper: right")
    note = (
        f"{_models(chosen)} of {len(trainings)} trainings. The last step of each is the model that was trained to the "
        "end."
    )
    return Table("d", "Checkpoints", columns, tuple(rows), note)


def lengths(runs: Sequence[Decompilation]) -> Table:
    """Decompilations of one model that differ in the lengths of the inputs."""
    rows = []
    for group in alike_but_for("longest", runs):
        for run in sorted(group, key=lambda run: run.spec["longest"]):
            result = run.result
            told = result["match_accuracy"], result["lines"], result["verdict"], result["grade"]
            rows.append((run.name, run.spec["longest"], _percent(run.longest_right), *told))
    columns = ("model", "inputs up to", "right at 101-150", "agreement", "lines", "verdict", "grade")
    note = (
        f"{len({row[0] for row in rows})} models. Agreement is on inputs of the lengths that the search has seen. The "
        f"paper: of {paper.SHORT_OF} models right at training lengths and wrong beyond, {paper.SHORT} can be "
        "decompiled on inputs up to 50, none on those up to 150."
    )
    return Table("e", "Decompiled on shorter inputs", columns, tuple(rows), note)


def stages(runs: Sequence[Decompilation]) -> Table:
    good = [run for run in runs if run.decompiled]
    names = list(dict.fromkeys(name for run in good for name in run.result["stages"]))
    rows: list[tuple[Cell, ...]] = []
    for name in names:
        found = [run.result["stages"][name] for run in good if name in run.result["stages"]]
        rows.append((name, len(found), _mean(found)))
    for name, key in (
        ("as pruned, fresh inputs", "pruned_match_accuracy"),
        ("as handed out, fresh inputs", "match_accuracy"),
    ):
        rows += [(name, len(good), _mean([run.result[key] for run in good]))] if good else []
    right = [run.result["task_accuracy"] for run in good if run.result["task_accuracy"] is not None]
    rows += [("right on the task, as handed out", len(right), _mean(right))] if right else []
    theirs = ", ".join(f"{name} {value:.2f}" for name, value in paper.STAGES.items())
    note = f"{_models(good)} that were decompiled. The paper's stages are others: {theirs}."
    return Table("f", "Agreement by stage", ("after", "models", "mean agreement"), tuple(rows), note)


def primitives(runs: Sequence[Decompilation]) -> Table:
    good = [run for run in runs if run.decompiled]
    rows: list[tuple[Cell, ...]] = []
    for kind, theirs in paper.NAMED.items():
        named, total = (sum(run.result["primitives"][kind][x] for run in good) for x in ("named", "total"))
        if total:
            rows.append((f"{kind}: named", named, total, named / total, theirs))
    single, total = _single_mlps(good)
    if total:
        rows.append(("MLPs with one input, as pruned", single, total, single / total, paper.SINGLE_INPUT))
    columns = ("operations", "so many", "of", "share", "paper")
    note = f"{_models(good)} that were decompiled. The constant 1, which stands for biases, is no input."
    return Table("f2", "Named operations", columns, tuple(rows), note)


def stability(runs: Sequence[Decompilation]) -> Table:
    """Several searches of one model, which differ in their seed."""
    rows = []
    for group in alike_but_for("seed", runs):
        sites = [_sites(run) for run in group]
        nested = all(each <= sites[0] or each >= sites[0] for each in sites)
        good = sum(run.decompiled for run in group)
        graphs, programs = ({tuple(run.result[key]) for run in group} for key in ("graph", "program"))
        rows.append((group[0].name, len(group), good, len(graphs), len(programs), _yes(nested)))
    columns = (
        "model",
        "searches",
        "decompiled",
        "unique graphs",
        "unique programs",
        "all nested in or around the first",
    )
    note = (
        f"{len(rows)} models. Nested: what lines stand for is a part of that of the first search, or has it as a part. "
        f"The paper: {paper.STABLE} of {paper.STABLE_OF} models nested, {paper.STABLE_PROGRAMS} with one program."
    )
    return Table("g", "Stability over searches", columns, tuple(rows), note)


def length_generalisation(runs: Sequence[Decompilation]) -> Table:
    """Does decompilability go with length generalisation? The first search of every model."""
    rows: list[tuple[Cell, ...]] = []
    for name, wanted in (("generalises", True), ("does not", False)):
        group = [run for run in runs if run.generalises is wanted]
        verdicts = [run.result["verdict"] for run in group]
        counts = [verdicts.count(each) for each in ("decompiled", "answers_only", "not_decompilable")]
        complete = sum(run.decompiled and run.result["grade"] == "complete" for run in group)
        theirs = [each for each in paper.MODELS.values() if (each.accuracy[-1] >= 100 * GENERALISES) is wanted]
        told = f"{sum(each.linear_norm for each in theirs)} of {len(theirs)}"
        rows += [(name, len(group), counts[0], complete, *counts[1:], told)] if group else []
    columns = (
        "length generalisation", "models", "decompiled", "of these complete", "answers_only", "not_decompilable",
        "paper: linear norm",
    )  # fmt: skip
    note = (
        f"{_models(runs)}, of each the first search. A model generalises from {GENERALISES:.0%} right at 101-150, "
        "offset 0. The paper calls decompilable what agrees on 0.9 with its norms linear: of its own models, which it "
        "chose."
    )
    return Table("h", "Decompilability and length generalisation", columns, tuple(rows), note)


def cost(records: Records) -> Table:
    """What units took, by what they do and how large the model is."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        if record["status"] == "done":
            of = record["spec"]["recipe"] if record["kind"] == "training" else record["spec"]["model"]
            groups[record["kind"], of["name"] if "name" in of else architecture(of)].append(record)
    rows: list[tuple[Cell, ...]] = []
    for (kind, name), group in sorted(groups.items()):
        seconds = [record["processor_seconds"] for record in group]
        rows.append(
            (kind, name, len(group), _mean(seconds), max(seconds), _mean([record["seconds"] for record in group]),
             max(record["peak_memory_mb"] for record in group))
        )  # fmt: skip
    columns = (
        "unit", "model", "units", "mean processor seconds", "most", "mean seconds on the clock", "most memory, MB",
    )  # fmt: skip
    total = sum(record["processor_seconds"] for group in groups.values() for record in group)
    note = (
        f"{sum(map(len, groups.values()))} units, {total / 3600:.2f} hours of a processor in all. A unit that was "
        "interrupted counts from its last start."
    )
    return Table("cost", "What it took", columns, tuple(rows), note)


def failures(records: Records) -> Table:
    rows = tuple((r["label"], r["id"], r["reason"]) for r in records if r["status"] == "failed")
    note = f"{len(rows)} units; `drasp sweep … --retry-failed` runs them again."
    return Table("failed", "Units that failed", ("unit", "id", "reason"), rows, note)


# --------------------------------------------------------------------------------------- helpers


def _single_mlps(runs: Sequence[Decompilation]) -> tuple[int, int]:
    """How many MLPs of pruned programs read one variable alone, and how many there are."""
    lines = (line for run in runs for line in run.result["graph"])
    found = [read[1].split(", ") for line in lines if (read := re.search(r" = element_wise_op\((.*?), func=", line))]
    inputs = [{operand.partition("/")[0] for operand in operands} - {"one"} for operands in found]
    return sum(len(each) == 1 for each in inputs), len(inputs)


def _sites(run: Decompilation) -> set[str]:
    """What of the model the lines of the pruned program stand for."""
    return {site for line in run.result["graph"] for site in line.partition(" # ")[2].split(", ") if site}


def _correlations(runs: Sequence[Decompilation], units: Path) -> list[float]:
    """The correlations of tensors of selects and projects, for all pairs of pruned programs, which have equal lines."""
    if len(runs) < 2:
        return []
    stored = [read_tensors_if_there(units / run.record["id"] / "pruned.safetensors") or {} for run in runs]
    found: list[float] = []
    for name in _comparable(runs[0].result["graph"]):
        flat = [tensors[name].flatten().double() for tensors in stored if name in tensors]
        same = [each for each in flat if len(each) == len(flat[0]) > 1]
        if len(same) > 1:
            pairs = torch.corrcoef(torch.stack(same))[tuple(torch.triu_indices(len(same), len(same), 1))]
            found += pairs[~pairs.isnan()].tolist()  # of a constant there is none
    return found


def _comparable(lines: Sequence[str]) -> list[str]:
    """The tensors of selects and projects, by name, but for those that read what an MLP says.

    Hidden units have no order that two models share.
    """
    learnt: set[str] = set()
    names: list[str] = []
    for line in lines:
        text = line.partition(" # ")[0]
        reads = set(re.findall(r"\b(?:inp|q|k|v)=(\w+)", text))
        if " = element_wise_op(" in text or (" = aggregate(" in text and reads & learnt):
            learnt.add(text.partition(" = ")[0])
        elif not reads & learnt:
            names += re.findall(r"\bop=(\w+)", text)
    return names


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _models(runs: Sequence[Decompilation]) -> str:
    return f"{len({run.identity for run in runs})} models"


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 1)


def _yes(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"
