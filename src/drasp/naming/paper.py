"""The paper's own naming: its primitives, tried in its order and held to its thresholds of agreement alone.

First functions, from the lowest up: least squares from what a primitive says to what the MLP says. Then the tensors of
selects and projects, the first in the list that keeps enough of the agreement. What has no name after that is made
sparse, then whole, by gradient.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from drasp.errors import DraspError
from drasp.fitting.oracle import Batch, Oracle, answering
from drasp.language.bases import Tokens
from drasp.language.checker import op_bases
from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Network,
    Operand,
    PrimitiveFunction,
    PrimitiveTensor,
    Program,
    Project,
    Select,
    TensorName,
)
from drasp.language.tensor_primitives import NotApplicable, build
from drasp.naming.elementwise import Samples, replaced_by
from drasp.naming.pipeline import Report
from drasp.rewriting.simplify import simplify
from drasp.rewriting.tidy import changed
from drasp.settings import PAPER_NAMING, PaperNaming

# A pool of so many inputs, in batches of such a size; each name has a stream of its own.
Draw = Callable[[str, int, int], Oracle]

_ZEROS, _DIAGONAL = PrimitiveTensor("zeros"), PrimitiveTensor("diagonal")
_FIRST, _LAST = PrimitiveTensor("decreasing"), PrimitiveTensor("increasing")
_TO_BOS, _TO_SEP, _TO_EOS = (PrimitiveTensor("to_token", (token,)) for token in ("BOS", "SEP", "EOS"))
_STEPS_BACK = tuple(PrimitiveTensor("kth_diagonal", (-step,)) for step in (1, 2))
_EVERY = tuple(PrimitiveTensor("every_kth", (period, 0)) for period in (2, 3))
OF_KEYS = (_ZEROS, _TO_BOS, _TO_EOS, _TO_SEP, _FIRST, _LAST)
OF_PAIRS = (_ZEROS, _TO_BOS, _TO_SEP, _DIAGONAL, *_STEPS_BACK, *_EVERY, _FIRST, _LAST)
OF_BIAS = (_ZEROS, _TO_EOS)
OF_LOGITS = (_ZEROS, _TO_EOS, _DIAGONAL)

_LINEAR = PrimitiveFunction("no_op")
OF_ONE = (
    _LINEAR,
    *(PrimitiveFunction("sharpen", (n,)) for n in (2.0, 3.0, 5.0)),
    PrimitiveFunction("harden"),
    *(PrimitiveFunction("balance_01", (n,)) for n in (0.5, 0.05, 0.01)),
    *(PrimitiveFunction("is_pure", (tau,)) for tau in (0.95, 0.9, 0.85, 0.8, 0.75, 0.7)),
)


def name_as_paper(program: Program, draw: Draw, report: Report, settings: PaperNaming = PAPER_NAMING) -> Program:
    """The program with the paper's names."""
    program = simplify(program)
    pool = draw("paper: tensors", settings.inputs_for_tensors, 100)

    def match(now: Program) -> float:
        return pool.match(answering(now)).value

    pruned = match(program)
    report("paper's names: none yet", program, pruned)
    program = simplify(name_functions(program, draw("paper: functions", settings.inputs_for_functions, 100), settings))
    report("paper's names: functions", program, match(program))
    program = simplify(name_tensors(program, pool, settings.least_tensor * pruned))
    report("paper's names: tensors", program, match(program))
    batches = [draw(f"paper: numbers {i}", settings.batch, settings.batch) for i in range(settings.batches)]
    program = simplify(with_simple_numbers(program, batches, pool, settings.least_rounded * pruned, settings))
    report("paper's names: sparse and whole numbers", program, match(program))
    return program


# ------------------------------------------------------------------------------------------- functions


def name_functions(program: Program, pool: Oracle, settings: PaperNaming) -> Program:
    """The program with functions of the library for MLPs that they can stand for; others say logits themselves."""
    for name in [s.name for s in program.statements if isinstance(s, ElementWise)]:
        function = program.find(name)
        if not isinstance(function, ElementWise) or not isinstance(function.function, Network):
            continue
        inputs = tuple(operand for operand in function.inputs if operand != ONE)
        if inputs and not any(_rests_on_unnamed(program, operand.variable) for operand in inputs):
            program = _named_function(program, function, inputs, pool, settings) or program
    return _speaking_to_output(program)


def _rests_on_unnamed(program: Program, variable: str) -> bool:
    """Whether what a variable means is not known, since an MLP without a name is behind it."""
    match program.find(variable):
        case ElementWise(function=Network()):
            return True
        case ElementWise(inputs=inputs):
            return any(_rests_on_unnamed(program, operand.variable) for operand in inputs)
        case Aggregate(value=value):
            return _rests_on_unnamed(program, value.variable)
        case _:
            return False


