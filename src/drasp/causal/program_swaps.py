"""What lines say of a source, taken into a program: the line itself, its counterpart in another program, or a part."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from drasp.causal.measures import Logits
from drasp.causal.mechanism import Mechanism
from drasp.causal.swaps import known_swaps, part_inputs
from drasp.causal.trials import Pairs, Trials
from drasp.edits import Edit, Replaced
from drasp.language import Interpreter, Program
from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Norm,
    Operand,
    PrimitiveFunction,
    Project,
    Select,
    Statement,
    once,
)
from drasp.rewriting.rewrite import fresh_name
from drasp.sequences import Sequences
from drasp.sites import OUT, Component, Sender


def said_before(program: Program, trials: Trials, number: int) -> Logits:
    """What a program says of the bases of a batch."""
    base = trials.batches[number].base
    return once(known_swaps(program, trials, number), "before", lambda: Interpreter.of(program).run(base).logits)


@dataclass(frozen=True)
class Partial:
    """An MLP's line with some of its inputs from the source; heard by some projects alone, or (None) by all."""

    line: str
    inputs: tuple[int, ...]
    projects: tuple[str, ...] | None


@dataclass(frozen=True)
class ProgramSwap:
    """The variables of a program that are taken from a source, and the MLPs of which a part is.

    Of projects that divide by a norm, it is what they read: the norm then sees it too, as a model's layer norm does.
    """

    lines: tuple[str, ...] = ()
    partial: tuple[Partial, ...] = ()


def program_swap(mechanism: Mechanism, line: str, other: Mechanism) -> ProgramSwap:
    """What stands for a line, and those that share its sites, in another program of the same model."""
    if other is mechanism:
        return ProgramSwap(mechanism.groups[line])
    parts = [_program_swap(mechanism, name, other) for name in mechanism.groups[line]]
    lines = dict.fromkeys(name for part in parts for name in part.lines)
    # What shares its sites in the other program goes along there as well.
    lines = dict.fromkeys(n for name in lines for n in other.groups.get(name, (name,)))
    partial = dict.fromkeys(each for part in parts for each in part.partial)
    return ProgramSwap(tuple(lines), tuple(partial))


def _program_swap(mechanism: Mechanism, name: str, other: Mechanism) -> ProgramSwap:
    def those(kind: type[Statement], meets: set[object], of: Mapping[str, Iterable[object]]) -> ProgramSwap:
        found = (n for n, s in other.statements.items() if isinstance(s, kind) and meets & set(of[n]))
        return ProgramSwap(tuple(found))

    match mechanism.statements[name]:
        case Select():
            products = {n: other.products(n) for n, s in other.statements.items() if isinstance(s, Select)}
            return those(Select, set(mechanism.products(name)), products)
        case Norm():
            sites = {n: other.norm_sites(n) for n in other.statements}
            return those(Norm, set(mechanism.norm_sites(name)), sites)
        case Aggregate():
            return those(Aggregate, set(mechanism.senders[name]), other.senders)
        case ElementWise():
            mlps = mechanism.components(name)
            whole: list[str] = []
            partial: list[Partial] = []
            for n, s in other.statements.items():
                if isinstance(s, ElementWise) and set(mlps) & set(other.components(n)):
                    inputs = {sender for mlp in mlps for sender in mechanism.mlp_inputs(name, mlp)}
                    _sort_in(other, s, inputs, None, whole, partial)
            return ProgramSwap(tuple(whole), tuple(partial))
        case Project():
            return _project_swap(mechanism, name, other)
        case _:
            return ProgramSwap()


def _project_swap(mechanism: Mechanism, name: str, other: Mechanism) -> ProgramSwap:
    heard = [h for h in mechanism.heard[name] if h.receiver == OUT]
    whole: list[str] = []
    partial: list[Partial] = []
    for n, s in other.statements.items():
        shared = [h for h in heard if isinstance(s, Project) and h.sender in {o.sender for o in other.heard[n]}]
        line = other.statements.get(s.input.variable) if isinstance(s, Project) else None
        if not shared:
            continue
        if not isinstance(line, ElementWise):
            whole.append(n)
            continue
        parts = (h for h in shared if isinstance(h.sender, Component) and h.sender.kind == "mlp")
        inputs = {sender for h in parts for sender in part_inputs(mechanism, name, h)}
        _sort_in(other, line, inputs, (n,), whole, partial)
    return ProgramSwap(tuple(whole), tuple(partial))


def _sort_in(
    other: Mechanism,
    line: ElementWise,
    inputs: set[Sender],
    projects: tuple[str, ...] | None,
    whole: list[str],
    partial: list[Partial],
) -> None:
    """An MLP's line, or its projects, is the counterpart as a whole where all that it hears is meant, else in part."""
    by_operand = [{h.sender for h in other.heard[line.name] if h.operand == operand} for operand in line.inputs]
    meant = tuple(i for i, heard in enumerate(by_operand) if heard & inputs)
    variable = [i for i, operand in enumerate(line.inputs) if operand != ONE]
    if set(meant) >= set(variable):
        whole += projects or (line.name,)
    elif meant:
        partial.append(Partial(line.name, meant, projects))


