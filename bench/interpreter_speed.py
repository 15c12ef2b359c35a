"""How fast the interpreter runs a translated model, against Hugging Face's forward pass on the same batch.

    python bench/interpreter_speed.py

Both run the same 120 inputs in the same process, turn by turn; the best of several rounds counts. Also shown:
our own forward pass, the interpreter when it must keep every variable, and where its time goes.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import GPT2Config, GPT2LMHeadModel

from drasp.language import Interpreter
from drasp.model_files import load_model
from drasp.translation import translate

BATCH, ROUNDS = 120, 7
# (tokens, positions, length, dimensions, heads): majority of bits, the most frequent letter, copying numbers.
SHAPES = [(6, 154, 100, 16, 1), (30, 154, 100, 64, 4), (154, 303, 200, 64, 1), (154, 303, 200, 256, 4)]


def best(run: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


COLUMNS = ["tokens", "positions", "length", "dims", "heads", "lines"]
COLUMNS += ["HF ms", "ours ms", "program ms", "trace ms", "program / HF"]


def compare(vocab: int, n_positions: int, length: int, dims: int, heads: int) -> Callable[[], object]:
    """Prints a row of the table; gives the interpreter's run, for profiling."""
    none: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None}
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=vocab, n_positions=n_positions, n_embd=dims, n_layer=1, n_head=heads, **none)
    ).eval()
    transformer = load_model(model)
    program = translate(transformer)
    interpreter = Interpreter(program)
    ids = torch.randint(vocab, (BATCH, length))
    positions = torch.arange(length) + torch.randint(n_positions - length, (BATCH, 1))
    mask = torch.ones_like(ids)
    runs: list[Callable[[], object]] = [
        lambda: model(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False),
        lambda: transformer(ids, positions),
        lambda: interpreter(ids, positions),
        lambda: interpreter.trace(ids, positions),
    ]
    seconds = [best(run) for run in runs]
    row = [vocab, n_positions, length, dims, heads, program.lines, *(f"{s * 1000:.0f}" for s in seconds)]
    print("| " + " | ".join(map(str, [*row, f"{seconds[2] / seconds[0]:.1f}"])) + " |")
    return runs[2]


@torch.no_grad()
def main() -> None:
    torch.set_num_threads(1)
    print(f"{BATCH} inputs, 1 thread, best of {ROUNDS}\n")
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    *_, run = [compare(*shape) for shape in SHAPES]
    print("\nWhere the interpreter's time goes in the last row:\n")
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        run()
    events = sorted(recorded.key_averages(), key=lambda event: -event.self_cpu_time_total)[:6]
    total = sum(event.self_cpu_time_total for event in recorded.key_averages())
    for event in events:
        print(f"- {event.key}: {100 * event.self_cpu_time_total / total:.0f} %")


if __name__ == "__main__":
    main()
