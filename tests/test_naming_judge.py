"""Names that answer alike are judged by what they do when lines are taken from other inputs; heads that do the same."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from drasp.causal.mechanism import Mechanism
from drasp.causal.trials import Amount, Trials
from drasp.compiler import Compiled, compile_program
from drasp.fitting.oracle import Oracle, answering
from drasp.language.syntax import ONE, Aggregate, Operand, Program, Project, Reference, Select, TensorName
from drasp.naming.heads import merge_heads
from drasp.naming.judge import Judge, changed_lines
from drasp.naming.negligible import drop_negligible
from drasp.rewriting.rewrite import dense_ops
from drasp.settings import DEFAULT
from drasp.sites import OUT, Component, Edge
from drasp.tasks import answer_task, each_row
from truth.families import program_for

TASK = answer_task(
    "last", "abcd", each_row(lambda x: [x[-1]]), lengths=range(4, 9), longest_input=12, room=12, ends=False
)
HEADS = (Component("head", 0, 0), Component("head", 0, 1))
NORMED = """
    a1 = aggregate(s=[], v=token)
    n1 = norm(token, a1, op=N1, eps=0.1)
    logits1 = project(inp=a1/n1, op=(inp==out)*9)
    prediction = softmax(logits1)
"""

# Two heads give the last letter; the answer is nearly all the first one's.
TWINS = """
    s1 = select(q=pos, k=pos, op=(k==q-1)*30)
    a1 = aggregate(s=s1, v=token)
    s2 = select(q=pos, k=pos, op=(k==q-1)*60)
    a2 = aggregate(s=s2, v=token)
    logits1 = project(inp=a1, op=(inp==out)*9)
    logits2 = project(inp=a2, op=(inp==out)*1)
    prediction = softmax(logits1+logits2)
