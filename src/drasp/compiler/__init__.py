"""From a D-RASP program to the weights of a GPT-2 that computes it."""

from drasp.compiler.compile import Compiled, compile_program
from drasp.compiler.disguise import Disguise

__all__ = ["Compiled", "Disguise", "compile_program"]
