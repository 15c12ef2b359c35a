"""Step 1 as a whole: a model folder in, an exactly equal program out, with the difference measured."""

import time
from dataclasses import dataclass

import torch

from drasp.errors import DraspError
from drasp.language import Interpreter, Program, ProgramError, program_files
from drasp.loading import load_model_and_task
from drasp.model_files import digest
from drasp.output_folder import MARK
from drasp.records import Record, drasp_version
from drasp.report.examples import Examples, draw_examples
from drasp.report.page import MAX_BYTES, REPORT, report_page, suits_page
from drasp.transformer import Transformer
from drasp.translation import TranslationSize, translate, translation_size

_SAMPLES = 20


@dataclass(frozen=True)
class Translated:
    model: str
    model_digest: str
    task: str | None
    program: Program
    size: TranslationSize
    difference: float
    seconds: float
    examples: Examples

    def summary(self) -> str:
        return (
            f"{self.model}: {self.size}\n"
            f"largest logit difference from the model on {_SAMPLES} random inputs: {self.difference:.1e}"
        )

    def files(self) -> dict[str, bytes]:
        """The files of the result, with a report where the program is short enough to be looked at."""
        record = Record(
            model=self.model,
            model_digest=self.model_digest,
            task=self.task,
            settings={},
            drasp_version=drasp_version(),
            method="translate",
            samples=_SAMPLES,
            lines=self.program.lines,
            size={"theorem": self.size.theorem, "biases": self.size.biases, "norms": self.size.norms},
            largest_logit_difference=self.difference,
            seconds=round(self.seconds, 3),
        )
        files = program_files(self.program) | {MARK: record.to_text().encode()}
        if not suits_page(self.program):
            return files
        page = report_page(self.program, record.to_json(), self.examples)
        return files if len(page) > MAX_BYTES else files | {REPORT: page}


def translate_folder(model: str, task_name: str | None) -> Translated:
    start = time.perf_counter()
    transformer, task = load_model_and_task(model, task_name)
    program = translate(transformer, task.vocabulary if task else None, task.output if task else "softmax")
    try:
        difference = largest_difference(transformer, program)
    except ProgramError as error:  # a model's own program is correct, but for products that overflow
        raise DraspError(f"{model}: its weights are too large to be multiplied ({error})") from None
    seconds = time.perf_counter() - start
    examples = draw_examples(program, task, transformer)
    size = translation_size(transformer)
    name = task.name if task else None
    return Translated(model, digest(transformer), name, program, size, difference, seconds, examples)


@torch.no_grad()
def largest_difference(transformer: Transformer, program: Program) -> float:
    """The largest difference between the logits of model and program, on random tokens at random offsets."""
    generator = torch.Generator(torch.get_default_device()).manual_seed(0)
    length = min(transformer.n_positions, 100)
    ids = torch.randint(transformer.n_vocab, (_SAMPLES, length), generator=generator)
    offsets = torch.randint(transformer.n_positions - length + 1, (_SAMPLES, 1), generator=generator)
    positions = offsets + torch.arange(length)
    program_logits = Interpreter.of(program)(ids, positions)
    return float((program_logits - transformer(ids, positions)).abs().max())
