"""A sentence for each line of a program, and what its variables are called in the sentences of others."""

from collections.abc import Sequence

import numpy as np

from drasp.language import Interpreter, Program
from drasp.language.bases import Positions, Tokens
from drasp.language.checker import op_bases
from drasp.language.syntax import (
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Prediction,
    PrimitiveFunction,
    Project,
    Select,
    Statement,
)
from drasp.words import looking
from drasp.words.labels import listed
from drasp.words.looking import Look, look
from drasp.words.saying import saying

_LONGEST = 70  # letters of what a variable is called; else it is called by its name
_INITIAL = {"token": "the token", "pos": "the position", "one": "a constant"}
_WHERE = "positions where "


def sentences(program: Program) -> list[str]:
    """A sentence for each line, in their order."""
    return [sentence(program, statement) for statement in program.statements]


def paragraph(program: Program) -> str:
    """The whole program: what every line does. A select that a head looks by alone is told by that head."""
    aggregates = [statement for statement in program.statements if isinstance(statement, Aggregate)]
    together = {select.name for each in aggregates if len(found := _telling(program, each)) > 1 for select in found}
    told = [s for s in program.statements if not isinstance(s, Select) or s.name in together]
    return " ".join(whole_sentence(program, statement) for statement in told)


def whole_sentence(program: Program, statement: Statement) -> str:
    """What a line does, with its subject: `` `s1` looks for the position before. ``"""
    subject = "The answer" if isinstance(statement, Prediction) else f"`{statement.name}`"
    return f"{subject} {sentence(program, statement)}."


def sentence(program: Program, statement: Statement) -> str:
    """What a line does, without its subject and full stop: `looks for the position before`."""
    match statement:
        case Select():
            found = _look(program, statement)
            return f"{'looks for' if found.sharp else 'leans towards'} {found.place}"
        case Aggregate(value=value):
            return _attends(_looks(program, statement), _called(program, value))
        case ElementWise(inputs=inputs, function=function):
            return _function(function, [_called(program, operand) for operand in inputs if operand.variable != "one"])
        case Norm(inputs=inputs):
            heard = [_called(program, operand) for operand in inputs if operand.variable != "one"]
            return f"measures the size of the residual stream, by which a layer norm divides: {listed(heard)}"
        case Project(input=source):
            rows, columns = op_bases(program, statement)
            assert isinstance(columns, Tokens)
            alone = len(program.prediction.logits) == 1
            mixed = _is_mixed(program, source.variable)
            return saying(
                _tensor(program, statement), rows, columns, _called(program, source), mixed, program.output, alone
            )
        case Prediction(output="softmax"):
            return "is the token that is spoken for most"
        case Prediction():
            return "is every token for which more speaks than against it"


def _attends(found: Look, value: str) -> str:
    if found.place == looking.ALIKE:
        return f"attends to all positions so far alike, and averages {value}"
    if found.faint:
        place = (
            found.place.removeprefix("positions ") if found.place.startswith("positions by ") else f"on {found.place}"
        )
        return f"averages {value} over all positions so far, with more weight {place}"
    return f"attends {'' if found.sharp else 'most '}to {found.place}, and takes {value} there"


def phrase(program: Program, variable: str) -> str:
    """What a variable is called in the sentences of others: `the token before`; its name, where words would be long."""
    match program.find(variable):
        case None:
            return _INITIAL[variable]
        case Aggregate() as aggregate:
            words = _aggregated(program, aggregate)
        case ElementWise(inputs=inputs, function=PrimitiveFunction(primitive="harden")):
            words = f"what {_called(program, inputs[0])} holds most of"
        case ElementWise(inputs=inputs, function=PrimitiveFunction(primitive="no_op" | "sharpen")):
            words = _called(program, inputs[0])
        case ElementWise(inputs=inputs, function=PrimitiveFunction(primitive="cartesian")):
            words = f"the pair of {listed([_called(program, operand) for operand in inputs])}"
        case _:
            return f"`{variable}`"
    return words if len(words) <= _LONGEST else f"`{variable}`"


def _called(program: Program, operand: Operand) -> str:
    return phrase(program, operand.variable)