"""


def compiled(text: str) -> Compiled:
    return compile_program(program_for(TASK, text))


def with_tensors(program: Program, noise: float = 0.0) -> Program:
    """The same with stored numbers, as pruning leaves them."""
    generator = torch.Generator().manual_seed(0)
    ops, tensors, lines = dense_ops(program), dict[str, torch.Tensor](), []
    for line in program.statements:
        if isinstance(line, Select | Project):
            op = ops[line.name].float()
            tensors[f"T{line.name}"] = op + noise * op.abs().max() * torch.randn(op.shape, generator=generator)
            line = replace(line, op=TensorName(f"T{line.name}"), special_op=None)
        lines.append(line)
    return replace(program, statements=tuple(lines), tensors=tensors)


def judge_of(model: Compiled, own: Program) -> Judge:
    rng = np.random.default_rng(0)
    fit, check = (Oracle.draw(model.transformer, TASK, 96, rng, batch_size=24) for _ in range(2))
    return Judge.of(own, fit, check, Trials.draw(model.transformer, TASK, Amount(64, 48), rng))


def scaled(program: Program, **factors: float) -> Program:
    return program.with_tensors({f"T{line}": program.tensors[f"T{line}"] * by for line, by in factors.items()})


def test_answers_alike_by_other_means_are_refused():
    """The second head takes the lead: no answer changes, on any input, but whose it is does."""
    model = compiled(TWINS)
    own = with_tensors(model.program)
    judge = judge_of(model, own)
    other = scaled(own, logits1=1 / 9, logits2=9)
    assert changed_lines(own, other) == ["logits1", "logits2"]
    assert judge.match(other) == judge.match(own) == 1
    assert judge.edited(other) == judge.edited(own) == 1
    assert judge.answers(own, other)
    assert not judge.passes(own, other)
    shares = judge.interchange(other, ["logits1", "logits2"])
    assert set(shares) == {"logits1", "logits2"}
    assert max(shares.values()) < 0.1
    # The same proportions at another scale are the same mechanism.
    assert judge.passes(own, scaled(own, logits1=2, logits2=2))


def test_a_line_that_was_named_before_is_looked_at_again():
    """What one name does may depend on the next: two that pass alone need not pass together."""
    model = compiled(TWINS)
    own = with_tensors(model.program)
    judge = judge_of(model, own)
    before = scaled(own, logits1=1 / 9, logits2=9)
    after = replace(before, statements=tuple(replace(s) for s in before.statements))
    assert changed_lines(before, after) == []
    assert not judge.passes(before, after)


def test_lines_that_do_not_say_what_they_stand_for_are_judged_by_answers_and_edits():
    model = compiled(TWINS)
    known = with_tensors(model.program)
    own = replace(known, statements=tuple(replace(s, sites=()) for s in known.statements))
    judge = judge_of(model, own)
    assert judge.passes(own, scaled(own, logits1=1 / 9, logits2=9))
    assert not judge.passes(own, scaled(own, logits1=-1))


def test_the_floors_are_what_the_program_reaches():
    model = compiled(TWINS)
    own = with_tensors(model.program)
    judge = judge_of(model, own)
    assert judge.floor == pytest.approx(0.99)
    assert judge.edited_floor == DEFAULT.naming.least_edited
    assert Judge.of(own, judge.fit, judge.check, judge.trials, least=0.995).floor == pytest.approx(0.995)
    poor = scaled(own, logits1=-1, logits2=-1)
    low = Judge.of(poor, judge.fit, judge.check, judge.trials, least=0.9)
    assert low.floor == low.match(poor) == 0, "no more is asked for than there is"
    assert low.edited_floor < 0.1


# ---------------------------------------------------------------------------------------- heads


def test_heads_that_do_the_same_become_one_line_that_stands_for_both():
    model = compiled(TWINS)
    own = with_tensors(model.program, noise=0.01)
    judge = judge_of(model, own)
    merged = merge_heads(own, judge)
    [select] = [s for s in merged.statements if isinstance(s, Select)]
    [head] = [s for s in merged.statements if isinstance(s, Aggregate)]
    [project] = [s for s in merged.statements if isinstance(s, Project)]
    assert set(select.sites) == set(head.sites) == set(HEADS)
    assert {Edge(each, OUT) for each in HEADS} <= set(project.sites)
    assert judge.check.match(answering(merged)).all
    assert Mechanism.of(merged).without_sites == ()
    assert judge.passes(own, merged)


@pytest.mark.parametrize(
    ("old", "new"),
    [("(k==q-1)*60", "(k==q-2)*60"), ("a2 = aggregate(s=s2, v=token)", "a2 = aggregate(s=s2, v=pos)")],
    ids=["other attention", "another variable"],
)
def test_heads_that_do_not_do_the_same_stay_apart(old, new):
    text = TWINS.replace(old, new).replace("inp=a2, op=(inp==out)*1", "inp=a2, op=(*: a=1)*1")
    model = compiled(text)
    own = with_tensors(model.program)
    assert sum(isinstance(s, Aggregate) for s in merge_heads(own, judge_of(model, own)).statements) == 2


# The last letter; and something of the letter before it.
WITH_A_LITTLE = """
    s1 = select(q=pos, k=pos, op=(k==q-1)*30)
    a1 = aggregate(s=s1, v=token)
    s2 = select(q=pos, k=pos, op=(k==q-2)*30)
    a2 = aggregate(s=s2, v=token)
    logits1 = project(inp=a1, op=(inp==out)*9)
    logits2 = project(inp=a2, op={op})
    prediction = softmax(logits1+logits2)
"""


@pytest.mark.parametrize(("op", "lines"), [("(inp==out)*0.01", 4), ("(a: a=20)*1", 7)])
def test_what_changes_next_to_no_answer_goes(op: str, lines: int):
    """What never decides goes; an `a` that does stays."""
    model = compiled(WITH_A_LITTLE.format(op=op))
    own = with_tensors(model.program, noise=1e-3)
    left = drop_negligible(own, judge_of(model, own))
    assert left.lines == lines


# Whether most letters are alike; and what the last token, always SEP, says.
WITH_A_CONSTANT = """
    a1 = aggregate(s=[], v=token)
    m1 = element_wise_op(a1, func=is_pure(0.6))
    logits1 = project(inp=m1, op=(a: a=9; b: b=9; c: c=9; d: d=9)*1)
    logits2 = project(inp=token, op=(*: c=1)*1)
    prediction = softmax(logits1+logits2)
