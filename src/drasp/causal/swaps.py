"""A line of a program taken from a source: in the program itself, in another program of the model, in the model.

In its own program a line is one variable. In the model it is what its sites say: the whole output of a head or an MLP
that it alone carries; what comes along a path, for the receivers that the program names, where it is one of several;
the products of a select; the divisor of a norm; and for a project its senders, as the output hears them. A part of a
split MLP is the MLP itself with that part of its input from the source. Lines that stand for the same go together.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from drasp.causal.measures import Logits
from drasp.causal.mechanism import Heard, Mechanism
from drasp.causal.trials import Pairs, Trials
from drasp.edits import Edit, Replaced, Scaled
from drasp.forward import Forward
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
from drasp.sites import NO_COMPONENT, OUT, Anatomy, Component, Edge, Path, Product, Receiver, Sender, Site, last_of
from drasp.transformer import Transformer


@dataclass(frozen=True)
class Through:
    """What an MLP says to some receivers when a part of its input is the source's."""

    mlp: Component
    inputs: tuple[Sender, ...]
    receivers: tuple[Receiver, ...]


@dataclass(frozen=True)
class ModelSwap:
    """The sites of a model that are taken from a source for a line, and the MLPs of which a part is."""

    sites: tuple[Site, ...] = ()
    through: tuple[Through, ...] = ()


def model_swap(mechanism: Mechanism, line: str) -> ModelSwap:
    """What stands for a line, and those that share its sites, in the model."""
    parts = [_model_swap(mechanism, name) for name in mechanism.groups[line]]
    sites = dict.fromkeys(site for part in parts for site in part.sites)
    through = dict.fromkeys(each for part in parts for each in part.through)
    return ModelSwap(tuple(sites), tuple(through))


def _model_swap(mechanism: Mechanism, name: str) -> ModelSwap:
    match mechanism.statements[name]:
        case Select():
            return ModelSwap(mechanism.products(name))
        case Norm():
            return ModelSwap(mechanism.norm_sites(name))
        case Aggregate():
            sites: list[Site] = [c for c in mechanism.components(name) if not mechanism.is_split(c)]
            for sender in mechanism.senders[name]:
                head = last_of(sender)
                if mechanism.is_split(head):
                    sites += [Edge(sender, receiver) for receiver in mechanism.readers(name, head)]
            return ModelSwap(tuple(dict.fromkeys(sites)))
        case ElementWise():
            split = [c for c in mechanism.components(name) if mechanism.is_split(c)]
            whole = tuple(c for c in mechanism.components(name) if not mechanism.is_split(c))
            through = (Through(c, mechanism.mlp_inputs(name, c), mechanism.readers(name, c)) for c in split)
            return ModelSwap(whole, tuple(through))
        case Project():
            edges: list[Site] = []
            parts: list[Through] = []
            for heard in mechanism.heard[name]:
                if heard.receiver != OUT:
                    continue
                sender = heard.sender
                if isinstance(sender, Component) and sender.kind == "mlp" and mechanism.is_split(sender):
                    parts.append(Through(sender, _part_inputs(mechanism, name, heard), (OUT,)))
                elif mechanism.is_split(last_of(sender)):
                    edges.append(Edge(sender, OUT))
                else:
                    edges.append(Edge(last_of(sender), OUT))
            return ModelSwap(tuple(dict.fromkeys(edges)), tuple(parts))
        case _:
            return ModelSwap()


def _part_inputs(mechanism: Mechanism, name: str, heard: Heard) -> tuple[Sender, ...]:
    """What a part of a split MLP reads: its line, or the line that it is folded into by way of an operand."""
    assert isinstance(heard.sender, Component)
    if heard.folded:
        return mechanism.mlp_inputs(name, heard.sender, heard.operand)
    return mechanism.mlp_inputs(heard.operand.variable, heard.sender)


def known_swaps(reference: Transformer | Program, trials: Trials, number: int) -> dict[Hashable, Logits]:
    """What came of swaps in a reference on a batch: many programs are held to the same model, or the same program."""
    of_all = reference.of_numbers if isinstance(reference, Program) else trials.found
    return once(of_all, ("swaps", trials, number), dict)


# ------------------------------------------------------------------------------------- in the model


def recorded_sites(swap: ModelSwap, anatomy: Anatomy) -> set[Site]:
    """What has to be known of a source."""
    inputs = (Edge(sender, t.mlp.receivers[0]) for t in swap.through for sender in t.inputs)
    return {part for site in (*swap.sites, *inputs) for part in site_terms(site, anatomy)}


