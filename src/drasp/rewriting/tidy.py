"""What makes a program shorter or neater without changing what it computes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Network,
    Operand,
    Prediction,
    PrimitiveTensor,
    Program,
    Project,
    Select,
    Statement,
    TensorName,
)
from drasp.rewriting.provenance import with_sites


def without_unused(program: Program) -> Program:
    """The program of what the prediction depends on, with the tensors that are named."""
    needed: set[str] = {"prediction"}
    kept: list[Statement] = []
    for statement in reversed(program.statements):
        if statement.name in needed:
            kept.append(statement)
            needed.update(statement.reads)
    statements = tuple(reversed(kept))
    names = {name for statement in statements for name in statement.tensor_names}
    tensors = {name: tensor for name, tensor in program.tensors.items() if name in names}
    return replace(program, statements=statements, tensors=tensors)


def changed(program: Program, new: Mapping[str, Statement | None], tensors: Mapping[str, Tensor]) -> Program:
    """Statements replaced, or left out where None; what then is not used goes too."""
    statements = [new.get(s.name, s) for s in program.statements]
    kept = tuple(statement for statement in statements if statement is not None)
    return without_unused(replace(program, statements=kept, tensors={**program.tensors, **tensors}))


def without_logits(program: Program, name: str) -> Prediction:
    prediction = program.prediction
    return replace(prediction, logits=tuple(r for r in prediction.logits if r.variable != name))


def bias_of(program: Program) -> Project | None:
    found = (s for s in program.statements if isinstance(s, Project) and s.input == ONE and s.tensor_names)
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
    """The program in which no bias that another line can carry exactly has a line of its own."""
    for fold in (_fold_key_only, _fold_bias_into_project, _fold_bias_into_function):
        while (shorter := fold(program)) is not None:
            program = shorter
    return program


def _fold_key_only(program: Program) -> Program | None:
    """A key-only select joins one with the same key whose query's dimensions add up to one."""
    sums = SumsToOne.of(program)
    users = {
        s.name: [a.name for a in program.statements if isinstance(a, Aggregate) and s.name in a.reads]
        for s in program.statements
        if isinstance(s, Select)
    }
    selects = [s for s in program.statements if isinstance(s, Select) and isinstance(s.op, TensorName)]
    for single in (s for s in selects if s.query == ONE):
        for other in (s for s in selects if s.query != ONE and s.key == single.key and sums.holds(s.query)):
            if users[single.name] == users[other.name]:
                [target], [source] = other.tensor_names, single.tensor_names
                tensors = {target: program.tensors[target] + program.tensors[source]}
                new: dict[str, Statement | None] = {single.name: None, other.name: with_sites(other, single.sites)}
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
            and project.tensor_names
        ):
            [target], [source] = project.tensor_names, bias.tensor_names
            tensors = {target: program.tensors[target] + program.tensors[source]}
            both, prediction = with_sites(project, bias.sites), without_logits(program, bias.name)
            return changed(program, {project.name: both, bias.name: None, "prediction": prediction}, tensors)
    return None


def _fold_bias_into_function(program: Program) -> Program | None:
    """An MLP that is only projected gives logits itself, and so takes the bias along."""
    bias = bias_of(program)
    if bias is None:
        return None
    for statement in program.statements:
        if not isinstance(statement, ElementWise) or not isinstance(statement.function, Network):
            continue
        match program.readers(statement.name):
            case [Project(input=Operand(norm=None), op=TensorName(name)) as project]:
                out, out_bias = f"{statement.function.name}.out", f"{statement.function.name}.out_bias"
                matrix = program.tensors[name]
                [source] = bias.tensor_names
                tensors = {
                    out: program.tensors[out] @ matrix,
                    out_bias: program.tensors[out_bias] @ matrix + program.tensors[source][0],
                }
                plain = with_sites(replace(project, op=PrimitiveTensor("diagonal", scale=1.0)), bias.sites)
                prediction = without_logits(program, bias.name)
                return changed(program, {project.name: plain, bias.name: None, "prediction": prediction}, tensors)
            case _:
                pass
    return None


def renumbered(program: Program) -> Program:
    """Variables and tensors numbered in the order in which they come."""
    counts: dict[str, int] = {}
    names: dict[str, str] = {}
    stored: dict[str, str] = {}
    statements: list[Statement] = []
    for old in program.statements:
        number = counts[old.prefix] = counts.get(old.prefix, 0) + 1
        new = old.renamed(names).with_stored(f"{old.tensor_prefix}{number}")
        new = new if isinstance(new, Prediction) else replace(new, name=f"{old.prefix}{number}")
        names[old.name] = new.name
        stored |= dict(zip(new.tensor_names, old.tensor_names, strict=True))
        statements.append(new)
    # Two lines may name one tensor; then each gets its own, which files need as well.
    tensors = {after: program.tensors[before].clone() for after, before in stored.items()}
    return replace(program, statements=tuple(statements), tensors=tensors)
