"""Mistakes in programs: the message names the place, what was found, and what was expected."""

import pytest
import torch

from drasp.errors import DraspError
from drasp.language import ProgramError, check, load_program, parse

HEADER = "vocab = [a, b, BOS]\nspecial = [BOS]\npositions = 4\n"
END = "\nlogits1 = project(inp=token, op=(inp==out))\nprediction = softmax(logits1)"


def errors(body: str, **tensors: torch.Tensor) -> list[str]:
    """What `drasp check` would print, as `line:column: message`; line 1 is the first after the header."""
    try:
        found = check(parse(HEADER + body, tensors))
    except ProgramError as error:
        found = [error]
    return [f"{error.place.line - 3}:{error.place.column}: {error.problem}" for error in found]


SYNTAX = [
    ("a1 = agregate(s=[], v=token)", "1:6: found `agregate`, expected `aggregate`"),
    ("a1 = aggregate(s=[] v=token)", "1:21: found `v`, expected `)` or `,`"),
    ("a1 = aggregate(s=[], v=token", "2:1: found `logits1`, expected `)` or `,`"),
    ("a1 = aggregate(s=[], v=)", "1:24: found `)`, expected a name"),
    ("a1 aggregate(s=[], v=token)", "1:4: found `aggregate`, expected `=`"),
    ("a1 = aggregate(v=token)", "1:6: `aggregate` needs the argument `s=`"),
    ("a1 = aggregate(s=[], v=token, v=pos)", "1:31: `v=` is given twice"),
    ("a1 = aggregate(s=[], v=token, k=pos)", "1:31: found `k=`, which `aggregate` does not take"),
    ("a1 = aggregate(token, s=[], v=token)", "1:16: found an argument without a name"),
    ("token = aggregate(s=[], v=pos)", "1:1: `token` is a variable of every program"),
    ("s1 = select(q=pos, k=pos, op=(k==q/2))", "1:30: found the unknown primitive (k==q/2), expected one of"),
    ("s1 = select(k=pos, op=A, special_op=B)", "1:37: found the tensor `B`, expected a primitive"),
    ("s1 = select(k=pos, op=(k is last)*1e999)", "1:35: found 1e999, expected a number that fits"),
    ("h = element_wise_op(token, func=hardn)", "1:33: found the unknown function `hardn`, expected `harden`"),
    ("h = element_wise_op(token, func=sharpen)", "1:33: found other arguments of `sharpen`, expected sharpen(n)"),
    ("h = element_wise_op(token+pos, func=harden)", "1:27: `element_wise_op` takes its variables one by one"),
    ("h = element_wise_op(func=harden)", "1:5: `element_wise_op` needs a variable"),
    ("h = element_wise_op(token, func=mlp(F, swish))", "1:40: found the activation `swish`, expected one of"),
    ("n = norm(token, op=N, eps=-1)", "1:27: `norm` needs a stored tensor `op=` and an `eps=`"),
    ("x = softmax(logits0)", "1:1: found `x = softmax(…)`, expected prediction before the `=`"),
    ("positions = 5", "1:1: `positions = …` stands here a second time"),
    ("a1 = aggregate(s=[], v=token) $", "1:31: found `$`, expected the end of the"),
]


@pytest.mark.parametrize(("line", "expected"), SYNTAX, ids=[line for line, _ in SYNTAX])
def test_syntax(line, expected):
    [found] = errors(line + END)
    assert found.startswith(expected)


