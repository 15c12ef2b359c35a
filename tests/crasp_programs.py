"""D-RASP programs that have C-RASP programs, written by hand, and random ones of both kinds."""

import random
from collections.abc import Sequence

import torch

from cases import allowed, table
from drasp.crasp import syntax as cr
from drasp.language import Program, parse
from drasp.vocabulary import Vocabulary

BITS = Vocabulary.with_specials(("0", "1"))
LETTERS = Vocabulary.with_specials(("a", "b"))
ABC = Vocabulary.with_specials(("a", "b", "c"))
ABCD = Vocabulary.with_specials(("a", "b", "c", "d"))
FEW = Vocabulary(("a", "b", "BOS"), ("BOS",))
ABCDE = Vocabulary.with_specials(tuple("abcde"))


def written(vocabulary: Vocabulary, text: str, tensors: dict[str, torch.Tensor] | None = None) -> Program:
    names, special = ", ".join(vocabulary.tokens), ", ".join(vocabulary.special)
    return parse(f"vocab = [{names}]\nspecial = [{special}]\npositions = 152\n{text}", tensors or {})


def network(name: str, sources: Sequence[Sequence[float]], hidden: list[float], bias: list[float], out: list[float]):
    """An MLP that looks at one number, a weighted sum of its inputs' entries."""
    tensors = {f"{name}.{i}": torch.tensor(row)[:, None] for i, row in enumerate(sources)}
    tensors[f"{name}.hidden"] = torch.tensor([hidden])
    tensors[f"{name}.hidden_bias"] = torch.tensor(bias)
    tensors[f"{name}.out"] = torch.tensor(out)[:, None]
    tensors[f"{name}.out_bias"] = torch.zeros(1)
    return tensors


def _both(first: int, second: int, second_size: int):
    """A unit that is 1 where a token and an entry of another variable are."""
    return [[float(i == first) for i in range(6)], [float(i == second) for i in range(second_size)]]


PROGRAMS = {
    "bin_majority": written(
        BITS,
        """
        a1 = aggregate(s=[], v=token)
        logits1 = project(inp=a1, op=(inp==out), special_op=(uniform selection))
        prediction = softmax(logits1)
        """,
    ),
    "tomita1": written(
        BITS,
        """
        a1 = aggregate(s=[], v=token)
        logits1 = project(inp=a1, op=(0: 1=-200 EOS=-200))
        logits2 = project(op=(1: 1=1 EOS=1 *=-1))
        prediction = sigmoid(logits1+logits2)
        """,
    ),
    "tomita2": written(
        BITS,
        "logits1 = project(inp=token, op=(0->1 EOS; 1->0; BOS->1 EOS))\nprediction = sigmoid(logits1)",
    ),
    "abcde": written(
        ABCDE,
        "logits1 = project(inp=token, op=A)\nprediction = sigmoid(logits1)",
        {"A": allowed(ABCDE, "BOS: a; a: a b; b: b c; c: c d; d: d e; e: e EOS")},
    ),
    "tomita7": written(
        BITS,
        # A 1 was there; a 0 after it; a 1 after that: then no 0 may follow.
        """
        a1 = aggregate(s=[], v=token)
        h1 = element_wise_op(a1, func=is_pure(0))
        m1 = element_wise_op(token, h1, func=mlp(F1, relu))
        a2 = aggregate(s=[], v=m1)
        h2 = element_wise_op(a2, func=is_pure(0))
        m2 = element_wise_op(token, h2, func=mlp(F2, relu))
        a3 = aggregate(s=[], v=m2)
        h3 = element_wise_op(a3, func=is_pure(0))
        m3 = element_wise_op(token, h3, func=mlp(F3, relu))
        a4 = aggregate(s=[], v=m3)
        logits1 = project(inp=h3, op=(0: 0=-2))
        logits2 = project(inp=a4, op=(0: 0=-200 1=-200 EOS=-200))
        logits3 = project(op=(1: 0=1 1=1 EOS=1 *=-1))
        prediction = sigmoid(logits1+logits2+logits3)
        """,
        network("F1", _both(0, 1, 7), [1.0], [-1.0], [1.0])
        | network("F2", _both(1, 0, 2), [1.0], [-1.0], [1.0])
        | network("F3", _both(0, 0, 2), [1.0], [-1.0], [1.0]),
    ),
    **{
        f"D{depth}": written(
            LETTERS,
            f"""
            a1 = aggregate(s=[], v=token)
            logits1 = project(inp=a1, op=(a: a=-2 b=2 EOS=-2; b: a=2 b=-2 EOS=2; BOS: a={2 * depth - 1} b=-1 EOS=1))
            logits2 = project(op=(1: BOS=-1 SEP=-1 PAD=-1))
            prediction = sigmoid(logits1+logits2)
            """,
        )
        for depth in (2, 4)
    },
    "ab_d_bc": written(
        ABCD,
        """
        s1 = select(k=token, op=B)
        a1 = aggregate(s=s1, v=token)
        logits1 = project(inp=a1, op=A)
        logits2 = project(op=C)
        prediction = sigmoid(logits1+logits2)
        """,
        {
            "B": table(ABCD, "*: d=10000"),
            "A": table(ABCD, "d: a=-10 c=10 d=-10 EOS=10"),
            "C": table(ABCD, "*: a=5 b=5 d=5", default=-5.0),
        },
    ),
}
"""By the task that each solves."""