"""


def test_a_constant_takes_the_place_of_what_only_seems_to_read():
    """As many lines, but fewer of them that read."""
    model = compiled(WITH_A_CONSTANT)
    own = with_tensors(model.program, noise=1e-3)
    left = drop_negligible(own, judge_of(model, own))
    assert left.lines == own.lines == 5
    assert {s.input for s in left.statements if isinstance(s, Project)} == {Operand("m1"), ONE}


def test_a_name_with_more_lines_does_not_pass():
    model = compiled(TWINS)
    own = with_tensors(model.program)
    judge = judge_of(model, own)
    assert judge.passes(own, own)
    extra = replace(own.statements[0], name="s9")
    looks = replace(own.statements[1], name="a9", selectors=(Reference("s9"),))
    said = replace(own.statements[4], name="logits9", input=Operand("a9"))
    last = replace(own.prediction, logits=(*own.prediction.logits, Reference("logits9")))
    tensors = {**own.tensors, "T9": 1e-6 * torch.rand(own.tensors["Tlogits1"].shape), "T8": own.tensors["Ts1"] * 1.01}
    lines = (*own.statements[:-1], replace(extra, op=TensorName("T8")), looks, replace(said, op=TensorName("T9")), last)
    longer = replace(own, statements=lines, tensors=tensors)
    assert judge.answers(own, longer)
    assert not judge.passes(own, longer)


# The first letter: what has BOS before it. On every input the first head's scores are the same.
POINTER = """
    s1 = select(q=pos, k=pos, op=(k==q-1))
    a1 = aggregate(s=s1, v=token)
    s2 = select(k=a1, op=(k==BOS))
    a2 = aggregate(s=s2, v=token)
    logits1 = project(inp=a2, op=(inp==out), special_op=(uniform selection))
    prediction = softmax(logits1)
"""


def test_where_heads_look_tells_what_no_case_does():
    """Without its select the first head takes the mean, of which BOS has most at the start: the answers stay."""
    model = compiled(POINTER)
    own = with_tensors(model.program)
    judge = judge_of(model, own)
    assert not judge.matters(own, "s1")
    looks = own.find("a1")
    assert isinstance(looks, Aggregate)
    mean = replace(looks, selectors=())
    other = replace(own, statements=tuple(mean if s is looks else s for s in own.statements if s.name != "s1"))
    assert judge.overlap(own) > 0.99
    assert judge.overlap(other) < 0.51
    assert judge.interchange(other, ["a1"]) == {}
    assert not judge.passes(own, other)
    assert drop_negligible(own, judge) == own


def test_a_name_may_cost_a_little_and_not_more():
    model = compiled(TWINS)
    own = with_tensors(model.program)
    judge = judge_of(model, own)
    silent = scaled(own, logits1=0.0, logits2=0.0)
    anyhow = replace(judge, floor=0.0)
    assert judge.answers(own, own)
    assert anyhow.answers(silent, silent), "as often as the one before"
    assert not anyhow.answers(own, silent)


@pytest.mark.parametrize(
    ("shares", "had", "strictly", "stands"),
    [
        ({"a1": 0.96}, {}, False, True),
        ({"a1": 0.91}, {"a1": 0.90}, False, False),
        ({"a1": 0.96, "n1": 0.85}, {}, False, True),
        ({"n1": 0.75}, {}, False, False),
        ({"a1": 0.96}, {"a1": 0.96}, True, True),
        ({"a1": 0.96}, {"a1": 0.98}, True, False),
        ({"a1": 0.96}, {}, True, False),
    ],
    ids=[
        "a name may blur", "but not so much", "a norm beside it may do less", "or little",
        "rounding leaves what is left", "and no less", "new lines are held to all of it",
    ],
)  # fmt: skip
def test_effects_are_asked_for_as_far_as_they_are_there(shares, had, strictly, stands):
    """A name that blurs a line does not keep others from being rounded; rounding itself blurs nothing."""
    before = program_for(TASK, NORMED)
    after = replace(before)
    judge = SimpleNamespace(
        settings=DEFAULT.naming,
        interchange=lambda program, _lines: shares if program is after else had,
        _replaced=lambda *_: list(shares),
    )
    least = DEFAULT.naming.least_rounded if strictly else DEFAULT.naming.least_interchange
    assert Judge._has_effects(judge, before, after, least, strictly) is stands  # pyright: ignore[reportArgumentType]
