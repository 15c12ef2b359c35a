"""What lines stand for, followed through every pass: none of it is lost, and none is made up."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drasp.causal.trials import Amount, Trials
from drasp.decompiler.components import Components
from drasp.decompiler.lines import line_moves
from drasp.fitting.dropping import with_bias
from drasp.fitting.means import operand_means
from drasp.fitting.oracle import Oracle
from drasp.language import Program, check, parse, to_text
from drasp.language.bases import size
from drasp.language.syntax import (
    ONE,
    Aggregate,
    ElementWise,
    Network,
    Norm,
    Prediction,
    PrimitiveFunction,
    Project,
    Select,
    Statement,
    TensorName,
)
from drasp.naming.elementwise import _replacements
from drasp.naming.judge import Judge
from drasp.naming.linear import with_linear
from drasp.naming.rounding import round_projects, round_selects
from drasp.naming.splitting import split
from drasp.naming.tensors import name_projects
from drasp.passes import Pass
from drasp.rewriting import simplify as simplification
from drasp.rewriting import tidy
from drasp.rewriting.provenance import concise, explicit, standing
from drasp.rewriting.simplify import simplify
from drasp.rewriting.tidy import renumbered, without_unused
from drasp.sites import (
    NO_COMPONENT,
    OUT,
    POSITION,
    TOKEN,
    Anatomy,
    Component,
    Edge,
    NormSite,
    Path,
    Receiver,
    Site,
    joined,
)
from drasp.wiring import write_program
from random_programs import VOCABULARIES, _ProgramBuilder, randoms
from small_graphs import TASK, oracle, random_graph, random_transformer
from typed import known, of_kind

FOLDS = (tidy._fold_key_only, tidy._fold_bias_into_project, tidy._fold_bias_into_function)
IDLE = ("selects without effect", "projects without effect")
ALIASES = "variables once more"


INITIAL = {"token": TOKEN, "pos": POSITION}


def said(statements: Iterable[Statement]) -> set[Site | Path]:
    """Components that lines stand for or list, and edges that they list."""
    sites = {site for s in statements for site in s.sites}
    listed = {site for site in sites if isinstance(site, Edge) and site.sender != NO_COMPONENT}
    return {*(site for site in sites if isinstance(site, Component)), *listed, *(edge.sender for edge in listed)}


def components(program: Program) -> set[Component]:
    """What lines stand for, what they hear, and what they read that needs no line."""
    read = {INITIAL[name] for s in program.statements for name in s.reads if name in INITIAL}
    return read | {site for site in said(explicit(program).statements) if isinstance(site, Component)}


def edges(program: Program) -> set[Edge]:
    return {site for site in said(explicit(program).statements) if isinstance(site, Edge)}


class _Traced(_ProgramBuilder):
    """Programs in which no tensor is of the library, hence none is 0, and no function ignores an input."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.vocabulary = VOCABULARIES[0]
        self.bases["token"] = replace(self.bases["token"], vocabulary=self.vocabulary)

    def op(self, rows, columns, statement):
        return TensorName(self.store(self.name("A"), size(rows), size(columns))), None

    def add_function(self) -> None:
        super().add_function()
        function = of_kind(ElementWise, self.statements[-1]).function
        if of_kind(PrimitiveFunction, function).primitive == "keep":
            del self.bases[self.statements.pop().name]


def traced_program(rng: random.Random) -> Program:
    """Sites as the writer would give them: heads, MLPs, norms, and edges to the output."""
    program = without_unused(_Traced(rng).program())
    own: dict[str, tuple[Site, ...]] = {}
    for number, s in enumerate(program.statements):
        match s:
            case Aggregate():
                own[s.name] = (Component("head", number, 1),)
            case ElementWise():
                own[s.name] = (Component("mlp", number),)
            case Norm():
                own[s.name] = (NormSite(Receiver(number, rng.choice(["attention", "mlp"]))),)
            case Project(input=source):
                known = standing(with_sites(program, own))[source.variable]
                own[s.name] = tuple(Edge(c, OUT) for c in known if c != NO_COMPONENT) or (OUT,)
            case Prediction():
                own[s.name] = (OUT,)
            case Select():
                pass
    selects = [s for s in program.statements if isinstance(s, Select)]
    own |= {s.name: joined(*(own[reader.name] for reader in program.readers(s.name))) for s in selects}
    return with_sites(program, own)


