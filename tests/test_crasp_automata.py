"""Which regular languages are in C-RASP: families with known proofs, and programs where the answer is yes."""

import random
import time

import numpy as np
import pytest

from command import drasp, fails
from drasp.crasp.automaton import Automaton, decide, null_space, of_task, strong_components
from drasp.crasp.interpreter import all_strings, answers
from drasp.crasp.text import parse, to_text
from drasp.crasp.witness import witness
from drasp.errors import DraspError
from effort import in_both, part

IN = ("abcde", "ab_d_bc", "tomita1", "tomita2", "tomita7", "D2", "D3", "D4", "D12")
NOT_IN = ("aastar", "aaaastar", "ababstar", "012_0_2", "tomita3", "tomita4", "tomita5", "tomita6")


def dyck(depth: int) -> str:
    return f"(a{dyck(depth - 1)}b)*" if depth else ""


def in_crasp(expression: str, letters: str) -> bool:
    return decide(Automaton.of_expression(expression, letters)).in_crasp


def check_witness(automaton: Automaton, length: int) -> None:
    """The program that is given accepts the language, on all strings up to a length."""
    program = witness(decide(automaton))
    assert parse(to_text(program)) == program
    assert not program.predicates
    step, final = np.array(automaton.step), np.isin(np.arange(len(automaton.step)), list(automaton.final))
    for ids in all_strings(range(len(automaton.letters)), length):
        said, state = answers(program, ids, automaton.letters), np.zeros(len(ids), int)
        for i in range(length):
            state = step[state, ids[:, i]]
            assert (said[:, i] == final[state]).all()


@pytest.mark.parametrize("name", [*IN, *NOT_IN])
def test_the_built_in_languages(name):
    begun = time.process_time()
    automaton = of_task(name)
    decision = decide(automaton)
    assert decision.in_crasp == (name in IN)
    assert time.process_time() - begun < 2
    if decision.in_crasp:
        check_witness(automaton, 9 if len(automaton.letters) <= 2 else 5)


@pytest.mark.parametrize(
    ("expression", "letters"),
    [
        ("(a|b|c)*a", "abc"),  # the last letter, which a formula sees
        ("(a|b)*a(a|b)*b(a|b)*a(a|b)*", "ab"),  # a subsequence: piecewise testable
        ("aa*b(a|b)*", "ab"),  # one that never comes back to a state that it has left
        ("(a|b)*ab(a|b)*", "ab"),  # of two letters, a factor ab is a subsequence
        ("(b*ab*ab*ab*)|(b*)", "ab"),  # exactly so many a's, or none
        ("(ab)*(ba)*", "ab"),
        ("(abc)*", "abc"),
        ("(aab)*", "ab"),  # a combination of counts, 2 #b - #a, is 0, -1 or -2
        ("(bba|cb)*", "abc"),
        ("(b|ca)*(cb)*c*a*", "abc"),
        ("(baab)*", "ab"),  # takes two rounds: counts of a's after one b and after two
        *((dyck(depth), "ab") for depth in range(1, 7)),
    ],
)
def test_languages_that_have_programs(expression, letters):
    assert in_crasp(expression, letters)
    check_witness(Automaton.of_expression(expression, letters), 8 if len(letters) == 2 else 6)


@pytest.mark.parametrize(
    ("expression", "letters"),
    [
        *((f"({'a' * n})*", "a") for n in range(2, 7)),  # a number of letters modulo n: no C-RASP program counts so
        ("b*(ab*ab*)*", "ab"),  # parity
        ("(a|b|e)*be*", "abe"),  # flip-flop, proved not to be in C-RASP by Huang et al. 2025
        ("(a|b|c)*ab(a|b|c)*", "abc"),  # a factor, which takes looking at the position before
        ("(b|ab)*a?", "ab"),  # no factor aa
        ("(a|b)*ac", "abc"),  # what was before the last letter
        ("(a|b)*a(a|b)", "ab"),
        ("(abab)*", "ab"),
        ("(aabb|ab)*aa*", "ab"),
        ("((a|b)(a|b))*", "ab"),  # even length
        ("(cba|ca)*", "abc"),  # one b or none between c and a
    ],
)
def test_languages_that_have_none(expression, letters):
    assert not in_crasp(expression, letters)


