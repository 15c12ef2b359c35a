"""Random programs without mistakes, for tests of everything that should hold for any program."""

import random
from dataclasses import replace
from itertools import combinations

import torch
from hypothesis import strategies as st

from drasp.language.bases import Basis, Named, One, Positions, Products, Space, Tokens, labels, size
from drasp.language.statements import Output
from drasp.language.syntax import (
    Aggregate,
    ElementWise,
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
)
from drasp.sites import parse_site
from drasp.vocabulary import Vocabulary
from typed import of_kind

VOCABULARIES = (
    Vocabulary.with_specials(("0", "1")),
    Vocabulary(("x",)),
    Vocabulary.with_specials(("a", "b", "q", "k", "inp")),
    Vocabulary(
        (" ", '"', "\\", "#", "<script>", "&amp;", "é", "🙂", "שלום", "a,b", "[", "(", "\n", "\t", "="), ("#", "[")
    ),
)

SITES = (
    *("token", "pos", "out", "final norm", "layer 0 head 1", "layer 12 mlp", "layer 0 mlp input", "layer 1 mlp norm"),
    *("layer 0 head 1 query", "layer 0 head 0 pattern", "layer 2 attention norm", "layer 2 head 0 key norm"),
    *("token -> out", "layer 0 mlp -> layer 1 head 0 query", "token > layer 0 head 1 -> out"),
    *("pos -> layer 1 attention", "one * token -> layer 0 head 1 pattern"),
)
COMMENTS = ("", "layer 0 head 1", "what # it is", "x = select(q=pos)", "token; pos", "; a", "out, my words", "a; b")


