"""Evaluates true and false programs of models whose mechanism is known: which measures pass, and which catch what.

    python bench/calibration.py [--part a|b|c|quick] [--seed S] [--limit N] [--json FILE]

The models are those of bench/ground_truth.py. The true program is the one that a model was compiled from; false ones
are mutants of it, as far as the benchmark's score calls them not right: all selects of a head dropped, or one of
several; keys off by one; weights hardened; two rows of a project exchanged; a head under the name of another. In the
table for each kind: how many each measure passes and fails, where it has something to say, and the verdict.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from controls import with_other_heads
from drasp.causal import FULL, Evidence, evaluate
from drasp.language import Interpreter, Program
from drasp.language.syntax import Aggregate, Project, Select, Statement, TensorName
from truth.score import score
from truth.specs import PARTS, count, make

MEASURES = ("program", "edited", "attention", "interchange", "splice", "complement")
LETTERS = {"passed": "passed", "failed": "failed", "untested": "–", "not_applicable": "–"}
HARDENED = 100.0  # times the scores


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


def _with(program: Program, old: Statement, new: Statement) -> Program:
    statements = [new if s is old else s for s in program.statements]
    read = {name for s in statements for name in s.reads}
    kept = (s for s in statements if not isinstance(s, Select) or s.name in read)
    return replace(program, statements=tuple(kept))


def _with_op(program: Program, old: Select | Project, tensor: torch.Tensor) -> Program:
    changed = replace(program, tensors={**program.tensors, f"mutant_{old.name}": tensor.clone()})
    return _with(changed, old, replace(old, op=TensorName(f"mutant_{old.name}"), special_op=None))


def row(model: str, kind: str, evidence: Evidence) -> dict[str, object]:
    statuses = {name: getattr(evidence, name).status for name in MEASURES}
    values = {f"{name} value": getattr(evidence, name).value for name in MEASURES}
    return {"model": model, "kind": kind, "verdict": evidence.grade or "not causal", **statuses, **values}


def rows_of(part: str, number: int, seed: int) -> Iterator[dict[str, object]]:
    spec = make(part, number, seed)
    truth, model = spec.compiled.program, spec.compiled.transformer
    yield row(spec.name, "true", evaluate(truth, model, spec.task, None, FULL))
    seen: Counter[str] = Counter()
    for kind, program in mutants(truth, model.n_heads):
        seen[kind] += 1
        if seen[kind] == 1 and not score(truth, program, model, spec.task).right:
            yield row(spec.name, kind, evaluate(program, model, spec.task, None, FULL))


def summary(rows: list[dict[str, object]]) -> Iterator[str]:
    """How many programs of each kind there are, how many each measure passes, and fails, and what became of them."""
    columns = ("kind", "programs", *(f"{name}" for name in MEASURES), "complete", "sufficient", "not causal")
    yield "| " + " | ".join(columns) + " |"
    yield "|---" * len(columns) + "|"
    for kind in dict.fromkeys(str(r["kind"]) for r in rows):
        own = [r for r in rows if r["kind"] == kind]
        cells = [kind, str(len(own))]
        for name in MEASURES:
            found = Counter(str(r[name]) for r in own)
            cells.append(f"{found['passed']} / {found['failed']}")
        cells += [str(sum(r["verdict"] == verdict for r in own)) for verdict in columns[-3:]]
        yield "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, default="quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    for number in range(min(count(arguments.part), arguments.limit or count(arguments.part))):
        for found in rows_of(arguments.part, number, arguments.seed):
            rows.append(found)
            said = {name: LETTERS[str(found[name])] for name in MEASURES}
            print(found["model"], "|", found["kind"], "|", found["verdict"], "|", said, flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
