"""Trains small GPT-2s on the tasks of own_tasks.py by a plain PyTorch loop, and decompiles them.

    python bench/own_models.py [NAME...] [--train] [--out DIR]

NAME picks tasks; all of them if left out. `--out` keeps models and results: what is there already is neither trained
nor decompiled again, so a run that was stopped goes on. Figures of all are in own_models.json, each with the commit
that gave them, and docs/own_models.md ends with their table. Seconds of training are those of the processor.
"""

import argparse
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import drasp
import own_tasks
from drasp.measure import Share, agreeing, predictions
from drasp.tasks import Inputs, Task

ROOT = Path(__file__).parents[1]
FIGURES = Path(__file__).with_suffix(".json")
PAGE = ROOT / "docs" / "own_models.md"
HEADER = (
    "| task | layers × heads × dim | right | verdict | lines | answered alike | lines that differ | seconds | commit |",
    "|---" * 9 + "|",
)
BATCH, POOL, TEST, TEST_EVERY = 128, 20_000, 1000, 250


@dataclass(frozen=True)
class TrainingPlan:
    """A model's size, and the most steps that it is trained for."""

    task: Task
    layers: int
    heads: int
    dim: int
    steps: int
    rate: float = 2e-3
    decay: float = 0.01


PLANS = (
    TrainingPlan(own_tasks.two_back, 1, 1, 32, 3000),
    TrainingPlan(own_tasks.flip_flop, 2, 2, 64, 3000),
    TrainingPlan(own_tasks.modular_addition, 1, 1, 64, 4000, decay=0.1),
    TrainingPlan(own_tasks.dyck_2_3, 2, 2, 32, 4000),
    TrainingPlan(own_tasks.histogram_mod_3, 1, 2, 64, 4000),
    TrainingPlan(own_tasks.first_unique, 2, 2, 64, 4000),
    TrainingPlan(own_tasks.running_sign, 1, 1, 16, 3000),
    TrainingPlan(own_tasks.sorting, 1, 1, 64, 3000),
)


def loss_of(logits: torch.Tensor, batch: Inputs) -> torch.Tensor:
    assert batch.targets is not None
    said, wanted = logits[batch.counted], batch.targets[batch.counted]
    if wanted.ndim == 2:
        return F.binary_cross_entropy_with_logits(said, wanted.float())
    return F.cross_entropy(said, wanted)


@torch.no_grad()
def accuracy(model: GPT2LMHeadModel, inputs: Inputs, task: Task) -> Share:
    said = predictions(model(inputs.ids).logits, task.output)
    assert inputs.targets is not None
    right = agreeing(said, inputs.targets, inputs.counted)
    return Share(int(right.sum()), len(right), inputs.every)


def train(plan: TrainingPlan, folder: Path) -> dict:
    """An ordinary loop: AdamW, a rate that falls linearly, an end when two tests in a row find no mistake."""
    task, start = plan.task, time.process_time()
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    config = GPT2Config(
        vocab_size=len(task.vocabulary), n_positions=task.n_positions, n_embd=plan.dim, n_layer=plan.layers,
        n_head=plan.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    pool, test = task.pool(POOL, rng), task.measured(TEST, rng)
    optimiser = torch.optim.AdamW(model.parameters(), lr=plan.rate, weight_decay=plan.decay)
    faultless = step = 0
    for step in range(1, plan.steps + 1):
        batch = pool.rows(torch.as_tensor(rng.integers(0, len(pool), BATCH)))
        for group in optimiser.param_groups:
            group["lr"] = plan.rate * (1 - step / plan.steps)
        loss = loss_of(model(batch.ids).logits, batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % TEST_EVERY == 0:
            found = accuracy(model, test, task)
            print(f"{task.name}: step {step}, loss {loss.item():.4f}, {found} right", flush=True)
            faultless = faultless + 1 if found.all else 0
            if faultless == 2:
                break
    model.save_pretrained(folder)
    seconds = time.process_time() - start
    return {"steps": step, "right": accuracy(model, test, task).value, "seconds": round(seconds, 1)}


def decompiled(plan: TrainingPlan, folder: Path) -> dict:
    result = drasp.decompile(folder / "model", plan.task)
    result.save(folder / "result")
    record = result.record
    return {
        "verdict": record.verdict,
        "grade": record.grade,
        "lines": record.lines,
        "match": record.match_accuracy,
        "interval": record.match_interval,
        "inputs": record.samples,
        "seconds": record.seconds,
        "reasons": record.reasons,
        "commit": subprocess.check_output(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True).strip(),
        "program": [str(line) for line in result.lines],
    }


def make(plan: TrainingPlan, folder: Path, only_train: bool) -> None:
    """Trains and decompiles a model, as far as that has not been done."""
    if not (folder / "training.json").exists():
        _write(folder / "training.json", train(plan, folder / "model"))
        (folder / "figures.json").unlink(missing_ok=True)
    if not only_train and not (folder / "figures.json").exists():
        _write(folder / "figures.json", decompiled(plan, folder))


def _write(file: Path, content: dict) -> None:
    file.write_text(json.dumps(content, indent=1) + "\n")
    print(f"{file.parent.name}: {content}", flush=True)


def document(made: Path) -> None:
    """Puts the figures of all models that were made into those that are known, and renews the table on the page."""
    known = json.loads(FIGURES.read_text())
    for plan in PLANS:
        files = [made / plan.task.name / f"{part}.json" for part in ("training", "figures")]
        if all(file.exists() for file in files):
            known[plan.task.name] = {file.stem: json.loads(file.read_text()) for file in files}
    FIGURES.write_text(json.dumps(known, indent=1) + "\n")
    text, *_ = PAGE.read_text().partition(HEADER[0])
    rows = [_row(plan, known[plan.task.name]) for plan in PLANS]
    PAGE.write_text("\n".join([text.rstrip("\n") + "\n", *HEADER, *rows]) + "\n")


def _row(plan: TrainingPlan, known: dict) -> str:
    found = known["figures"]
    share = Share(round(found["match"] * found["inputs"]), found["inputs"], found["interval"] is None)
    verdict = found["verdict"] + (f" ({found['grade']})" if found["grade"] else "")
    size = f"{plan.layers} × {plan.heads} × {plan.dim}"
    cells = (plan.task.about, size, f"{known['training']['right']:.3f}", verdict, found["lines"], share)
    differing = sum("is not all there is" in reason for reason in found["reasons"]) if found["grade"] else "–"
    return "| " + " | ".join(map(str, (*cells, differing, round(found["seconds"]), found["commit"]))) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    there = [plan.task.name for plan in PLANS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(there))
    parser.add_argument("--train", action="store_true", help="only train")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "own", metavar="DIR", help="default: build/own")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in there]:
        parser.error(f"no task is called {unknown[0]}; there are {', '.join(there)}")
    torch.set_num_threads(1)
    for plan in PLANS:
        if not arguments.names or plan.task.name in arguments.names:
            make(plan, arguments.out / plan.task.name, arguments.train)
    document(arguments.out)


if __name__ == "__main__":
    main()
