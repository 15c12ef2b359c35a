"""Families of programs that give the same answers on a task by different mechanisms.

On the inputs that a task draws, the programs of its family cannot be told apart by their answers. On other inputs, or
when a part's values are those of another input, they can: whoever decompiles by answers alone has nothing to choose by.
Letters are drawn so that a family's mechanisms coincide (the last letter is the first, say), and answers count at the
end of the input, or, where a language is spelled, at every position.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from drasp.language import Program, parse
from drasp.tasks import Language, Task, answer_task, each_row, language_task
from drasp.tasks.rows import HOLE, within

Letters = list[int]
_OFFSETS = 4  # up to which the longest inputs begin, so that no position is only ever the last


@dataclass(frozen=True)
class Family:
    """Programs by their mechanisms, and the task on which they answer alike."""

    task: Task
    programs: dict[str, Program]

    @property
    def name(self) -> str:
        return self.task.name


def letters_of(make: Callable[[np.random.Generator, int], Letters]) -> Callable[..., np.ndarray]:
    """A task's draw, from a function that makes one input of a given length."""

    def draw(rng: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
        rows = np.where(within(lengths), 0, HOLE)
        for row, length in zip(rows, lengths, strict=True):
            row[:length] = make(rng, int(length))
        return rows

    return draw


def ending(
    name: str,
    symbols: str,
    make: Callable[[np.random.Generator, int], Letters],
    answer: Callable[[Letters], int],
    lengths: range = range(4, 9),
) -> Task:
    """A task `BOS x SEP`: one answer, at SEP."""
    room = lengths[-1] + _OFFSETS
    return answer_task(
        name,
        symbols,
        each_row(lambda x: [answer(x)]),
        draw=letters_of(make),
        lengths=lengths,
        longest_input=room,
        room=room,
        ends=False,
    )


def spelling(name: str, symbols: str, form: str, lengths: range, offsets: int = _OFFSETS) -> Task:
    """A task `BOS x EOS`: at every position, what may come next in a language."""
    return language_task(name, Language(symbols, form), lengths=lengths, room=lengths[-1] + offsets)


def family(task: Task, **programs: str) -> Family:
    return Family(task, {name.replace("_", " "): program_for(task, text) for name, text in programs.items()})


def program_for(task: Task, text: str, tensors: Mapping[str, Tensor] | None = None) -> Program:
    """A program in a task's tokens and positions."""
    vocabulary = task.vocabulary
    header = f"vocab = [{', '.join(vocabulary.tokens)}]\nspecial = [{', '.join(vocabulary.special)}]\n"
    return parse(f"{header}positions = {task.n_positions}\n{text}", tensors or {})


# --------------------------------------------------------------------------------- how inputs are made


def _constant(rng: np.random.Generator, n: int) -> Letters:
    return [int(rng.integers(4))] * n


def _any(rng: np.random.Generator, n: int, symbols: int = 4) -> Letters:
    return [int(x) for x in rng.integers(0, symbols, n)]


def _same_ends(rng: np.random.Generator, n: int) -> Letters:
    letters = _any(rng, n)
    return [*letters[:-1], letters[0]]


def _sorted(rng: np.random.Generator, n: int) -> Letters:
    return sorted(_any(rng, n))


def _ending_in_majority(rng: np.random.Generator, n: int) -> Letters:
    while True:
        letters = _any(rng, n)
        if all(letters.count(letters[-1]) > letters.count(other) for other in set(letters) - {letters[-1]}):
            return letters


def _doubled_end(rng: np.random.Generator, n: int) -> Letters:
    letters = _any(rng, n)
    return [*letters[:-1], letters[-2]]


def _cycle(rng: np.random.Generator, n: int) -> Letters:
    first = int(rng.integers(4))
    return [(first + i) % 4 for i in range(n)]


def _marked(rng: np.random.Generator, n: int) -> Letters:
    letters = _any(rng, n, 3)
    return [*letters[:-3], 3, *letters[-2:]]


def _d_at_the_end_or_nowhere(rng: np.random.Generator, n: int) -> Letters:
    letters = _any(rng, n, 3)
    return [*letters[:-1], 3] if rng.random() < 0.5 else letters


def _alternating(rng: np.random.Generator, n: int) -> Letters:
    first, second = rng.choice(4, 2, replace=False)
    return [int(second if i % 2 else first) for i in range(n)]


def _distinct(rng: np.random.Generator, n: int) -> Letters:
    return [int(x) for x in rng.choice(6, n, replace=False)]


# ------------------------------------------------------------------------------- what programs share


def say(variable: str) -> str:
    """Says the letter that a variable holds most of."""
    return f"""
        logits1 = project(inp={variable}, op=(inp==out)*10, special_op=(uniform selection))
        prediction = softmax(logits1)
    """


def say_either(first: str, second: str, letters: str = "abcd") -> str:
    """Says the letter of both, with a strength of its own for every letter: where they differ, either may win."""
    strengths = {first: (10, 8, 6, 4, 12, 3), second: (5, 7, 9, 11, 2, 13)}
    tables = [
        "; ".join(f"{letter}: {letter}={n}" for letter, n in zip(letters, numbers, strict=False))
        for numbers in strengths.values()
    ]
    return f"""
        logits1 = project(inp={first}, op=({tables[0]})*1)
        logits2 = project(inp={second}, op=({tables[1]})*1)
        prediction = softmax(logits1+logits2)
    """


def back(distance: int, number: int = 1) -> str:
    """A head that takes the token so many positions back."""
    return f"""
        s{number} = select(q=pos, k=pos, op=(k==q-{distance})*20)
        a{number} = aggregate(s=s{number}, v=token)
    """


MEAN = "a1 = aggregate(s=[], v=token)\n"
# The first letter: where the token before is BOS, or one position behind BOS.
FIRST = back(1) + "s2 = select(k=a1, op=(k==BOS)*20)\na2 = aggregate(s=s2, v=token)\n"
POINTER = """
    s1 = select(k=token, op=(k==BOS)*20)
    a1 = aggregate(s=s1, v=pos)
    s2 = select(q=a1, k=pos, op=(k==q+1)*20)
    a2 = aggregate(s=s2, v=token)
"""
LARGEST = "s1 = select(k=token, op=(*: a=1 b=2 c=3 d=4)*8)\na1 = aggregate(s=s1, v=token)\n"
CHAIN = back(1) + "s2 = select(q=pos, k=pos, op=(k==q-1)*20)\na2 = aggregate(s=s2, v=a1)\n"
ODD = "s1 = select(q=pos, k=pos, op=((q-k)%2==0)*20)\na1 = aggregate(s=s1, v=token)\n"

# Letters that alternate: a after an even number of letters, b after an odd one.
AB_BY_TOKEN = "logits1 = project(inp=token, op=(BOS->a EOS; b->a EOS; a->b)*5)\nprediction = sigmoid(logits1)"
AB_BIAS = "logits2 = project(op=(*: b=5 *=-5)*1)\nprediction = sigmoid(logits1+logits2)"
# Pairs of a letter of {a, b} and one of {c, d}.
PAIRS_BY_TOKEN = """
    logits1 = project(inp=token, op=(BOS->a b EOS; c->a b EOS; d->a b EOS; a->c d; b->c d)*5)
    prediction = sigmoid(logits1)
"""
PAIRS_BIAS = "logits2 = project(op=(*: c=5 d=5 *=-5)*1)\nprediction = sigmoid(logits1+logits2)"

XOR = '(*: a=0; "a×b": b=10; "b×a": b=10; "a×a": a=10; "b×b": a=10)*1'


def families() -> list[Family]:
    """All families; every call makes them anew."""
    return [
        family(
            ending("all_the_same", "abcd", _constant, lambda x: x[-1]),
            last=back(1) + say("a1"),
            third_from_the_end=back(3) + say("a1"),
            mean=MEAN + say("a1"),
            first=FIRST + say("a2"),
            first_by_a_pointer=POINTER + say("a2"),
            largest=LARGEST + say("a1"),
            last_and_third_from_the_end=back(1) + back(3, 2) + say_either("a1", "a2"),
        ),
        family(
            ending("first_is_last", "abcd", _same_ends, lambda x: x[-1]),
            last=back(1) + say("a1"),
            first=FIRST + say("a2"),
            first_by_a_pointer=POINTER + say("a2"),
            last_and_first=POINTER + back(1, 3) + say_either("a2", "a3"),
        ),
        family(
            ending("sorted", "abcd", _sorted, lambda x: x[-1]),
            last=back(1) + say("a1"),
            largest=LARGEST + say("a1"),
            latest="""
                s1 = select(k=pos, op=(k is last)*200)
                s2 = select(k=token, op=(k==SEP)*-100)
                a1 = aggregate(s=s1+s2, v=token)
            """
            + say("a1"),
        ),
        family(
            ending("last_is_most_frequent", "abcd", _ending_in_majority, lambda x: x[-1]),
            last=back(1) + say("a1"),
            mean=MEAN + say("a1"),
            mean_hardened=MEAN + "m1 = element_wise_op(a1, func=harden)\n" + say("m1"),
        ),
        family(
            ending("last_two_alike", "abcd", _doubled_end, lambda x: x[-1]),
            last=back(1) + say("a1"),
            last_but_one=back(2) + say("a1"),
            both_in_one_head="s1 = select(q=pos, k=pos, op=(q-2<=k<=q-1)*20)\na1 = aggregate(s=s1, v=token)\n"
            + say("a1"),
            last_but_one_in_two_steps=CHAIN + say("a2"),
        ),
        family(
            ending("cycle", "abcd", _cycle, lambda x: (x[-1] + 1) % 4),
            after_the_last=back(1)
            + "logits1 = project(inp=a1, op=(a: b=10; b: c=10; c: d=10; d: a=10)*1)\nprediction = softmax(logits1)",
            opposite_the_last_but_one=back(2)
            + "logits1 = project(inp=a1, op=(a: c=10; b: d=10; c: a=10; d: b=10)*1)\nprediction = softmax(logits1)",
            fourth_from_the_end=back(4) + say("a1"),
        ),
        family(
            ending("behind_the_marker", "abcd", _marked, lambda x: x[-2]),
            by_distance=back(2) + say("a1"),
            by_the_token_before=back(1)
            + "s2 = select(k=a1, op=(k==d)*20)\na2 = aggregate(s=s2, v=token)\n"
            + say("a2"),
            by_a_pointer=POINTER.replace("k==BOS", "k==d") + say("a2"),
            by_distance_and_pointer=POINTER.replace("k==BOS", "k==d") + back(2, 3) + say_either("a2", "a3"),
        ),
        family(
            ending("is_there_a_d", "abcd", _d_at_the_end_or_nowhere, lambda x: 3 if x[-1] == 3 else 0),
            last=back(1) + "logits1 = project(inp=a1, op=(d: d=10; *: a=10)*1)\nprediction = softmax(logits1)",
            looked_for="s1 = select(k=token, op=(k==d)*20)\na1 = aggregate(s=s1, v=token)\n"
            + "logits1 = project(inp=a1, op=(d: d=10; *: a=10)*1)\nprediction = softmax(logits1)",
            mean=MEAN + "logits1 = project(inp=a1, op=(d: d=200; *: a=10)*1)\nprediction = softmax(logits1)",
            mean_above_a_threshold=MEAN
            + "m1 = element_wise_op(a1, func=is_pure(0.05))\n"
            + "logits1 = project(inp=m1, op=(d: d=20)*1)\nlogits2 = project(op=(*: a=10)*1)\n"
            + "prediction = softmax(logits1+logits2)",
        ),
        family(
            ending("taking_turns", "abcd", _alternating, lambda x: x[-2]),
            last_but_one=back(2) + say("a1"),
            fourth_from_the_end=back(4) + say("a1"),
            every_other=ODD + say("a1"),
            not_the_last=back(1)
            + "a2 = aggregate(s=[], v=token)\n"
            + "logits1 = project(inp=a1, op=(inp==out)*-10, special_op=(uniform selection))\n"
            + "logits2 = project(inp=a2, op=(inp==out)*20, special_op=(uniform selection))\n"
            + "prediction = softmax(logits1+logits2)",
        ),
        family(
            spelling("abab", "ab", "(ab)*", range(2, 9, 2)),
            token=AB_BY_TOKEN,
            parity=ODD + "logits1 = project(inp=a1, op=(BOS: a=100 b=-100 EOS=100)*1)\n" + AB_BIAS,
            mean=MEAN + "logits1 = project(inp=a1, op=(a: b=100 a=-100 EOS=-100; b: b=-100 a=100 EOS=100)*1)\n"
            "logits2 = project(op=(*: a=5 EOS=5 *=-5)*1)\nprediction = sigmoid(logits1+logits2)",
            token_by_an_MLP="m1 = element_wise_op(token, func=harden)\n" + AB_BY_TOKEN.replace("inp=token", "inp=m1"),
        ),
        family(
            spelling("a_then_b", "ab", "a*b*", range(2, 9)),
            token="logits1 = project(inp=token, op=(BOS->a b EOS; a->a b EOS; b->b EOS)*5)\n"
            "prediction = sigmoid(logits1)",
            looked_for="s1 = select(k=token, op=(k==b)*20)\na1 = aggregate(s=s1, v=token)\n"
            "logits1 = project(inp=a1, op=(BOS->a b EOS; a->a b EOS; b->b EOS)*5)\nprediction = sigmoid(logits1)",
            mean=MEAN + "logits1 = project(inp=a1, op=(b: a=-200)*1)\n"
            "logits2 = project(op=(*: a=5 b=5 EOS=5 *=-5)*1)\nprediction = sigmoid(logits1+logits2)",
        ),
        family(
            spelling("pairs", "abcd", "((a|b)(c|d))*", range(8, 9), offsets=0),
            token=PAIRS_BY_TOKEN,
            position="logits1 = project(inp=pos, op=(0->a b EOS; 1->c d; 2->a b EOS; 3->c d; 4->a b EOS; 5->c d;"
            "6->a b EOS; 7->c d; 8->a b EOS; 9->c d)*5)\nprediction = sigmoid(logits1)",
            parity=ODD + "logits1 = project(inp=a1, op=(BOS: a=100 b=100 EOS=100 c=-100 d=-100)*1)\n" + PAIRS_BIAS,
            mean=MEAN + "logits1 = project(inp=a1, op=(a: a=-100 b=-100 EOS=-100 c=100 d=100;"
            " b: a=-100 b=-100 EOS=-100 c=100 d=100; c: a=100 b=100 EOS=100 c=-100 d=-100;"
            " d: a=100 b=100 EOS=100 c=-100 d=-100)*1)\n"
            "logits2 = project(op=(*: a=5 b=5 EOS=5 *=-5)*1)\nprediction = sigmoid(logits1+logits2)",
        ),
        family(
            answer_task(
                "copy_of_four",
                "abcdef",
                lambda x: x,
                draw=letters_of(_distinct),
                lengths=[4],
                longest_input=6,
                longest_answer=6,
                room=6,
                ends=False,
            ),
            by_distance=back(4) + say("a1"),
            by_the_token_before=back(1)
            + "s2 = select(q=token, k=a1, op=(k==q)*20, special_op=(k==BOS)*20)\na2 = aggregate(s=s2, v=token)\n"
            + say("a2"),
            both=back(1)
            + "s2 = select(q=token, k=a1, op=(k==q)*20, special_op=(k==BOS)*20)\na2 = aggregate(s=s2, v=token)\n"
            + back(4, 3)
            + say_either("a2", "a3", "abcdef"),
        ),
        family(
            ending("last_but_one", "abcd", _any, lambda x: x[-2]),
            at_once=back(2) + say("a1"),
            in_two_steps=CHAIN + say("a2"),
            two_less_the_last="s1 = select(q=pos, k=pos, op=(q-2<=k<=q-1)*20)\na1 = aggregate(s=s1, v=token)\n"
            + back(1, 2)
            + "logits1 = project(inp=a1, op=(inp==out)*20, special_op=(uniform selection))\n"
            + "logits2 = project(inp=a2, op=(inp==out)*-10, special_op=(uniform selection))\n"
            + "prediction = softmax(logits1+logits2)",
        ),
        family(
            ending("do_the_last_two_differ", "ab", lambda rng, n: _any(rng, n, 2), lambda x: int(x[-1] != x[-2])),
            at_the_end=back(1)
            + back(2, 2)
            + f"m1 = element_wise_op(a1, a2, func=cartesian)\nlogits1 = project(inp=m1, op={XOR})\n"
            + "prediction = softmax(logits1)",
            at_the_last_letter=back(1)
            + "m1 = element_wise_op(token, a1, func=cartesian)\n"
            + "s2 = select(q=pos, k=pos, op=(k==q-1)*20)\na2 = aggregate(s=s2, v=m1)\n"
            + f"logits1 = project(inp=a2, op={XOR})\nprediction = softmax(logits1)",
            by_attention=back(1)
            + """
                s2 = select(q=a1, k=token, op=(k==q)*20)
                s3 = select(q=pos, k=pos, op=(k==q-2)*20)
                s4 = select(k=token, op=(k==BOS)*30)
                a2 = aggregate(s=s2+s3+s4, v=token)
                logits1 = project(inp=a2, op=(BOS: b=10; *: a=10)*1)
                prediction = softmax(logits1)
            """,
        ),
    ]
