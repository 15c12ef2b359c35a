"""Where a line of a program comes from: whether it is the model's own, or has been replaced by a name or a fit."""

from torch import Tensor

from drasp.causal.mechanism import Mechanism
from drasp.causal.program_swaps import program_swap
from drasp.language import Interpreter, Program
from drasp.language.syntax import Aggregate, ElementWise, Network, Norm, PrimitiveFunction, Project, Select, Statement

_ROUNDING = 1e-5  # of the largest number of a tensor


def origin_of(program: Program, name: str, cut_down: Program | None) -> str:
    """Whether a line is the model's own, approximated, named, or unknown.

    Approximated are other numbers, a part of an MLP, and weights without some of their selects. Without the model cut
    down nobody knows whose numbers a line has: they may have been fitted to answers.
    """
    statement = program.find(name)
    assert statement is not None
    own = None if cut_down is None else _is_own(program, name, cut_down)
    match statement:
        case _ if own:
            return "own"
        case Select() | Project() if statement.stored is None:
            return "named"
        case ElementWise(function=PrimitiveFunction()):
            return "named"
        case Aggregate(selectors=selectors) if any(
            origin_of(program, r.variable, cut_down) == "named" for r in selectors
        ):
            return "named"
        case _:
            return "unknown" if own is None else "approximated"


def _is_own(program: Program, name: str, cut_down: Program) -> bool:
    """Whether a line is one of the model cut down; an aggregate, whether all that its weights are made of is."""
    mechanism, other = Mechanism.of(program), Mechanism.of(cut_down)
    statement, swap = program.find(name), program_swap(mechanism, name, other)
    assert statement is not None
    if isinstance(statement, Aggregate):
        selects = all(_is_own(program, r.variable, cut_down) for r in statement.selectors)
        theirs = {product for line in swap.lines for product in other.products_of(line)}
        return selects and bool(swap.lines) and mechanism.products_of(name) == theirs
    counterpart = cut_down.find(swap.lines[0]) if len(swap.lines) == 1 and not swap.partial else None
    if counterpart is None:
        return False
    (form, tensors), (other_form, others) = _numbers(program, statement), _numbers(cut_down, counterpart)
    return form == other_form and len(tensors) == len(others) and all(map(_are_alike, tensors, others))


def _numbers(program: Program, statement: Statement) -> tuple[tuple[object, ...], list[Tensor]]:
    """What a line is beside its tensors, and these."""
    match statement:
        case Select(name) | Project(name):
            return ("op",), [Interpreter.of(program).ops[name]]
        case ElementWise(function=Network(activation=activation, eps=eps)):
            return (activation, eps), [program.tensors[name] for name in statement.tensor_names]
        case Norm(eps=eps):
            return ("norm", eps), [program.tensors[name] for name in statement.tensor_names]
        case ElementWise(function=PrimitiveFunction(primitive, arguments)):
            return (primitive, arguments), []
        case _:
            return (statement.name, program.digest), []


def _are_alike(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same but for the rounding of sums that were taken in another order."""
    return a.shape == b.shape and bool((a - b).abs().max() <= _ROUNDING * b.abs().max())
