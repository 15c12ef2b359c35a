"""What of a model the lines of a program stand for, kept up while lines are rewritten.

A line stands for the components among its sites. It hears others at receivers: a select at the query and the key of
its heads, an aggregate at their values, a function at the input of its MLP, a norm where the layer norm is, a project
at the output. Whom it hears there is said by the edges among its sites; where it has none to a receiver, by what the
variables that it reads there stand for. A project lists all its edges, and a line without sites hears nothing.
What is heard by way of a variable that stands for something else has no line any more; edges to it are treated alike.
`one` is heard where nothing else is; that is listed only where a variable that is read would say otherwise.

Exact rewriting changes what is read, never who is heard. So `explicit` lists all edges before lines are changed, lines
that become one have the sites of both, and `concise` takes away again what the variables say anyhow.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from drasp.language.syntax import Aggregate, ElementWise, Norm, Operand, Program, Project, Select, Statement
from drasp.sites import NO_COMPONENT, OUT, POSITION, TOKEN, Component, Edge, NormSite, Receiver, Site, joined

# The components that each variable stands for.
Standing = Mapping[str, tuple[Component, ...]]


def standing(program: Program) -> Standing:
    lines = {s.name: tuple(site for site in s.sites if isinstance(site, Component)) for s in program.statements}
    return {"token": (TOKEN,), "pos": (POSITION,), "one": (NO_COMPONENT,), **lines}


def explicit(program: Program) -> Program:
    """The program whose lines list every edge at which they hear something."""
    return _with_sites_by(program, _explicit_sites)


def concise(program: Program) -> Program:
    """The program whose lines list no edges that the variables they read say as well."""
    return _with_sites_by(program, _concise_sites)


def _with_sites_by(program: Program, rule: Callable[[Statement, Standing], tuple[Site, ...]]) -> Program:
    known = standing(program)
    lines = tuple(s if s.sites == (sites := rule(s, known)) else replace(s, sites=sites) for s in program.statements)
    if all(new is old for new, old in zip(lines, program.statements, strict=True)):
        return program
    new = replace(program, statements=lines)
    new.of_shape.update(program.of_shape)  # types do not depend on sites
    return new


def handed_on(program: Program, statement: Statement) -> tuple[Site, ...]:
    """The sites that go on to the readers of a line that they take in, beside the edges from it that they list.

    A norm that folds into tensors has no site any more, but for what it has heard by way of others.
    """
    rule = _concise_sites if isinstance(statement, Norm) else _explicit_sites
    sites = rule(statement, standing(program))
    return tuple(site for site in sites if not isinstance(site, Component | NormSite))


def with_sites(statement: Statement, *groups: tuple[Site, ...]) -> Statement:
    """The line with what lines stood for that it has taken in."""
    return replace(statement, sites=joined(statement.sites, *groups))


def without_heard(program: Program, statement: Statement, operand: Operand) -> tuple[Site, ...]:
    """The sites of a line that reads an operand no more: without the edges from what nothing else stands for."""
    known = standing(program)
    gone = set(known[operand.variable]).difference(*(known[v.variable] for v in statement.operands if v != operand))
    edges = {Edge(component, receiver) for receiver, _ in hearing(statement) for component in gone}
    return tuple(site for site in statement.sites if site not in edges)


def hearing(statement: Statement) -> Iterator[tuple[Receiver, tuple[Operand, ...]]]:
    """A line's receivers, with what it reads at each."""
    match statement:
        case Select(query=query, key=key):
            sides = {"query": (query,), "key": (key,)}
        case Aggregate(value=value):
            sides = {"value": (value,)}
        case ElementWise(inputs=inputs):
            sides = {"mlp": inputs}
        case Norm(inputs=inputs):
            yield from ((site.receiver, inputs) for site in statement.sites if isinstance(site, NormSite))
            return
        case Project(input=source, sites=sites):
            if sites:
                yield OUT, (source,)
            return
        case _:
            return
    for site in statement.sites:
        for receiver in site.receivers if isinstance(site, Component) else ():
            if receiver.kind in sides:
                yield receiver, sides[receiver.kind]


def _listening(statement: Statement, known: Standing) -> Iterator[tuple[Receiver, tuple[Operand, ...]]]:
    """What a line reads for which receiver: its own, and those of components without a line that it hears."""
    waiting = list(hearing(statement))
    known_receivers = {receiver for receiver, _ in waiting}
    for receiver, read in waiting:
        yield receiver, read
        near = {component for operand in read for component in known[operand.variable]}
        for site in statement.sites:
            if isinstance(site, Edge) and site.receiver == receiver and isinstance(site.sender, Component):
                further = site.sender.receivers if site.sender not in near else ()
                passed = [r for r in further if r.kind in ("value", "mlp") and r not in known_receivers]
                known_receivers.update(passed)
                waiting += [(r, read) for r in passed]


def _implied(receiver: Receiver, read: tuple[Operand, ...], known: Standing) -> tuple[Edge, ...]:
    return tuple(Edge(component, receiver) for operand in read for component in known[operand.variable])


def _is_edge_to(site: Site, receiver: Receiver) -> bool:
    return isinstance(site, Edge) and site.receiver == receiver


def _explicit_sites(statement: Statement, known: Standing) -> tuple[Site, ...]:
    unsaid = [
        _implied(receiver, read, known)
        for receiver, read in _listening(statement, known)
        if not any(_is_edge_to(site, receiver) for site in statement.sites)
    ]
    return joined(statement.sites, *unsaid)


def _concise_sites(statement: Statement, known: Standing) -> tuple[Site, ...]:
    superfluous: set[Site] = set()
    for receiver, read in _listening(statement, known):
        listed = {site for site in statement.sites if _is_edge_to(site, receiver)}
        constant = {Edge(NO_COMPONENT, receiver)}
        heard, implied = listed - constant, set(_implied(receiver, read, known)) - constant
        if heard == implied and not (receiver == OUT and isinstance(statement, Project)):
            superfluous |= listed
        elif heard or not implied:
            superfluous |= constant
    return tuple(site for site in statement.sites if site not in superfluous)
