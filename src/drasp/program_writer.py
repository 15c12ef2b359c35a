"""Statements, tensors and sites of a program that is being written from a model, line by line."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from drasp.errors import DraspError
from drasp.language.syntax import Aggregate, Operand, Project, Reference, Select, Statement, TensorName
from drasp.sites import OUT, POSITION, TOKEN, Component, Edge, Receiver, Site, joined

MAX_NUMBERS = 250_000_000  # in tables of a program: a gigabyte in single precision, several while they are made


class TooLargeError(DraspError):
    """A program whose tables would fill the memory."""


class ProgramWriter:
    """Collects statements, tensors and sites, and numbers the variables of each kind."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.numbers = 0
        self.statements: list[Statement] = []
        self.tensors: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}
        self.uniform: dict[Operand, str] = {}
        self.sites: dict[str, list[Site]] = {}
        # Of a line, what it reads by which senders, and where; of an MLP that is a table, what it was made of.
        self.reads: dict[str | Component, list[tuple[str, tuple[Component, ...], Receiver]]] = {}

    def fresh(self, prefix: str) -> str:
        self.counts[prefix] = self.counts.get(prefix, 0) + 1
        return f"{prefix}{self.counts[prefix]}"

    def store(self, name: str, tensor: Tensor) -> None:
        # The products are computed in double precision and kept in the model's own.
        self.tensors[name] = tensor.detach().to(self.dtype).contiguous()

    def add(self, statement: Statement, sites: Iterable[Site]) -> None:
        self.statements.append(statement)
        self.sites[statement.name] = list(sites)

    def note(self, line: str | Component, variable: str, senders: tuple[Component, ...], receiver: Receiver) -> None:
        self.reads.setdefault(line, []).append((variable, senders, receiver))

    def with_sites(self) -> list[Statement]:
        """The statements, each with what it stands for: known when all has been written, since heads share lines."""
        own: dict[str, set[Site]] = {"token": {TOKEN}, "pos": {POSITION}, "one": set()}
        own |= {name: {site for site in sites if isinstance(site, Component)} for name, sites in self.sites.items()}

        def edges(line: str | Component) -> list[Site]:
            found: list[Site] = []
            for variable, senders, receiver in self.reads.get(line, ()):
                if set(senders) != own[variable]:
                    found += [Edge(sender, receiver) for sender in senders]
                found += [site for sender in senders for site in edges(sender)]
            return found

        return [replace(s, sites=joined(self.sites[s.name], edges(s.name))) for s in self.statements]

    def make_room(self, rows: int, columns: int) -> None:
        """Before a table is computed: tokens and positions, squared, may be more than there is memory."""
        self.numbers += rows * columns
        if self.numbers > MAX_NUMBERS:
            raise TooLargeError(
                f"the program would have tables of more than {MAX_NUMBERS:,} numbers, one of them of {rows:,} by "
                f"{columns:,}; expected a model of fewer tokens and positions, or one that can do without more"
            )

    def select(self, query: Operand, key: Operand, tensor: Tensor, head: Component) -> str:
        name = self.fresh("s")
        op = f"A{name[1:]}"
        self.store(op, tensor)
        self.add(Select(name, query, key, TensorName(op)), (head,))
        return name

    def aggregate(self, selectors: list[str], value: Operand, head: Component) -> str:
        if not selectors and value in self.uniform:
            self.sites[self.uniform[value]].append(head)
            return self.uniform[value]
        name = self.fresh("a")
        self.add(Aggregate(name, tuple(Reference(selector) for selector in selectors), value), (head,))
        if not selectors:
            self.uniform[value] = name
        return name

    def project(self, source: Operand, tensor: Tensor, senders: tuple[Component, ...]) -> str:
        name = self.fresh("logits")
        op = f"R{name.removeprefix('logits')}"
        self.store(op, tensor)
        self.add(Project(name, source, TensorName(op)), [Edge(sender, OUT) for sender in senders] or [OUT])
        self.note(name, source.variable, senders, OUT)
        return name
