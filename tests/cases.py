"""One table of hand-written programs that the tests of every part share.

Each case has an input and the values that some of its variables must have there, worked out by hand. Those
written after the paper's figures also name the task that they must solve.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from drasp.language import Program, parse
from drasp.vocabulary import Vocabulary

_LETTERS = Vocabulary.with_specials(("a", "b", "c"))
_BITS = Vocabulary.with_specials(("0", "1"))
_ALPHABET = Vocabulary.with_specials(tuple("abcdefghijklmnopqrstuvwxyz"))
_NUMBERS = Vocabulary.with_specials(tuple(str(n) for n in range(150)))

Rows = Sequence[Sequence[float]]


@dataclass(frozen=True)
class ProgramCase:
    """`expected[variable]` holds a row for each position (of a selector: for each query, keys it can see)."""

    name: str
    vocabulary: Vocabulary
    positions: int
    text: str
    input: str
    expected: dict[str, Rows]
    offset: int = 0
    tensors: dict[str, Tensor] = field(default_factory=dict)
    answers: list[str] | None = None  # the tokens said at each position, "-" where it does not matter
    task: str | None = None

    @property
    def source(self) -> str:
        names = ", ".join(json.dumps(token) for token in self.vocabulary.tokens)
        special = ", ".join(self.vocabulary.special)
        return f"vocab = [{names}]\nspecial = [{special}]\npositions = {self.positions}\n{self.text}"

    @property
    def program(self) -> Program:
        return parse(self.source, self.tensors)

    @property
    def ids(self) -> list[int]:
        return self.vocabulary.encode(self.input.split())


def table(vocabulary: Vocabulary, rows: str, columns: tuple[str, ...] = (), default: float = 0.0) -> Tensor:
    """A tensor from text such as `a: b=5 c=-5; BOS: a=5`; rows and columns are tokens (`*`: the only row)."""
    columns = columns or vocabulary.tokens
    names = ("*",) if rows.startswith("*") else vocabulary.tokens
    tensor = torch.full((len(names), len(columns)), default)
    for row in rows.split(";"):
        name, entries = row.split(":")
        for entry in entries.split():
            column, value = entry.split("=")
            tensor[names.index(name.strip()), columns.index(column)] = float(value)
    return tensor


def allowed(vocabulary: Vocabulary, following: str) -> Tensor:
    """`a: a b; b: b c` as logits: 5 for what may follow a token, -5 for all else."""
    rows = [row.split(":") for row in following.split(";")]
    text = ";".join(f"{name}: " + " ".join(f"{token}=5" for token in tokens.split()) for name, tokens in rows)
    return table(vocabulary, text, default=-5.0)


_ABCDE = Vocabulary.with_specials(tuple("abcde"))
_ABCD = Vocabulary.with_specials(tuple("abcd"))

PAPER_CASES = (
    ProgramCase(
        name="most frequent",
        task="majority",
        vocabulary=_ALPHABET,
        positions=154,
        text="""
            a1 = aggregate(s=[], v=token)  # layer 0 head 1
            logits1 = project(inp=a1, op=(inp==out), special_op=(uniform selection))
            prediction = softmax(logits1)
        """,
        input="BOS o b r o SEP",
        expected={},
        answers=["-", "o", "-", "-", "o", "o"],
    ),
    ProgramCase(
        name="binary majority",
        task="bin_majority",
        vocabulary=_BITS,
        positions=154,
        text="""
            1. a1 = aggregate(s=[], v=token)  # layer 0 head 0
            2. logits1 = project(inp=a1, op=(inp==out), special_op=(uniform selection))
            3. prediction = softmax(logits1)
        """,
        input="BOS 1 0 1 SEP",
        expected={
            "a1": [
                [0, 0, 1, 0, 0, 0],
                [0, 1 / 2, 1 / 2, 0, 0, 0],
                [1 / 3, 1 / 3, 1 / 3, 0, 0, 0],
                [1 / 4, 2 / 4, 1 / 4, 0, 0, 0],
                [1 / 5, 2 / 5, 1 / 5, 1 / 5, 0, 0],
            ],
            "logits1": [
                [0, 0, 0, 0, 0, 0],
                [0, 5000, 0, 0, 0, 0],
                [10000 / 3, 10000 / 3, 0, 0, 0, 0],
                [2500, 5000, 0, 0, 0, 0],
                [2000, 4000, 0, 0, 0, 0],
            ],
        },
        answers=["-", "1", "-", "1", "1"],
    ),
    ProgramCase(
        name="unique copy",
        task="unique_copy",
        vocabulary=_NUMBERS,
        positions=303,
        text="""
            s1 = select(q=pos, k=pos, op=(k==q-1))  # layer 0 head 0
            a1 = aggregate(s=s1, v=token)  # layer 0 head 0
            s2 = select(q=token, k=a1, op=(k==q),
                        special_op=(k==BOS))  # layer 1 head 0
            a2 = aggregate(s=s2, v=token)  # layer 1 head 0
            logits1 = project(inp=a2, op=(inp==out),
                              special_op=(uniform selection))
            logits2 = project(op=c)
            prediction = softmax(logits1+
                                 logits2)
        """,
        tensors={"c": table(_NUMBERS, "*: EOS=10")},
        input="BOS 1 3 4 2 SEP 1 3 4 2",
        offset=17,
        expected={},
        answers=["-"] * 5 + ["1", "3", "4", "2", "EOS"],
    ),
    ProgramCase(
        name="a+b+c+d+e+",
        task="abcde",
        vocabulary=_ABCDE,
        positions=152,
        text="""
            logits1 = project(inp=token, op=a)
            prediction = sigmoid(logits1)
        """,
        tensors={"a": allowed(_ABCDE, "BOS: a; a: a b; b: b c; c: c d; d: d e; e: e EOS")},
        input="BOS a b",
        expected={
            "logits1": [
                [5, -5, -5, -5, -5, -5, -5, -5, -5],
                [5, 5, -5, -5, -5, -5, -5, -5, -5],
                [-5, 5, 5, -5, -5, -5, -5, -5, -5],
            ]
        },
    ),
    ProgramCase(
        name="tomita 2",
        task="tomita2",
        vocabulary=_BITS,
        positions=152,
        text="""
            logits1 = project(inp=token, op=a)
            prediction = sigmoid(logits1)
        """,
        tensors={"a": allowed(_BITS, "BOS: 1 EOS; 1: 0; 0: 1 EOS")},
        input="BOS 1 0",
        expected={"logits1": [[-5, 5, -5, -5, 5, -5], [5, -5, -5, -5, -5, -5], [-5, 5, -5, -5, 5, -5]]},
    ),
    ProgramCase(
        name="{a,b}*d{b,c}*",
        task="ab_d_bc",
        vocabulary=_ABCD,
        positions=152,
        text="""
            s1 = select(k=token, op=b)
            a1 = aggregate(s=s1, v=token)  # layer 0 head 0
            logits1 = project(inp=a1, op=a)
            logits2 = project(op=c)
            prediction = sigmoid(logits1+logits2)
        """,
        tensors={
            "b": table(_ABCD, "*: d=10000"),
            "a": table(_ABCD, "d: a=-10 c=10 d=-10 EOS=10"),
            "c": table(_ABCD, "*: a=5 b=5 d=5", default=-5.0),
        },
        input="BOS a d c",
        expected={
            "s1": [[0], [0, 0], [0, 0, 10000], [0, 0, 10000, 0]],
            "logits1": [
                [0, 0, 0, 0, 0, 0, 0, 0],
                [0, 0, 0, 0, 0, 0, 0, 0],
                [-10, 0, 10, -10, 0, 0, 10, 0],
                [-10, 0, 10, -10, 0, 0, 10, 0],
            ],
        },
    ),
)

OWN_CASES = (
    ProgramCase(
        name="sort",
        task="sort",
        vocabulary=_NUMBERS,
        positions=303,
        # Of the larger numbers, the smallest; of none, back to BOS, which promotes EOS.
        text="""
            s1 = select(q=token, k=token, op=next)
            a1 = aggregate(s=s1, v=token)
            logits1 = project(inp=a1, op=(inp==out)*10.0, special_op=(out==EOS)*10.0)
            prediction = softmax(logits1)
        """,
        tensors={
            "next": torch.cat(
                [
                    torch.tensor([[(150.0 - k) * 100 * (k > q) for k in range(154)] for q in range(150)]),
                    torch.tensor([[(150.0 - k) * 100 for k in range(154)]]).repeat(4, 1),
                ]
            )
            * (torch.arange(154) < 150)
            + 50.0 * (torch.arange(154) == 150)
        },
        input="BOS 14 23 6 SEP 6 14 23",
        expected={},
        answers=["-"] * 4 + ["6", "14", "23", "EOS"],
    ),
    ProgramCase(
        name="three majorities, interleaved",
        vocabulary=_BITS,
        positions=40,
        text="""
            s1 = select(q=pos, k=pos, op=((q-k)%3==0))
            s2 = select(k=token, op=(uniform selection)*1.0, special_op=(k==SEP)*-20000.0)
            a1 = aggregate(s=s1+s2, v=token)
            h1 = element_wise_op(a1, func=harden)
            logits1 = project(inp=h1, op=(inp==out))
            prediction = softmax(logits1)
        """,
        input="BOS 1 0 0 1 0 1 1 1 0 SEP 1 0",
        offset=2,
        expected={"s1": [[10000 * ((q - k) % 3 == 0) for k in range(q + 1)] for q in range(13)]},
        answers=["-"] * 10 + ["1", "0", "0"],
    ),
    ProgramCase(
        name="the previous token, at an offset, with what a scale does",
        vocabulary=_LETTERS,
        positions=9,
        text="""
            s1 = select(q=pos, k=pos, op=(k==q-1)*1.0)
            a1 = aggregate(s=s1, v=one)
            a2 = aggregate(s=s1, v=pos)
            logits1 = project(inp=a1, op=(uniform selection))
            logits2 = project(inp=token, op=(out==inp+1))
            prediction = softmax(logits1+logits2)
        """,
        input="BOS a",
        offset=7,
        expected={
            "s1": [[0], [1, 0]],
            "a1": [[1], [1]],
            "a2": [[0] * 7 + [1, 0], [0] * 7 + [2.718281828459045 / 3.718281828459045, 1 / 3.718281828459045]],
            "logits2": [[0, 0, 0, 0, 10000, 0, 0], [0, 10000, 0, 0, 0, 0, 0]],
        },
        answers=["SEP", "b"],
    ),
    ProgramCase(
        name="first, last and a named token",
        vocabulary=_LETTERS,
        positions=4,
        text="""
            s1 = select(k=pos, op=(k is first)*4.0)
            s2 = select(q=token, k=pos, op=(k is last)*4.0, special_op=(k is first)*8.0)
            s3 = select(q=pos, k=token, op=(k==b))
            s4 = select(k=token, op=(k is last)*7.0, special_op=(k==BOS))
            a1 = aggregate(s=s1+s2+s3, v=token)
            logits1 = project(op=(out==c), special_op=(uniform selection))
            prediction = sigmoid(logits1)
        """,
        input="BOS b a",
        offset=1,
        expected={
            "s1": [[3], [3, 2], [3, 2, 1]],
            "s2": [[6], [2, 3], [2, 3, 4]],
            "s3": [[0], [0, 10000], [0, 10000, 0]],
            "s4": [[10000], [10000, 2], [10000, 2, 1]],
            "a1": [[0, 0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0]],
            "logits1": [[0, 0, 10000, 0, 0, 0, 0]] * 3,
        },
    ),
    ProgramCase(
        name="functions of one variable",
        vocabulary=_BITS,
        positions=8,
        text="""
            a1 = aggregate(s=[], v=token)
            same = element_wise_op(a1, func=no_op)
            sharp = element_wise_op(a1, func=sharpen(2))
            hard = element_wise_op(a1, func=harden)
            balance = element_wise_op(a1, func=balance_01(0.5))
            pure = element_wise_op(a1, func=is_pure(0.4))
            logits1 = project(inp=pure, op=(inp==out))
            prediction = softmax(logits1)
        """,
        input="BOS 1 1 0 1",
        expected={
            "same": [
                [0, 0, 1, 0, 0, 0],
                [0, 1 / 2, 1 / 2, 0, 0, 0],
                [0, 2 / 3, 1 / 3, 0, 0, 0],
                [1 / 4, 2 / 4, 1 / 4, 0, 0, 0],
                [1 / 5, 3 / 5, 1 / 5, 0, 0, 0],
            ],
            "sharp": [
                [0, 0, 1, 0, 0, 0],
                [0, 1 / 2, 1 / 2, 0, 0, 0],
                [0, 4 / 5, 1 / 5, 0, 0, 0],
                [1 / 6, 4 / 6, 1 / 6, 0, 0, 0],
                [1 / 11, 9 / 11, 1 / 11, 0, 0, 0],
            ],
            "hard": [[0, 0, 1, 0, 0, 0]] + [[0, 1, 0, 0, 0, 0]] * 4,
            "balance": [
                [0, 0, 1],
                [0.5**0.5, 0, 1 - 0.5**0.5],
                [(2 / 3) ** 0.5, 0, 1 - (2 / 3) ** 0.5],
                [0.5, 0, 0.5],
                [0.4**0.5, 0, 1 - 0.4**0.5],
            ],
            "pure": [
                [0, 0, 1, 0, 0, 0, 0],
                [0, 1, 1, 0, 0, 0, -1],
                [0, 1, 0, 0, 0, 0, 0],
                [0, 1, 0, 0, 0, 0, 0],
                [0, 1, 0, 0, 0, 0, 0],
            ],
        },
        answers=["BOS", "1", "1", "1", "1"],
    ),
    ProgramCase(
        name="functions of several variables",
        vocabulary=Vocabulary(("x", "y")),
        positions=4,
        text="""
            a1 = aggregate(s=[], v=token)
            second = element_wise_op(token, a1, func=keep(2))
            pairs = element_wise_op(token, a1, func=cartesian)
            s1 = select(q=pairs, k=pairs, op=(k==q)*1.0)
            logits1 = project(inp=pairs, op=R)
            prediction = softmax(logits1)
        """,
        tensors={"R": torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, 4.0]])},
        input="x y",
        expected={
            "second": [[1, 0], [1 / 2, 1 / 2]],
            "pairs": [[1, 0, 0, 0], [0, 0, 1 / 2, 1 / 2]],
            "s1": [[1], [0, 1 / 2]],
            "logits1": [[1, 0], [1.5, 2]],
        },
        answers=["x", "y"],
    ),
    ProgramCase(
        name="layer norm",
        vocabulary=Vocabulary(("x", "y")),
        positions=4,
        # The stream is (3, -3) for x and (1, -1) for y, plus the constant (1, -1).
        text="""
            n1 = norm(token, one, op=N, eps=0.0)
            s1 = select(q=token/n1, k=one/n1, op=A)
            a1 = aggregate(s=[], v=token/n1)
            m1 = element_wise_op(token, one, func=mlp(F, relu, eps=0.0))
            m2 = element_wise_op(token/n1, func=mlp(G, relu))
            logits1 = project(inp=one/n1, op=R)
            prediction = softmax(logits1)
        """,
        tensors={
            "N.0": torch.tensor([[3.0, -3.0], [1.0, -1.0]]),
            "N.1": torch.tensor([[1.0, -1.0]]),
            "A": torch.tensor([[8.0], [2.0]]),
            "F.0": torch.tensor([[3.0, -3.0], [1.0, -1.0]]),
            "F.1": torch.tensor([[1.0, -1.0]]),
            "F.hidden": torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]]),
            "F.hidden_bias": torch.tensor([0.0, 3.0, -1.0]),
            "F.out": torch.tensor([[1.0], [10.0], [100.0]]),
            "F.out_bias": torch.tensor([0.0]),
            "G.0": torch.tensor([[4.0], [6.0]]),
            "G.hidden": torch.tensor([[1.0, -1.0]]),
            "G.hidden_bias": torch.tensor([1.0, 2.0]),
            "G.out": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
            "G.out_bias": torch.tensor([0.0, 3.0]),
            "R": torch.tensor([[8.0, 0.0]]),
        },
        input="x y",
        expected={
            "n1": [[4], [2]],
            "s1": [[0.5], [0.25, 0.5]],
            "a1": [[0.25, 0], [0.125, 0.25]],
            "m1": [[1 + 20 + 100], [1 + 20 + 100]],
            "m2": [[2, 4], [4, 3]],
            "logits1": [[2, 0], [4, 0]],
        },
    ),
    ProgramCase(
        name="variables with the names of keywords and of Python's own words",
        vocabulary=Vocabulary(("x y", '"', "<b>", "k")),
        positions=3,
        text="""
            q = aggregate(s=[], v=token)
            op = element_wise_op(q, func=no_op)
            s = select(q=q, k=op, op=(k==q)*1.0)
            lambda = aggregate(s=s, v=token)
            np = project(inp=lambda, op=(out=="k")*1.0)
            logits = project(op=(out=="x y")*0.5)
            prediction = softmax(np+logits)
        """,
        input='k "',
        expected={"np": [[0, 0, 0, 1], [0, 0, 0, 1]], "logits": [[0.5, 0, 0, 0]] * 2},
        answers=["k", "k"],
    ),
)

CASES = PAPER_CASES + OWN_CASES


def case(name: str) -> Program:
    return next(case.program for case in CASES if case.name == name)
