"""The scorer of the ground-truth benchmark calls right what differs from the truth in form only, and wrong all else."""

from pathlib import Path

import numpy as np
import pytest
import torch

import ground_truth
from drasp.compiler import Disguise
from drasp.edits import Replaced
from drasp.language import Interpreter
from drasp.language.syntax import ElementWise, Program
from drasp.measure import Share, task_accuracy
from drasp.running import run
from drasp.sequences import Sequences
from drasp.sites import Component, Edge
from drasp.tasks import load_task
from drasp.translation import translate
from truth.differences import LEAST_DIFFERENCE, least_difference
from truth.draws import RejectedError, check_heads, wishes
from truth.families import Family, ending, families, program_for
from truth.heard import without_what_is_only_heard
from truth.score import InputPairs, Score, Sides, interchange, reading_weights, score
from truth.specs import RUNGS, make

TASK = ending("letters", "abcd", lambda rng, n: [int(x) for x in rng.integers(0, 4, n)], lambda x: x[-1])

# Behind the last `a`, by the token before it, plus what is two back: two layers, three heads, an MLP's worth of reads.
TRUTH = """
    s1 = select(q=pos, k=pos, op=(k==q-1))  # layer 0 head 0
    a1 = aggregate(s=s1, v=token)  # layer 0 head 0
    s2 = select(q=pos, k=pos, op=(k==q-2))  # layer 0 head 1
    a2 = aggregate(s=s2, v=token)  # layer 0 head 1
    s3 = select(k=a1, op=(*: a=3)*1)  # layer 1 head 0
    s4 = select(k=pos, op=(k is last)*12)  # layer 1 head 0
    a3 = aggregate(s=s3+s4, v=token)  # layer 1 head 0
    logits1 = project(inp=a3, op=(inp==out)*10, special_op=(uniform selection))  # layer 1 head 0 -> out
    logits2 = project(inp=a2, op=(inp==out)*6, special_op=(uniform selection))  # layer 0 head 1 -> out
    prediction = softmax(logits1+logits2)  # out
"""
WITH_MLP = """
    s1 = select(q=pos, k=pos, op=(k==q-1))  # layer 0 head 0
    a1 = aggregate(s=s1, v=token)  # layer 0 head 0
    s2 = select(q=pos, k=pos, op=(k==q-2))  # layer 0 head 1
    a2 = aggregate(s=s2, v=token)  # layer 0 head 1
    m1 = element_wise_op(a1, a2, func=cartesian)  # layer 0 mlp
    logits1 = project(inp=m1, op=("a×b": b=9; "b×c": a=9; "c×c": d=9; "d×a": c=9; *: a=1)*1)  # layer 0 mlp -> out
    logits2 = project(inp=a1, op=(inp==out)*3, special_op=(uniform selection))  # layer 0 head 0 -> out
    prediction = softmax(logits1+logits2)  # out
"""
# What the MLP of layer 0 makes of the token, seen by the head of layer 1.
WITH_TABLE = """
    m1 = element_wise_op(token, func=sharpen(2))  # layer 0 mlp
    s1 = select(q=pos, k=pos, op=(k==q-1))  # layer 1 head 0
    a1 = aggregate(s=s1, v=m1)  # layer 1 head 0
    logits1 = project(inp=a1, op=(inp==out)*10, special_op=(uniform selection))  # layer 1 head 0 -> out
    prediction = softmax(logits1)  # out
"""


# An MLP with a norm of token and position, in a stream of eight; what it makes of the stream is given by a test.
WITH_NORM = """
    m1 = element_wise_op(token, pos, func=mlp(F1, relu, eps=1e-05))  # {sites}
    logits1 = project(inp=m1, op=R1)  # layer 0 mlp -> out
    prediction = softmax(logits1)  # out
"""


def program(text: str) -> Program:
    return program_for(TASK, text)


def scored(truth: str, found: str) -> Score:
    return score(program(truth), program(found), program(truth), TASK)


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


# The head of two back, twice: each says half of it.
TWINS = changed(
    TRUTH,
    ("# layer 0 head 1\n", "# layer 0 head 1, layer 0 head 2\n"),
    ("# layer 0 head 1 -> out", "# layer 0 head 1 -> out, layer 0 head 2 -> out"),
)
APART = changed(
    TRUTH,
    (
        "    s3 =",
        """    s5 = select(q=pos, k=pos, op=(k==q-2)*50)  # layer 0 head 2
    a4 = aggregate(s=s5, v=token)  # layer 0 head 2
    s3 =""",
    ),
    ("*6,", "*3,"),
    (
        "    prediction",
        """    logits3 = project(inp=a4, op=(inp==out)*3, special_op=(uniform selection))  # layer 0 head 2 -> out
    prediction""",
    ),
    ("logits1+logits2", "logits1+logits2+logits3"),
)


