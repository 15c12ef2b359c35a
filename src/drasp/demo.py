"""`make demo`: a trained model becomes a program, before the user's eyes."""

import numpy as np
import torch
from rich.console import Console

from drasp.cli.tables import print_trace
from drasp.language import Interpreter
from drasp.measure import match_accuracy, task_accuracy
from drasp.model_files import load_model
from drasp.tasks import load_task
from drasp.translation import translate, translation_size
from drasp.zoo import resolve_model

MODEL = "bin_majority"
INPUT = ["BOS", "1", "0", "1", "1", "SEP"]


def main() -> None:
    console = Console()
    task = load_task(MODEL)
    transformer = load_model(resolve_model(MODEL))
    console.rule(f"The model: {MODEL}, {len(transformer.layers)} layer, {transformer.d_model} dimensions")
    console.print(f"Its task: {task.about}\nan example: {task.example()}\n")

    program = translate(transformer, task.vocabulary, task.output)
    console.rule(f"The same model as a D-RASP program: {translation_size(transformer)}")
    console.print(str(program), markup=False, highlight=False)
    console.print()

    console.rule(f"What it computes on: {' '.join(INPUT)}")
    ids, positions = torch.tensor([task.vocabulary.encode(INPUT)]), torch.arange(len(INPUT))[None]
    trace = Interpreter(program).trace(ids, positions)
    print_trace(console, program, INPUT, {name: value[0] for name, value in trace.items()}, all_rows=False)

    console.rule("Does it agree with the model?")
    inputs = task.pool(500, np.random.default_rng(0))
    interpreter = Interpreter(program)
    with torch.no_grad():
        difference = max(
            float((interpreter(batch.ids, batch.positions) - transformer(batch.ids, batch.positions)).abs().max())
            for _, batch in inputs.batches()
        )
    console.print(f"largest difference of logits: {difference:.1e}")
    console.print(f"same answers: {match_accuracy(transformer, interpreter, inputs, task.output)} inputs")
    console.print(f"right answers: {task_accuracy(interpreter, inputs, task.output)} inputs")


if __name__ == "__main__":
    main()