def _named_function(
    program: Program, function: ElementWise, inputs: tuple[Operand, ...], pool: Oracle, settings: PaperNaming
) -> Program | None:
    samples = Samples.of(program, function, inputs, pool, settings.positions)
    many = (*(PrimitiveFunction("keep", (i + 1.0,)) for i in range(len(inputs))), PrimitiveFunction("cartesian"))
    tried: list[tuple[float, float, Program]] = []
    for primitive in OF_ONE if len(inputs) == 1 else many:
        try:
            found = replaced_by(program, function, inputs, primitive, samples)
        except DraspError:
            continue  # it makes no sense for these inputs
        if found is None:
            continue
        match = pool.match(answering(found.program)).value
        if primitive == _LINEAR and match >= settings.least_linear:
            return found.program
        tried.append((match + settings.for_linear * (primitive == _LINEAR), match, found.program))
    _, match, best = max(tried, key=lambda each: each[0], default=(0.0, 0.0, program))
    return best if match >= settings.least_function else None


def _speaking_to_output(program: Program) -> Program:
    """The program whose MLPs without a name say logits themselves, where one project reads them and nothing else."""
    for function in program.statements:
        readers = program.readers(function.name)
        match function, readers:
            case ElementWise(name, _, Network(network)), [Project(_, source, TensorName(op)) as project] if (
                source == Operand(name)
            ):
                to_logits = program.tensors[op]
                tensors = {f"{network}.{part}": program.tensors[f"{network}.{part}"] for part in ("out", "out_bias")}
                tensors = {part: tensor @ to_logits for part, tensor in tensors.items()}
                same = replace(project, op=replace(_DIAGONAL, scale=1.0))
                program = changed(program, {project.name: same}, tensors)
            case _:
                pass
    return program


# --------------------------------------------------------------------------------------------- tensors


def name_tensors(program: Program, pool: Oracle, least: float) -> Program:
    """The program with names from the lowest line up: the first of the list that keep enough agreement."""
    for name in [s.name for s in program.statements if isinstance(s, Select | Project) and s.stored is not None]:
        line = program.find(name)
        assert isinstance(line, Select | Project)
        for op, special in options(program, line):
            tried = changed(program, {name: replace(line, op=op, special_op=special)}, {})
            if pool.match_if(answering(tried), least) >= least:
                program = tried
                break
    return program


def options(program: Program, line: Select | Project) -> Iterator[tuple[PrimitiveTensor, PrimitiveTensor | None]]:
    """Tensors for ordinary and special tokens, in the paper's order; one for all where rows are no tokens."""
    rows, columns = op_bases(program, line)
    if isinstance(line, Select):
        every = OF_KEYS if line.query == ONE else OF_PAIRS
    else:
        every = OF_BIAS if line.input == ONE else OF_LOGITS
    divided = isinstance(rows, Tokens)
    for special, ordinary in product(every, every) if divided else ((op, op) for op in every):
        found = ordinary, None if special == ordinary else special
        try:
            build(*found, rows, columns)
        except NotApplicable:
            continue
        yield found


# --------------------------------------------------------------------------------------------- numbers


def with_simple_numbers(
    program: Program, batches: Sequence[Oracle], pool: Oracle, least: float, settings: PaperNaming
) -> Program:
    """The program with tensors made sparse, then whole, by that of several penalties which leaves fewest numbers."""
    names = [s.stored for s in program.statements if isinstance(s, Select | Project) and s.stored is not None]
    if not names:
        return program
    found: list[tuple[int, int, Program]] = []
    for penalty in settings.penalties:
        tried = program
        for aim in (torch.zeros_like, torch.round):
            tried = _trained(tried, names, batches, least, penalty, aim, settings)
        tried, whole = _rounded(tried, names, pool, least)
        found.append((-whole, sum(int((tried.tensors[n] != 0).sum()) for n in names), tried))
    return min(found, key=lambda each: each[:2])[2]


def _trained(
    program: Program,
    names: Sequence[str],
    batches: Sequence[Oracle],
    least: float,
    penalty: float,
    aim: Callable[[Tensor], Tensor],
    settings: PaperNaming,
) -> Program:
    """The program with tensors drawn towards what is aimed at, as they were when agreement last held."""
    tensors = {name: program.tensors[name].clone().requires_grad_() for name in names}
    optimiser = torch.optim.Adam(tensors.values(), lr=settings.rate)
    kept: Mapping[str, Tensor] = {name: program.tensors[name] for name in names}
    hits: list[float] = []
    for step in range(settings.steps):
        oracle = batches[step % len(batches)]
        [batch] = oracle.batches
        now = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        loss, match = _loss(program.with_tensors(tensors), oracle, batch)
        hits = [*hits, match][-settings.window :]
        if sum(hits) < least * len(hits):
            return program.with_tensors(kept)
        kept = now
        away = torch.stack([(t - aim(t.detach())).abs().sum() for t in tensors.values()]).sum()
        optimiser.zero_grad()
        (loss + penalty * away).backward()
        optimiser.step()
    return program.with_tensors(kept)


def _loss(program: Program, oracle: Oracle, batch: Batch) -> tuple[Tensor, float]:
    logits = answering(program)(batch)
    match = oracle.agreeing(batch, logits.detach()).float().mean()
    return oracle.loss(batch, logits).mean(), float(match)


def _rounded(program: Program, names: Sequence[str], pool: Oracle, least: float) -> tuple[Program, int]:
    """The program with whole numbers in each tensor that can have them, and how many tensors these are."""
    whole = 0
    for name in names:
        tried = program.with_tensors({name: program.tensors[name].round()})
        if pool.match_if(answering(tried), least) >= least:
            program, whole = tried, whole + 1
    return program, whole