@pytest.mark.parametrize(
    ("truth", "found"),
    [
        pytest.param(TRUTH, TRUTH, id="itself"),
        pytest.param(WITH_MLP, WITH_MLP, id="itself, with an MLP"),
        pytest.param(WITH_TABLE, WITH_TABLE, id="itself, with a table"),
        pytest.param(TRUTH, changed(TRUTH, ("a1", "before"), ("s3", "looking")), id="other names"),
        pytest.param(
            TRUTH, changed(TRUTH, ("(k==q-1)", "(k==q-1)*20"), ("*10,", "*1000,"), ("*6,", "*600,")), id="scales"
        ),
        pytest.param(
            TRUTH,
            changed(TRUTH, ("s3 = select(k=a1, op=(*: a=3)*1)", "s3 = select(q=token, k=a1, op=(SEP: a=3)*1)")),
            id="a query that is constant where it is read",
        ),
        pytest.param(
            changed(TRUTH, ("s3 = select(k=a1, op=(*: a=3)*1)", "s3 = select(q=token, k=a1, op=(SEP: a=3)*1)")),
            TRUTH,
            id="key-only for a query that is constant where it is read",
        ),
        pytest.param(TWINS, APART, id="equal heads in lines of their own"),
        pytest.param(TWINS, TRUTH, id="one line for one of two equal heads"),
        pytest.param(TRUTH, TWINS, id="a line that stands for an idle head as well"),
        pytest.param(
            WITH_TABLE,
            changed(
                WITH_TABLE,
                ("m1 = element_wise_op(token, func=sharpen(2))  # layer 0 mlp\n", ""),
                ("v=m1)  # layer 1 head 0", "v=token)  # layer 1 head 0, layer 0 mlp -> layer 1 head 0 value"),
            ),
            id="a table folded",
        ),
        pytest.param(
            TRUTH, changed(TRUTH, ("prediction", "logits3 = project(op=(*: a=1 *=1)*5)\n    prediction")), id="a bias"
        ),
    ],
)
def test_what_differs_in_form_is_right(truth: str, found: str):
    result = scored(truth, found)
    assert result.right, result


@pytest.mark.parametrize(
    ("truth", "found"),
    [
        pytest.param(
            TRUTH, changed(TRUTH, ("# layer 0 head 1\n    s3", "# layer 0 head 2\n    s3")), id="another head"
        ),
        pytest.param(TRUTH, APART, id="an idle head with a line of its own"),
        pytest.param(TRUTH, changed(TRUTH, ("(k==q-2)", "(k==q-1)")), id="another distance"),
        pytest.param(TRUTH, changed(TRUTH, ("k=a1, op=(*: a=3)", "k=token, op=(*: a=3)")), id="another key"),
        pytest.param(TRUTH, changed(TRUTH, ("(*: a=3)", "(*: b=3)")), id="another token looked for"),
        pytest.param(TRUTH, changed(TRUTH, ("s=s3+s4", "s=s4")), id="a select dropped"),
        pytest.param(TRUTH, changed(TRUTH, ("s=s3+s4", "s=s3")), id="another select dropped"),
        pytest.param(TRUTH, changed(TRUTH, ("s=s1,", "s=[],")), id="uniform instead of previous"),
        pytest.param(TRUTH, changed(TRUTH, ("(*: a=3)*1", "(*: a=3)*100"), ("*12)", "*400)")), id="a hardened pattern"),
        pytest.param(TRUTH, changed(TRUTH, ("inp=a2", "inp=a1"), ("layer 0 head 1 ->", "layer 0 head 0 ->")), id="inp"),
        pytest.param(TRUTH, changed(TRUTH, ("logits1+logits2", "logits1")), id="a project dropped"),
        pytest.param(TRUTH, changed(TRUTH, ("*6,", "*-6,")), id="a project turned round"),
        pytest.param(
            TRUTH, changed(TRUTH, ("a3 = aggregate(s=s3+s4, v=token)", "a3 = aggregate(s=s3+s4, v=a1)")), id="v"
        ),
        pytest.param(WITH_MLP, changed(WITH_MLP, ("logits1+logits2", "logits2")), id="an MLP left out"),
        pytest.param(WITH_MLP, changed(WITH_MLP, ("(a1, a2,", "(a2, a1,")), id="inputs of an MLP exchanged"),
        pytest.param(WITH_MLP, changed(WITH_MLP, ("(a1, a2,", "(a1, token,")), id="another input of an MLP"),
        pytest.param(
            WITH_TABLE,
            changed(
                WITH_TABLE, ("m1 = element_wise_op(token, func=sharpen(2))  # layer 0 mlp\n", ""), ("v=m1", "v=token")
            ),
            id="a table left out",
        ),
        pytest.param(
            TRUTH,
            """
                a1 = aggregate(s=[], v=token)  # layer 0 head 0
                logits1 = project(inp=a1, op=(inp==out))  # layer 0 head 0 -> out
                prediction = softmax(logits1)
            """,
            id="quite another program",
        ),
    ],
)
def test_what_differs_in_mechanism_is_wrong(truth: str, found: str):
    result = scored(truth, found)
    assert not result.right, result