def with_sites(program: Program, sites: dict[str, tuple[Site, ...]]) -> Program:
    return replace(program, statements=tuple(replace(s, sites=sites.get(s.name, ())) for s in program.statements))


def follow(program: Program) -> Program:
    """Simplifies step by step, and looks after each."""
    program = explicit(renumbered(without_unused(program)))
    while (found := next(((s, p) for s in STEPS if (p := s(program)) is not None), None)) is not None:
        step, after = found
        assert edges(after) <= edges(program), step.__name__
        lost = components(program) - components(after)
        removed = [s for s in program.statements if after.find(s.name) is None]
        if step.__name__ == ALIASES:
            removed.pop()  # the alias itself; the mean of ones does not depend on the attention that went with it
        elif step.__name__ not in IDLE:
            removed.clear()
        gone = said(removed) | {INITIAL[name] for s in removed for name in s.reads if name in INITIAL}
        assert lost <= gone, step.__name__
        program = explicit(after)
    return program


def finding(exact: Pass[Program, None]) -> Callable[[Program], Program | None]:
    """A pass as a step, which gives nothing where there is nothing to do."""

    def step(program: Program) -> Program | None:
        after = exact.run(program, None)
        return None if after is program else after

    step.__name__ = exact.name
    return step


FOLDING = "constants that another line carries"
STEPS = (*(finding(each) for each in simplification.EXACT if each.name != FOLDING), *FOLDS)


@pytest.mark.long
@settings(max_examples=300)
@given(randoms)
def test_no_step_of_simplification_loses_or_invents_anything(rng):
    program = traced_program(rng)
    followed, simplified = follow(program), simplify(program)
    assert edges(simplified) == edges(followed)
    assert components(simplified) == components(followed)
    assert concise(simplified) is simplified
    assert parse(to_text(simplified), simplified.tensors) == simplified


def written(seed: int, layers: int, heads: int, cut: int | None) -> Program:
    transformer = random_transformer(seed, layers, heads)
    model = Components(transformer)
    graph = model.whole() if cut is None else random_graph(model, model.means(oracle(transformer)), cut)
    return write_program(transformer, graph.edits, TASK.vocabulary, TASK.output)


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 2), st.integers(1, 2), st.integers(0, 2**32))
def test_the_programs_of_models_keep_what_they_stand_for(seed, layers, heads, cut):
    program = written(seed, layers, heads, cut)
    assert components(simplify(program)) == components(follow(program))
    for line in (*program.statements, *simplify(program).statements):
        assert line.sites
        assert all(is_of(Anatomy(layers, heads), site) for site in line.sites)


def is_of(anatomy: Anatomy, site: Site) -> bool:
    """Whether a model has the site; an edge to a norm that all heads of a layer share is one to each of them."""
    match site:
        case Edge(sender, Receiver(layer, "attention")):
            return all(is_of(anatomy, Edge(sender, r)) for head in anatomy.heads(layer) for r in head.receivers)
        case Edge(sender, receiver) if sender == NO_COMPONENT:
            return anatomy.has(receiver)
        case _:
            return anatomy.has(site)