OTHERS = {
    "soft weights of keys": written(
        ABC,
        """
        s1 = select(k=token, op=(1: a=1 b=-1 BOS=-2)*0.7)
        a1 = aggregate(s=s1, v=token)
        logits1 = project(inp=a1, op=(a: b=3 c=-1; b: a=2 c=1; BOS: a=-1)*0.37)
        prediction = sigmoid(logits1)
        """,
    ),
    "soft weights of queries and keys": written(
        LETTERS,
        """
        s1 = select(q=token, k=token, op=(a: a=1 b=-3; b: b=2 BOS=5)*0.4)
        a1 = aggregate(s=s1, v=token)
        logits1 = project(inp=a1, op=(a: a=3 b=-2; b: a=-2 b=3 EOS=1; BOS: EOS=-1)*0.21)
        logits2 = project(inp=token, op=(a: EOS=1; b: a=-1)*0.11)
        prediction = sigmoid(logits1+logits2)
        """,
    ),
    "the previous token and the one before": written(
        FEW,
        """
        s1 = select(q=pos, k=pos, op=(k==q-1))
        a1 = aggregate(s=s1, v=token)
        s2 = select(q=pos, k=pos, op=(k==q-2))
        a2 = aggregate(s=s2, v=token)
        logits1 = project(inp=a1, op=(inp==out)*2.0)
        logits2 = project(inp=a2, op=(inp==out)*1.0)
        prediction = softmax(logits1+logits2)
        """,
    ),
    "what came after the last time": written(
        FEW,
        """
        s1 = select(q=pos, k=pos, op=(k==q-1))
        a1 = aggregate(s=s1, v=token)
        s2 = select(q=token, k=a1, op=(k==q))
        a2 = aggregate(s=s2, v=token)
        logits1 = project(inp=a2, op=(inp==out))
        prediction = softmax(logits1)
        """,
    ),
    "every third token": written(
        FEW,
        """
        s1 = select(q=pos, k=pos, op=((q-k)%3==0))
        a1 = aggregate(s=s1, v=token)
        h1 = element_wise_op(a1, func=harden)
        logits1 = project(inp=h1, op=(inp==out))
        prediction = softmax(logits1)
        """,
    ),
    "the last three tokens, softly": written(
        BITS,
        """
        s1 = select(q=pos, k=pos, op=(q-2<=k<=q-0)*1.5)
        a1 = aggregate(s=s1, v=token)
        logits1 = project(inp=a1, op=(0: 0=3 1=-2; 1: 0=-2 1=3)*0.31)
        prediction = sigmoid(logits1)
        """,
    ),
    "signs of differences": written(
        LETTERS,
        """
        a1 = aggregate(s=[], v=token)
        h1 = element_wise_op(a1, func=compare)
        logits1 = project(inp=h1, op=R)
        prediction = sigmoid(logits1)
        """,
        {"R": torch.tensor([[1.0, -1, 0, 0, -2, 0], [0.5, 1, 0, 0, 1, 0]] + [[0.0] * 6] * 13)},
    ),
    "a lead to a power": written(
        BITS,
        """
        a1 = aggregate(s=[], v=token)
        h1 = element_wise_op(a1, func=balance_01(0.5))
        logits1 = project(inp=h1, op=R)
        prediction = sigmoid(logits1)
        """,
        {"R": torch.tensor([[2.0, -1, 0, 0, 1, 0], [-3, 2, 0, 0, 1, 0], [1, -1, 0, 0, -0.5, 0]])},
    ),
    "an MLP of one frequency": written(
        LETTERS,
        # The share of a's must be below 0.3 or above 0.7.
        """
        a1 = aggregate(s=[], v=token)
        m1 = element_wise_op(a1, func=mlp(F1, gelu_new))
        logits1 = project(inp=m1, op=R)
        logits2 = project(op=(1: a=-4 b=4 EOS=-1)*0.25)
        prediction = sigmoid(logits1+logits2)
        """,
        network("F1", [[1.0, 0, 0, 0, 0, 0]], [-50.0, 50.0], [15.0, -35.0], [1.0, 1.0])
        | {"R": torch.tensor([[1.0, -1, 0, 0, 0.5, 0]])},
    ),
    "an MLP of the token and one frequency": written(
        LETTERS,
        """
        a1 = aggregate(s=[], v=token)
        m1 = element_wise_op(token, a1, func=mlp(F1, relu))
        logits1 = project(inp=m1, op=R)
        logits2 = project(op=(1: a=-4 b=4 EOS=-1)*0.25)
        prediction = sigmoid(logits1+logits2)
        """,
        network("F1", [[0.5, 0, 0, 0, 0, 0], [1.0, -1, 0, 0, 0, 0]], [5.0, -3.0], [0.1, 0.2], [1.0, 2.0])
        | {"R": torch.tensor([[1.0, -1, 0, 0, 0.5, 0]])},
    ),
    "a table of tokens, with a norm": written(
        LETTERS,
        """
        n1 = norm(token, op=N, eps=0.0)
        a1 = aggregate(s=[], v=token/n1)
        m1 = element_wise_op(token, func=mlp(F1, gelu))
        logits1 = project(inp=a1, op=(a: a=3 b=-1; b: a=-1 b=1; BOS: a=-1)*0.5)
        logits2 = project(inp=m1, op=R)
        prediction = sigmoid(logits1+logits2)
        """,
        network("F1", [[1.0, -1, 2, 0, 0, 0]], [1.0, -2.0], [0.1, 0.2], [1.0, -1.0])
        | {"N.0": torch.tensor([[1.0], [2], [4], [1], [1], [1]]), "R": torch.tensor([[0.2, -0.1, 0, 0, 0.3, 0]])},
    ),
}