def test_interchange_is_what_swapping_one_pair_at_a_time_gives():
    truth, found = program(TRUTH), program(changed(TRUTH, ("(*: a=3)", "(*: b=3)")))
    pairs = InputPairs.draw(TASK, 24, seed=3)
    unit = frozenset({Component("head", 0, 0)})
    sides = Sides.of(truth, found, truth, pairs.bases, "softmax")
    asked = same = 0
    for row in range(len(pairs.bases)):
        base, source = pairs.bases.rows(slice(row, row + 1)), pairs.sources.rows(slice(row, row + 1))
        end = int(base.sizes[0]) - 2  # where SEP is, with the answer behind it
        said = {}
        for side in (truth, found):
            value = run(side, Sequences(source.ids, source.positions), record=["a1"]).values["a1"]
            inputs = Sequences(base.ids, base.positions)
            before, after = run(side, inputs).logits, run(side, inputs, {"a1": Replaced(value)}).logits
            said[side.digest] = before[0, end], after[0, end]
        (model, model_after), (other, other_after) = said[truth.digest], said[found.digest]
        first, second = model_after.topk(2).values
        if first - second > sides.clear_in_model and (
            model.argmax() != model_after.argmax() or other.argmax() != other_after.argmax()
        ):
            asked += 1
            same += int(model_after.argmax() == other_after.argmax())
    assert asked > 3
    assert interchange(sides, unit, pairs) == Share(same, asked)


def test_a_head_is_read_where_its_output_reaches_an_answer():
    """The head of layer 0 that is looked at as a key is read everywhere; those that are projected, at SEP alone."""
    inputs = TASK.pool(20, np.random.default_rng(0))
    weights = {
        name: reading_weights(program(TRUTH), frozenset({Component("head", *name)}), inputs)
        for name in ((0, 0), (0, 1), (1, 0))
    }
    elsewhere = ~inputs.counted
    assert float(weights[0, 0][elsewhere].sum()) > 0
    assert float(weights[0, 1][elsewhere].sum()) == float(weights[1, 0][elsewhere].sum()) == 0
    assert float(weights[0, 1][inputs.counted].sum()) > 0


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_programs_of_a_family_give_the_tasks_answers(family: Family):
    inputs = family.task.pool(60, np.random.default_rng(1))
    for mechanism, each in family.programs.items():
        assert task_accuracy(Interpreter.of(each), inputs, family.task.output).all, mechanism


@pytest.mark.parametrize(
    "family",
    [pytest.param(f, marks=[] if i in (5, 11) else pytest.mark.long, id=f.name) for i, f in enumerate(families())],
)
def test_programs_of_a_family_differ_under_an_intervention(family: Family):
    share, pair = least_difference(family)
    assert share >= LEAST_DIFFERENCE, pair


def test_there_are_enough_families():
    assert len(families()) >= 12
    assert sum(len(family.programs) for family in families()) >= 40


def test_the_random_programs_are_of_the_kinds_that_they_should_be():
    drawn = wishes(200)
    assert sum(wish.layers >= 2 for wish in drawn) >= 0.4 * 200
    assert sum(wish.mlp for wish in drawn) >= 0.3 * 200
    assert sum(wish.norm for wish in drawn) >= 0.2 * 200


