"""Training steps a second, ours and Hugging Face's Trainer: same model, same kind of batch, one thread.

    python bench/training_speed.py [REPEATS]

Both train on batches of 64 of one task, AdamW, linear decay, gradients clipped at 1. Inputs are
drawn beforehand for the Trainer (it is not charged for drawing); ours draws them as it goes.
The two take turns, and each one's best run counts.
"""

import sys
import time
import warnings
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from drasp.tasks import Inputs, Task, load_task
from drasp.training.loop import TrainingRun
from drasp.training.recipe import BATCH, WEIGHT_DECAY, Recipe

STEPS = 100
RECIPES = (
    Recipe("bin_majority", 1, 1, 16, 1e-3, 0.1),
    Recipe("D3", 1, 1, 16, 1e-4, 0.0),
    Recipe("tomita4", 2, 2, 16, 1e-3, 0.1),
    Recipe("unique_copy", 2, 1, 64, 1e-3, 0.1),
    Recipe("majority", 1, 4, 256, 1e-3, 0.1),
)


def ours(task: Task, recipe: Recipe) -> float:
    run = TrainingRun(task, recipe)
    run._train(5)
    start = time.perf_counter()
    run._train(STEPS)
    return STEPS / (time.perf_counter() - start)


class SigmoidTrainer(Trainer):
    """The loss of a language: which tokens may come next, at the positions that count."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *_: Any, **__: Any) -> Any:
        logits = model(input_ids=inputs["input_ids"], position_ids=inputs["position_ids"]).logits
        counted = inputs["counted"]
        return F.binary_cross_entropy_with_logits(logits[counted], inputs["labels"][counted].float())


class Clock(TrainerCallback):
    """Starts after five steps, as ours does."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        if state.global_step == 5:
            self.start = time.perf_counter()
        self.end = time.perf_counter()


def theirs(task: Task, recipe: Recipe) -> float:
    inputs = task.pool(BATCH * (STEPS + 5), np.random.default_rng(0), *task.bins[0])
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(task.vocabulary),
        n_positions=task.n_positions,
        n_embd=recipe.dim,
        n_layer=recipe.layers,
        n_head=recipe.heads,
        attn_pdrop=recipe.dropout,
        embd_pdrop=recipe.dropout,
        resid_pdrop=recipe.dropout,
        bos_token_id=None,
        eos_token_id=None,
    )
    clock = Clock()
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS + 5,
            per_device_train_batch_size=BATCH,
            learning_rate=recipe.lr,
            weight_decay=WEIGHT_DECAY,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = (SigmoidTrainer if task.output == "sigmoid" else Trainer)(
            model=GPT2LMHeadModel(config),
            args=arguments,
            train_dataset=RowDataset(inputs),
            data_collator=lambda rows: collate(inputs, rows),
            callbacks=[clock],
        )
        trainer.train()
    return STEPS / (clock.end - clock.start)


class RowDataset(torch.utils.data.Dataset):
    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> int:
        return index


def collate(inputs: Inputs, rows: list[int]) -> dict[str, torch.Tensor]:
    """Padded to the widest row of the batch."""
    batch = inputs.rows(torch.tensor(rows))
    common = {"input_ids": batch.ids, "position_ids": batch.positions}
    assert batch.targets is not None
    if batch.targets.dtype == torch.bool:
        return common | {"labels": batch.targets, "counted": batch.counted}
    # The model shifts its labels itself: the label of a token stands at the token, -100 where it does not count.
    labels = batch.ids.masked_fill(~batch.counted.roll(1, 1), -100)
    return common | {"labels": labels}


def main(repeats: int) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| model | Trainer, steps/s | drasp, steps/s | times |")
    print("|---|---|---|---|")
    for recipe in RECIPES:
        task = load_task(recipe.task)
        pairs = [(theirs(task, recipe), ours(task, recipe)) for _ in range(repeats)]
        slow, fast = (max(column) for column in zip(*pairs, strict=True))
        print(f"| {recipe.name(task)} | {slow:.1f} | {fast:.1f} | {fast / slow:.1f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
