"""Evaluates true and false programs of models whose mechanism is known: which measures pass, and which catch what.

    python bench/calibration.py --json FILE [--part a|b|c|quick ...] [--seed S] [--limit N] [--figure FILE]

The models are those of bench/ground_truth.py. The true program is the one that a model was compiled from; false ones
are, as far as the benchmark's score calls them not right,

    mutants             of the true one: all selects of a head dropped, or one of several; keys off by one; weights
                        hardened; two rows of a project exchanged; a head under the name of another
    random numbers      the true program with the numbers of every stored tensor shuffled
    fitted to answers   the control of bench/controls.py
    another mechanism   a program of the same family, which gives the same answers by other means (part b)

FILE keeps what was measured of each, raw and for several shares of the median margin from which on an answer is clear,
so that thresholds can be varied without a further run, and a run that was stopped goes on where it was. Printed are
what each measure says of each kind, with the thresholds as they are; and what becomes of true and false programs as
they vary: chosen on the models of even numbers, reported on the others. `--figure` draws that. One thread.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import torch

from controls import answers_only, shuffled, with_other_heads
from drasp.causal import FULL, Clear, Evidence, Measure, evaluate
from drasp.errors import DraspError
from drasp.language import Interpreter, Program
from drasp.language.syntax import Aggregate, Project, Select, Statement, TensorName
from drasp.output_folder import write_file
from drasp.settings import EVIDENCE
from truth.families import families
from truth.score import score
from truth.specs import PARTS, Spec, count, make

HARDENED = 100.0  # times the scores
MOST_TRIED = 3  # mutants of a kind, until one is not right
THRESHOLDS = (0.8, 0.84, 0.88, 0.9, 0.92, 0.94, 0.96, 0.98)
SHARES = (0.02, 0.05, 0.1, 0.2)
# No measure depends on both, so that a run for each pair gives all values of each. The first are those in use.
CLEARS = tuple(Clear(a, b) for a, b in zip(SHARES, reversed(SHARES), strict=True))
ASKED_FOR = 0.95  # of true programs that pass, and of false ones that do not
TRUE = "true"

Row = dict[str, Any]
# The value, the number of cases and the lower end of the interval, line by line where it is a measure of lines.
Said = list[list[float]]

MEASURES: dict[str, Callable[[Evidence], Iterable[Measure | None]]] = {
    "agreement": lambda e: [e.program],
    "edited": lambda e: [e.edited],
    "attention": lambda e: [line.attention for line in e.lines],
    "replaced": lambda e: [line.interchange_cut_down for line in e.lines],
    "in the model": lambda e: [line.interchange for line in e.lines],
    "splice": lambda e: [line.splice for line in e.lines],
    "complement": lambda e: [e.complement],
}
# Which share of the median margin a measure depends on.
BY_CLEAR: dict[str, Callable[[Clear], float]] = {
    "edited": lambda c: c.in_model,
    "replaced": lambda c: c.cut_down,
    "in the model": lambda c: c.in_model,
    "complement": lambda c: c.in_model,
}


# ----------------------------------------------------------------------------------------------- programs


def mutants(program: Program, n_heads: int) -> Iterator[tuple[str, Program]]:
    """Programs that differ from a true one in one thing, each with what that is."""
    ops = Interpreter.of(program).ops
    for s in program.statements:
        match s:
            case Aggregate(selectors=selectors) if selectors:
                yield "uniform", _with(program, s, replace(s, selectors=()))
                if len(selectors) > 1:
                    yield "a select dropped", _with(program, s, replace(s, selectors=selectors[1:]))
            case Select(name):
                yield "keys off by one", _with_op(program, s, ops[name].roll(1, dims=1))
                yield "hardened", _with_op(program, s, HARDENED * ops[name])
            case Project(name) if s.input.variable != "one":
                rows = ops[name].clone()
                rows[[0, 1]] = rows[[1, 0]]
                yield "rows exchanged", _with_op(program, s, rows)
            case _:
                pass
    if n_heads > 1 and any(isinstance(s, Aggregate) for s in program.statements):
        yield "another head", with_other_heads(program, n_heads)
    yield "random numbers", shuffled(program)


def _with(program: Program, old: Statement, new: Statement) -> Program:
    statements = [new if s is old else s for s in program.statements]
    read = {name for s in statements for name in s.reads}
    kept = (s for s in statements if not isinstance(s, Select) or s.name in read)
    return replace(program, statements=tuple(kept))


def _with_op(program: Program, old: Select | Project, tensor: torch.Tensor) -> Program:
    changed = replace(program, tensors={**program.tensors, f"mutant_{old.name}": tensor.clone()})
    return _with(changed, old, replace(old, op=TensorName(f"mutant_{old.name}"), special_op=None))


def others(spec: Spec, number: int) -> Iterator[tuple[str, Program]]:
    """Programs that nobody made from the true one."""
    yield "fitted to answers", answers_only(spec.compiled.transformer, spec.task)
    if spec.part == "b":
        names = [family.name for family in families() for _ in family.programs]
        own = [n for n, name in enumerate(names) if name == names[number]]
        other = own[(own.index(number) + 1) % len(own)]
        yield "another mechanism", made(spec.part, other, spec.seed).compiled.program


@lru_cache(maxsize=8)
def made(part: str, number: int, seed: int) -> Spec:
    return make(part, number, seed)


# ------------------------------------------------------------------------------------------------ measuring


def rows_of(part: str, number: int, seed: int) -> list[Row]:
    """The true program and false ones, each with what is said of it."""
    spec = made(part, number, seed)
    truth, model = spec.compiled.program, spec.compiled.transformer
    found = [_row(spec, number, TRUE, truth, truth)]
    tried = Counter[str]()
    for kind, program, cut_down in (
        *((kind, program, truth) for kind, program in mutants(truth, model.n_heads)),
        *((kind, program, None) for kind, program in others(spec, number)),
    ):
        tried[kind] += 1
        if tried[kind] > MOST_TRIED or any(row["kind"] == kind for row in found):
            continue
        try:
            if not score(truth, program, model, spec.task).right:
                found.append(_row(spec, number, kind, program, cut_down))
        except DraspError:
            pass  # its lines are of heads or layers that this model does not have
    return found


def _row(spec: Spec, number: int, kind: str, program: Program, cut_down: Program | None) -> Row:
    def evidence(cut_down: Program | None, clear: Clear) -> Evidence:
        return evaluate(program, spec.compiled.transformer, spec.task, cut_down, FULL, clear=clear)

    alone, by_clear = evidence(None, CLEARS[0]), {clear: evidence(cut_down, clear) for clear in CLEARS}
    said: dict[str, Any] = {}
    for name, measures in MEASURES.items():
        if name in BY_CLEAR:
            said[name] = {str(BY_CLEAR[name](c)): _raw(measures(e)) for c, e in by_clear.items()}
        else:
            said[name] = _raw(measures(by_clear[CLEARS[0]]))
    return {
        "part": spec.part,
        "number": number,
        "seed": spec.seed,
        "model": spec.name,
        "kind": kind,
        "verdict": by_clear[CLEARS[0]].grade or "not causal",
        "verdict alone": alone.grade or "not causal",
        "at means": None if alone.mean_ablated is None else alone.mean_ablated.value,
        "said": said,
    }


def _raw(measures: Iterable[Measure | None]) -> Said:
    found = [m for m in measures if m is not None and m.value is not None]
    return [[round(m.value or 0.0, 4), m.n, round(m.interval[0] if m.interval else 0.0, 4)] for m in found]


# ------------------------------------------------------------------------------------------------ judging


@dataclass(frozen=True)
class Thresholds:
    """What a measure must reach, and from which share of the median margin on answers count."""

    passing: float = EVIDENCE.passing
    clear: Clear = CLEARS[0]

    def said(self, row: Row, measure: str) -> Said:
        said = row["said"][measure]
        return said[str(BY_CLEAR[measure](self.clear))] if measure in BY_CLEAR else said

    def judged(self, row: Row, measure: str) -> str:
        """What a measure says of a program: failed, passed, or nothing."""
        lowest = self.passing - (EVIDENCE.passing - EVIDENCE.lowest_passing)
        tested = [(value, lower) for value, n, lower in self.said(row, measure) if n >= EVIDENCE.fewest_cases]
        good = [value >= self.passing and lower >= lowest for value, lower in tested]
        return "failed" if not all(good) else "passed" if good else "silent"

    def refuses(self, row: Row) -> bool:
        return any(self.judged(row, measure) == "failed" for measure in MEASURES)

    def shares(self, rows: Sequence[Row]) -> tuple[float, float]:
        """Of true programs that pass everything, and of false ones that fail something."""
        true, false = ([r for r in rows if (r["kind"] == TRUE) == which] for which in (True, False))
        passing = sum(not self.refuses(row) for row in true) / max(1, len(true))
        return passing, sum(self.refuses(row) for row in false) / max(1, len(false))


def every_threshold() -> list[Thresholds]:
    return [Thresholds(p, Clear(a, b)) for p, a, b in product(THRESHOLDS, SHARES, SHARES)]


def tuned(rows: Sequence[Row]) -> Thresholds:
    """Those with which most true programs pass and most false ones fail; of equals, the nearest to those in use."""

    def worth(t: Thresholds) -> tuple[float, ...]:
        shares = t.shares(rows)
        off = (
            abs(t.passing - EVIDENCE.passing),
            abs(t.clear.in_model - EVIDENCE.clear_in_model),
            abs(t.clear.cut_down - EVIDENCE.clear),
        )
        return min(*shares, ASKED_FOR), sum(shares), -sum(off)

    return max(every_threshold(), key=worth)


def halves(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    return [r for r in rows if r["number"] % 2 == 0], [r for r in rows if r["number"] % 2]


# ------------------------------------------------------------------------------------------------- tables


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(columns) + " |"
    yield "|---" * len(columns) + "|"
    yield from ("| " + " | ".join(map(str, row)) + " |" for row in rows)


def by_kind(rows: Sequence[Row]) -> Iterator[str]:
    """How many programs of each kind there are, how many each measure passes and fails, and what became of them."""
    verdicts = ("complete", "sufficient", "not causal")
    columns = ("kind", "programs", *MEASURES, "fails something", *verdicts, "alone: causal", "agrees at means")
    cells: list[list[object]] = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        said = [Counter(Thresholds().judged(row, measure) for row in own) for measure in MEASURES]
        refused = sum(Thresholds().refuses(row) for row in own)
        counts = [sum(row["verdict"] == verdict for row in own) for verdict in verdicts]
        alone = sum(row["verdict alone"] != "not causal" for row in own)
        at_means = sum((row["at means"] or 0.0) >= EVIDENCE.passing for row in own)
        cells.append(
            [kind, len(own), *(f"{c['passed']} / {c['failed']}" for c in said), refused, *counts, alone, at_means]
        )
    return table(columns, cells)


def by_threshold(rows: Sequence[Row]) -> Iterator[str]:
    """Shares of true programs that pass everything, and of false ones that fail something, on each half."""
    even, odd = halves(rows)
    chosen = tuned(even)
    asked = [Thresholds(passing) for passing in THRESHOLDS]
    asked += [Thresholds(clear=Clear(EVIDENCE.clear, share)) for share in SHARES[:-1]]
    asked += [Thresholds(clear=Clear(share, EVIDENCE.clear_in_model)) for share in SHARES[1:]]
    cells: list[list[object]] = []
    for t in dict.fromkeys((*asked, chosen)):
        names = [name for name, which in (("in use", Thresholds()), ("chosen on even numbers", chosen)) if t == which]
        shares = [f"{share:.3f}" for half in (even, odd) for share in t.shares(half)]
        cells.append([t.passing, t.clear.in_model, t.clear.cut_down, *shares, ", ".join(names)])
    sides = [f"{which}: {what}" for which in ("even", "odd") for what in ("true pass", "false fail")]
    return table(("passing", "clear in M", "clear in M\\|G", *sides, ""), cells)


def exceptions(rows: Sequence[Row]) -> Iterator[str]:
    """The true programs that fail something, and the false ones that do not."""
    for row in rows:
        failed = [m for m in MEASURES if Thresholds().judged(row, m) == "failed"]
        if bool(failed) == (row["kind"] == TRUE):
            said = {m: Thresholds().said(row, m) for m in failed or MEASURES}
            yield f"- {row['model']}, {row['kind']}: {row['verdict']}, alone {row['verdict alone']}; {said}"


def draw(file: Path, rows: Sequence[Row]) -> None:
    """Three curves: by what a measure must reach, and by the two shares from which on answers are clear."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "calibration"}  # the same file in every run
    varied = {
        "a measure must reach": (THRESHOLDS, [Thresholds(p) for p in THRESHOLDS]),
        "clear in the model from": (SHARES, [Thresholds(clear=Clear(EVIDENCE.clear, s)) for s in SHARES]),
        "clear in M|G from": (SHARES, [Thresholds(clear=Clear(s, EVIDENCE.clear_in_model)) for s in SHARES]),
    }
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    for axes, (name, (x, thresholds)) in zip(figure.subplots(1, 3, sharey=True), varied.items(), strict=True):
        for half, style in zip(halves(rows), ("--", "-"), strict=True):
            shares = [t.shares(half) for t in thresholds]
            which = "odd" if style == "-" else "even"
            axes.plot(x, [a for a, _ in shares], style, color="tab:blue", marker=".", label=f"true pass ({which})")
            axes.plot(x, [b for _, b in shares], style, color="tab:red", marker=".", label=f"false fail ({which})")
        axes.axhline(ASKED_FOR, color="grey", linewidth=0.8)
        axes.set_xlabel(name)
        axes.set_ylim(0.85, 1.01)
    figure.axes[0].legend(fontsize=7, loc="lower left")
    figure.axes[0].set_ylabel("share of programs")
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS, nargs="*", default=())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="of each part, so many models")
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = json.loads(arguments.json.read_text()) if arguments.json.exists() else []
    known = {(row["part"], row["number"], row["seed"]) for row in rows}
    for part in arguments.part:
        for number in range(count(part))[: arguments.limit]:
            if (part, number, arguments.seed) in known:
                continue
            found = rows_of(part, number, arguments.seed)
            print(found[0]["model"], {row["kind"]: row["verdict"] for row in found}, flush=True)
            rows += found
            lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
            write_file(arguments.json, ("[\n" + ",\n".join(lines) + "\n]\n").encode())
    for part in (by_kind(rows), by_threshold(rows), exceptions(rows)):
        print("\n".join(part), end="\n\n")
    if arguments.figure:
        draw(arguments.figure, rows)


if __name__ == "__main__":
    main()