class SwappedProgram:
    """A program on a batch of pairs: before, and with lines from the sources.

    `known` is what came of swaps on these pairs, kept by who asks more than once.
    """

    def __init__(
        self,
        program: Program,
        pairs: Pairs,
        swaps: Mapping[str, ProgramSwap],
        known: dict[Hashable, Logits] | None = None,
    ) -> None:
        self.program, self.pairs, self.swaps = program, pairs, swaps
        self.interpreter = Interpreter.of(program)
        self.known = {} if known is None else known
        self.before = once(self.known, "before", lambda: self.interpreter.run(pairs.base).logits)
        names = {name for swap in swaps.values() if swap not in self.known for name in swap.lines}
        self.source = self.interpreter.run(pairs.source, record=names).values if names else {}

    def after(self, line: str) -> Logits:
        swap = self.swaps[line]
        return once(self.known, swap, lambda: self._after(swap))

    @cached_property
    def base(self) -> Mapping[str, Tensor]:
        """What lines say before any swap: of those that a swap does not reach, this is what they say after it."""
        kept = [s.name for s in self.program.statements if isinstance(s, Aggregate | ElementWise | Norm | Project)]
        return self.interpreter.run(self.pairs.base, record=kept).values

    def _as_before(self, program: Program, swapped: Iterable[str]) -> dict[str, Edit]:
        """Edits that spare computing what does not depend on any swapped line."""
        reached = set(swapped)
        for statement in program.statements:
            if not reached.isdisjoint(statement.reads):
                reached.add(statement.name)
        return self._edits((name for name in self.base if name not in reached), self.base)

    def _after(self, swap: ProgramSwap) -> Logits:
        divided = _divided(self.program, swap.lines)
        if not swap.partial and not divided:
            edits = self._as_before(self.program, swap.lines) | self._edits(swap.lines, self.source)
            return self.interpreter.run(self.pairs.base, edits).logits
        base, source = self.pairs.base, self.pairs.source
        if swap.partial:
            # What is put together of both sides is so at all positions, since some of it others look at.
            base, source = (side.everywhere for side in (base, source))
        program, names = _with_inputs_apart(self.program, divided)
        lines = [names.get(name, name) for name in swap.lines]
        interpreter = Interpreter.of(program)
        edits = self._edits(lines, interpreter.run(source, record=lines).values if lines else {})
        if not swap.partial:
            edits = self._as_before(program, lines) | edits
        for part in swap.partial:
            edits |= self._part(part, base, source)
        logits = interpreter.run(base, edits).logits
        return self.pairs.at_counted(logits) if swap.partial else logits

    @staticmethod
    def _edits(lines: Iterable[str], source: Mapping[str, Tensor]) -> dict[str, Edit]:
        return {name: Replaced(source[name]) for name in lines}

    def _part(self, part: Partial, base: Sequences, source: Sequences) -> dict[str, Edit]:
        line = self.program.find(part.line)
        assert isinstance(line, ElementWise)
        ours, theirs = (self.interpreter.values(side.ids, side.positions, line.inputs) for side in (base, source))
        mixed = [theirs[i] if i in part.inputs else ours[i] for i in range(len(line.inputs))]
        flat = self.interpreter.apply(line.function, [x.flatten(0, 1) for x in mixed])
        value = Replaced(flat.unflatten(0, base.ids.shape))
        if part.projects is None:
            return {part.line: value}
        said = self.interpreter.run(base, {part.line: value}, part.projects).values
        return self._edits(part.projects, said)


def _divided(program: Program, lines: Iterable[str]) -> tuple[str, ...]:
    """The projects among lines that divide by a norm."""
    found = ((name, program.find(name)) for name in lines)
    return tuple(name for name, s in found if isinstance(s, Project) and s.input.norm is not None)


def _with_inputs_apart(program: Program, projects: tuple[str, ...]) -> tuple[Program, dict[str, str]]:
    """The program in which what some projects read, with their norms, is a variable of its own; and its names."""
    return once(program.of_numbers, ("inputs apart", projects), lambda: _separated(program, projects))


def _separated(program: Program, projects: tuple[str, ...]) -> tuple[Program, dict[str, str]]:
    names: dict[str, str] = {}
    for name in projects:
        project = program.find(name)
        assert isinstance(project, Project)
        read, norm, apart = project.input.variable, project.input.norm, fresh_name(program, f"input_{name}")
        statements: list[Statement] = []
        for s in program.statements:
            # A norm that does not hear the variable may stand before it.
            meant = s.name in (name, norm) and any(operand.variable == read for operand in s.operands)
            if meant and apart not in names.values():
                names[name] = apart
                statements.append(ElementWise(apart, (Operand(read),), PrimitiveFunction("no_op")))
            statements.append(_reading(s, read, apart) if meant else s)
        program = replace(program, statements=tuple(statements))
    return program, names


def _reading(statement: Statement, old: str, new: str) -> Statement:
    """The statement, which reads one variable instead of another."""
    return statement.map(lambda o: replace(o, variable=new) if o.variable == old else o)
