"""C-RASP: what is written reads back, values are those of the definition, and mistakes are named with their line."""

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crasp_programs import random_crasp
from crasp_reader import TABLES, accepted
from drasp.crasp import syntax as cr
from drasp.crasp.interpreter import all_strings, answers, trace
from drasp.crasp.text import parse, predefined, to_text
from effort import examples

DYCK = """
// brackets that match
opened = # "("
closed = # ")"
wrong = opened < closed
wrongs = # wrong
never = wrongs == 0
matched = (opened == closed) && never
"""


def accepts(program, word):
    """Whether the answer holds at the end of a word that is not empty."""
    symbols = list(dict.fromkeys(word))
    ids = np.array([[symbols.index(symbol) for symbol in word]])
    return bool(answers(program, ids, symbols)[0, -1])


def naive(expression, names, word, i):
    """The definition, read position by position."""

    def of(inner, j=i):
        return naive(inner, names, word, j)

    match expression:
        case cr.Token(symbol):
            return word[i] == symbol
        case cr.Truth(value) | cr.Constant(value):
            return value
        case cr.FormulaName(name) | cr.CountName(name):
            return of(names[name])
        case cr.Not(body):
            return not of(body)
        case cr.And(parts):
            return all(map(of, parts))
        case cr.Or(parts):
            return any(map(of, parts))
        case cr.Residue(period, remainder):
            return i % period == remainder
        case cr.Compare(left, operator, right):
            return eval(f"x {operator} y", {"x": of(left), "y": of(right)})
        case cr.Sum(parts):
            return sum(map(of, parts))
        case cr.Difference(left, right):
            return of(left) - of(right)
        case cr.Times(factor, body):
            return factor * of(body)
        case cr.Count(body, relation):
            counted = "True" if relation is None else relation.python
            return sum(eval(counted, {"i": i, "j": j}) and of(body, j) for j in range(i + 1))


@examples(300)
@given(st.integers(0, 2**32))
def test_the_interpreter_agrees_with_the_definition(seed):
    rng = random.Random(seed)
    program = random_crasp(rng, "ab", extension=True)
    names = {definition.name: definition.expression for definition in program.definitions}
    word = [rng.choice("ab") for _ in range(rng.randint(1, 7))]
    values = trace(program, np.array([["ab".index(x) for x in word]]), "ab")
    for name, expression in names.items():
        assert values[name][0].tolist() == [naive(expression, names, word, i) for i in range(len(word))]


@examples(300)
@given(st.integers(0, 2**32), st.booleans())
def test_what_is_written_reads_back(seed, extension):
    program = random_crasp(random.Random(seed), ("a", "b", "a b", "\\", "é"), extension)
    assert parse(to_text(program, ["a remark"])) == program


@examples(100)
@given(st.integers(0, 2**32))
def test_other_readers_read_the_same(seed):
    """Whatever they think binds more closely, and with `predefined.py` for the predicates of positions."""
    rng = random.Random(seed)
    program = random_crasp(rng, "ab", extension=True)
    text, functions = to_text(program, ["a remark"]), predefined(program.predicates)
    word = [rng.choice("ab") for _ in range(rng.randint(1, 6))]
    found = {accepted(text, word, table, functions) for table in TABLES.values()}
    assert found == {accepts(program, word)}


def test_readers_differ_where_there_are_no_brackets():
    text = 'n = (# "a")\nm = (# "b")\nx = ((3 * n - m) > 3)'
    assert [accepted(text, list("aab"), table) for table in TABLES.values()] == [False, True, False]


def test_dyck():
    program = parse(DYCK)
    for length in range(1, 9):
        for word in product("()", repeat=length):
            open_now, fine = 0, True
            for symbol in word:
                open_now += 1 if symbol == "(" else -1
                fine = fine and open_now >= 0
            assert accepts(program, word) == (fine and open_now == 0)
    assert program.depth == 2
    assert program.tokens == ("(", ")")


def test_predicates_of_positions():
    text = """
    #import back_1
    #import every_3_2
    #import position_2_1
    x = (#[back_1] "a") == 1
    n = #[every_3_2] "a"
    y = position_2_1 && ((n + 1) > 1)
    """
    program = parse(text)
    assert parse(to_text(program)) == program
    assert [predicate.name for predicate in program.predicates] == ["back_1", "every_3_2", "position_2_1"]
    ids = np.array([[0, 1, 0, 0, 0, 1]])
    values = trace(program, ids, "ab")
    assert values["x"][0].tolist() == [False, True, False, True, True, True]
    assert values["n"][0].tolist() == [0, 0, 1, 0, 1, 2]
    assert values["y"][0].tolist() == [False, False, False, False, False, True]
    # Other interpreters run what is written for them.
    functions: dict = {}
    exec(predefined(program.predicates), functions)
    assert functions["back_1"](3, 2)
    assert not functions["back_1"](3, 3)
    assert [functions["every_3_2"](5, j) for j in range(6)] == [(5 - j) % 3 == 2 for j in range(6)]
    assert functions["position_2_1"](3)


def test_numbers_of_any_size():
    big = 10**40
    program = parse(f'x = ({big} * (# "a")) > (({big} * (# "b")) + {big - 1})')
    assert answers(program, np.array([[0, 1, 0]]), "ab")[0].tolist() == [True, False, True]


def test_all_strings_are_all():
    found = [tuple(row) for batch in all_strings([0, 2], 3, batch=3) for row in batch.tolist()]
    assert found == list(product([0, 2], repeat=3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('x = # "a" +', 'p.cr:1: cannot read `x = # "a" +`'),
        ('n = # "a"\nx = 3 * n - n > 0', "p.cr:2: cannot read `x = 3 * n - n > 0`: different operators"),
        ('x = !"a" && "b"', "different operators in one expression need brackets"),
        ('x = "a" && "b" || "c"', "different operators in one expression need brackets"),
        ('n = # "a"\nx = max(n, n) > 1', "min, max and if … else are not read"),
        ("x = y", "p.cr:1: `y` is not defined before this line"),
        ('x = "a"\nx = "b"', "p.cr:2: `x` is defined a second time"),
        ('x = # "a"', "a program ends with a formula"),
        ('x = "a" > 1', "p.cr:1: found a formula where a count is expected"),
        ('n = # "a"\nx = !n', "p.cr:2: found a count where a formula is expected"),
        ("#import pred", "p.cr:1: predicate `pred` is not known"),
        ("#import every_3_3", "with R below M"),
        ('x = (#[back_1] "a") > 0', "needs a line `#import back_1` before it"),
        ("", "a program ends with a formula"),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(cr.CraspError) as error:
        parse(text, "p.cr")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_token_with_a_quote_cannot_be_written():
    program = cr.CraspProgram((cr.Definition("x", cr.Token('"')),))
    with pytest.raises(cr.CraspError, match="cannot be written"):
        to_text(program)
