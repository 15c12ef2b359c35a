"""C-RASP programs of programs with lines that have none: what such lines say after short strings, as inequalities.

A norm or an MLP of several shares, `pos`, a share that is a query: none of these is a linear inequality of counts. What
comes out of them after strings up to a length is a set of points all the same, one for each string: how often each kind
of position has come. `regions.py` finds inequalities that tell apart those after which a token is said.

Kinds of positions are tokens, first of all. Where that is not enough, they are told apart by position as well, up to
some, and by the shares that later lines look at, rounded; and the sums that each aggregate divides are coordinates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from drasp.crasp.builder import Builder, Guard
from drasp.crasp.exact import Form
from drasp.crasp.regions import region
from drasp.crasp.syntax import CraspError, CraspProgram, Formula, Token, Truth, negation
from drasp.language import Interpreter, Program
from drasp.language.syntax import Aggregate, ElementWise, Norm, Operand, Select, Statement

Array = np.ndarray
MAX_KINDS = 100
_WEIGHT = 10_000  # the largest weight of a softmax; fractions of one are rounded
_POSITIONS = (0, 2, 4, 8, 16)
_BITS = (1, 2, 3)


@dataclass(frozen=True)
class Detail:
    """What is told apart: counts of tokens; if `sums`, also what aggregates add up.

    Then the first `positions` are kinds of their own, and all others one, and shares that later lines look at are
    rounded to multiples of 2^-bits.
    """

    sums: bool = False
    positions: int = 0
    bits: int = 0

    def __str__(self) -> str:
        if not self.sums:
            return "counts of tokens"
        places = f", apart at each of the first {self.positions} positions" if self.positions else ""
        rounded = f", by shares that lines look at, rounded to multiples of 1/{2**self.bits}" if self.bits else ""
        return f"the sums that aggregates are made of, of tokens{places}{rounded}"


def fitted(
    program: Program, ids: Int[Array, "n pos"], said: Bool[Array, "n pos n_vocab"], free: Bool[Array, "n pos"]
) -> tuple[dict[str, CraspProgram], Detail]:
    """The program, for each token, of where it is said after prefixes of these strings, and what it tells apart.

    The strings are all of one length, in order. Prefixes that are `free` may go with any answer.
    """
    problem = CraspError("")
    for detail in _details(program):
        try:
            return _Fit(program, ids, said, free, detail).programs(), detail
        except CraspError as error:
            problem = error
    raise problem


def _details(program: Program) -> list[Detail]:
    """What may be told apart, the simplest first."""
    reads = {operand.variable for statement in program.statements for operand in statement.operands}
    places = _POSITIONS if "pos" in reads else _POSITIONS[:1]
    bits = _BITS if looked_at(program) else (0,)
    return [Detail(), *(Detail(True, *each) for each in product(places, bits))]


def looked_at(program: Program) -> frozenset[str]:
    """The aggregates that selects and other aggregates read, as they are or through other lines."""
    reaches: dict[str, frozenset[str]] = {}
    found: frozenset[str] = frozenset()
    for statement in program.statements:
        names = [name for operand in statement.operands for name in (operand.variable, operand.norm) if name]
        sources = frozenset[str]().union(*(reaches.get(name, frozenset()) for name in names))
        if isinstance(statement, Select | Aggregate):
            found |= sources
        reaches[statement.name] = frozenset({statement.name}) if isinstance(statement, Aggregate) else sources
    return found


@dataclass(frozen=True)
class Kind:
    """A kind of position: its token, the place that stands for it, and how C-RASP tells it.

    `where` are the token and rounded shares, `when` the position.
    """

    token: int
    place: int
    where: Guard
    when: Guard


class _Fit:
    def __init__(
        self,
        program: Program,
        ids: Int[Array, "n pos"],
        said: Bool[Array, "n pos n_vocab"],
        free: Bool[Array, "n pos"],
        detail: Detail,
    ) -> None:
        self.program, self.ids, self.said, self.free, self.detail = program, ids, said, free, detail
        self.interpreter = Interpreter.of(program, torch.float64)
        self.builder = Builder(program.vocabulary.tokens)
        self.tokens = np.unique(ids).tolist()
        self.kinds, self.of = self.at_first()
        self.values: dict[str, Float[Array, "kinds dims"]] = {}
        self.selects: dict[str, Select] = {}
        self.forms: dict[str, list[Int[Array, "forms kinds"]]] = {}
        self.looked_at = looked_at(program)

    def programs(self) -> dict[str, CraspProgram]:
        if self.detail.sums:
            for statement in self.program.statements:
                self.run(statement)
        cases: dict[int, list[tuple[Guard, Formula]]] = {token: [] for token in range(len(self.program.vocabulary))}
        counts = self.counts
        for where, members in self.groups():
            rows = self.coordinates(members[0])
            here = np.isin(self.of, members) & self.first_met & ~self.free
            points = counts[here] @ rows.T
            for token in cases:
                inside = self.said[..., token][here]
                formula = region(points, inside, lambda weights, rows=rows: self.positive(np.array(weights) @ rows))
                cases[token].append((where, formula))
        tokens = self.program.vocabulary.tokens
        said = {tokens[token]: self.builder.cases(found) for token, found in cases.items()}
        return {
            token: self.builder.program("said", formula) for token, formula in said.items() if formula != Truth(False)
        }

    # ------------------------------------------------------------------------------------ kinds

    def at_first(self) -> tuple[list[Kind], Int[Array, "n pos"]]:
        """Kinds by token and position, and which each position of the strings is."""
        longest, apart = self.ids.shape[1], self.detail.positions
        places = [*range(min(apart, longest)), *([(apart + longest) // 2] if apart < longest else [])]
        everything = Form.total((Fraction(1), self.builder.count(self.token(t))) for t in self.tokens)
        kinds: list[Kind] = []
        of = np.zeros(self.ids.shape, int)
        for number, place in enumerate(places):
            when: list[Guard | None] = []
            if number:
                when.append(self.builder.guard(self.builder.positive(everything - Form.of({}, number))))
            if number < apart and len(places) > 1:
                when.append(self.builder.guard(self.builder.positive(everything * -1 + Form.of({}, number + 2))))
            columns = slice(number, number + 1 if number < apart else None)
            for token in self.tokens:
                here = np.zeros(self.ids.shape, bool)
                here[:, columns] = self.ids[:, columns] == token
                if here.any():
                    of[here] = len(kinds)
                    together = self.builder.both(*(guard for guard in when if guard is not None))
                    kinds.append(Kind(token, place, self.token(token), together or frozenset()))
        return kinds, of

    def token(self, token: int) -> Guard:
        return frozenset({(Token(self.program.vocabulary.tokens[token]), True)})

    @cached_property
    def first_met(self) -> Bool[Array, "n pos"]:
        """Strings are in order: each prefix counts where it stands first."""
        changes = np.cumsum(self.ids[1:] != self.ids[:-1], axis=1) > 0
        return np.concatenate([np.ones((1, self.ids.shape[1]), bool), changes])

    @property
    def counts(self) -> Int[Array, "n pos kinds"]:
        """How many positions of each kind there are up to each position."""
        return np.cumsum(self.of[..., None] == np.arange(len(self.kinds)), axis=1, dtype=np.int32)

    def groups(self) -> list[tuple[Guard, list[int]]]:
        """Kinds that look at others alike, whatever their positions are."""
        found: dict[tuple[Guard, bytes], list[int]] = {}
        for number, kind in enumerate(self.kinds):
            looks = b"".join(forms[number].tobytes() for forms in self.forms.values())
            found.setdefault((kind.where, looks), []).append(number)
        merged: dict[Guard, list[list[int]]] = {}
        for (where, _), members in found.items():
            merged.setdefault(where, []).append(members)
        cases: list[tuple[Guard, list[int]]] = []
        for where, parts in merged.items():
            for members in parts:
                if len(parts) == 1:
                    cases.append((where, members))
                else:
                    cases += [
                        (together, [m])
                        for m in members
                        if (together := self.builder.both(where, self.kinds[m].when)) is not None
                    ]
        return cases

    def coordinates(self, kind: int) -> Int[Array, "forms kinds"]:
        """What is told apart by: how often each token came, and what each aggregate adds up; no more than needed."""
        tokens = np.array([kind.token for kind in self.kinds])
        rows = [(tokens == token).astype(int) for token in self.tokens]
        rows += [row for forms in self.forms.values() for row in forms[kind]]
        chosen: list[Int[Array, " kinds"]] = []
        for row in rows:
            if np.linalg.matrix_rank(np.array([*chosen, row], float)) > len(chosen):
                chosen.append(row)
        return np.array(chosen)

    def positive(self, weights: Int[Array, " kinds"]) -> Formula:
        """The formula that a linear combination of the counts of kinds is above 0."""
        parts = zip(weights.tolist(), self.kinds, strict=True)
        return self.builder.positive(
            Form.total((Fraction(weight), self.count(kind)) for weight, kind in parts if weight)
        )

    def count(self, kind: Kind) -> Form:
        together = self.builder.both(kind.where, kind.when)
        return Form() if together is None else self.builder.count(together)

    # ------------------------------------------------------------------------------------ lines

    def run(self, statement: Statement) -> None:
        match statement:
            case Select():
                self.selects[statement.name] = statement
            case Aggregate(name):
                forms = self.sums(statement)
                if forms is not None:
                    self.forms[name] = forms
                    if name in self.looked_at:
                        self.split(statement)
            case ElementWise(name, inputs, function):
                if (found := self.read_all(inputs)) is not None:
                    rows = [torch.tensor(each) for each in found]
                    self.values[name] = self.interpreter.apply(function, rows).numpy()
            case Norm(name, inputs):
                if (found := self.read_all(inputs)) is not None:
                    sources = [self.interpreter.tensors[source].double().numpy() for source in statement.source_names]
                    stream = sum(x @ source for x, source in zip(found, sources, strict=True))
                    self.values[name] = np.sqrt(np.square(stream).mean(1, keepdims=True) + statement.eps)
            case _:
                pass

    def read_all(self, operands: Sequence[Operand]) -> list[Float[Array, "kinds dims"]] | None:
        found = [self.read(operand) for operand in operands]
        return None if any(each is None for each in found) else [each for each in found if each is not None]

    def read(self, operand: Operand) -> Float[Array, "kinds dims"] | None:
        """The value of a variable at each kind of position; None where kinds do not have one."""
        match operand.variable:
            case "token":
                found = np.eye(len(self.program.vocabulary))[[kind.token for kind in self.kinds]]
            case "pos":
                found = np.eye(self.program.n_positions)[[kind.place for kind in self.kinds]]
            case "one":
                found = np.ones((len(self.kinds), 1))
            case name:
                found = self.values.get(name)
        if operand.norm is None or found is None:
            return found
        norm = self.values.get(operand.norm)
        return None if norm is None else found / norm

    def sums(self, statement: Aggregate) -> list[Int[Array, "forms kinds"]] | None:
        """The weight of each kind that is seen, for each kind that looks, and each entry that moves, times that.

        The largest weight, and the largest of each entry, are `_WEIGHT`; no weight is less than 1.
        """
        value = self.read(statement.value)
        scores = np.zeros((len(self.kinds), len(self.kinds)))
        for reference in statement.selectors:
            select = self.selects[reference.variable]
            query, key = self.read(select.query), self.read(select.key)
            if query is None or key is None:
                return None
            scores = scores + query @ self.interpreter.ops[select.name].double().numpy() @ key.T
        if value is None:
            return None
        weights = np.maximum(np.rint(_WEIGHT * np.exp(scores - scores.max(1, keepdims=True))), 1)
        moving = value[:, np.ptp(value, axis=0) > 0]
        entries = np.vstack([np.ones(len(value)), (moving / np.abs(moving).max(0, initial=0)).T])
        return [np.rint(row * entries).astype(int) for row in weights]

    def split(self, statement: Aggregate) -> None:
        """Tells kinds apart by an aggregate that later lines look at: by its entries, rounded."""
        value, steps = self.read(statement.value), 2**self.detail.bits
        assert value is not None
        moves = np.ptp(value, axis=0) > 0
        largest = np.abs(value[:, moves]).max(0, initial=0)
        rest = np.ptp(value[:, moves].sum(1)) < 1e-9  # entries that add up to one number: the last says nothing new
        kinds: list[Kind] = []
        before: list[int] = []
        values: list[Float[Array, " dims"]] = []
        of = np.zeros_like(self.of)
        counts = self.counts
        for number, kind in enumerate(self.kinds):
            here = self.of == number
            total, *sums = (counts[here] @ form for form in self.forms[statement.name][number])
            shares = np.stack([each / total for each in sums], -1) if sums else np.zeros((len(total), 0))
            asked = len(sums) - bool(rest and sums)
            cells = np.stack([(2 * steps * sums[e] + total) // (2 * total) for e in range(asked)] or [total * 0], -1)
            rows, cell = np.unique(cells, axis=0, return_inverse=True)
            for index, row in enumerate(rows):
                inside = cell.reshape(-1) == index
                where = self.cell(self.forms[statement.name][number], row[:asked], steps)
                together = self.builder.both(kind.where, *where)
                if together is None:
                    continue
                of[np.nonzero(here)[0][inside], np.nonzero(here)[1][inside]] = len(kinds)
                kinds.append(Kind(kind.token, kind.place, together, kind.when))
                before.append(number)
                mean = value[number].copy()
                mean[moves] = shares[inside].mean(0) * largest
                values.append(mean)
        if len(kinds) > MAX_KINDS:
            raise CraspError(f"it takes {len(kinds)} kinds of positions, expected at most {MAX_KINDS}")
        self.kinds, self.of = kinds, of
        self.values = {name: found[before] for name, found in self.values.items()}
        self.forms = {name: [forms[b][:, before] for b in before] for name, forms in self.forms.items()}
        self.values[statement.name] = np.array(values)

    def cell(self, forms: Int[Array, "forms kinds"], row: Int[Array, " asked"], steps: int) -> list[Guard]:
        """The guards that shares lie nearest to given multiples, upper ends excluded."""
        guards: list[Guard] = []
        for form, place in zip(forms[1:], row.tolist(), strict=False):
            low = self.positive((2 * place - 1) * forms[0] - 2 * steps * form)
            high = self.positive((2 * place + 1) * forms[0] - 2 * steps * form)
            guards += [g for g in (self.builder.guard(negation(low)), self.builder.guard(high)) if g is not None]
        return guards
