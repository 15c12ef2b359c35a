"""What makes a program shorter or neater without changing what it computes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Operand,
    Prediction,
    PrimitiveTensor,
    Program,
    Project,
    Reference,
    Select,
    Statement,
    TensorName,
    TensorOp,
    tensor_names,
)


def without_unused(program: Program) -> Program:
    """Only what the prediction depends on, and only the tensors that are named."""
    needed: set[str] = {"prediction"}
    kept: list[Statement] = []
    for statement in reversed(program.statements):
        if statement.name in needed:
            kept.append(statement)
            needed |= variables_read(statement)
    statements = tuple(reversed(kept))
    names = {name for statement in statements for name in tensor_names(statement)}
    tensors = {name: tensor for name, tensor in program.tensors.items() if name in names}
    return replace(program, statements=statements, tensors=tensors)


def operands_of(statement: Statement) -> tuple[Operand, ...]:
    match statement:
        case Select(query=query, key=key):
            return (query, key)
        case Aggregate(value=value):
            return (value,)
        case ElementWise(inputs=inputs) | Norm(inputs=inputs):
            return inputs
        case Project(input=source):
            return (source,)
        case Prediction():
            return ()


def variables_read(statement: Statement) -> set[str]:
    names = {operand.variable for operand in operands_of(statement)}
    names |= {operand.norm for operand in operands_of(statement) if operand.norm}
    match statement:
        case Aggregate(selectors=references) | Prediction(logits=references):
            return names | {reference.variable for reference in references}
        case _:
            return names


def changed(program: Program, new: Mapping[str, Statement | None], tensors: Mapping[str, Tensor]) -> Program:
    """Statements replaced, or left out where None; what then is not used goes too."""
    statements = [new.get(s.name, s) for s in program.statements]
    kept = tuple(statement for statement in statements if statement is not None)
    return without_unused(replace(program, statements=kept, tensors={**program.tensors, **tensors}))


def without_logits(program: Program, name: str) -> Prediction:
    prediction = program.statements[-1]
    assert isinstance(prediction, Prediction)
    return replace(prediction, logits=tuple(r for r in prediction.logits if r.variable != name))


def bias_of(program: Program) -> Project | None:
    found = (s for s in program.statements if isinstance(s, Project) and s.input == ONE and tensor_names(s))
    return next(found, None)


@dataclass(frozen=True)
class SumsToOne:
    """Variables whose dimensions add up to one everywhere: one-hot ones, and what attention makes of them."""

    names: frozenset[str]

    @classmethod
    def of(cls, program: Program) -> "SumsToOne":
        names = {"token", "pos", "one"}
        for statement in program.statements:
            if isinstance(statement, Aggregate) and statement.value.norm is None and statement.value.variable in names:
                names.add(statement.name)
        return cls(frozenset(names))

    def holds(self, operand: Operand) -> bool:
        return operand.norm is None and operand.variable in self.names


def fold_constants(program: Program) -> Program:
    """Biases that another line can carry exactly have no line of their own."""
    for step in (_fold_key_only, _fold_bias_into_project, _fold_bias_into_function):
        while (shorter := step(program)) is not None:
            program = shorter
    return program


def _fold_key_only(program: Program) -> Program | None:
    """A key-only select joins one with the same key whose query's dimensions add up to one."""
    sums = SumsToOne.of(program)
    users = {
        s.name: [a.name for a in program.statements if isinstance(a, Aggregate) and s.name in variables_read(a)]
        for s in program.statements
        if isinstance(s, Select)
    }
    selects = [s for s in program.statements if isinstance(s, Select) and isinstance(s.op, TensorName)]
    for single in (s for s in selects if s.query == ONE):
        for other in (s for s in selects if s.query != ONE and s.key == single.key and sums.holds(s.query)):
            if users[single.name] == users[other.name]:
                [target], [source] = tensor_names(other), tensor_names(single)
                tensors = {target: program.tensors[target] + program.tensors[source]}
                new: dict[str, Statement | None] = {single.name: None}
                for statement in program.statements:
                    if isinstance(statement, Aggregate) and statement.name in users[single.name]:
                        kept = tuple(r for r in statement.selectors if r.variable != single.name)
                        new[statement.name] = replace(statement, selectors=kept)
                return changed(program, new, tensors)
    return None


