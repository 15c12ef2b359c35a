"""What reads what in a program, in terms of the model's parts, so that two programs of one model can be compared.

Variables have no names here: `token > layer 0 head 1` is what head 1 of layer 0 makes of the token, `layer 0 mlp` what
an MLP says. A graph is a set of sentences such as

    layer 1 head 0 looks from token at token > layer 0 head 0
    layer 1 head 0 takes token
    layer 0 mlp reads token
    out reads token > layer 1 head 0
    token -> layer 0 mlp input

The last kind is an edge between components. Lines keep their edges when exact rewriting folds others into them (an MLP
of the token into a table, say), so a folded part is still told from one that was never there. Heads that say the same
are one unit. Norms are not in the graph: they divide what is read, and what is read is the same (what an
MLP only hears by way of its norm is left out by `heard.py`). A line that stands for
a part that does something may stand for idle ones as well: uniform heads share a line.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from drasp.language.syntax import (
    ONE,
    Aggregate,
    BaseStatement,
    ElementWise,
    Norm,
    Operand,
    Prediction,
    Program,
    Project,
    Select,
)
from drasp.rewriting.provenance import explicit
from drasp.sites import POSITION, TOKEN, Component, Edge, Path, Receiver

# Components that say the same, or share a line for another reason.
Unit: TypeAlias = frozenset[Component]
Graph: TypeAlias = frozenset[str]


def components(line: BaseStatement) -> Unit:
    """The heads or the MLP that a line stands for."""
    return frozenset(site for site in line.sites if isinstance(site, Component))


def units(truth: Program) -> tuple[Unit, ...]:
    """The groups of components that have variables of their own in a program; those with a line in common are one."""
    found: list[Unit] = []
    for line in truth.statements:
        if isinstance(line, Aggregate | ElementWise):
            group = components(line)
            apart = [unit for unit in found if not unit & group]
            found = [*apart, group.union(*(unit for unit in found if unit & group))]
    return tuple(sorted(found, key=unit_name))


def unit_name(unit: Unit) -> str:
    return " = ".join(sorted(map(str, unit))) or "no part of the model"


def mentioned(program: Program) -> Unit:
    """All heads and MLPs that a program's lines stand for, or have folded into them."""
    found = set[Component | None]()
    for site in (site for line in program.statements for site in line.sites):
        match site:
            case Component():
                found.add(site)
            case Edge(Component() as sender, receiver):
                found |= {sender, receiver.component}
            case _:
                pass
    return frozenset(component for component in found if component and component.kind in ("head", "mlp"))


def variables(program: Program, unit: Unit) -> list[str]:
    """The variables of a program that stand for a unit, or for a part of it."""
    lines = [line for line in program.statements if isinstance(line, Aggregate | ElementWise)]
    return [line.name for line in lines if components(line) & unit]


def graph_of(
    program: Program,
    known: Sequence[Unit],
    constant: Collection[str] = (),
    tables: Collection[str] = (),
    working: Unit | None = None,
) -> Graph:
    """All that a program reads, with its heads and MLPs in the given units.

    `working` are the components that do something in the model: all that are mentioned, where none are given.
    `constant` names selects whose query is the same wherever it is read: they look from `one`. `tables` names functions
    of one variable that is one-hot wherever it is read: whoever reads them might as well read that variable.
    """
    reader = _Reader(explicit(program), known, frozenset(constant), frozenset(tables), working or mentioned(program))
    return reader.graph()


class _Reader:
    """Turns the lines of a program, with all their edges, into sentences."""

    def __init__(
        self, program: Program, known: Sequence[Unit], constant: frozenset[str], tables: frozenset[str], working: Unit
    ) -> None:
        self.program, self.known, self.constant, self.tables = program, known, constant, tables
        self.working = working | {TOKEN, POSITION}
        self.sources = {"token": "token", "pos": "pos", "one": "one"}
        for line in program.statements:
            match line:
                case Aggregate(name, value=value):
                    self.sources[name] = f"{self.source(value)} > {self.part(components(line))}"
                case ElementWise(name, inputs):
                    folds = name in tables
                    self.sources[name] = self.source(inputs[0]) if folds else self.part(components(line))
                case _:
                    pass

    def source(self, operand: Operand) -> str:
        return self.sources[operand.variable]

    def part(self, group: Unit) -> str:
        """The names of the units that a line stands for."""
        names = {unit_name(self.unit(component)) for component in group & self.working or group}
        return " and ".join(sorted(names)) or unit_name(frozenset())

    def unit(self, component: Component) -> Unit:
        return next((unit for unit in self.known if component in unit), frozenset({component}))

    def graph(self) -> Graph:
        said = (sentence for line in self.program.statements for sentence in (*self.reads(line), *self.edges(line)))
        return frozenset(said)

    def reads(self, line: BaseStatement) -> Iterator[str]:
        part = self.part(components(line))
        match line:
            case Aggregate(selectors=selectors, value=value):
                yield f"{part} takes {self.source(value)}"
                yield from self.looks(part, [s.variable for s in selectors])
            case ElementWise(name, inputs) if name not in self.tables:
                # Two MLPs that hold one function read each other.
                yield from (f"{part} reads {self.source(v)}" for v in inputs if self.source(v) not in ("one", part))
            case Project(input=source) if source.variable != "one":
                yield f"out reads {self.source(source)}"
            case _:
                pass

    def looks(self, part: str, names: list[str]) -> Iterator[str]:
        """What a head's scores are made of; key-only ones are part of those with the same key and another query."""
        selects = [s for s in self.program.statements if isinstance(s, Select) and s.name in names]
        pairs = {("one" if s.name in self.constant else self.source(s.query), self.source(s.key)) for s in selects}
        asked = {key for query, key in pairs if query != "one"}
        for query, key in pairs:
            if key != "one" and (query != "one" or key not in asked):
                yield f"{part} looks from {query} at {key}"

    def edges(self, line: BaseStatement) -> Iterator[str]:
        if isinstance(line, Norm | Prediction):
            return
        for site in line.sites:
            match site:
                case Edge(Component() as sender, receiver):
                    pass
                case Edge(Path(heads=(*_, sender)), receiver):
                    pass
                case _:
                    continue
            unasked = isinstance(line, Select) and (line.name in self.constant or line.query == ONE)
            if unasked and receiver.kind == "query":
                continue
            start, end = self.unit(sender), receiver.component and self.unit(receiver.component)
            if start != end and {sender, receiver.component or sender} <= self.working:
                yield f"{unit_name(start)} -> {self.receiver(receiver)}"

    def receiver(self, receiver: Receiver) -> str:
        component = receiver.component
        return str(receiver) if component is None else f"{unit_name(self.unit(component))} {receiver.kind}"
