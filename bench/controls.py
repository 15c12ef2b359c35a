"""Evaluates programs that are not what a model does: they must fail. One table, the true ones beside them.

    python bench/controls.py RESULTS [NAME...] [--json FILE]

RESULTS holds folders that `drasp decompile` wrote. For each, beside the program itself:

    answers only    the mean of the tokens so far and the token itself, projects fitted to the model's answers, under
                    the names of the first head and of the token
    random          the same lines, with the numbers of every stored tensor shuffled, and primitives as shuffled tensors
    heads permuted  the same lines under the names of other heads (where the model has several)
    another model   the same program against the zoo's model of the task, trained from another seed
    untrained       the same program against a model of the same form with fresh weights
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from drasp.causal import FULL, Evidence, evaluate
from drasp.errors import DraspError
from drasp.fitting.descent import fit_tensors
from drasp.fitting.oracle import Oracle
from drasp.language import Interpreter, Program, load_program, parse
from drasp.language.syntax import Project, Select, TensorName
from drasp.loading import load_model_and_task
from drasp.records import read_record
from drasp.sites import Component, Edge, NormSite, Receiver, Site
from drasp.tasks import Task
from drasp.transformer import Shape, Transformer, assemble, initial_weights
from drasp.zoo import zoo_models
from evidence import COLUMNS, cells, cut_down_of

FIT_INPUTS, FIT_STEPS = 400, 300
SHOWN = tuple(c for c in COLUMNS if c not in ("seconds", "cost"))


def answers_only(transformer: Transformer, task: Task) -> Program:
    """Two projects fitted to the model's answers, with names of the model on them that nothing supports."""
    tokens, special = (", ".join(names) for names in (task.vocabulary.tokens, task.vocabulary.special))
    text = f"""vocab = [{tokens}]
special = [{special}]
positions = {task.n_positions}
a1 = aggregate(s=[], v=token)  # layer 0 head 0
logits1 = project(inp=a1, op=R1)  # layer 0 head 0 -> out
logits2 = project(inp=token, op=R2)  # token -> out
prediction = {task.output}(logits1+logits2)  # out"""
    size = len(task.vocabulary)
    program = parse(text, {name: torch.zeros(size, size) for name in ("R1", "R2")})
    oracle = Oracle.draw(transformer, task, FIT_INPUTS, np.random.default_rng(0), batch_size=60)
    return fit_tensors(program, ["R1", "R2"], oracle, FIT_STEPS)


def shuffled(program: Program) -> Program:
    """The same lines with shuffled numbers."""
    generator, ops = torch.Generator().manual_seed(0), Interpreter.of(program).ops
    tensors = dict(program.tensors)
    statements = list(program.statements)
    for i, s in enumerate(statements):
        if isinstance(s, Select | Project) and s.stored is None:
            tensors[f"shuffled_{s.name}"] = ops[s.name].clone()
            statements[i] = replace(s, op=TensorName(f"shuffled_{s.name}"), special_op=None)
    tensors = {n: t.flatten()[torch.randperm(t.numel(), generator=generator)].view(t.shape) for n, t in tensors.items()}
    return replace(program, statements=tuple(statements), tensors=tensors)


def with_other_heads(program: Program, n_heads: int) -> Program:
    """The same lines, each under the name of the next head of its layer."""

    def moved(site: Site) -> Site:
        match site:
            case Component("head", layer, head):
                return Component("head", layer, (head + 1) % n_heads)
            case Receiver(layer, kind, head) if kind in ("query", "key", "value"):
                return Receiver(layer, kind, (head + 1) % n_heads)
            case Edge(Component() as sender, receiver):
                there, reader = moved(sender), moved(receiver)
                assert isinstance(there, Component)
                assert isinstance(reader, Receiver)
                return Edge(there, reader)
            case NormSite(receiver):
                reader = moved(receiver)
                assert isinstance(reader, Receiver)
                return NormSite(reader)
            case _:
                return site

    statements = (replace(s, sites=tuple(map(moved, s.sites))) for s in program.statements)
    return replace(program, statements=tuple(statements))


def untrained(transformer: Transformer) -> Transformer:
    mlp = transformer.layers[0].mlp
    assert mlp is not None
    shape = Shape(
        transformer.n_vocab,
        transformer.n_positions,
        transformer.d_model,
        len(transformer.layers),
        transformer.n_heads,
        mlp.hidden.weight.shape[1],
        mlp.activation,
    )
    return assemble(shape, initial_weights(shape, seed=0))


def controls(folder: Path) -> Iterator[tuple[str, Evidence, int]]:
    """The program, and what must fail, each with its evidence and its lines."""
    record = read_record(folder)
    assert record is not None
    assert record.model is not None
    transformer, task = load_model_and_task(record.model, record.task)
    assert task is not None
    program, cut_down = load_program(folder), cut_down_of(folder, record)

    def of(which: Program, model: Transformer = transformer, pruned: Program | None = None) -> tuple[Evidence, int]:
        return evaluate(which, model, task, pruned, FULL, seed=1), which.lines

    yield "itself", *of(program, pruned=cut_down)
    yield "answers only", *of(answers_only(transformer, task))
    yield "random", *of(shuffled(program))
    if transformer.n_heads > 1 and any("head" in str(site) for s in program.statements for site in s.sites):
        yield "heads permuted", *of(with_other_heads(program, transformer.n_heads))
    if not folder.name.startswith("zoo_") and task.name in {model.name for model in zoo_models()}:
        other, _ = load_model_and_task(task.name, None)
        with suppress(DraspError):  # it may have no such heads
            yield "another model", *of(program, other)
    yield "untrained", *of(program, untrained(transformer))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folders = sorted(f for f in arguments.results.iterdir() if (f / "result.json").exists())
    chosen = [f for f in folders if not arguments.names or f.name.startswith(tuple(arguments.names))]
    rows: list[dict[str, object]] = []
    print("| " + " | ".join(SHOWN) + " |\n" + "|---" * len(SHOWN) + "|", flush=True)
    for folder in chosen:
        for control, evidence, lines in controls(folder):
            rows.append({"model": f"{folder.name}: {control}", "lines": lines, **cells(evidence)})
            print("| " + " | ".join(str(rows[-1][c]) for c in SHOWN) + " |", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
