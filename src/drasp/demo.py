"""`make demo`: a trained model becomes a short program, before the user's eyes."""

from pathlib import Path

import torch

from drasp.cli.options import one_thread
from drasp.cli.show import print_frontier, print_program
from drasp.cli.tables import print_trace
from drasp.decompiler.pipeline import decompile
from drasp.language import Interpreter
from drasp.loading import resolve_model
from drasp.model_files import load_model
from drasp.progress import pass_progress
from drasp.report.examples import draw_examples
from drasp.results.certifying import with_certificate
from drasp.results.files import save_decompiled
from drasp.results.frontier import Frontier
from drasp.tasks import load_task
from drasp.terminal import SafeConsole
from drasp.translation import translation_size
from drasp.words import paragraph

MODEL = "bin_majority"
INPUT = ["BOS", "1", "0", "1", "1", "SEP"]
OUT = Path("out/demo")


def main() -> None:
    one_thread()
    console = SafeConsole(highlight=False)
    task = load_task(MODEL)
    transformer = load_model(resolve_model(MODEL))
    console.rule(f"A trained transformer: {MODEL}")
    console.print(transformer.size)
    console.print(f"its task: {task.about}; an input: {task.example()}")
    console.print(f"as an exact program, nothing left out: {translation_size(transformer)}\n")

    console.rule("Taking away what its answers do not need")
    with pass_progress(console) as report:
        result = with_certificate(decompile(transformer, task, report=report), transformer, task)
    save_decompiled(result, OUT, MODEL, draw_examples(result.program, task, transformer))

    console.print()
    console.rule("What is left")
    print_program(console, result.program)
    console.print(f"\nIt answers as the model does on {result.final.match} inputs that the search has not seen.")
    if result.certificate is not None:
        console.print(result.certificate.line)
    console.print()
    print_frontier(console, Frontier.of(result))
    console.print()

    console.rule(f"What it computes on: {' '.join(INPUT)}")
    ids, positions = torch.tensor([task.vocabulary.encode(INPUT)]), torch.arange(len(INPUT))[None]
    with torch.no_grad():
        trace = Interpreter.of(result.program).trace(ids, positions)
    print_trace(console, result.program, INPUT, {name: value[0] for name, value in trace.items()}, all_rows=False)

    console.print()
    console.rule("In words")
    console.print(paragraph(result.program))
    console.print()
    console.rule("Look at it")
    console.print(f"open in a browser: {(OUT / 'report.html').resolve().as_uri()}", soft_wrap=True)
    console.print(f"on the command line: .venv/bin/drasp run {OUT} BOS 0 1 0 SEP", soft_wrap=True)


if __name__ == "__main__":
    main()
