"""A circuit as a program: ways are variables, products selects, and constants join biases.

Norms are linear, so everything that leads from a variable to where it is read is one matrix. MLPs are written as
functions even where they read one one-hot variable: `simplify` makes tables of these, and says what they stand for.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from drasp.decompiler.ugs.circuit import Circuit, as_paths, as_products, before, behind_gain, norm_of
from drasp.language.syntax import ONE, ElementWise, Network, Operand, Prediction, Program, Reference
from drasp.layers import Mlp
from drasp.program_writer import ProgramWriter
from drasp.sites import NO_COMPONENT, OUT, POSITION, TOKEN, Component, Path, Receiver, Sender
from drasp.streams import Term, merged
from drasp.vocabulary import Output, Vocabulary


def count_lines(circuit: Circuit) -> int:
    """About as many as its program has; the circuit is one of products."""
    return len(circuit.products) + len(circuit.needed) + len(circuit.hears(OUT)) + 1


def finest(circuit: Circuit) -> Circuit:
    """The same circuit as one of products."""
    match circuit.level:
        case "components":
            return finest(as_paths(circuit, split=False, means=lambda _circuit, _ways: {}))
        case "paths":
            return as_products(circuit)
        case "products":
            return circuit


def program_of(circuit: Circuit, vocabulary: Vocabulary, output: Output) -> Program:
    """The program of a circuit of products, which answers exactly as the circuit does."""
    return _Written(circuit).program(vocabulary, output)


class _Written:
    """`terms` holds, for every way, its variable and the matrix that takes this into the stream."""

    def __init__(self, circuit: Circuit) -> None:
        self.circuit, self.model = circuit, circuit.model
        self.writer = ProgramWriter(self.model.token_embedding.dtype)
        self.terms: dict[Sender, Term] = {
            TOKEN: Term("token", self.model.token_embedding.double(), TOKEN),
            POSITION: Term("pos", self.model.position_embedding.double(), POSITION),
        }

    def program(self, vocabulary: Vocabulary, output: Output) -> Program:
        for component in self.model.anatomy.senders:
            if component.kind == "head":
                self.write_head(component)
            elif component.kind == "mlp":
                self.write_mlp(component)
        names = list(self.write_projects())
        self.writer.add(Prediction(output, tuple(map(Reference, names))), (OUT,))
        statements = tuple(self.writer.with_sites())
        return Program(vocabulary, self.model.n_positions, statements, self.writer.tensors)

    def ways_through(self, step: Component) -> list[Path]:
        """The ways that end in a head, or in a part of a split MLP."""
        found = [way for way in self.circuit.needed if isinstance(way, Path) and way.heads[-1] == step]
        return sorted(found, key=str)

    def read(self, receiver: Receiver, way: Sender) -> Term:
        """What a receiver makes of a way, behind its linear norm."""
        term = self.terms[way]
        return Term(term.variable, self.circuit.scaled(receiver, term.matrix), term.path)

    def write_head(self, head: Component) -> None:
        ways = self.ways_through(head)
        if not ways:
            return
        attention, value = self.model.layers[head.layer].attention, head.receivers[2]
        selects = self.write_selects(head)
        map_ = attention.side(2)[:, head.head].double() @ attention.output_of(head.head).double()
        written: dict[str, str] = {}
        for way in ways:
            term = self.read(value, before(way))
            if term.variable not in written:
                written[term.variable] = self.writer.aggregate(selects, Operand(term.variable), head)
            self.writer.note(written[term.variable], term.variable, term.senders, value)
            self.terms[way] = Term(written[term.variable], term.matrix @ map_, way)

    def write_selects(self, head: Component) -> list[str]:
        attention, (query, key, _) = self.model.layers[head.layer].attention, head.receivers
        to_query, to_key = (attention.side(i)[:, head.head].double() for i in (0, 1))
        pairs: dict[tuple[Operand, Operand], list[tuple[Sender, Term, Tensor]]] = {}
        for each in self.circuit.products_of(head):
            columns = self.read(key, each.key)
            if each.query == NO_COMPONENT:
                operand, rows = ONE, self.circuit.queries[each].double()[None]
            else:
                term = self.read(query, each.query)
                operand, rows = Operand(term.variable), term.matrix @ to_query
            scores = attention.scale * rows @ (columns.matrix @ to_key).T
            pairs.setdefault((operand, Operand(columns.variable)), []).append((each.query, columns, scores))
        names: list[str] = []
        for (operand, key_operand), found in pairs.items():
            name = self.writer.select(operand, key_operand, torch.stack([scores for *_, scores in found]).sum(0), head)
            queries = [self.terms[way] for way, *_ in found if way != NO_COMPONENT]
            for variable, receiver, terms in (
                (operand.variable, query, queries),
                (key_operand.variable, key, [columns for _, columns, _ in found]),
            ):
                senders = tuple(dict.fromkeys(sender for term in terms for sender in term.senders))
                self.writer.note(name, variable, senders, receiver)
            names.append(name)
        return names

    def write_mlp(self, component: Component) -> None:
        [receiver] = component.receivers
        norm = norm_of(self.model, receiver)
        parts = self.ways_through(component)
        for way in parts:
            self.terms[way] = self.function(component, [before(way)], self.circuit.mlps[way], way)
        if component in self.circuit.needed and not parts:
            mlp = self.model.layers[component.layer].mlp
            assert mlp is not None
            shift = self.circuit.scaled(receiver, self.circuit.bias(receiver)) + norm.bias
            heard = list(self.circuit.hears(receiver))
            self.terms[component] = self.function(component, heard, behind_gain(mlp, norm.gain, shift), component)

    def function(self, component: Component, heard: list[Sender], mlp: Mlp, way: Sender) -> Term:
        """Writes a function of what is heard, divided by the norm but not yet times its gain."""
        [receiver] = component.receivers
        name = self.writer.fresh("m")
        network = f"F{name[1:]}"
        centre, root = norm_of(self.model, receiver).centred, self.circuit.root(receiver)
        terms = [Term(t.variable, centre(t.matrix) / root, t.path) for t in (self.terms[way] for way in heard)]
        inputs = merged(terms)
        for i, (_, matrix, _) in enumerate(inputs):
            self.writer.store(f"{network}.{i}", matrix)
        for part, tensor in (("hidden", mlp.hidden), ("out", mlp.output)):
            self.writer.store(f"{network}.{part}", tensor.weight)
            self.writer.store(f"{network}.{part}_bias", tensor.bias)
        operands = tuple(Operand(variable) for variable, _, _ in inputs)
        self.writer.add(ElementWise(name, operands, Network(network, mlp.activation, None)), (component,))
        for variable, _, senders in inputs:
            self.writer.note(name, variable, senders, receiver)
        width = mlp.output.weight.shape[1]
        return Term(name, torch.eye(width, dtype=torch.float64, device=mlp.output.weight.device), way)

    def write_projects(self) -> Iterator[str]:
        to_logits = self.model.unembedding.double().T
        terms = [self.read(OUT, way) for way in self.circuit.hears(OUT)]
        for variable, matrix, senders in merged(terms):
            yield self.writer.project(Operand(variable), matrix @ to_logits, senders)
        constant = self.circuit.scaled(OUT, self.circuit.bias(OUT)) + self.model.final_norm.bias
        bias = constant.double() @ to_logits
        more = self.model.unembedding_bias
        yield self.writer.project(ONE, (bias if more is None else bias + more.double())[None], ())
