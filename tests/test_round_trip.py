"""Programs compiled to models, hidden behind a rotation and gains, and decompiled again: the same but for names."""

from dataclasses import replace

import pytest

from drasp.compiler import Disguise, compile_program
from drasp.decompiler.pipeline import decompile
from drasp.language import Interpreter, Program, parse
from drasp.language.syntax import PrimitiveTensor, Project, Select, Statement
from drasp.rewriting.canonical import canonical
from drasp.tasks import Task, answer_task, each_row, load_task

HIDDEN = Disguise(rotate=True, gains=True)
NOTHING = PrimitiveTensor("zeros")


def letters(name: str, answer) -> Task:
    return answer_task(name, "abc", each_row(answer), lengths=range(2, 13), ends=False)


PROGRAMS: dict[str, tuple[Task, str]] = {
    "the last letter": (
        letters("last", lambda x: x[-1:]),
        """
        s1 = select(q=pos, k=pos, op=(k==q-1))
        a1 = aggregate(s=s1, v=token)
        logits1 = project(inp=a1, op=(inp==out))
        prediction = softmax(logits1)
        """,
    ),
    "the last letter but one": (
        letters("last_but_one", lambda x: x[-2:-1]),
        """
        s1 = select(q=pos, k=pos, op=(k==q-2))
        a1 = aggregate(s=s1, v=token)
        logits1 = project(inp=a1, op=(inp==out))
        prediction = softmax(logits1)
        """,
    ),
    "the first letter, behind BOS": (
        letters("first", lambda x: x[:1]),
        """
        s1 = select(q=pos, k=pos, op=(k==q-1))
        a1 = aggregate(s=s1, v=token)
        s2 = select(k=a1, op=(k==BOS))
        a2 = aggregate(s=s2, v=token)
        logits1 = project(inp=a2, op=(inp==out), special_op=(uniform selection))
        prediction = softmax(logits1)
        """,
    ),
    "the greatest letter": (
        letters("greatest", lambda x: [max(x)]),
        """
        s1 = select(k=token, op=(*: c=2 b=1))
        a1 = aggregate(s=s1, v=token)
        logits1 = project(inp=a1, op=(inp==out))
        prediction = softmax(logits1)
        """,
    ),
    "an a, if there is one": (
        letters("a_there", lambda x: [0 if 0 in x else 1]),
        """
        s1 = select(k=token, op=(k==a))
        a1 = aggregate(s=s1, v=token)
        logits1 = project(inp=a1, op=(a: a=1; *: b=1))
        prediction = softmax(logits1)
        """,
    ),
    "the majority": (
        load_task("bin_majority"),
        """
        a1 = aggregate(s=[], v=token)
        logits1 = project(inp=a1, op=(inp==out))
        prediction = softmax(logits1)
        """,
    ),
    "(10)*": (
        load_task("tomita2"),
        """
        logits1 = project(inp=token, op=(0->1 EOS; 1->0; BOS->1 EOS))
        prediction = sigmoid(logits1)
        """,
    ),
    "(aa)*, by the distance from BOS": (
        load_task("aastar"),
        """
        s1 = select(k=token, op=(k==BOS))
        a1 = aggregate(s=s1, v=pos)
        m1 = element_wise_op(pos, a1, func=difference_mod(2))
        logits1 = project(inp=m1, op=(0->a EOS; 1->a))
        prediction = sigmoid(logits1)
        """,
    ),
    "{a,b}*d{b,c}*": (
        load_task("ab_d_bc"),
        """
        s1 = select(k=token, op=(k==d))
        a1 = aggregate(s=s1, v=token)
        logits1 = project(inp=a1, op=(d->b c EOS; *->a b d))
        prediction = sigmoid(logits1)
        """,
    ),
}


def source(name: str) -> Program:
    task, text = PROGRAMS[name]
    tokens, special = (", ".join(names) for names in (task.vocabulary.tokens, task.vocabulary.special))
    return parse(f"vocab = [{tokens}]\nspecial = [{special}]\npositions = {task.n_positions}\n{text}")


def said(program: Program) -> list[str]:
    """What a program says, whatever its variables are called, its lines stand for, and its logits are."""

    def plain(statement: Statement) -> Statement:
        plain = replace(statement, sites=(), comment="")
        match plain:
            case Project():
                return replace(plain, op=NOTHING, special_op=None)
            case Select(op=PrimitiveTensor("table", _, scale)):
                # By the numbers alone: how large scores are for a hard choice, and how rows are called, is all one.
                whole = (Interpreter.of(program).ops[plain.name] / scale).round().int().tolist()
                return replace(plain, op=PrimitiveTensor("table", (str(whole),)))
            case _:
                return plain

    return str(canonical(replace(program, statements=tuple(map(plain, program.statements))))).splitlines()


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_program_is_decompiled_to_itself(name):
    program = source(name)
    model = compile_program(program, HIDDEN)
    found = decompile(model.transformer, PROGRAMS[name][0])
    assert said(found.program) == said(program)
    assert found.final.match.value >= 0.99
