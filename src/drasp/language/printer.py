"""Writes the text form: what the parser reads back as the same program."""

from textwrap import fill

from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Function,
    Network,
    Norm,
    Operand,
    Prediction,
    PrimitiveFunction,
    PrimitiveTensor,
    Program,
    Project,
    Reference,
    Select,
    Statement,
    TensorName,
    TensorOp,
)
from drasp.language.tables import quote
from drasp.language.tensor_primitives import print_number, print_primitive

_WIDTH = 100


def to_text(program: Program) -> str:
    """The whole program, with the header that names its vocabulary."""
    header = [
        _token_list("vocab", program.vocabulary.tokens),
        _token_list("special", program.vocabulary.special),
        f"positions = {program.n_positions}",
    ]
    return "\n".join(header) + "\n\n" + listing(program) + "\n"


def listing(program: Program) -> str:
    """The numbered lines, as a person reads them."""
    return "\n".join(f"{number}. {_line(line)}" for number, line in enumerate(program.statements, 1))


def _line(statement: Statement) -> str:
    text = statement_text(statement)
    comment = " ".join(statement.comment.split())  # a comment ends with its line
    return f"{text}  # {comment}" if comment else text


def statement_text(statement: Statement) -> str:
    """One statement without number and comment."""
    match statement:
        case Select(name, query, key, op, special_op):
            sides = f"k={_operand(key)}" if query == ONE else f"q={_operand(query)}, k={_operand(key)}"
            return f"{name} = select({sides}, {_tensors(op, special_op, 'select')})"
        case Aggregate(name, selectors, value):
            return f"{name} = aggregate(s={_sum(selectors) or '[]'}, v={_operand(value)})"
        case ElementWise(name, inputs, function):
            return f"{name} = element_wise_op({_operands(inputs)}, func={_function(function)})"
        case Norm(name, inputs, op, eps):
            return f"{name} = norm({_operands(inputs)}, op={op.name}, eps={print_number(eps)})"
        case Project(name, source, op, special_op):
            side = "" if source == ONE else f"inp={_operand(source)}, "
            return f"{name} = project({side}{_tensors(op, special_op, 'project')})"
        case Prediction(output, logits):
            return f"prediction = {output}({_sum(logits)})"


def _operand(operand: Operand) -> str:
    return f"{operand.variable}/{operand.norm}" if operand.norm else operand.variable


def _operands(operands: tuple[Operand, ...]) -> str:
    return ", ".join(map(_operand, operands))


def _sum(references: tuple[Reference, ...]) -> str:
    return "+".join(reference.variable for reference in references)


def _tensors(op: TensorOp, special_op: PrimitiveTensor | None, statement: str) -> str:
    text = f"op={_tensor(op, statement)}"
    return f"{text}, special_op={print_primitive(special_op, statement)}" if special_op else text


def _tensor(op: TensorOp, statement: str) -> str:
    match op:
        case TensorName(name):
            return name
        case PrimitiveTensor():
            return print_primitive(op, statement)


def _function(function: Function) -> str:
    match function:
        case Network(name, activation, eps):
            normed = "" if eps is None else f", eps={print_number(eps)}"
            return f"mlp({name}, {activation}{normed})"
        case PrimitiveFunction(primitive, ()):
            return primitive
        case PrimitiveFunction(primitive, arguments):
            return f"{primitive}({', '.join(map(print_number, arguments))})"


def _token_list(name: str, tokens: tuple[str, ...]) -> str:
    text = f"{name} = [{', '.join(map(quote, tokens))}]"
    # A token may hold spaces, so only lists of plain words are wrapped.
    if len(text) <= _WIDTH or any(quote(token) != token for token in tokens):
        return text
    return fill(text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)