class SwappedModel:
    """A model on a batch of pairs: before, and with lines from the sources, which are run once for all lines.

    `known` is what came of swaps on these pairs, kept by who asks more than once.
    """

    def __init__(
        self,
        transformer: Transformer,
        pairs: Pairs,
        swaps: Mapping[str, ModelSwap],
        known: dict[Hashable, Logits] | None = None,
    ) -> None:
        self.transformer, self.pairs, self.swaps, self.before = transformer, pairs, swaps, pairs.base_logits
        self.known = {} if known is None else known
        new = [swap for swap in swaps.values() if swap not in self.known]
        sites = {site for swap in new for site in recorded_sites(swap, transformer.anatomy)}
        self.source = Forward(transformer, record=sites)(pairs.source).values if sites else {}

    def after(self, line: str) -> Logits:
        swap = self.swaps[line]
        return once(self.known, swap, lambda: self._after(swap))

    def _after(self, swap: ModelSwap) -> Logits:
        edits = self._from_source(swap.sites)
        for through in swap.through:
            inner = self._from_source([Edge(sender, through.mlp.receivers[0]) for sender in through.inputs])
            edges = [Edge(through.mlp, receiver) for receiver in through.receivers]
            values = Forward(self.transformer, inner, edges)(self.pairs.base).values
            edits |= {edge: Replaced(values[edge]) for edge in edges}
        return Forward(self.transformer, edits)(self.pairs.base).logits

    def _from_source(self, sites: Iterable[Site]) -> dict[Site, Edit]:
        """Each site moves to the source's value; a site that stands in several sums moves as often as they say."""
        moves: dict[Site, float] = {}
        for site in sites:
            for part, factor in site_terms(site, self.transformer.anatomy).items():
                moves[part] = moves.get(part, 0.0) + factor
        return {
            site: Replaced(self.source[site]) if factor == 1 else Scaled(1 - factor, self.source[site])
            for site, factor in moves.items()
            if factor
        }


def site_terms(site: Site, anatomy: Anatomy) -> dict[Site, float]:
    """A site as a sum of those that a model has, each with its factor."""
    match site:
        case Edge(Path() as sender, receiver):
            return {Edge(part, receiver): factor for part, factor in _sender_terms(sender, anatomy).items()}
        case Product():
            return {**product_terms(site, anatomy)}
        case _:
            return {site: 1.0}


def product_terms(product: Product, anatomy: Anatomy) -> dict[Product, float]:
    """A product as a sum of those that a model has, each with its factor."""
    return {
        Product(q, k, product.head): a * b
        for q, a in _sender_terms(product.query, anatomy).items()
        for k, b in _sender_terms(product.key, anatomy).items()
    }


def _sender_terms(sender: Sender, anatomy: Anatomy) -> dict[Sender, float]:
    """A sender as a sum of those that a model has.

    What of a head comes from `one` is what no path from a component carries.
    """
    if not isinstance(sender, Path) or sender.origin != NO_COMPONENT:
        return {sender: 1.0}
    head = sender.heads[0]
    constants = (_constant(first, sender.heads, anatomy) for first in _first_heads(anatomy, head.layer))
    return _total([_constant(head, sender.heads[1:], anatomy), *constants])


def _first_heads(anatomy: Anatomy, layer: int) -> tuple[Component, ...]:
    """The heads of the first layer that a later one hears."""
    return anatomy.heads(0) if layer > 0 else ()


def _constant(head: Component, onwards: tuple[Component, ...], anatomy: Anatomy) -> dict[Sender, float]:
    """What of a head comes from none of its senders, passed on by other heads."""
    whole = Path(head, onwards) if onwards else head
    return {whole: 1.0} | {Path(s, (head, *onwards)): -1.0 for s in anatomy.senders_to(head.receivers[2])}


def _total(parts: Iterable[Mapping[Sender, float]]) -> dict[Sender, float]:
    total: dict[Sender, float] = {}
    for part in parts:
        for sender, factor in part.items():
            total[sender] = total.get(sender, 0.0) + factor
    return {sender: factor for sender, factor in total.items() if factor}


# ----------------------------------------------------------------------------------- in a program


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
        inputs = {sender for h in parts for sender in _part_inputs(mechanism, name, h)}
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
            base, source = (Sequences(side.ids, side.positions) for side in (base, source))
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