MEANING = [
    ("a1 = aggregate(s=[], v=tokn)", "1:24: variable `tokn` is not defined before this line; did you mean `token`?"),
    ("a1 = aggregate(s=[s1], v=token)", "1:19: found `s1`, expected `]`"),
    ("a1 = aggregate(s=s1, v=token)", "1:18: variable `s1` is not defined before this line"),
    ("a1 = aggregate(s=token, v=token)", "1:18: `token` is an activation variable, expected a selector"),
    (
        "s1 = select(k=pos, op=(k is last))\na1 = aggregate(s=[], v=s1)",
        "2:24: `s1` is a selector, expected an activation variable",
    ),
    (
        "a1 = aggregate(s=[], v=pos)\na1 = aggregate(s=[], v=pos)",
        "2:1: variable `a1` is defined a second time",
    ),
    ("a1 = aggregate(s=[], v=pos/token)", "1:24: `token` is an activation variable, expected a norm"),
    ("s1 = select(k=pos, op=A)", "1:23: tensor `A` is not among the program's tensors"),
    ("s1 = select(k=pos, op=W)", "1:23: tensor `W` has shape [3, 4], expected [1, 4]: one (1) by pos (4)"),
    ("s1 = select(q=pos, k=token, op=W)", "1:32: tensor `W` has shape [3, 4], expected [4, 3]: pos (4) by token (3)"),
    ("l = project(inp=token, op=Z)", "1:27: tensor `Z` holds something else than finite floating-point numbers"),
    ("s1 = select(q=token, k=token, op=E, special_op=(k==q))", "1:48: special_op= goes with a primitive op="),
    ("s1 = select(k=pos, op=(k==q))", "1:23: this tensor compares two variables, and there is only one"),
    ("s1 = select(k=token, op=(k==SEP))", "1:25: token 'SEP' is not in the vocabulary"),
    ("s1 = select(k=pos, op=(k==a))", "1:23: only variables in the token basis have tokens"),
    ("s1 = select(q=pos, k=pos, op=((q-k)%0==0))", "1:30: the period must be at least 1"),
    ("h = element_wise_op(token, pos, func=harden)", "1:38: `harden` got 2 variables, expected 1 variable"),
    ("h = element_wise_op(token, pos, func=keep(3))", "1:38: keep takes the number of an input, 1 to 2, found 3"),
    ("h = element_wise_op(token, func=balance_01(1))", "1:33: balance_01 compares tokens 0 and 1"),
    ("h = element_wise_op(token, func=mlp(M, relu))", "1:33: tensor `M.0` is not among the program's tensors"),
    ("n = norm(token, pos, op=N, eps=0.1)", "1:25: tensor `N.1` has shape [3, 2], expected [4, 2]: pos (4) by the"),
]
TENSORS = {
    "W": torch.ones(3, 4),
    "E": torch.eye(3),
    "Z": torch.tensor([[0.0, 1.0, float("nan")]] * 3),
    "N.0": torch.ones(3, 2),
    "N.1": torch.ones(3, 2),
}


@pytest.mark.parametrize(("line", "expected"), MEANING, ids=[line for line, _ in MEANING])
def test_meaning(line, expected):
    [found] = errors(line + END, **TENSORS)
    assert found.startswith(expected)


def test_all_errors_are_found_and_what_follows_from_one_is_not_blamed():
    body = "a1 = aggregate(s=[], v=x)\na2 = aggregate(s=[], v=a1)\na3 = aggregate(s=[], v=y)"
    assert [error.split(": ")[0] for error in errors(body + END)] == ["1:24", "3:24"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a1 = aggregate(s=[], v=token)", "1:1: the program ends here, expected `prediction = softmax(…)`"),
        ("", "-2:1: the program ends here, expected `prediction = softmax(…)`"),
        (END + "\na1 = aggregate(s=[], v=token)", "4:1: found a line after the prediction"),
        ("prediction = softmax(token)", "1:22: `token` is an activation variable, expected logits"),
        ("prediction = softmax()", "1:14: `softmax` takes one sum of logits"),
        ("prediction = softmax(a/n)", "1:22: logits cannot be divided by a norm"),
    ],
)
def test_the_prediction_comes_once_and_last(body, expected):
    assert errors(body)[0].startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "program:1:1: the program does not say `vocab = …`"),
        ("vocab = [a]", "program:1:1: the program does not say `positions = …`"),
        ("vocab = [a, a]\npositions = 3", "program:1:1: the vocabulary names token 'a' more than once"),
        ("vocab = []\npositions = 3", "program:1:1: a vocabulary needs at least one token"),
        ("vocab = [a]\nspecial = [b]\npositions = 3", "program:2:1: special token 'b' is not in the vocabulary"),
        ("vocab = [a]\npositions = 0", "program:2:13: found 0, expected a whole number from 1 to 1,000,000"),
        ('vocab = ["\\x"]\npositions = 1', 'program:1:10: found "\\x", expected a token in JSON\'s quotes'),
    ],
)
def test_header(text, expected):
    with pytest.raises(ProgramError) as caught:
        parse(text)
    assert str(caught.value) == expected


def test_files(tmp_path):
    with pytest.raises(DraspError, match="no such file; expected a .drasp file"):
        load_program(tmp_path)
    with pytest.raises(DraspError, match=r"expected a \.drasp file"):
        load_program(tmp_path / "program.py")
    file = tmp_path / "x.drasp"
    file.write_bytes(b"vocab = [\xff]")
    with pytest.raises(DraspError, match=r"not a UTF-8 text \(byte 9\)"):
        load_program(file)
    file.write_text(HEADER + "a1 = 3")
    with pytest.raises(ProgramError, match=rf"^{file}:4:6: found `3`, expected a name"):
        load_program(file)
    (tmp_path / "x.safetensors").write_bytes(b"\x08\x00\x00")
    with pytest.raises(DraspError, match=r"x\.safetensors: not a whole safetensors file"):
        load_program(file)