@pytest.mark.parametrize("number", [3, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 5, 8))])
def test_a_random_program_is_as_wished_for_and_drawn_again_the_same(number: int):
    spec, wish = make("a", number, seed=4), wishes(200)[number]
    assert 2 <= spec.program.lines <= 10
    assert spec.compiled.shape.n_layers == wish.layers
    assert any(isinstance(line, ElementWise) for line in spec.program.statements) == wish.mlp
    assert spec.disguise.norms_matter == wish.norm
    assert make("a", number, seed=4).digest == spec.digest


@pytest.mark.parametrize(
    ("part", "number"),
    [
        ("quick", 0),
        ("quick", 4),
        ("quick", 14),
        pytest.param("a", 1, id="a norm that matters", marks=pytest.mark.long),
        *(pytest.param("c", 6 * len(RUNGS) + i, id=rung, marks=pytest.mark.long) for i, rung in enumerate(RUNGS)),
    ],
)
def test_the_truth_is_right_of_its_own_model(part: str, number: int):
    spec = make(part, number, seed=2)
    found = score(spec.compiled.program, spec.compiled.program, spec.compiled.transformer, spec.task)
    assert found.right, found


@pytest.mark.parametrize("number", [8, pytest.param(3, marks=pytest.mark.long)])
def test_the_exact_translation_does_what_its_model_does_but_reads_more(number: int):
    spec = make("quick", number, seed=2)
    exact = translate(spec.compiled.transformer, spec.task.vocabulary, spec.task.output)
    found = score(spec.compiled.program, exact, spec.compiled.transformer, spec.task)
    assert found.least_attention > 0.9999
    assert all(share.all and share.total for share in found.interchange.values())
    assert found.strings.all
    assert found.extra
    assert not found.missing


@pytest.mark.parametrize("reads_positions", [False, True])
def test_what_an_mlp_hears_by_its_norm_alone_is_not_read(reads_positions: bool):
    tokens, positions = len(TASK.vocabulary), TASK.n_positions
    hidden = torch.eye(8)
    if not reads_positions:
        hidden[4:] = 0
    tensors = {
        "F1.0": torch.eye(tokens, 8) * torch.tensor([1.0, 1, 1, 1, 0, 0, 0, 0]),
        "F1.1": torch.arange(positions)[:, None] % 3 * torch.tensor([0.0, 0, 0, 0, 1, 1, 0, 0]),
        "F1.hidden": hidden,
        "F1.hidden_bias": torch.zeros(8),
        "F1.out": torch.eye(8),
        "F1.out_bias": torch.zeros(8),
        "R1": torch.cat([torch.eye(4, tokens), 2 * torch.eye(4, tokens).roll(1, 1)]),
    }
    sites = "layer 0 mlp, token -> layer 0 mlp input, pos -> layer 0 mlp input"
    found = program_for(TASK, WITH_NORM.format(sites=sites), tensors)
    inputs = TASK.pool(50, np.random.default_rng(0))
    line = without_what_is_only_heard(found, inputs, "softmax").find("m1")
    assert isinstance(line, ElementWise)
    assert [operand.variable for operand in line.inputs] == (["token", "pos"] if reads_positions else ["token"])
    heard = {str(site) for site in line.sites if isinstance(site, Edge)}
    assert any("pos" in edge for edge in heard) == reads_positions
    assert any("token" in edge for edge in heard)


def test_two_heads_that_look_alike_are_not_drawn():
    """At every position that there is, the last of those a multiple of twenty and one back is the one before."""
    text = changed(WITH_MLP, ("(k==q-2)", "((q-k)%20==1)"))
    with pytest.raises(RejectedError, match="two heads alike"):
        check_heads(program(text), TASK, np.random.default_rng(0))
    check_heads(program(WITH_MLP), TASK, np.random.default_rng(0))


@pytest.mark.long
def test_what_was_found_is_kept_and_not_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = ground_truth.measured("quick", 0, seed=1, out=tmp_path)
    monkeypatch.setattr(ground_truth, "decompile", lambda *_: pytest.fail("decompiled a second time"))
    assert ground_truth.measured("quick", 0, seed=1, out=tmp_path) == first
    assert "all_the_same: last" in ground_truth.table([first])


def test_a_disguise_is_told_without_the_task_that_it_is_trained_on():
    disguise = Disguise(noise=0.01, training_steps=3, task=load_task("ab_d_bc"))
    told = ground_truth.told_of(disguise)
    assert "noise 0.01" in told
    assert "training_steps 3" in told
    assert "task" not in told
