"""D-RASP: a small language in which every GPT-2 has an exactly equal program.

`parse` and `to_text` read and write the text form, `check` finds mistakes, `Interpreter` runs a program in
torch, `to_python` writes it as stand-alone NumPy, and two decorators extend its library of primitives.
"""

from drasp.language.checker import check, variable_types
from drasp.language.files import EXPORTS, PRUNED, load_program, load_pruned, program_file, program_files, read_program
from drasp.language.function_primitives import function_primitive, function_primitives, same_basis
from drasp.language.interpreter import Interpreter
from drasp.language.numpy_source import to_python
from drasp.language.parser import parse
from drasp.language.printer import statement_text
from drasp.language.syntax import Program, ProgramError, to_text
from drasp.language.tensor_primitives import indices, tensor_primitive, tensor_primitives

__all__ = [
    "EXPORTS",
    "PRUNED",
    "Interpreter",
    "Program",
    "ProgramError",
    "check",
    "function_primitive",
    "function_primitives",
    "indices",
    "load_program",
    "load_pruned",
    "parse",
    "program_file",
    "program_files",
    "read_program",
    "same_basis",
    "statement_text",
    "tensor_primitive",
    "tensor_primitives",
    "to_python",
    "to_text",
    "variable_types",
]
