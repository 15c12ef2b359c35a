"""Which regular languages are in C-RASP: families with known proofs, and programs where the answer is yes."""

import random
import time
from collections.abc import Collection
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from automata.fa.dfa import DFA
from automata.fa.nfa import NFA

from command import drasp, fails
from crasp_programs import random_crasp
from drasp.crasp.automaton import Automaton, Confused, Decision, decide, null_space, of_task, strong_components
from drasp.crasp.interpreter import all_strings, answers
from drasp.crasp.text import parse, to_text
from drasp.crasp.witness import witness
from drasp.errors import DraspError
from effort import in_both, part
from typed import known

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
        ("(a|c)*ab*", "abc"),  # letters fix their targets in its component, but not whether b leads out of it
    ],
)
def test_languages_that_have_none(expression, letters):
    assert not in_crasp(expression, letters)


LAST_LETTER = {
    "(a|b)*b": 'said = "b"',
    "(a+b+)+": 'early = ("b" && ((# "a") == 0))\nsaid = ("b" && ((# early) == 0))',
    "(b*ac)*": """
    open = ((# "a") - (# "c"))
    wrong = (((open < 0) || (open > 1)) || ("b" && (open == 1)))
    said = ("c" && ((# wrong) == 0))
    """,
}
"""Languages of which the last letter must be seen, and programs by hand. Lists of languages that ask for the answer
after the word have them as not in C-RASP."""


@pytest.mark.parametrize("expression", LAST_LETTER)
def test_languages_of_which_the_last_letter_must_be_seen(expression):
    automaton = Automaton.of_expression(expression)
    decision, program = decide(automaton), parse(LAST_LETTER[expression])
    assert decision.in_crasp
    assert not decision.in_crasp_after_end
    for word in (w for length in range(1, 11 if len(automaton.letters) == 2 else 8) for w in words(automaton, length)):
        said = answers(program, np.array([word]), automaton.letters)[0, -1]
        assert said == automaton.accepts([automaton.letters[i] for i in word])
    # The marker is a letter like any other.
    assert not decide(marked(automaton)).in_crasp


def words(automaton: Automaton, length: int):
    return product(range(len(automaton.letters)), repeat=length)


def marked(automaton: Automaton) -> Automaton:
    """That of the language with an end marker behind each word."""
    last, sink = len(automaton.step), len(automaton.step) + 1
    rows = [(*row, last if state in automaton.final else sink) for state, row in enumerate(automaton.step)]
    rows += [(sink,) * (len(automaton.letters) + 1)] * 2
    letters = (*automaton.letters, "$")
    found = DFA(
        states=set(range(len(rows))),
        input_symbols=set(letters),
        transitions={state: dict(zip(letters, row, strict=True)) for state, row in enumerate(rows)},
        initial_state=0,
        final_states={last},
    )
    return Automaton.of(found, letters)


@in_both
def test_answers_at_an_end_marker():
    rng, found = random.Random(11), set[tuple[bool, bool]]()
    for _ in range(part(300)):
        automaton = Automaton.of_expression(random_expression(rng, 5), "abc")
        decision = decide(automaton)
        assert decide(marked(automaton)).in_crasp == decision.in_crasp_after_end
        found.add((decision.in_crasp, decision.in_crasp_after_end))
    assert {(True, True), (False, False)} <= found <= {(True, True), (True, False), (False, False)}