# ------------------------------------------------------------------------------------ random ones


def random_crasp(rng: random.Random, tokens: Sequence[str], extension: bool = False) -> cr.CraspProgram:
    """A C-RASP program of a few definitions."""
    names: list[str] = []

    def formula(depth: int) -> cr.Formula:
        kind = rng.random()
        if depth == 0 or kind < 0.2:
            return rng.choice([*map(cr.Token, tokens), *map(cr.FormulaName, names)])
        if kind < 0.3:
            return cr.Not(formula(depth - 1))
        if kind < 0.6:
            parts = tuple(formula(depth - 1) for _ in range(rng.randint(2, 3)))
            return rng.choice([cr.And, cr.Or])(parts)
        operators: tuple[cr.Operator, ...] = ("<", "<=", ">", ">=", "==", "!=")
        left, right = number(depth - 1), number(depth - 1)
        if isinstance(left, cr.Constant) and isinstance(right, cr.Constant):
            return cr.Truth(left.value > right.value)  # two numbers beside each other are how truth is written
        return cr.Compare(left, rng.choice(operators), right)

    def number(depth: int) -> cr.Number:
        kind = rng.random()
        if kind < 0.15:
            return cr.Constant(rng.randint(0, 3))
        if depth <= 0 or kind < 0.6:
            relation = rng.choice([None, None, None, cr.Local(1), cr.Local(2)]) if extension else None
            return cr.Count(formula(max(depth - 1, 0)), relation)
        if kind < 0.75:
            return cr.Sum((number(depth - 1), number(depth - 1)))
        if kind < 0.85:
            return cr.Difference(number(depth - 1), number(depth - 1))
        return cr.Times(rng.randint(2, 3), number(depth - 1))

    definitions: list[cr.Definition] = []
    for i in range(rng.randint(1, 4)):
        definitions.append(cr.Definition(f"x{i}", formula(rng.randint(1, 3))))
        names.append(f"x{i}")
    return cr.CraspProgram(tuple(definitions))


def random_drasp(rng: random.Random) -> Program:
    """A D-RASP program of the kind that C-RASP covers: shares of tokens, hardened or not, and tables."""
    lines = ["s1 = select(q=token, k=token, op=A)", f"a1 = aggregate(s={rng.choice(['[]', 's1'])}, v=token)"]
    generator = torch.Generator().manual_seed(rng.getrandbits(32))

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tensors = {"A": tensor(3, 3), "R": tensor(3, 3), "T": tensor(3, 3)}
    read = "a1"
    if rng.random() < 0.6:
        lines.append(f"h1 = element_wise_op(a1, func={rng.choice(['harden', 'is_pure(0.4)'])})")
        rows = 4 if "is_pure" in lines[-1] else 3
        tensors |= {"B": tensor(1, rows), "R": tensor(rows, 3)}
        lines += ["s2 = select(k=h1, op=B)", f"a2 = aggregate(s={rng.choice(['s2', '[]', 's1+s2'])}, v=h1)"]
        read = "a2"
    lines += [f"logits1 = project(inp={read}, op=R)", "logits2 = project(inp=token, op=T)"]
    lines += [f"prediction = {rng.choice(['sigmoid', 'softmax'])}(logits1+logits2)"]
    return written(FEW, "\n".join(lines), tensors)
