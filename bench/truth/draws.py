"""Random programs, every part of which changes answers, each with a task to answer.

A draw says first how many layers it wants, whether an MLP, and whether norms are to matter. Heads are then drawn layer
by layer, so that each layer reads the one before; what nothing has read by the end is projected. Draws in which a part
hardly matters are rejected, and counted by what was wrong with them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from drasp.edits import Replaced
from drasp.language import Interpreter, Program
from drasp.language.interpreter import pattern_of
from drasp.language.syntax import Aggregate, ElementWise, Project, Select
from drasp.measure import predictions
from drasp.rewriting.simplify import simplify
from drasp.tasks import Inputs, Language, Task, answer_task, language_task
from drasp.tasks.framed import Framed
from drasp.tasks.rows import HOLE
from truth.families import program_for
from truth.score import PASSING, UNCLEAR, differing, margins, ran, weighted_overlap

MOST_LINES, FEWEST_LINES, MOST_HEADS = 10, 2, 4
LEAST_EFFECT = 0.1  # of the answers, that every part of a program must change
MOST_UNCLEAR = 0.05  # of the answers
MOST_COMMON = 0.8  # of the answers, that may be the same
LENGTHS, OFFSETS = range(3, 10), 3
HIDDEN, RESULT = 8, 4  # units and dimensions of a random network
_INPUTS = 300
_LETTERS = "abcde"


@dataclass(frozen=True)
class Wish:
    """What a draw is to have."""

    layers: int
    mlp: bool
    norm: bool  # that matters
    at_the_end: bool = False  # answers count there only; else there or everywhere, as it comes


class RejectedError(Exception):
    """Says what is wrong with a draw."""


@dataclass
class _Variable:
    """`hard`: one direction at a time; `layer`: of the head or MLP that makes it, -1 for what is always there."""

    name: str
    basis: str  # tokens, positions, or other
    size: int
    hard: bool
    layer: int = -1
    read: bool = False


@dataclass
class _Builder:
    rng: np.random.Generator
    letters: int
    n_positions: int
    everywhere: bool  # whether answers count at every position: then queries may be tokens
    lines: list[str] = field(default_factory=list[str])
    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    variables: list[_Variable] = field(default_factory=list[_Variable])
    selects: int = 0

    def __post_init__(self) -> None:
        self.variables += [
            _Variable("token", "tokens", self.letters + 4, True, read=True),
            _Variable("pos", "positions", self.n_positions, True, read=True),
        ]

    def choose(self, options: Sequence[str]) -> str:
        return str(self.rng.choice(list(options)))

    def letter(self) -> str:
        return _LETTERS[self.rng.integers(self.letters)]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def whole_numbers(self, rows: Sequence[str], low: int, high: int) -> str:
        """A table of the language, with a whole number for each letter as a column."""
        columns = _LETTERS[: self.letters]
        return "; ".join(
            f"{row}: " + " ".join(f"{c}={self.rng.integers(low, high + 1)}" for c in columns) for row in rows
        )

    # ---------------------------------------------------------------------------------- attention

    def select(self, query: str, key: str, op: str) -> str:
        self.selects += 1
        name = f"s{self.selects}"
        asked = f"q={query}, " if query else ""
        self.lines.append(f"{name} = select({asked}k={key}, op={op})")
        return name

    def by_position(self) -> tuple[str, bool]:
        step = int(self.rng.integers(1, 4))
        options = {
            f"(k==q-{step})": True,
            "((q-k)%2==1)": False,
            "((q-k)%3==1)": False,
            f"(q-{step + 1}<=k<=q-1)": False,
        }
        op = self.choose(list(options)) if self.chance(0.5) else f"(k==q-{step})"
        return self.select("pos", "pos", op), options[op]

    def by_key(self, key: str) -> str:
        if self.chance(0.5):
            return self.select("", key, f"(k=={self.letter()})*{self.choose(['4', '12'])}")
        return self.select("", key, f"({self.whole_numbers(['*'], -3, 3)})*1")

    def by_recency(self) -> str:
        return self.select("", "pos", f"(k is last)*{self.n_positions * self.rng.integers(1, 4)}")

    def by_match(self, query: str, key: str) -> str:
        if self.chance(0.6):
            return self.select(query, key, "(k==q)*12")
        rows = _LETTERS[: self.letters]
        return self.select(query, key, f"({self.whole_numbers(rows, -4, 4)})*1")

    def head(self, layer: int, number: int) -> None:
        """A head of a layer; in layers behind the first, one that reads the layer before it."""
        names, value, hard = self.later_head(layer) if layer else self.first_head()
        if names and not hard and self.chance(0.4):
            names.append(self.by_recency() if self.chance(0.6) else self.by_key("token"))
        taken = next(v for v in self.variables if v.name == value)
        self.lines.append(f"a{number} = aggregate(s={'+'.join(names) or '[]'}, v={value})")
        self.variables.append(_Variable(f"a{number}", taken.basis, taken.size, hard, layer))

    def first_head(self) -> tuple[list[str], str, bool]:
        """The selects of a head, its value, and whether it always takes that from one position."""
        kinds = ["position", "position", "position", "key", "uniform", "pointer"] + ["match"] * self.everywhere
        match self.choose(kinds):
            case "position":
                name, hard = self.by_position()
                return [name], "token", hard
            case "key":
                return [self.by_key("token")], "token", False
            case "match":
                return [self.by_match("token", "token")], "token", False
            case "pointer":
                return [self.select("", "token", "(k==BOS)*20")], "pos", True
            case _:
                return [], "token", False

    def later_head(self, layer: int) -> tuple[list[str], str, bool]:
        """The same for a head that reads something of the layer before, as a pointer, a key, a query or a value."""
        before = [v for v in self.variables if v.layer == layer - 1]
        tokens = [v for v in before if v.basis == "tokens"]
        pointers = [v for v in before if v.basis == "positions"]
        if pointers:
            pointer = pointers[self.rng.integers(len(pointers))]
            step = self.choose(["+1", "+2", "-1"])
            return [self.select(self.mark(pointer), "pos", f"(k==q{step})*20")], "token", True
        if not tokens:
            # Only an MLP's own space is there: its values are taken.
            made = before[self.rng.integers(len(before))]
            name, hard = self.by_position()
            return [name], self.mark(made), hard
        source = tokens[self.rng.integers(len(tokens))]
        match self.choose(["key", "query", "value"]):
            case "key" if self.everywhere and source.hard and self.chance(0.5):
                return [self.by_match("token", self.mark(source))], "token", False
            case "key":
                return [self.by_key(self.mark(source))], "token", False
            case "query" if source.hard:
                return [self.by_match(self.mark(source), "token")], "token", False
            case _:
                name, hard = self.by_position()
                return [name], self.mark(source), hard and source.hard

    def mark(self, variable: _Variable) -> str:
        variable.read = True
        return variable.name

    # ------------------------------------------------------------------------ MLPs and the output

    def mlp(self, layer: int) -> None:
        here = [v for v in self.variables if v.layer == layer and v.basis == "tokens"]
        if not here:
            raise RejectedError("nothing for an MLP")
        first = here[self.rng.integers(len(here))]
        others = [v for v in self.variables if v.basis == "tokens" and v is not first and v.layer <= layer]
        other = others[self.rng.integers(len(others))]
        match self.choose(["cartesian", "network", "network of one", "is_pure"]):
            case "cartesian" if first.hard and other.hard:
                inputs, function, dims = [first, other], "cartesian", first.size * other.size
            case "is_pure" if not first.hard:
                inputs, function, dims = [first], f"is_pure({self.choose(['0.2', '0.4', '0.6'])})", first.size + 1
            case "network of one" if not first.hard:
                inputs, function, dims = [first], "mlp(F1, relu)", RESULT
            case _:
                inputs, function, dims = [first, other], "mlp(F1, relu)", RESULT
        if function.startswith("mlp"):
            self.network(len(inputs))
        names = ", ".join(self.mark(v) for v in inputs)
        self.lines.append(f"m1 = element_wise_op({names}, func={function})")
        self.variables.append(_Variable("m1", "other", dims, False, layer))

    def network(self, inputs: int) -> None:
        width = self.letters + 4
        self.tensors |= {f"F1.{i}": self.normal(width, width) for i in range(inputs)}
        self.tensors |= {
            "F1.hidden": 2 * self.normal(width, HIDDEN) / width**0.5,
            "F1.hidden_bias": self.normal(HIDDEN),
        }
        self.tensors |= {"F1.out": self.normal(HIDDEN, RESULT), "F1.out_bias": self.normal(RESULT)}

    def normal(self, *shape: int) -> Tensor:
        return torch.as_tensor(self.rng.normal(size=shape), dtype=torch.float32)

    def output(self) -> None:
        """Whatever nothing has read is projected, and now and then the token: to letters mostly."""
        for variable in self.variables:
            again = variable.name == "token" and self.everywhere and self.chance(0.3)
            if variable.read and not again:
                continue
            if variable.basis == "positions":
                raise RejectedError("a position is projected")
            numbers = 4 * self.normal(variable.size, self.letters + 4)
            numbers[:, self.letters :] = -8
            self.tensors[f"R_{variable.name}"] = numbers
            self.lines.append(f"logits_{variable.name} = project(inp={variable.name}, op=R_{variable.name})")
        names = [line.split(" ")[0] for line in self.lines if line.startswith("logits")]
        self.lines.append(f"prediction = {'sigmoid' if self.everywhere else 'softmax'}({'+'.join(names)})")


def draw_program(wish: Wish, rng: np.random.Generator, name: str) -> tuple[Program, Task]:
    """One draw and its task; raises where it is no program of the wished kind, or has parts that hardly matter."""
    everywhere, letters = bool(rng.random() < 0.4) and not wish.at_the_end, int(rng.integers(3, 6))
    task = _task(name, everywhere, _LETTERS[:letters])
    builder = _Builder(rng, letters, task.n_positions, everywhere)
    heads = int(rng.integers(wish.layers, min(MOST_HEADS, wish.layers + 2) + 1))
    layers = sorted([*range(wish.layers), *(int(x) for x in rng.integers(0, wish.layers, heads - wish.layers))])
    with_mlp = int(rng.integers(wish.layers)) if wish.mlp else -1
    for number, layer in enumerate(layers, 1):
        builder.head(layer, number)
        if layer == with_mlp and (number == heads or layers[number] > layer):
            builder.mlp(layer)
    builder.output()
    if not FEWEST_LINES <= len(builder.lines) <= MOST_LINES:
        raise RejectedError("too many lines")
    program = program_for(task, "\n".join(builder.lines), builder.tensors)
    if sum(isinstance(line, Aggregate) for line in simplify(program).statements) < heads:
        raise RejectedError("two heads alike")
    if not everywhere:
        assert isinstance(task.source, Framed)
        task = replace(task, source=replace(task.source, answer=_own_answers(program, task)))
    check_parts(program, task, rng)
    check_heads(program, task, rng)
    return program, task


def _task(name: str, everywhere: bool, symbols: str) -> Task:
    """Any letters: answers count everywhere, or at the end."""
    room = LENGTHS[-1] + OFFSETS
    if everywhere:
        return language_task(name, Language(symbols, f"({'|'.join(symbols)})*"), lengths=LENGTHS, room=room)
    return answer_task(name, symbols, lambda x: x, lengths=LENGTHS, longest_input=room, room=room, ends=False)


def _own_answers(program: Program, task: Task) -> Callable[[np.ndarray], np.ndarray]:
    """What the program itself says, among the letters, at the end of an input."""
    ids = task.vocabulary.ids
    ordinary = len(task.vocabulary) - len(task.vocabulary.special)

    def answer(x: np.ndarray) -> np.ndarray:
        rows = [[ids["BOS"], *(int(i) for i in row if i != HOLE), ids["SEP"]] for row in x]
        said = np.zeros((len(rows), 1), int)
        for length in {len(row) for row in rows}:
            which = [i for i, row in enumerate(rows) if len(row) == length]
            tokens = torch.tensor([rows[i] for i in which])
            logits = Interpreter.of(program)(tokens, torch.arange(length).expand_as(tokens))
            said[which, 0] = logits[:, -1, :ordinary].argmax(-1).numpy()
        return said

    return answer


@torch.no_grad()
def check_heads(program: Program, task: Task, rng: np.random.Generator) -> None:
    """Raises where two heads take the same and look at the same, by as much as is asked of a program that is found."""
    inputs = task.inputs(rng.choice(np.array(task.lengths), _INPUTS), rng)
    heads = [line for line in program.statements if isinstance(line, Aggregate)]
    looks = ran(program, inputs, record=[pattern_of(head.name) for head in heads]).values
    real = (torch.arange(inputs.ids.shape[1]) < inputs.sizes[:, None]).float()
    for a, b in combinations(heads, 2):
        alike = weighted_overlap(looks[pattern_of(a.name)], looks[pattern_of(b.name)], real)
        if a.value == b.value and alike >= PASSING:
            raise RejectedError("two heads alike")


@torch.no_grad()
def check_parts(program: Program, task: Task, rng: np.random.Generator) -> None:
    """Raises where answers are unclear or mostly the same, or where a line hardly changes any.

    A variable or logits are resampled, that is taken from another input of the same length, and so is each input of a
    function. A select is left out, since that of two positions is the same for all inputs.
    """
    lengths = rng.choice(np.array(task.lengths), _INPUTS)
    inputs, others = task.inputs(lengths, rng), task.inputs(lengths, rng)
    names = [s.name for s in program.statements if isinstance(s, Aggregate | ElementWise | Project)]
    before, values = ran(program, inputs).logits, ran(program, others, record=names).values
    margin = margins(before, task.output)[inputs.counted]
    if float((margin <= UNCLEAR * margin.median()).float().mean()) > MOST_UNCLEAR:
        raise RejectedError("unclear answers")
    answers = predictions(before, task.output)[inputs.counted]
    _, counts = answers.unique(dim=0, return_counts=True)
    if int(counts.max()) > MOST_COMMON * len(answers):
        raise RejectedError("mostly the same answer")
    for line in program.statements:
        match line:
            case Select(name):
                instead = [torch.zeros(())]
            case Aggregate(name) | Project(name):
                instead = [values[name]]
            case ElementWise(name):
                instead = [values[name], *_with_one_input_from(program, line, inputs, others)]
            case _:
                continue
        for value in instead:
            after = ran(program, inputs, {name: Replaced(value)}).logits
            if float(differing(before, after, task.output)[inputs.counted].float().mean()) < LEAST_EFFECT:
                raise RejectedError(f"{line.kind} that hardly matters")


def _with_one_input_from(program: Program, line: ElementWise, inputs: Inputs, others: Inputs) -> list[Tensor]:
    """What a function gives with each of its inputs, in turn, from other inputs."""
    interpreter = Interpreter.of(program)
    here = interpreter.values(inputs.ids, inputs.positions, line.inputs)
    there = interpreter.values(others.ids, others.positions, line.inputs)
    n, width = inputs.ids.shape

    def given(swapped: int) -> Tensor:
        read = [(there if i == swapped else here)[i].flatten(0, 1) for i in range(len(here))]
        return interpreter.apply(line.function, read).unflatten(0, (n, width))

    return [given(i) for i in range(len(here))] if len(here) > 1 else []


def wishes(count: int) -> list[Wish]:
    """What a benchmark of so many programs is made of.

    Of eleven, 4 have one layer, 5 two and 2 three; of ten, 4 have an MLP and 3 others norms that matter. An MLP's own
    norm reads the whole stream, so that its reads could not be told where norms matter.
    """
    return [
        Wish(layers=(1, 2, 2, 1, 2, 3, 1, 2, 3, 1, 2)[i % 11], mlp=i % 10 in (0, 3, 5, 8), norm=i % 10 in (1, 4, 7))
        for i in range(count)
    ]