def test_powers_of_a_word():
    """w* is star-free exactly if w is no power of a shorter word (McNaughton and Papert); here all such are in C-RASP,
    and what counts modulo a number is not.
    """
    for length in range(1, 8):
        for word in map("".join, product("ab", repeat=length)):
            is_power = any(word == word[:n] * (length // n) for n in range(1, length))
            assert in_crasp(f"({word})*", "ab") != is_power


def dfa(expression: str) -> DFA:
    return DFA.from_nfa(NFA.from_regex(expression, input_symbols=set("abc"))).to_complete()


def changed(found: DFA, **parts: Any) -> DFA:
    names = ("states", "input_symbols", "transitions", "initial_state", "final_states")
    return DFA(**{name: parts.get(name, getattr(found, name)) for name in names})


def with_letters(found: DFA, meaning: dict[str, str]) -> DFA:
    """The words that, letter by letter, mean words of the language."""
    steps = {state: {x: row[old] for x, old in meaning.items()} for state, row in found.transitions.items()}
    return changed(found, input_symbols=set(meaning), transitions=steps)


@in_both
def test_closure_of_random_languages():
    """What substitution in a formula proves: Boolean combinations, quotients by a letter, letters that mean others."""
    rng = random.Random(3)

    def in_(found: DFA, letters: str = "abc") -> bool:
        return decide(Automaton.of(found, letters)).in_crasp

    seen = {True: 0, False: 0}
    for _ in range(part(200)):
        one, other = (dfa(random_expression(rng, depth)) for depth in (5, 4))
        is_in = in_(one)
        seen[is_in] += 1
        assert in_(one.complement()) == is_in
        # No formula is asked about the empty word.
        first, start = max(one.states) + 1, one.initial_state
        final = one.final_states | (set() if start in one.final_states else {first})
        steps = {**one.transitions, first: one.transitions[start]}
        toggled = changed(one, states={*steps}, transitions=steps, initial_state=first, final_states=final)
        assert in_(toggled) == is_in
        assert in_(with_letters(one, {"a": "a", "b": "b", "c": "c", "d": rng.choice("abc")}), "abcd") == is_in
        if is_in:
            assert in_(with_letters(one, {x: rng.choice("abc") for x in "abc"}))
            for x in "abc":
                assert in_(changed(one, initial_state=one.transitions[start][x]))
                before = {state for state in one.states if one.transitions[state][x] in one.final_states}
                assert in_(changed(one, final_states=before))
            if in_(other):
                assert all(map(in_, (one & other, one | other, one - other)))
    assert min(seen.values()) > 0


# ------------------------------------------------------------------------- the words of the proof


def path(automaton: Automaton, start: int, end: int, inside: Collection[int]) -> list[int]:
    """The letters of a shortest path."""
    found = {start: list[int]()}
    for state in (queue := [start]):
        for letter, target in enumerate(automaton.step[state]):
            if target not in found and target in inside:
                found[target] = [*found[state], letter]
                queue.append(target)
    return found[end]


def told_apart_by(automaton: Automaton, one: int, other: int) -> list[int]:
    """A shortest word that is accepted from one of two states only."""
    found = {(one, other): list[int]()}
    for pair in (queue := [(one, other)]):
        if (pair[0] in automaton.final) != (pair[1] in automaton.final):
            return found[pair]
        for letter, (left, right) in enumerate(zip(*(automaton.step[state] for state in pair), strict=True)):
            if (left, right) not in found:
                found[left, right] = [*found[pair], letter]
                queue.append((left, right))
    raise AssertionError("the automaton is not minimal")


def words_of_the_proof(decision: Decision, confused: Confused, rng: random.Random) -> list[list[int]]:
    """Rounds of a cycle through all transitions, some more often than others; then a way to either of two states, the
    letter by which they part, and what tells the targets apart: one of the words is in the language, the other is not.
    """
    automaton = decision.automaton
    [states] = [component.states for component in decision.components if confused.first in component.states]
    edges = [(s, x, t) for s in states for x, t in enumerate(automaton.step[s]) if t in states]
    rounds, here = list[int](), states[0]
    for state, letter, target in rng.sample(many := [e for e in edges for _ in range(rng.randint(1, 5))], len(many)):
        rounds += [*path(automaton, here, state, states), letter]
        here = target
    rounds += path(automaton, here, states[0], states)
    begun = path(automaton, 0, states[0], range(len(automaton.step))) + rounds * 40
    letter = automaton.letters.index(confused.letter)
    targets = [automaton.step[state][letter] for state in (confused.first, confused.second)]
    rest = [letter, *told_apart_by(automaton, *targets)]
    return [[*begun, *path(automaton, states[0], s, states), *rest] for s in (confused.first, confused.second)]


@in_both
def test_no_program_tells_apart_the_words_that_the_proof_says_it_cannot():
    """Not random programs, and not those that track the states of other languages: some cycle deceives each of them."""
    rng = random.Random(5)
    out = [decide(of_task(name)) for name in NOT_IN]
    programs = []
    while len(out) < part(60) or len(programs) < part(100):
        decision = decide(Automaton.of_expression(random_expression(rng, 5), "abc"))
        several = any(len(component.states) > 1 for component in decision.components)
        if decision.in_crasp and several:
            programs.append(witness(decision))
        elif not decision.in_crasp and len(decision.automaton.step) <= 12:
            out.append(decision)
    for decision in out:
        letters, confused = decision.automaton.letters, known(decision.confused)
        pairs = [words_of_the_proof(decision, confused, rng) for _ in range(3)]
        assert all(decision.automaton.accepts(a) != decision.automaton.accepts(b) for a, b in spelt(pairs, letters))
        tried = [random_crasp(rng, letters) for _ in range(10)]
        tried += rng.sample(programs, 5) if letters == ("a", "b", "c") else []
        for program in tried:
            assert any(says(program, one, letters) == says(program, other, letters) for one, other in pairs)


@pytest.mark.parametrize("name", ["D2", "D4"])
def test_programs_tell_apart_such_words_where_there_are_some(name):
    """The same words for states that counts do tell apart: the program of the language is not deceived."""
    rng, decision = random.Random(0), decide(of_task(name))
    letters, step = decision.automaton.letters, decision.automaton.step
    component = max(decision.components, key=lambda each: len(each.states))
    assert len(component.states) > 1
    for one, other in combinations(component.states, 2):
        letter = next(x for x, targets in enumerate(zip(step[one], step[other], strict=True)) if len(set(targets)) > 1)
        pair = words_of_the_proof(decision, Confused(one, other, letters[letter]), rng)
        assert says(witness(decision), pair[0], letters) != says(witness(decision), pair[1], letters)


def spelt(pairs, letters):
    return [[[letters[i] for i in word] for word in pair] for pair in pairs]


def says(program, word: list[int], letters: tuple[str, ...]) -> bool:
    return bool(answers(program, np.array([word]), letters)[0, -1])


@pytest.mark.parametrize("expression", ["(ab)*", "(aa)*", "(a|b)*a", "(b|ab)*a?", dyck(3), "(a|b)*b(aa)*", "(baab)*"])
def test_the_class_is_closed_under_complement_and_renaming(expression):
    found = DFA.from_nfa(NFA.from_regex(expression, input_symbols={"a", "b"}))
    plain = decide(Automaton.of(found, "ab")).in_crasp
    assert decide(Automaton.of(found.to_complete().complement(), "ab")).in_crasp == plain
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
    assert "it takes the last letter" in drasp("language", "(a|b)*b").out
    assert '"in_crasp_after_end": false' in drasp("language", "(a|b)*b", "--json").out


def test_bad_input_ends_in_one_line(tmp_path):
    assert "its brackets do not match; expected letters of a, | * + ? " in fails("language", "a(")
    assert "cannot be read; expected letters of" in fails("language", "a{3,1}")
    for sign, unreadable in ((" ", "a b"), ("[", "[a-c]"), ("^", "a^b")):
        assert f"{sign!r} is not read; expected letters of" in fails("language", unreadable)
    assert "expression 'a" in (long := fails("language", "a" * 3000))
    assert len(long) < 200
    for large in ("a{99999999999}", "((a{400}){400}){400}", "&".join(["(a|b)*a(a|b){20}"] * 3)):
        assert "more than 20,000 symbols when it is written out" in fails("language", large)
    for sign, alphabet in ((",", "a,b"), (" ", "a b"), ("*", "ab*")):
        assert f"{sign!r} is no letter" in fails("language", "a*", "--alphabet", alphabet)
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