@pytest.mark.parametrize("expression", ["(ab)*", "(aa)*", "(a|b)*a", "(b|ab)*a?", dyck(3), "(a|b)*b(aa)*", "(baab)*"])
def test_the_class_is_closed_under_complement_and_renaming(expression):
    from automata.fa.dfa import DFA
    from automata.fa.nfa import NFA

    dfa = DFA.from_nfa(NFA.from_regex(expression, input_symbols={"a", "b"}))
    plain = decide(Automaton.of(dfa, "ab")).in_crasp
    assert decide(Automaton.of(dfa.to_complete().complement(), "ab")).in_crasp == plain
    swapped = expression.translate(str.maketrans("ab", "ba"))
    assert in_crasp(swapped, "ab") == plain


@pytest.mark.parametrize("period", [1, 2, 3, 5])
def test_letters_that_no_word_has_change_nothing_but_the_sink(period):
    expression = f"({'ab' * period})*"
    assert in_crasp(expression, "ab") == in_crasp(expression, "abc") == (period == 1)


def random_expression(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.25:
        return rng.choice("abc")
    if kind < 0.6:
        return random_expression(rng, depth - 1) + random_expression(rng, depth - 1)
    if kind < 0.8:
        return f"({random_expression(rng, depth - 1)}|{random_expression(rng, depth - 1)})"
    return f"({random_expression(rng, depth - 1)})*"


@in_both
def test_random_expressions():
    """Of up to 12 states, 200 in 10 seconds; where the answer is yes, the program accepts the language."""
    rng, count = random.Random(7), 0
    begun, spent = 0.0, 0.0
    found = {True: 0, False: 0}
    while count < part(200):
        begun = time.process_time()
        automaton = Automaton.of_expression(random_expression(rng, 5), "abc")
        decision = decide(automaton)
        if 2 < len(automaton.step) <= 12:
            spent += time.process_time() - begun
            count += 1
            found[decision.in_crasp] += 1
            if decision.in_crasp:
                check_witness(automaton, 6)
    assert spent < 10
    assert min(found.values()) > 0


def test_null_space():
    basis = null_space([[2, 1, 0], [0, 1, 1]], 3)
    assert basis in ([[1, -2, 2]], [[-1, 2, -2]])
    assert null_space([[1, 0], [1, 1]], 2) == []
    assert len(null_space([], 2)) == 2


def test_strong_components():
    assert strong_components([[1], [0], [1], [3]]) == [(0, 1), (2,), (3,)]


# ----------------------------------------------------------------------------------- the command


def test_the_command(tmp_path):
    done = drasp("language", "(ab)*", "--out", tmp_path / "d1.cr")
    assert done.code == 0
    assert "minimal automaton: 3 states over a b" in done.out
    assert "in C-RASP (for models without positions): counts of letters tell apart" in done.out
    assert parse((tmp_path / "d1.cr").read_text()).depth == 2
    done = drasp("language", "--task", "tomita4")
    assert "not in C-RASP (for models without positions): states" in done.out
    assert '"in_crasp": false' in drasp("language", "(aa)*", "--json").out


def test_bad_input_ends_in_one_line(tmp_path):
    assert "expression 'a(' over a" in fails("language", "a(")
    assert "letter 'b' is not in the alphabet a" in fails("language", "ab", "--alphabet", "a")
    assert "no letters" in fails("language", "")
    assert "expected an expression, or --task" in fails("language")
    assert "expected an expression, or --task" in fails("language", "a", "--task", "D2")
    assert "--task sort: not a language; expected one of: tomita1" in fails("language", "--task", "sort")
    assert "has its own" in fails("language", "--task", "D2", "--alphabet", "ab")
    assert "is not in C-RASP" in fails("language", "(aa)*", "--out", tmp_path / "x.cr")
    assert not (tmp_path / "x.cr").exists()
    assert "states in its minimal automaton, expected at most" in fails("language", "(a|b)*a" + "(a|b)" * 9)
    assert "too many to decide" in fails("language", "(a|b)*a" + "(a|b)" * 40)
    assert "minimal automaton: 3 states over a;" in drasp("language", "a{2}a*").out


def test_a_language_without_a_program_has_none():
    with pytest.raises(DraspError, match="no program accepts it"):
        witness(decide(of_task("aastar")))