def _fold_bias_into_project(program: Program) -> Program | None:
    bias, sums = bias_of(program), SumsToOne.of(program)
    if bias is None:
        return None
    for project in program.statements:
        if (
            isinstance(project, Project)
            and project.name != bias.name
            and sums.holds(project.input)
            and tensor_names(project)
        ):
            [target], [source] = tensor_names(project), tensor_names(bias)
            tensors = {target: program.tensors[target] + program.tensors[source]}
            return changed(program, {bias.name: None, "prediction": without_logits(program, bias.name)}, tensors)
    return None


def _fold_bias_into_function(program: Program) -> Program | None:
    """An MLP that is only projected gives logits itself, and so takes the bias along."""
    bias = bias_of(program)
    if bias is None:
        return None
    for statement in program.statements:
        if not isinstance(statement, ElementWise) or not isinstance(statement.function, Network):
            continue
        readers = [s for s in program.statements if statement.name in variables_read(s)]
        match readers:
            case [Project(input=Operand(norm=None), op=TensorName(name)) as project]:
                out, out_bias = f"{statement.function.name}.out", f"{statement.function.name}.out_bias"
                matrix = program.tensors[name]
                [source] = tensor_names(bias)
                tensors = {
                    out: program.tensors[out] @ matrix,
                    out_bias: program.tensors[out_bias] @ matrix + program.tensors[source][0],
                }
                plain = replace(project, op=PrimitiveTensor("diagonal", scale=1.0))
                prediction = without_logits(program, bias.name)
                return changed(program, {project.name: plain, bias.name: None, "prediction": prediction}, tensors)
            case _:
                pass
    return None


def renumbered(program: Program) -> Program:
    """Variables and tensors numbered in the order in which they come."""
    numbering = _Numbering()
    statements = tuple(numbering.renamed(statement) for statement in program.statements)
    # Two lines may name one tensor; then each gets its own, which files need as well.
    tensors = {after: program.tensors[before].clone() for after, before in numbering.tensors.items()}
    return replace(program, statements=statements, tensors=tensors)


class _Numbering:
    """New names for what has been met so far."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.names: dict[str, str] = {}
        self.tensors: dict[str, str] = {}

    def renamed(self, statement: Statement) -> Statement:
        new = self._renamed(statement)
        self.names[statement.name] = new.name
        self.tensors |= dict(zip(tensor_names(new), tensor_names(statement), strict=True))
        return new

    def _renamed(self, statement: Statement) -> Statement:
        match statement:
            case Select(query=query, key=key, op=op):
                number, name = self.fresh("s")
                return replace(
                    statement,
                    name=name,
                    query=self.operand(query),
                    key=self.operand(key),
                    op=self.tensor(op, f"A{number}"),
                )
            case Aggregate(selectors=selectors, value=value):
                _, name = self.fresh("a")
                return replace(statement, name=name, selectors=self.references(selectors), value=self.operand(value))
            case ElementWise(inputs=inputs, function=function):
                number, name = self.fresh("m")
                if isinstance(function, Network):
                    function = replace(function, name=f"F{number}")
                return replace(statement, name=name, inputs=tuple(map(self.operand, inputs)), function=function)
            case Norm(inputs=inputs):
                number, name = self.fresh("n")
                inputs = tuple(map(self.operand, inputs))
                return replace(statement, name=name, inputs=inputs, op=TensorName(f"N{number}"))
            case Project(input=source, op=op):
                number, name = self.fresh("logits")
                return replace(statement, name=name, input=self.operand(source), op=self.tensor(op, f"R{number}"))
            case Prediction(logits=logits):
                return replace(statement, logits=self.references(logits))

    def fresh(self, kind: str) -> tuple[int, str]:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return self.counts[kind], f"{kind}{self.counts[kind]}"

    def operand(self, old: Operand) -> Operand:
        norm = self.names[old.norm] if old.norm else None
        return Operand(self.names.get(old.variable, old.variable), norm)

    def references(self, old: tuple[Reference, ...]) -> tuple[Reference, ...]:
        return tuple(Reference(self.names[reference.variable]) for reference in old)

    def tensor(self, old: TensorOp, name: str) -> TensorOp:
        return TensorName(name) if isinstance(old, TensorName) else old
