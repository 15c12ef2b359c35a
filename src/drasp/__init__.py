"""drasp: decompile a trained transformer into the short D-RASP program that it computes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drasp.causal import Evidence
    from drasp.compiler import Disguise, compile_program
    from drasp.errors import DraspError
    from drasp.language import Interpreter, Program, check, load_program, parse, to_text
    from drasp.loading import load_model
    from drasp.results.decompiling import decompile
    from drasp.results.given import evaluate, translate, verify
    from drasp.results.labelled import Labelled
    from drasp.results.result import Result, load_result
    from drasp.running import run
    from drasp.sequences import Sequences
    from drasp.tasks import TASKS, Language, Task, answer_task, each_row, language_task, load_task, sequence_task
    from drasp.transformer import Transformer
    from drasp.translation import translation_size
    from drasp.vocabulary import Vocabulary
    from drasp.zoo import zoo_models

__all__ = [
    "TASKS",
    "Disguise",
    "DraspError",
    "Evidence",
    "Interpreter",
    "Labelled",
    "Language",
    "Program",
    "Result",
    "Sequences",
    "Task",
    "Transformer",
    "Vocabulary",
    "answer_task",
    "check",
    "compile_program",
    "decompile",
    "each_row",
    "evaluate",
    "language_task",
    "load_model",
    "load_program",
    "load_result",
    "load_task",
    "parse",
    "run",
    "sequence_task",
    "to_text",
    "translate",
    "translation_size",
    "verify",
    "zoo_models",
]

_HOMES = {
    "TASKS": "tasks",
    "Disguise": "compiler",
    "DraspError": "errors",
    "Evidence": "causal",
    "Interpreter": "language",
    "Labelled": "results.labelled",
    "Language": "tasks",
    "Program": "language",
    "Result": "results.result",
    "Sequences": "sequences",
    "Task": "tasks",
    "Transformer": "transformer",
    "Vocabulary": "vocabulary",
    "answer_task": "tasks",
    "check": "language",
    "compile_program": "compiler",
    "decompile": "results.decompiling",
    "each_row": "tasks",
    "evaluate": "results.given",
    "language_task": "tasks",
    "load_model": "loading",
    "load_program": "language",
    "load_result": "results.result",
    "load_task": "tasks",
    "parse": "language",
    "run": "running",
    "sequence_task": "tasks",
    "to_text": "language",
    "translate": "results.given",
    "translation_size": "translation",
    "verify": "results.given",
    "zoo_models": "zoo",
}


def __getattr__(name: str) -> Any:
    """Imports on first use: torch takes seconds to load, and `drasp --help` does not need it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'drasp' has no attribute {name!r}")
    return getattr(import_module(f"drasp.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """What completion offers, before anything of it is imported."""
    return sorted(__all__)