def _aggregated(program: Program, aggregate: Aggregate) -> str:
    value = _called(program, aggregate.value)
    found = _looks(program, aggregate)
    place = found.place
    match value, place:
        case "the token", looking.ALIKE:
            return "the mix of all tokens so far"
        case _, looking.ALIKE:
            return f"the mean of {value} so far"
        case _ if found.faint:
            return f"`{aggregate.name}`"
        case _, "its own position":
            return value
        case _ if place.startswith("positions by "):
            return f"`{aggregate.name}`"
        case "the token", _ if place.endswith(" before") and place.startswith("the position "):
            return f"the token {place.removeprefix('the position ')}"
        case _ if place.startswith(f"{_WHERE}{value} is "):
            return f"{value} that `{aggregate.name}` attends to"
        case _ if place.startswith(_WHERE):
            return f"{value} where {place.removeprefix(_WHERE)}"
        case _:
            return f"{value} at {place}"


def _looks(program: Program, aggregate: Aggregate) -> Look:
    """The look of an aggregate by all of its selectors."""
    if not aggregate.selectors:
        return Look(looking.ALIKE, sharp=False)
    told = _telling(program, aggregate)
    if len(told) == 1:
        return _look(program, told[0])
    return Look(f"positions by the scores {listed([f'`{select.name}`' for select in told])} together", sharp=False)


def _telling(program: Program, aggregate: Aggregate) -> list[Select]:
    """The selects of an aggregate that tell positions apart; if none does, one of them."""
    found = [program.find(reference.variable) for reference in aggregate.selectors]
    selects = [each for each in found if isinstance(each, Select)]
    return [each for each in selects if _look(program, each).place != looking.ALIKE] or selects[:1]


def _look(program: Program, select: Select) -> Look:
    rows, columns = op_bases(program, select)
    causal = isinstance(rows, Positions) and (select.query.variable, select.key.variable) == ("pos", "pos")
    divided = select.query.norm is not None or select.key.norm is not None
    key, query = _called(program, select.key), _called(program, select.query)
    query = f"the query's {query.removeprefix('the ')}" if key == query else query
    return look(_tensor(program, select), rows, columns, query, key, causal, divided)


def _tensor(program: Program, statement: Select | Project) -> np.ndarray:
    return Interpreter.of(program).ops[statement.name].detach().cpu().double().numpy()


def _is_mixed(program: Program, variable: str) -> bool:
    """Whether a variable may hold shares of several labels: a mean over positions, or what is made of one."""
    match program.find(variable):
        case Aggregate(selectors=(), value=_):
            return True
        case Aggregate(value=value) as aggregate:
            found = _looks(program, aggregate)
            alone = found.place.startswith(("the ", "its ")) and " to " not in found.place
            return not (found.sharp and (alone or found.place.startswith(_WHERE))) or _is_mixed(program, value.variable)
        case ElementWise(inputs=inputs, function=PrimitiveFunction(primitive="sharpen" | "no_op" | "cartesian")):
            return any(_is_mixed(program, operand.variable) for operand in inputs)
        case _:
            return False


def _function(function: Network | PrimitiveFunction, inputs: Sequence[str]) -> str:
    heard = listed(inputs)
    match function:
        case Network():
            return f"computes something of {heard} that has no name"
        case PrimitiveFunction("no_op" | "keep"):
            return f"passes on {heard}"
        case PrimitiveFunction("sharpen"):
            return f"sharpens {heard}: the largest share grows"
        case PrimitiveFunction("harden"):
            return f"keeps what {heard} holds most of"
        case PrimitiveFunction("balance_01"):
            return f"says whether {heard} holds more of 1, more of 0, or as much of both"
        case PrimitiveFunction("is_pure", (tau,)):
            return f"says which label has more than {tau:g} of {heard}, or that none has"
        case PrimitiveFunction("compare"):
            return f"says for every two labels of which {heard} holds more"
        case PrimitiveFunction("maximum"):
            return f"takes the larger share of {heard}, label by label"
        case PrimitiveFunction("cartesian"):
            return f"pairs {heard}"
        case PrimitiveFunction("difference_mod", (period,)):
            return f"gives the remainder modulo {period:g} of the distance between {heard}"
        case PrimitiveFunction(name):
            return f"computes {name} of {heard}"
