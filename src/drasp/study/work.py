"""A unit's own process: reads what to do from its input, leaves files in a folder, and commits nothing.

    python -m drasp.study.work < order.json

It has one thread and a limit of memory, and ends when its parent does.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drasp.decompiler.result import Decompiled
    from drasp.tasks import Task

OUTCOME, FILES = "outcome.json", "files"
_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def main() -> None:
    order = json.load(sys.stdin)
    _end_with(order["parent"])
    limit = int(order["memory_gb"] * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    work = Path(order["work"])
    began = time.monotonic()
    status, reason, result = _tried(lambda: _WORK[order["unit"]["kind"]](order, work))
    used = resource.getrusage(resource.RUSAGE_SELF)
    outcome = {
        "status": status,
        "reason": reason,
        "result": result,
        "seconds": round(time.monotonic() - began, 2),
        # What it took on a machine that has nothing else to do; less than `seconds` on any other.
        "processor_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_memory_mb": round(used.ru_maxrss / 1024),
    }
    from drasp.output_folder import write_file

    write_file(work / OUTCOME, json.dumps(outcome).encode())


def _end_with(parent: int) -> None:
    """Lets the system kill this process when its parent dies, whatever kills that."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(1)


def _tried(run: Callable[[], dict[str, Any]]) -> tuple[str, str | None, dict[str, Any] | None]:
    from drasp.errors import DraspError

    try:
        return "done", None, run()
    except DraspError as error:
        return "failed", str(error), None
    except (MemoryError, RuntimeError, ImportError) as error:
        words = str(error).lower()
        if isinstance(error, MemoryError) or "memory" in words or "failed to map" in words:
            return "failed", "more memory than the study's limit", None
        raise


def _train(order: Mapping[str, Any], work: Path) -> dict[str, Any]:
    from drasp.input_files import is_there
    from drasp.tasks import TASKS
    from drasp.training import session
    from drasp.training.files import state_file
    from drasp.training.recipe import Recipe

    spec = order["unit"]["spec"]
    recipe = Recipe(**spec["recipe"])
    out = work / FILES / "model"
    if not is_there(out):  # else it was killed after its last step
        resume = is_there(state_file(out))
        session.train(TASKS[recipe.task], recipe, out, resume=resume, checkpoints=spec["checkpoints"])
    steps = sorted(int(folder.name.removeprefix("model-")) for folder in out.parent.glob("model-*[0-9]"))
    return {**_accuracy(out, TASKS[recipe.task]), "checkpoints": steps}


def _decompile(order: Mapping[str, Any], work: Path) -> dict[str, Any]:
    import torch

    from drasp.decompiler.pipeline import decompile
    from drasp.input_files import is_there
    from drasp.loading import load_model, resolve_model
    from drasp.report.examples import draw_examples
    from drasp.results.files import save_decompiled
    from drasp.settings import DEFAULT, QUICK
    from drasp.tasks import TASKS

    torch.set_num_threads(1)
    spec = order["unit"]["spec"]
    folder = resolve_model(order["model"])
    task, model = TASKS[spec["task"]], load_model(folder)
    drawn = shortened(task.fitted(model.n_vocab, model.n_positions), spec["longest"])
    checkpoint, chosen = work / "checkpoint", QUICK if spec["quick"] else DEFAULT
    result = decompile(
        model, drawn, spec["seed"], spec["min_match"], spec["max_lines"], settings=chosen, checkpoint=checkpoint,
        resume=is_there(checkpoint), method=spec["method"], accept=spec["accept"],
    )  # fmt: skip
    save_decompiled(result, work / FILES, str(order["model"]), draw_examples(result.program, drawn, model))
    return {**_accuracy(folder, task), **_summary(result)}


def _accuracy(folder: Path, task: "Task") -> dict[str, Any]:
    """How often the model is right, as its folder says, or else as it is measured."""
    from drasp.input_files import is_there
    from drasp.loading import load_model
    from drasp.training.files import METRICS_FILE, read_metrics
    from drasp.training.loop import accuracies

    if is_there(folder / METRICS_FILE):
        metrics = read_metrics(folder)
        found, steps = metrics.accuracies, metrics.steps
    else:
        model = load_model(folder)
        found, steps = accuracies(model, task.fitted(model.n_vocab, model.n_positions), 0), None
    shares = {offsets: {name: share.value for name, share in bins.items()} for offsets, bins in found.items()}
    return {"accuracy": shares, "steps": steps}


def shortened(task: "Task", longest: int) -> "Task":
    """A task of drasp's own that draws inputs up to a length; positions stay what they are."""
    from drasp.errors import DraspError
    from drasp.tasks.framed import Framed

    assert isinstance(task.source, Framed)
    lengths = tuple(length for length in task.lengths if length <= longest)
    if not lengths:
        raise DraspError(f"task {task.name}: has no inputs up to length {longest}")
    if lengths == task.lengths:
        return task
    return replace(task, source=replace(task.source, possible=lengths))


def _summary(result: "Decompiled") -> dict[str, Any]:
    """What tables are made of."""
    from drasp.decompiler.stability import lines_of
    from drasp.language import statement_text

    record = result.record("")
    evidence = result.final.evidence
    measures = ("edited", "attention", "interchange", "complement")
    # Rounds of cuts, each of several passes; later passes look at several programs in turn.
    stages = {each.name.partition(": ")[2]: each.match_accuracy for each in result.passes if ": " in each.name}
    return {
        "verdict": result.verdict,
        "grade": result.grade,
        "reasons": result.reasons,
        "match_accuracy": record.match_accuracy,
        "match_interval": record.match_interval,
        "lines": record.lines,
        "pruned_lines": record.pruned_lines,
        "pruned_match_accuracy": record.pruned_match_accuracy,
        "task_accuracy": record.task_accuracy,
        "norms": {"constant": result.norms_constant, "kept": len(result.norms_kept)},
        "primitives": record.primitives,
        "evidence": {name: str(getattr(evidence, name)) for name in measures} if evidence else {},
        "frontier": [[point.lines, point.match.value, point.causal] for point in result.frontier],
        "stages": stages,
        "graph": [
            f"{statement_text(line)} # {', '.join(map(str, line.sites))}" for line in result.pick.program.statements
        ],
        "program": list(lines_of(result)),
    }


_WORK: Mapping[str, Callable[[Mapping[str, Any], Path], dict[str, Any]]] = {
    "training": _train,
    "decompilation": _decompile,
}

if __name__ == "__main__":
    main()
