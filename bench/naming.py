"""Whether names are found again in programs whose tensors and functions were disturbed, and not found elsewhere.

    python bench/naming.py [NAME...] [--seeds N]

For each primitive of the library there is a small program that uses it. Its answers are those of "the model". The
primitive is then hidden: a tensor gets another scale, noise, and for each row a shift that the answers do not depend
on; a function becomes an MLP, built or trained to be it, whose result is rotated. Naming gets that program and
the answers. It is found again if the same primitive stands there with the same parameters; where another name (often
that of a linear map, which is preferred) gives the same answers on fresh inputs, that is counted apart; where it does
not, it is a false alarm. For each primitive there is also a random tensor (an MLP with random weights) in its place:
any name there that does not keep the answers on fresh inputs is a false alarm too.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from drasp.fitting.oracle import Oracle, answering
from drasp.language import Interpreter, Program, parse
from drasp.language.syntax import (
    ElementWise,
    Network,
    Operand,
    PrimitiveFunction,
    PrimitiveTensor,
    Project,
    Select,
    TensorName,
)
from drasp.naming.judge import TOLERANCE
from drasp.naming.pipeline import name_program
from drasp.rewriting.rewrite import dense_ops
from drasp.tasks.task import Task, answer_task

NOISE = 0.05  # of a tensor's largest entry
SCALES = (15.0, 40.0)
EPOCHS = 2500
UNITS = 128


def _letters(count: int) -> Task:
    symbols = ("0", "1") if count == 2 else tuple("abcdefgh"[:count])
    return answer_task("copy", symbols, lambda x: x, lengths=range(4, 21), longest_answer=150, about="any tokens again")


LETTERS, BITS = _letters(8), _letters(2)
POSITION = "s1 = select(q=pos, k=pos, op=(OP))\na1 = aggregate(s=s1, v=token)\n"
TOKEN = "s1 = select(q=token, k=token, op=(OP))\na1 = aggregate(s=s1, v=token)\n"
KEY = "s1 = select(k=KEY, op=(OP))\na1 = aggregate(s=s1, v=token)\n"
OUT = "logits1 = project(inp=a1, op=(inp==out))\nprediction = softmax(logits1)"
PROJECT = "a1 = aggregate(s=[], v=token)\nlogits1 = project(inp=a1, op=(OP))\nprediction = softmax(logits1)"
FUNCTION = "a1 = aggregate(s=[], v=token)\nm1 = element_wise_op(a1, func=OP)\n"
PAIR = (
    "s1 = select(k=token, op=(k==BOS))\na1 = aggregate(s=s1, v=pos)\na2 = aggregate(s=[], v=token)\n"
    "m1 = element_wise_op(pos, a1, func=OP)\n"
)
TWO_OF_ONE_KIND = (
    "s1 = select(q=pos, k=pos, op=(k==q-1))\na1 = aggregate(s=s1, v=token)\na2 = aggregate(s=[], v=token)\n"
    "m1 = element_wise_op(a1, a2, func=OP)\n"
)
PREVIOUS = (
    "s1 = select(q=pos, k=pos, op=(k==q-1))\na1 = aggregate(s=s1, v=token)\nm1 = element_wise_op(token, a1, func=OP)\n"
)
RANDOM = "logits1 = project(inp=m1, op=R)\nprediction = softmax(logits1)"


@dataclass(frozen=True)
class Case:
    """A program with one primitive to be found again, in the line called `line`."""

    name: str
    text: str
    line: str
    task: Task = LETTERS


def _cases() -> list[Case]:
    positions = ("k==q-1", "k==q-3", "(q-k)%2==0", "(q-k)%3==1", "q-3<=k<=q-1", "k is first", "k is last")
    tokens = ("k==q", "k is next above q", "k>q", "k==SEP")
    return [
        *(Case(op, (POSITION + OUT).replace("OP", op), "s1") for op in positions),
        *(Case(f"{op} (tokens)", (TOKEN + OUT).replace("OP", op), "s1") for op in tokens),
        Case("k==b (key only)", (KEY + OUT).replace("KEY", "token").replace("OP", "k==b"), "s1"),
        Case("k is last (key only)", (KEY + OUT).replace("KEY", "pos").replace("OP", "k is last"), "s1"),
        Case("inp==out", PROJECT.replace("OP", "inp==out"), "logits1"),
        Case("out==inp+1", PROJECT.replace("OP", "out==inp+1"), "logits1"),
        *(
            Case(op, (FUNCTION + RANDOM).replace("OP", op), "m1", BITS)
            for op in ("sharpen(3)", "balance_01(0.5)", "is_pure(0.5)", "compare", "harden")
        ),
        Case("maximum", (TWO_OF_ONE_KIND + RANDOM).replace("OP", "maximum"), "m1", BITS),
        Case("cartesian", (PREVIOUS + RANDOM).replace("OP", "cartesian"), "m1", BITS),
        Case("difference_mod(2)", (PAIR + RANDOM).replace("OP", "difference_mod(2)"), "m1"),
        Case("difference_mod(3)", (PAIR + RANDOM).replace("OP", "difference_mod(3)"), "m1"),
    ]


def program_of(case: Case, seed: int) -> Program:
    vocabulary = case.task.vocabulary
    header = f"vocab = [{', '.join(vocabulary.tokens)}]\nspecial = [{', '.join(vocabulary.special)}]\n"
    text = f"{header}positions = {case.task.n_positions}\n{case.text}"
    bare = parse(text)
    if "op=R)" not in case.text:
        return bare
    rows = {
        "balance_01(0.5)": 3,
        "is_pure(0.5)": 7,
        "difference_mod(2)": 2,
        "difference_mod(3)": 3,
        "compare": 15,
        "cartesian": 36,
    }
    generator = torch.Generator().manual_seed(seed)
    project = torch.randn(rows.get(case.name, 6), len(vocabulary), generator=generator)
    if case.name == "cartesian":
        # Whether two bits differ, which no linear map of them says.
        width = len(vocabulary)
        for first, second in product((0, 1), (0, 1)):
            project[first * width + second, int(first != second)] = 10.0
    return replace(bare, tensors={"R": project})


def disturbed(program: Program, line: str, scale: float, seed: int) -> Program:
    """The primitive of a line hidden in a tensor or an MLP."""
    generator = torch.Generator().manual_seed(seed)
    statement = next(s for s in program.statements if s.name == line)
    match statement:
        case Select() | Project():
            hidden = dense_ops(program)[line] / 10_000
            if isinstance(statement, Select) and hidden.unique().numel() > 3:
                hidden = hidden * hidden.shape[1]  # graded: a step must stand out of the noise as an entry does
            noise = NOISE * torch.randn(hidden.shape, generator=generator)
            shift = torch.randn(len(hidden), 1, generator=generator)
            tensors = {**program.tensors, "hidden": scale * (hidden + noise + shift)}
            new = replace(statement, op=TensorName("hidden"), special_op=None)
        case ElementWise():
            new, tensors = _hidden_function(program, statement, generator)
        case _:
            raise AssertionError(line)
    statements = tuple(new if s.name == line else s for s in program.statements)
    return replace(program, statements=statements, tensors=tensors)


def _hidden_function(
    program: Program, statement: ElementWise, generator: torch.Generator
) -> tuple[ElementWise, dict[str, Tensor]]:
    """An MLP that is the function, its result rotated, and the rotation undone in the project."""
    interpreter = Interpreter(program)
    task = BITS if len(program.vocabulary) == 6 else LETTERS
    pool = task.pool(400, np.random.default_rng(7))
    *inputs, result = interpreter.values(pool.ids, pool.positions, [*statement.inputs, Operand(statement.name)])
    x, y = [value.flatten(0, 1) for value in inputs], result.flatten(0, 1)
    match statement.function:
        case PrimitiveFunction("is_pure", (tau,)):
            weights = _built_threshold(x[0].shape[1], tau)
        case PrimitiveFunction("balance_01", (n,)):
            weights = _built_balance(x[0].shape[1], n)
        case PrimitiveFunction("compare"):
            weights = _built_signs(x[0].shape[1])
        case _:
            weights = _trained(x, y, generator)
    rotation = torch.linalg.qr(torch.randn(y.shape[1], y.shape[1], generator=generator)).Q
    weights["F.out"], weights["F.out_bias"] = weights["F.out"] @ rotation, weights["F.out_bias"] @ rotation
    new = replace(statement, function=Network("F", "relu"))
    return new, {**program.tensors, **weights, "R": rotation.T @ program.tensors["R"]}


def _built_threshold(width: int, tau: float, steep: float = 300.0) -> dict[str, Tensor]:
    """Two units an entry: a ramp so steep that hardly a share lies on it."""
    eye = torch.eye(width)
    bias = torch.full((width,), -steep * tau)
    above = torch.cat([eye, -torch.ones(width, 1)], 1)
    return {
        "F.0": eye,
        "F.hidden": torch.cat([steep * eye, steep * eye], 1),
        "F.hidden_bias": torch.cat([bias, bias - 1]),
        "F.out": torch.cat([above, -above]),
        "F.out_bias": torch.cat([torch.zeros(width), torch.ones(1)]),
    }


def _built_signs(width: int, steep: float = 300.0) -> dict[str, Tensor]:
    """A ramp from -1 to 1 for each difference."""
    first, second = torch.combinations(torch.arange(width)).T
    differences = torch.eye(width)[:, first] - torch.eye(width)[:, second]
    pairs = torch.eye(differences.shape[1])
    ones = torch.ones(len(pairs))
    return {
        "F.0": differences,
        "F.hidden": torch.cat([steep * pairs, steep * pairs], 1),
        "F.hidden_bias": torch.cat([ones, -ones]),
        "F.out": torch.cat([pairs, -pairs]),
        "F.out_bias": -ones,
    }


def _built_balance(width: int, power: float) -> dict[str, Tensor]:
    """Straight pieces between knots, for either sign of the difference."""
    knots = torch.tensor([0, 0.002, 0.006, 0.015, 0.03, 0.06, 0.1, 0.17, 0.27, 0.4, 0.6, 0.8, 1.0])
    slopes = (knots[1:] ** power - knots[:-1] ** power) / (knots[1:] - knots[:-1])
    bends = torch.cat([slopes[:1], slopes[1:] - slopes[:-1]])
    source = torch.zeros(width, 1)
    source[0], source[1] = -1, 1
    units = len(bends)
    out = torch.zeros(2 * units, 3)
    out[:units, 0] = out[units:, 1] = bends
    out[:, 2] = -out[:, :2].sum(1)
    return {
        "F.0": source,
        "F.hidden": torch.cat([torch.ones(1, units), -torch.ones(1, units)], 1),
        "F.hidden_bias": torch.cat([-knots[:-1], -knots[:-1]]),
        "F.out": out,
        "F.out_bias": torch.tensor([0.0, 0.0, 1.0]),
    }


def _trained(x: list[Tensor], y: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    sources = [0.3 * torch.randn(value.shape[1], 24, generator=generator) for value in x]
    parameters = [*sources, torch.randn(24, UNITS, generator=generator) / 3, torch.randn(UNITS, generator=generator)]
    parameters += [torch.randn(UNITS, y.shape[1], generator=generator) / 10, torch.zeros(y.shape[1])]
    for parameter in parameters:
        parameter.requires_grad_()
    optimiser = torch.optim.Adam(parameters, 0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    for _ in range(EPOCHS):
        chosen = torch.randint(len(y), (512,), generator=generator)
        stream = sum((v[chosen] @ s for v, s in zip(x, sources, strict=True)), torch.zeros(()))
        hidden, bias, out, out_bias = parameters[len(sources) :]
        loss = (torch.relu(stream @ hidden + bias) @ out + out_bias - y[chosen]).square().sum(-1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        scheduler.step()
    names = [f"F.{i}" for i in range(len(sources))] + ["F.hidden", "F.hidden_bias", "F.out", "F.out_bias"]
    return {name: parameter.detach() for name, parameter in zip(names, parameters, strict=True)}


def randomised(program: Program, seed: int) -> Program:
    """The same lines with random numbers where the primitive was hidden."""
    generator = torch.Generator().manual_seed(seed)
    wild = {"hidden", "F.hidden", "F.0", "F.1"}
    tensors = {
        name: 3 * torch.randn(tensor.shape, generator=generator) if name in wild else tensor
        for name, tensor in program.tensors.items()
    }
    return replace(program, tensors=tensors)


def named_as(program: Program, kind: type[Select | Project | ElementWise]) -> list[PrimitiveTensor | PrimitiveFunction]:
    """The names in lines of one kind."""
    found: list[PrimitiveTensor | PrimitiveFunction] = []
    for s in program.statements:
        match s:
            case Select(op=PrimitiveTensor() as op) | Project(op=PrimitiveTensor() as op) if isinstance(s, kind):
                found.append(op)
            case ElementWise(function=PrimitiveFunction() as function) if isinstance(s, kind):
                found.append(function)
            case _:
                pass
    return found


def run(case: Case, scale: float, seed: int) -> tuple[str, str]:
    """What became of the hidden primitive, and of the random numbers in its place."""
    truth = program_of(case, seed)
    hidden = disturbed(truth, case.line, scale, seed)
    statement = next(s for s in truth.statements if s.name == case.line)
    assert isinstance(statement, Select | Project | ElementWise)
    [wanted] = named_as(replace(truth, statements=(statement,)), type(statement))
    named = name_program(hidden, *_pools(truth, case.task, seed))
    found = named_as(named, type(statement))
    hit = any((op.primitive, op.arguments) == (wanted.primitive, wanted.arguments) for op in found)
    other = randomised(hidden, seed)
    fit, check = _pools(other, case.task, seed)
    wild = name_program(other, fit, check)
    fresh = Oracle.draw(Interpreter(other), case.task, 500, np.random.default_rng(seed + 99), 50)
    kept = fresh.match(answering(wild)).value
    alarm = bool(named_as(wild, type(statement))) and kept < 1 - 3 * TOLERANCE
    first = "hit" if hit else "other" if _same(named, truth, case) else "false alarm" if found else "miss"
    return first, "false alarm" if alarm else "none"


def _same(named: Program, truth: Program, case: Case) -> bool:
    """Whether another name gives the same answers: then it is not false, only another."""
    fresh = Oracle.draw(Interpreter(truth), case.task, 500, np.random.default_rng(4321), 50)
    return fresh.match(answering(named)).value >= 1 - 3 * TOLERANCE


def _pools(program: Program, task: Task, seed: int) -> tuple[Oracle, Oracle]:
    rng = np.random.default_rng(seed)
    model = Interpreter(program)
    return Oracle.draw(model, task, 240, rng, 24), Oracle.draw(model, task, 240, rng, 60)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=2)
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print("| hidden | runs | found again | other name, same answers | missed | false alarms | random numbers |")
    print("|---|---|---|---|---|---|---|")
    totals = np.zeros(6, dtype=int)
    for case in _cases():
        if chosen.names and not case.name.startswith(tuple(chosen.names)):
            continue
        results = [run(case, scale, seed) for scale in SCALES for seed in range(chosen.seeds)]
        counts = np.array(
            [
                len(results),
                *(sum(first == kind for first, _ in results) for kind in ("hit", "other", "miss", "false alarm")),
                sum(second == "false alarm" for _, second in results),
            ]
        )
        totals += counts
        print(f"| `{case.name}` | " + " | ".join(map(str, counts)) + " |", flush=True)
    print("| all | " + " | ".join(map(str, totals)) + " |")


if __name__ == "__main__":
    main()
