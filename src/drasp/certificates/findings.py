"""What a walk through all inputs finds: where answers are certainly alike, certainly differ, or cannot be told."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from drasp.certificates.bounds import GROW, Array, BoundedLogits, U
from drasp.certificates.tree import Inputs, Judged, Nodes, Side, Walk

Progress = Callable[[int], None]
"""Is told how many inputs have been looked at."""


def silent(_count: int) -> None:
    pass


@dataclass(frozen=True)
class NodeAnswers:
    """What is said at each node, how far that is certain, and by what margin, errors taken off (infinite if exact).

    Softmax: one token a node, [m, 1]. Sigmoid: whether each token may come next, [m, n_vocab].
    """

    said: Array
    certain: Array
    margin: Array


def answers(logits: BoundedLogits, output: str) -> NodeAnswers:
    """Softmax says the token with the largest logit, the first of equals; sigmoid, those with a logit above 0."""
    v, e = logits.value, logits.error
    if output == "sigmoid":
        certain = ((v > e) | (v <= -e)) & np.isfinite(v)
        return NodeAnswers(v > 0, certain, np.where(e == 0, np.inf, (np.abs(v) - e) / logits.over).min(1))
    best = v.argmax(1)
    chosen, rows = best[:, None], np.arange(len(v))
    lead, off = v[rows, best][:, None] - v, (e[rows, best][:, None] + e) * GROW
    places = np.arange(v.shape[1])
    clear = lead * (1 - 4 * U) > off
    clear |= (places > chosen) & (off == 0)  # where both are exact, the first of equals
    clear |= places == chosen
    margin = np.where((places == chosen) | (off == 0), np.inf, lead - off).min(1) / logits.over
    return NodeAnswers(chosen, (clear & np.isfinite(v)).all(1, keepdims=True), margin)


@dataclass(frozen=True)
class Counterexample:
    """An input, up to the token after which answers differ; what is said is a list of ids."""

    tokens: tuple[int, ...]
    offset: int
    length: int
    program: tuple[int, ...]
    expected: tuple[int, ...]


@dataclass
class ComparisonByLength:
    """The program's answers beside others, by the length of inputs."""

    longest: int
    looked: Array = field(init=False)
    alike: Array = field(init=False)
    unclear: Array = field(init=False)
    margin: Array = field(init=False)
    found: Counterexample | None = None

    def __post_init__(self) -> None:
        self.looked, self.alike, self.unclear = (np.zeros(self.longest + 1, int) for _ in range(3))
        self.margin = np.full(self.longest + 1, np.inf)

    def note(self, program: NodeAnswers, other: NodeAnswers, judged: Judged, known: Array, show: "_Shown") -> None:
        """Adds the answers of both sides at the nodes of which they are `known`."""
        certain, same, lengths = program.certain & other.certain, program.said == other.said, judged.lengths
        alike = (certain & same).all(1) & known
        differ = (certain & ~same).any(1) & known
        unclear = known & ~alike & ~differ
        for which, counts in ((judged.begins & known, self.looked), (alike, self.alike), (unclear, self.unclear)):
            counts += np.bincount(lengths[which], minlength=self.longest + 1)
        if alike.any():
            np.minimum.at(self.margin, lengths[alike], np.minimum(program.margin, other.margin)[alike])
        if differ.any():
            shortest = int(lengths[differ].min())
            if self.found is None or shortest <= self.found.length:
                cases = [show(program, other, int(i)) for i in np.flatnonzero(differ & (lengths == shortest))]
                cases += [self.found] if self.found else []
                self.found = min(cases, key=lambda case: (case.length, case.offset, case.tokens))

    @property
    def of_interest(self) -> int:
        """The greatest length at which something can still be found that is shorter, or comes before."""
        return self.longest if self.found is None else self.found.length

    def result(self) -> dict[str, Any]:
        """Status, the length up to which the answers are proved alike, the inputs and the margin up to there.

        `undecided` counts answers, at all lengths that are shorter than a counterexample.
        """
        end = self.longest + 1 if self.found is None else self.found.length
        unclear = np.flatnonzero(self.unclear[:end])
        proved = int(unclear[0]) if len(unclear) else end
        status = "refuted" if self.found else "undecided" if len(unclear) else "proved"
        margin = float(self.margin[:proved].min(initial=np.inf))
        return {
            "status": status,
            "length": proved - 1,
            "inputs": int(self.looked[:proved].sum()),
            "undecided": int(self.unclear[:end].sum()),
            "margin": margin if np.isfinite(margin) else None,
            "counterexample": self.found and {**asdict(self.found)},
        }


def findings(
    inputs: Inputs,
    sides: Callable[[int], Sequence[Side]],
    output: str,
    offsets: Sequence[tuple[int, int]],
    progress: Progress = silent,
) -> dict[str, Any]:
    """Walks through all inputs at all offsets, each with the greatest length that it has room for.

    `sides` gives the program, and the model where there is one, at an offset. The result says how many inputs were
    looked at, how the program's answers compare with the model's and the task's, and the largest error bound that
    is known.
    """
    model, task = ComparisonByLength(inputs.longest), ComparisonByLength(inputs.longest)
    looked, largest, has_model = 0, 0.0, False
    for offset, room in offsets:
        here = inputs.up_to(room)
        walk = Walk(here, sides(offset), here.longest)
        has_model = len(walk.sides) > 1
        for nodes, judged, logits in walk:
            if not len(judged.lengths):
                continue
            shown = _Shown(nodes, judged, here.tokens, offset, output)
            said = [answers(each, output) for each in logits]
            if has_model:
                model.note(said[0], said[1], judged, np.ones(len(judged.lengths), bool), shown)
            task.note(said[0], _targets(judged, output), judged, judged.known, shown)
            errors = (each.error / each.over for each in logits)
            largest = max(largest, *(float(e.max(where=np.isfinite(e), initial=0)) for e in errors))
            looked += int(judged.begins.sum())
            progress(looked)
            walk.longest = min(walk.longest, max(each.of_interest for each in (model, task)[1 - has_model :]))
    return {
        "inputs": looked,
        "against_model": model.result() if has_model else None,
        "against_task": task.result() if task.looked.any() else None,
        "largest_error": largest,
    }


def _targets(judged: Judged, output: str) -> NodeAnswers:
    said = judged.targets if output == "sigmoid" else judged.targets[:, None]
    return NodeAnswers(said, np.ones_like(said, bool), np.full(len(said), np.inf))


@dataclass(frozen=True)
class _Shown:
    """Makes a counterexample of a node."""

    nodes: Nodes
    judged: Judged
    tokens: Sequence[int]
    offset: int
    output: str

    def __call__(self, program: NodeAnswers, other: NodeAnswers, i: int) -> Counterexample:
        node = i if isinstance(self.judged.which, slice) else self.judged.which[i]
        tokens = tuple(self.tokens[code] for code in self.nodes.codes[node])
        length = int(self.judged.lengths[i])
        return Counterexample(tokens, self.offset, length, self.said(program.said[i]), self.said(other.said[i]))

    def said(self, what: Array) -> tuple[int, ...]:
        return tuple(int(t) for t in (np.flatnonzero(what) if self.output == "sigmoid" else what))
