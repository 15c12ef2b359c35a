"""The scorer of the ground-truth benchmark calls right what differs from the truth in form only, and wrong all else."""

import pytest

from drasp.language.syntax import Program
from truth.families import ending, program_for
from truth.score import Score, score

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
