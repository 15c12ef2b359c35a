"""drasp: decompile a trained transformer into the short D-RASP program that it computes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drasp.compiler import compile_program
    from drasp.decompiler.pipeline import decompile
    from drasp.errors import DraspError
    from drasp.language import Interpreter, Program, load_program, parse, to_text
    from drasp.model_files import load_model
    from drasp.tasks import load_task
    from drasp.transformer import Transformer
    from drasp.translation import translate, translation_size
    from drasp.vocabulary import Vocabulary

__all__ = [
    "DraspError",
    "Interpreter",
    "Program",
    "Transformer",
    "Vocabulary",
    "compile_program",
    "decompile",
    "load_model",
    "load_program",
    "load_task",
    "parse",
    "to_text",
    "translate",
    "translation_size",
]

_HOMES = {
    "DraspError": "errors",
    "Interpreter": "language",
    "Program": "language",
    "Transformer": "transformer",
    "Vocabulary": "vocabulary",
    "compile_program": "compiler",
    "decompile": "decompiler.pipeline",
    "load_model": "model_files",
    "load_task": "tasks",
    "load_program": "language",
    "parse": "language",
    "to_text": "language",
    "translate": "translation",
    "translation_size": "translation",
}


def __getattr__(name: str) -> Any:
    """Imports on first use: torch takes seconds to load, and `drasp --help` does not need it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'drasp' has no attribute {name!r}")
    return getattr(import_module(f"drasp.{_HOMES[name]}"), name)
