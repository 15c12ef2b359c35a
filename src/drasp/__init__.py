"""drasp: decompile a trained transformer into the short D-RASP program that it computes."""

from drasp.errors import DraspError
from drasp.language import Interpreter, Program, load_program, parse, to_text
from drasp.model_files import load_model
from drasp.transformer import Transformer
from drasp.translate import translate, translation_size
from drasp.vocabulary import Vocabulary

__all__ = [
    "DraspError",
    "Interpreter",
    "Program",
    "Transformer",
    "Vocabulary",
    "load_model",
    "load_program",
    "parse",
    "to_text",
    "translate",
    "translation_size",
]