class _ProgramBuilder:
    """Adds one random statement after the other, from the variables that there are."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.vocabulary = rng.choice(VOCABULARIES)
        self.n_positions = rng.randint(6, 9)
        self.bases: dict[str, Basis] = {
            "token": Tokens(self.vocabulary),
            "pos": Positions(self.n_positions),
            "one": One(),
        }
        self.norms: list[str] = []
        self.selectors: list[str] = []
        self.logits: list[str] = []
        self.statements: list[Statement] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.generator = torch.Generator().manual_seed(rng.getrandbits(32))

    def name(self, prefix: str) -> str:
        return f"{prefix}{len(self.statements)}"

    def remark(self):
        """Sites and a comment, either of which may be missing; comments that look like sites, or like code."""
        sites = self.rng.sample(SITES, self.rng.choice([0, 0, 1, 2, 3]))
        return {"sites": tuple(map(parse_site, sites)), "comment": self.rng.choice(COMMENTS)}

    def operand(self) -> Operand:
        variable = self.rng.choice(list(self.bases))
        norm = self.rng.choice(self.norms) if self.norms and self.rng.random() < 0.3 else None
        return Operand(variable, norm)

    def store(self, name: str, *shape: int) -> str:
        self.tensors[name] = torch.randn(*shape, generator=self.generator, dtype=torch.float64)
        return name

    def sources(self, name: str, inputs: tuple[Operand, ...]) -> int:
        width = self.rng.randint(1, 4)
        for i, operand in enumerate(inputs):
            self.store(f"{name}.{i}", size(self.bases[operand.variable]), width)
        return width

    def scale(self) -> float:
        return self.rng.choice([10_000.0, 1.0, 0.1, 12.5, -3.0])

    def op(self, rows: Basis, columns: Basis, statement: str):
        if self.rng.random() < 0.4:
            return TensorName(self.store(self.name("A"), size(rows), size(columns))), None
        choices: list[tuple[str, tuple[int | str, ...]]] = [("zeros", ())]
        if statement == "select":
            choices += [("decreasing", ()), ("increasing", ())]
        if isinstance(columns, Tokens):
            choices.append(("to_token", (self.rng.choice(self.vocabulary.tokens),)))
        if not isinstance(rows, One):
            choices += [("diagonal", ()), ("kth_diagonal", (self.rng.choice([-2, -1, 1, 3]),))]
            if statement == "select":
                choices.append(("every_kth", (3, self.rng.randint(0, 2))))
        op = PrimitiveTensor(*self.rng.choice(choices), self.scale())
        splits = columns if isinstance(rows, One) else rows
        if isinstance(splits, Tokens) and self.rng.random() < 0.5:
            return op, PrimitiveTensor(*self.rng.choice(choices), self.scale())
        return op, None

    def add_select(self) -> None:
        query, key = self.operand(), self.operand()
        if self.rng.random() < 0.3:
            query = Operand("one")
        name = self.name("s")
        op, special = self.op(self.bases[query.variable], self.bases[key.variable], "select")
        self.statements.append(Select(name, query, key, op, special, **self.remark()))
        self.selectors.append(name)

    def add_aggregate(self) -> None:
        chosen = self.rng.sample(self.selectors, self.rng.randint(0, min(3, len(self.selectors))))
        name, value = self.name("a"), self.operand()
        references = tuple(Reference(selector) for selector in chosen)
        self.statements.append(Aggregate(name, references, value, **self.remark()))
        self.bases[name] = self.bases[value.variable]

    def add_network(self) -> None:
        name = self.name("m")
        inputs = tuple(self.operand() for _ in range(self.rng.randint(1, 3)))
        width, hidden, result = self.sources(f"F{name}", inputs), self.rng.randint(1, 5), self.rng.randint(1, 4)
        self.store(f"F{name}.hidden", width, hidden)
        self.store(f"F{name}.hidden_bias", hidden)
        self.store(f"F{name}.out", hidden, result)
        self.store(f"F{name}.out_bias", result)
        activation = self.rng.choice(["gelu_new", "gelu", "relu"])
        network = Network(f"F{name}", activation, self.rng.choice([None, 1e-05, 0.1]))
        self.statements.append(ElementWise(name, inputs, network, **self.remark()))
        self.bases[name] = Space(result)

    def add_function(self) -> None:
        name, operand = self.name("h"), self.operand()
        basis = self.bases[operand.variable]
        inputs, result = (operand,), basis
        match self.rng.choice(
            ["no_op", "sharpen", "harden", "balance_01", "is_pure", "compare", "maximum", "keep", "cartesian"]
        ):
            case "no_op":
                function = PrimitiveFunction("no_op")
            case "sharpen":
                function = PrimitiveFunction("sharpen", (2.0,))
            case "balance_01" if isinstance(basis, Tokens) and self.vocabulary.tokens[0] == "0":
                function, result = PrimitiveFunction("balance_01", (1.0,)), Named(("more", "less", "same"))
            case "is_pure":
                function, result = PrimitiveFunction("is_pure", (0.35,)), Space(size(basis) + 1)
            case "compare" if 2 <= size(basis) <= 12:
                function = PrimitiveFunction("compare")
                result = Named(tuple(f"{a}>{b}" for a, b in combinations(labels(basis), 2)))
            case "maximum":
                inputs = (operand, operand)
                function = PrimitiveFunction("maximum")
            case "keep":
                inputs = (self.operand(), operand)
                function = PrimitiveFunction("keep", (2.0,))
            case "cartesian" if size(basis) < 6:
                inputs = (operand, Operand("token"))
                function, result = PrimitiveFunction("cartesian"), Products((basis, self.bases["token"]))
            case _:
                function = PrimitiveFunction("no_op")
        self.statements.append(ElementWise(name, inputs, function, **self.remark()))
        self.bases[name] = result

    def add_norm(self) -> None:
        name = self.name("n")
        inputs = tuple(self.operand() for _ in range(self.rng.randint(1, 3)))
        self.sources(f"N{name}", inputs)
        self.statements.append(Norm(name, inputs, TensorName(f"N{name}"), 0.5, **self.remark()))
        self.norms.append(name)

    def add_project(self) -> None:
        name = self.name("logits")
        source = Operand("one") if self.rng.random() < 0.2 else self.operand()
        op, special = self.op(self.bases[source.variable], self.bases["token"], "project")
        self.statements.append(Project(name, source, op, special, **self.remark()))
        self.logits.append(name)

    def program(self) -> Program:
        steps = [
            self.add_select,
            self.add_aggregate,
            self.add_network,
            self.add_function,
            self.add_norm,
            self.add_project,
        ]
        for _ in range(self.rng.randint(0, 12)):
            self.rng.choice(steps)()
        self.add_project()
        outputs: tuple[Output, ...] = ("softmax", "sigmoid")
        logits = tuple(Reference(name) for name in self.logits)
        self.statements.append(Prediction(self.rng.choice(outputs), logits, **self.remark()))
        return Program(self.vocabulary, self.n_positions, tuple(self.statements), self.tensors)


class _CompilableBuilder(_ProgramBuilder):
    """Lines that a GPT-2 can hold, most of them: no norms but the model's own, and one activation for all networks."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        while len(self.vocabulary) < 2:  # with a single token nothing can be said
            super().__init__(rng)
        self.activation = rng.choice(["gelu_new", "gelu", "relu"])

    def add_norm(self) -> None:
        self.add_aggregate()

    def add_network(self) -> None:
        super().add_network()
        line = of_kind(ElementWise, self.statements[-1])
        function = replace(of_kind(Network, line.function), activation=self.activation, eps=None)
        self.statements[-1] = replace(line, function=function)


def random_program(rng: random.Random) -> Program:
    return _ProgramBuilder(rng).program()


def random_compilable_program(rng: random.Random) -> Program:
    """What no GPT-2 holds is rare in it, and not excluded."""
    return _CompilableBuilder(rng).program()


# A source of randomness and not the programs themselves: the type checks inside drawing them use Python's own
# random state, which Hypothesis does not allow in strategies.
randoms = st.randoms(use_true_random=False)
