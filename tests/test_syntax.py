"""What the statements say of themselves, and what of a program is found out once."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings

from cases import CASES
from drasp.decompiler.pipeline import decompile
from drasp.fitting.oracle import answering
from drasp.language import Interpreter, ProgramError, checker, parse, tensor_primitive
from drasp.language import tensor_primitives as registered
from drasp.language.bases import Positions
from drasp.language.printer import statement_text
from drasp.language.syntax import Operand, PrimitiveTensor, Program, Reference
from drasp.language.tensor_primitives import _built, build
from drasp.loading import resolve_model
from drasp.model_files import load_model
from drasp.rewriting.rewrite import dense_ops
from drasp.settings import QUICK
from drasp.tasks import load_task
from random_programs import random_program, randoms

TEXT = """vocab = [a, b]
positions = 4
n1 = norm(token, pos, one, op=N, eps=0.1)
s1 = select(q=token/n1, k=pos, op=A)
s2 = select(k=pos, op=(k is last))
a1 = aggregate(s=s1+s2, v=token/n1)
m1 = element_wise_op(a1, pos/n1, func=mlp(F, relu))
h1 = element_wise_op(a1, func=harden)
logits1 = project(inp=m1/n1, op=R)
prediction = softmax(logits1)"""


def test_what_statements_read_and_name():
    found = {s.name: (s.kind, s.reads, s.tensor_names) for s in parse(TEXT).statements}
    assert found == {
        "n1": ("norm", ("token", "pos", "one"), ("N.0", "N.1", "N.2")),
        "s1": ("select", ("token", "n1", "pos"), ("A",)),
        "s2": ("select", ("one", "pos"), ()),
        "a1": ("aggregate", ("s1", "s2", "token", "n1"), ()),
        "m1": (
            "element_wise_op",
            ("a1", "pos", "n1"),
            ("F.0", "F.1", "F.hidden", "F.hidden_bias", "F.out", "F.out_bias"),
        ),
        "h1": ("element_wise_op", ("a1",), ()),
        "logits1": ("project", ("m1", "n1"), ("R",)),
        "prediction": ("prediction", ("logits1",), ()),
    }


def test_what_is_read_can_be_mapped():
    mapped = [
        statement_text(
            s.map(
                lambda operand: Operand(f"x{operand.variable}", operand.norm),
                lambda reference: Reference(f"y{reference.variable}"),
            ).with_stored("Z")
        )
        for s in parse(TEXT).statements
    ]
    assert mapped == [
        "n1 = norm(xtoken, xpos, xone, op=Z, eps=0.1)",
        "s1 = select(q=xtoken/n1, k=xpos, op=Z)",
        "s2 = select(q=xone, k=xpos, op=(k is last))",
        "a1 = aggregate(s=ys1+ys2, v=xtoken/n1)",
        "m1 = element_wise_op(xa1, xpos/n1, func=mlp(Z, relu))",
        "h1 = element_wise_op(xa1, func=harden)",
        "logits1 = project(inp=xm1/n1, op=Z)",
        "prediction = softmax(ylogits1)",
    ]


@settings(max_examples=100)
@given(randoms)
def test_mapping_to_the_same_changes_nothing(rng):
    for statement in random_program(rng).statements:
        assert statement.map() == statement
        assert statement.renamed({}) == statement
        assert set(statement.reads) == {name for o in statement.operands for name in (o.variable, o.norm) if name} | {
            r.variable for r in statement.references
        }


def test_the_prediction_is_the_last_line():
    program = parse(TEXT)
    assert program.prediction is program.statements[-1]
    assert program.find("a1") is program.statements[3]
    assert program.find("a2") is None
    assert [s.name for s in program.readers("n1")] == ["s1", "a1", "m1", "logits1"]
    with pytest.raises(ProgramError, match="ends without"):
        replace(program, statements=program.statements[:-1]).prediction  # noqa: B018


@settings(max_examples=50)
@given(randoms)
def test_the_digest_knows_text_and_numbers(rng):
    program = random_program(rng)
    assert program.digest == replace(program).digest
    assert program.digest != replace(program, n_positions=program.n_positions + 1).digest
    for name, tensor in program.tensors.items():
        other = tensor.clone()
        other.view(-1)[rng.randrange(other.numel())] += 1e-9
        assert program.with_tensors({name: other}).digest != program.digest


# ------------------------------------------------------------------------------------ found out once


@pytest.fixture
def counted(monkeypatch):
    """How often each program was checked, and how often each was made ready to run in each precision."""
    counts: Counter = Counter()
    alive: list[Program] = []  # so that no two have the same id
    check, make = checker._check, Interpreter.__init__

    def counting_check(program):
        alive.append(program)
        counts["check", id(program)] += 1
        return check(program)

    def counting_make(self, program, dtype=torch.float32, precision=None):
        alive.append(program)
        counts["interpreter", id(program), dtype] += 1
        return make(self, program, dtype, precision)

    monkeypatch.setattr(checker, "_check", counting_check)
    monkeypatch.setattr(Interpreter, "__init__", counting_make)
    _built.cache_clear()
    return counts


def kinds(counts: Counter) -> Counter:
    return Counter({kind: sum(n for key, n in counts.items() if key[0] == kind) for kind in ("check", "interpreter")})


def test_a_program_is_checked_and_made_ready_once(counted):
    case = next(case for case in CASES if case.name == "unique copy")
    program = replace(case.program)
    for _ in range(3):
        answering(program)
        dense_ops(program)
        assert Interpreter.of(program) is Interpreter.of(program)
    assert kinds(counted) == {"check": 1, "interpreter": 1}
    other = program.with_tensors({name: tensor + 1 for name, tensor in program.tensors.items()})
    assert Interpreter.of(other) is not Interpreter.of(program)
    assert kinds(counted) == {"check": 1, "interpreter": 2}
    # Other shapes are another matter.
    wrong = program.with_tensors({name: tensor[:1, :1] for name, tensor in program.tensors.items()})
    with pytest.raises(ProgramError):
        Interpreter.of(wrong)
    assert kinds(counted)["check"] == 2


@pytest.mark.long
def test_a_decompilation_finds_nothing_out_twice(counted):
    """However many programs are looked at for their evidence, each is checked and made ready once."""
    result = decompile(load_model(resolve_model("bin_majority")), load_task("bin_majority"), settings=QUICK)
    assert result.program.lines == 3
    assert set(counted.values()) == {1}
    assert kinds(counted)["check"] < 250
    assert kinds(counted)["interpreter"] < 250
    assert _built.cache_info().misses < 20


def test_a_tensor_that_joins_the_library_later_is_found():
    op = PrimitiveTensor("odd_distance", (), 2.0)
    with pytest.raises(KeyError):
        build(op, None, Positions(4), Positions(3))

    @tensor_primitive(select="k at an odd distance")
    def odd_distance(rows, columns):
        return 1.0 * ((torch.arange(4)[:, None] - torch.arange(3)) % 2 == 1).numpy()

    try:
        made = build(op, None, Positions(4), Positions(3))
        assert made[1].tolist() == [2.0, 0.0, 2.0]
        assert build(op, None, Positions(4), Positions(3)) is made
        with pytest.raises(ValueError, match="read-only"):
            made[0, 0] = 1.0
    finally:
        del registered()["odd_distance"]  # type: ignore[attr-defined]