@pytest.mark.parametrize("layers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_every_component_of_a_whole_model_is_there(layers):
    program = written(0, layers, 2, None)
    everything = {Component("mlp", layer) for layer in range(layers)}
    everything |= {Component("head", layer, head) for layer in range(layers) for head in range(2)}
    everything |= {Component("token"), Component("pos")}
    assert components(program) == everything
    assert components(simplify(program)) == everything


# --------------------------------------------------------------------------------- what is read by way of what

HEADER = "vocab = [a, b, BOS]\nspecial = [BOS]\npositions = 8\n"
TABLE = "m1 = element_wise_op(token, func=mlp(F, gelu))  # layer 0 mlp\n"
END = "prediction = softmax(l1)  # out"


def simplified(text: str) -> list[str]:
    """What stands behind the lines once they are simplified."""
    shapes = {"F.0": (3, 2), "F.hidden": (2, 4), "F.hidden_bias": (4,), "F.out": (4, 2), "F.out_bias": (2,)}
    shapes |= {"A": (2, 8), "B": (3, 8), "C": (2, 2), "R": (2, 3), "S": (3, 3), "T": (3, 3), "c": (1, 3), "k": (1, 8)}
    shapes |= {"N.0": (2, 4), "N.1": (3, 4), "G.0": (3, 2), "G.1": (2, 2)}
    shapes |= {f"G.{part}": shapes[f"F.{part}"] for part in ("hidden", "hidden_bias", "out", "out_bias")}
    generator = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    program = parse(HEADER + text, tensors)
    assert not check(program)
    return [", ".join(map(str, s.sites)) for s in simplify(program).statements]


def test_a_select_says_which_mlp_it_hears_by_way_of_the_token():
    text = TABLE + (
        "s1 = select(q=m1, k=pos, op=A)  # layer 1 head 0\na1 = aggregate(s=s1, v=token)  # layer 1 head 0\n"
        "l1 = project(inp=a1, op=S)  # layer 1 head 0 -> out\n"
    )
    hears = "layer 1 head 0, layer 0 mlp -> layer 1 head 0 query"
    assert simplified(text + END) == [hears, "layer 1 head 0", "layer 1 head 0 -> out", "out"]


def test_two_terms_of_one_variable_are_both_listed():
    text = TABLE + (
        "s1 = select(q=m1, k=pos, op=A)  # layer 1 head 0\ns2 = select(q=token, k=pos, op=B)  # layer 1 head 0\n"
        "s3 = select(k=pos, op=k)  # layer 1 head 0\na1 = aggregate(s=s1+s2+s3, v=token)  # layer 1 head 0\n"
        "l1 = project(inp=a1, op=S)  # layer 1 head 0 -> out\n"
    )
    edges = "layer 0 mlp -> layer 1 head 0 query, token -> layer 1 head 0 query"
    [select, *rest] = simplified(text + END)
    assert set(select.split(", ")) == {"layer 1 head 0", *edges.split(", ")}
    assert rest == ["layer 1 head 0", "layer 1 head 0 -> out", "out"]


def test_an_mlp_lists_all_that_it_hears_once_a_variable_does_not_say_it():
    text = TABLE + (
        "a1 = aggregate(s=[], v=token)  # layer 0 head 0\n"
        "m2 = element_wise_op(a1, m1, func=mlp(G, gelu))  # layer 1 mlp\n"
        "l1 = project(inp=m2, op=R)  # layer 1 mlp -> out\n"
    )
    heard = "layer 1 mlp, layer 0 head 0 -> layer 1 mlp input, layer 0 mlp -> layer 1 mlp input"
    heard += ", token -> layer 0 mlp input"  # which of the variables that it reads comes by way of the MLP
    assert simplified(text + END) == ["layer 0 head 0", heard, "layer 1 mlp -> out", "out"]


def test_what_a_line_lists_goes_on_with_it():
    text = (
        "m1 = element_wise_op(token, func=mlp(F, gelu))  # layer 0 mlp, layer 0 head 3 -> layer 0 mlp input\n"
        "l1 = project(inp=m1, op=R)  # layer 0 mlp -> out\n"
    )
    assert simplified(text + END) == ["layer 0 mlp -> out, layer 0 head 3 -> layer 0 mlp input", "out"]


def test_lines_that_are_one_stand_for_both_and_readers_say_whom_they_heard():
    text = (
        "a1 = aggregate(s=[], v=token)  # layer 0 head 0\na2 = aggregate(s=[], v=token)  # layer 0 head 1; mine\n"
        "s1 = select(q=a2, k=pos, op=B)  # layer 1 head 0\na3 = aggregate(s=s1, v=token)  # layer 1 head 0\n"
        "l1 = project(inp=a3, op=S)  # layer 1 head 0 -> out\nl2 = project(inp=a1, op=T)  # layer 0 head 0 -> out\n"
    )
    assert sorted(simplified(text + "prediction = softmax(l1+l2)  # out")) == sorted(
        [
            "layer 0 head 0, layer 0 head 1",
            "layer 1 head 0, layer 0 head 1 -> layer 1 head 0 query",
            *("layer 1 head 0", "layer 1 head 0 -> out", "layer 0 head 0 -> out", "out"),
        ]
    )


def test_what_takes_a_bias_in_says_so():
    bias, table = "l2 = project(op=c)  # out\n", "l1 = project(inp=token, op=S)  # token -> out\n"
    assert simplified(table + bias + "prediction = softmax(l1+l2)  # out") == ["token -> out, out", "out"]
    mlp = (
        "a1 = aggregate(s=[], v=token)  # layer 0 head 0\nm1 = element_wise_op(a1, func=mlp(F, gelu))  # layer 0 mlp\n"
        "l1 = project(inp=m1, op=R)  # layer 0 mlp -> out\n"
    )
    lines = simplified(mlp + bias + "prediction = softmax(l1+l2)  # out")
    assert lines == ["layer 0 head 0", "layer 0 mlp", "layer 0 mlp -> out, out", "out"]


def test_lines_without_sites_stay_without():
    text = TABLE.split("  #")[0] + "\nl1 = project(inp=m1, op=R)\nl2 = project(op=c)\n"
    assert simplified(text + "prediction = softmax(l1+l2)") == ["", ""]


# ------------------------------------------------------------------------------------- passes that are not exact


def cut_program(seed: int) -> tuple[Program, Oracle]:
    """A program with an MLP of several variables, and the answers of its model."""
    transformer = random_transformer(seed, 1, 1)
    model = Components(transformer)
    graph = model.whole()
    graph = replace(graph, norms=dict.fromkeys(graph.live_receivers(), 1.7))
    program = write_program(transformer, graph.edits, TASK.vocabulary, TASK.output)
    return with_bias(simplify(program)), oracle(transformer)


@pytest.mark.parametrize("seed", range(3))
def test_cutting_only_removes(seed):
    program, pool = cut_program(seed)
    means = operand_means(program, pool)
    for move in line_moves(program, means):
        after = move.apply(program)
        assert after is not None
        assert components(after) <= components(program), move.name
        assert edges(after) <= edges(program), move.name


@pytest.mark.parametrize("seed", range(3))
def test_splitting_keeps_everything(seed):
    program, pool = cut_program(seed)
    [mlp] = [s for s in program.statements if isinstance(s, ElementWise)]
    parts = split(program, mlp.name, pool)
    assert parts is not None
    assert edges(parts) == edges(program)
    assert components(parts) == components(simplify(parts)) == components(program)


@pytest.mark.parametrize("seed", range(3))
def test_an_mlp_that_becomes_linear_is_carried_by_the_projects_of_what_it_read(seed):
    program, pool = cut_program(seed)
    [mlp] = [s for s in program.statements if isinstance(s, ElementWise)]
    inputs = [operand for operand in mlp.inputs if operand != ONE]
    assert len(inputs) > 2
    edge = Edge(Component("mlp", 0), OUT)
    for chosen in (inputs, *([operand] for operand in inputs)):
        after, _ = known(with_linear(program, mlp.name, chosen, pool))
        assert edges(after) <= edges(program)
        heard = {site for operand in chosen for site in standing(program)[operand.variable]}
        carriers = {s.input: s.sites for s in after.statements if isinstance(s, Project)}
        for operand, sites in carriers.items():
            assert (edge in sites) == (operand in chosen)
        # What is left out is not heard at the MLP any more; what is not left out is.
        at_mlp = {e.sender for e in edges(after) if e.receiver == Receiver(0, "mlp")}
        assert at_mlp == heard
        assert components(after) == components(program), "all of them have projects of their own"


def test_a_function_of_the_library_stands_for_the_mlp_that_it_replaces():
    program, pool = cut_program(0)
    [mlp] = [s for s in program.statements if isinstance(s, ElementWise)]
    found = list(_replacements(program, mlp, pool))
    assert len(found) > 5
    for replacement in found:
        after = replacement.program
        [new] = [s for s in after.statements if isinstance(s, ElementWise)]
        assert new.sites == mlp.sites
        assert not isinstance(new.function, Network)
        assert [s.sites for s in after.statements if isinstance(s, Project)] == [
            s.sites for s in program.statements if isinstance(s, Project)
        ]


def test_names_and_rounding_leave_sites_as_they_are(monkeypatch):
    """Whatever name is taken: here all are."""
    program, pool = cut_program(0)
    trials = Trials.draw(random_transformer(0, 1, 1), TASK, Amount(1, 1), np.random.default_rng(0))
    judge = Judge(program, pool, pool, trials, 0.0, 0.0)
    monkeypatch.setattr(Judge, "passes", lambda *_: True)
    for step in (name_projects, round_projects, round_selects):
        after = step(program, judge)
        assert str(after) != str(program)
        kept = {s.name: s.sites for s in after.statements}
        assert kept.items() <= {s.name: s.sites for s in program.statements}.items()
