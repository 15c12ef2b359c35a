"""From D-RASP to C-RASP and back: equal on all strings, or refused with the line and the reason."""

import json
import random
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from command import drasp, fails
from crasp_programs import ABC, FEW, LETTERS, OTHERS, PROGRAMS, random_crasp, random_drasp, written
from drasp.compiler import compile_program
from drasp.crasp.automaton import decide, next_token_automata
from drasp.crasp.checking import Comparison, StringDisagreement, compare
from drasp.crasp.export import export, export_language, standing
from drasp.crasp.from_drasp import to_crasp
from drasp.crasp.interpreter import all_strings, answers
from drasp.crasp.rounding import construction_size
from drasp.crasp.syntax import CraspError
from drasp.crasp.text import parse, to_text
from drasp.crasp.to_drasp import to_drasp
from drasp.crasp.witness import witness
from drasp.errors import DraspError
from drasp.language import Interpreter, ProgramError, check, program_files
from drasp.measure import task_accuracy
from drasp.running import run
from drasp.sequences import Sequences
from drasp.tasks import TASKS
from drasp.tasks.framed import language_of
from drasp.vocabulary import Vocabulary
from effort import examples
from rounded_run import RoundedInterpreter
from typed import known, of_kind


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_solve_their_tasks(name):
    """They are what they are called."""
    task, program = TASKS[name], PROGRAMS[name]
    inputs = task.pool(100, np.random.default_rng(0), longest=149, random_offsets=False)
    accuracy = task_accuracy(Interpreter(program, torch.float64), inputs, task.output)
    assert accuracy.hits == accuracy.total


@pytest.mark.parametrize("name", [*PROGRAMS, *OTHERS])
def test_exported_programs_are_equal_on_all_strings(name):
    program = (PROGRAMS | OTHERS)[name]
    ordinary = len(program.vocabulary) - len(program.vocabulary.special)
    found = export(program, 10 if ordinary <= 3 else 7)
    assert isinstance(found.agreement, Comparison)
    assert found.agreement.disagreement is None
    # Equal shares with soft weights, and scores that are only nearly hard, are too close for any error bounds.
    assert (found.agreement.proved and found.agreement.ties == 0) or name in OTHERS
    for file, content in found.files().items():
        if file.endswith(".cr"):
            assert parse(content.decode()) in found.programs.values()


def test_error_bounds_tell_what_a_small_number_says():
    """0.0000000001 is above 0, which running the program, with roundings that nobody bounds, does not tell."""
    table = torch.full((1, 3), -1.0, dtype=torch.float64)
    table[0, 0] = 1e-10
    small = written(FEW, "logits1 = project(op=R)\nprediction = sigmoid(logits1)", {"R": table})
    assert compare(small, to_crasp(small)).proved
    assert compare(small, {}).disagreement == StringDisagreement(("BOS",), "a", True)


def test_what_is_proved_and_what_is_too_close():
    found = export(PROGRAMS["ab_d_bc"]).agreement
    assert "; proved, smallest margin 5" in str(found)
    assert "; proved, without rounding" in str(export(PROGRAMS["D4"]).agreement)
    near = of_kind(Comparison, export(OTHERS["soft weights of keys"], 6).agreement)
    assert not near.proved
    assert f"proved but for {near.undecided:,}, after which margins are within error bounds" in str(near)


def test_what_an_export_looks_like():
    assert to_text(to_crasp(PROGRAMS["tomita2"])["EOS"]) == 'said = ("0" || "BOS")\n'
    assert "said = ((2 * n_a) > (n_BOS + (2 * n_b)))" in to_text(to_crasp(PROGRAMS["D4"])["b"])
    assert "#[back_1]" in to_text(to_crasp(OTHERS["the previous token and the one before"])["a"])
    assert "#[every_3_0]" in to_text(to_crasp(OTHERS["every third token"])["b"])


def test_a_wrong_program_is_found_out():
    said = dict(to_crasp(PROGRAMS["D4"]))
    said["EOS"] = parse('x = ((# "a") + 1) > (# "b")')
    found = compare(PROGRAMS["D4"], said).disagreement
    assert found is not None
    assert (found.string, found.token, found.said) == (("BOS", "a"), "EOS", False)


@examples(40)
@given(st.integers(0, 2**32))
def test_random_programs_there_and_back(seed):
    """D-RASP to C-RASP to D-RASP, on all strings behind BOS."""
    program = random_drasp(random.Random(seed))
    said = to_crasp(program)
    assert compare(program, said, 8, any_tokens=False).disagreement is None
    back = to_drasp(said, program.vocabulary, program.output, positions=20)
    assert not check(back)
    assert compare(back, said, 8, any_tokens=False).disagreement is None


@examples(40)
@given(st.integers(0, 2**32))
def test_random_counting_programs_there_and_back(seed):
    """C-RASP to D-RASP to C-RASP."""
    rng = random.Random(seed)
    said = {token: random_crasp(rng, ("a", "b", "BOS")) for token in ("a", "b")}
    program = to_drasp(said, FEW, positions=20)
    assert not check(program)
    assert compare(program, said, 8, any_tokens=False).disagreement is None
    assert compare(program, to_crasp(program), 8, any_tokens=False).disagreement is None


@examples(40)
@given(st.integers(0, 2**32))
def test_random_counting_programs_with_distances(seed):
    rng = random.Random(seed)
    said = {token: random_crasp(rng, ("a", "b", "BOS"), extension=True) for token in ("a", "b")}
    program = to_drasp(said, FEW, positions=20)
    assert compare(program, said, 8, any_tokens=False).disagreement is None


def test_periodic_counts_become_selects():
    said = {"a": parse('#import every_2_1\nx = (#[every_2_1] "a") > (2 * (#[every_2_1] "b"))')}
    with pytest.raises(CraspError, match="different operators|cannot read"):
        parse('x = (# "a") > 2 * (# "b")')
    program = to_drasp(said, LETTERS, positions=20)
    assert compare(program, said, 8, any_tokens=False).disagreement is None
    mixed = {"a": parse('#import every_2_1\nx = (#[every_2_1] "a") > (# "b")')}
    with pytest.raises(CraspError, match="a periodic count with anything but counts of the same period"):
        to_drasp(mixed, LETTERS)


def test_a_constant_needs_a_first_token_or_position():
    said = {"a": parse('x = ((# "a") > 2)'), "b": parse('y = (((# "a") + 4) == (3 * (# "b")))')}
    program = to_drasp(said, Vocabulary(("a", "b")), positions=20)
    assert "pos" in str(program)
    assert compare(program, said, 8).disagreement is None
    assert "pos" not in str(to_drasp(said, LETTERS, positions=20))
    with pytest.raises(CraspError, match="too large for exact sums"):
        to_drasp({"a": parse(f'x = ({10**20} * (# "a")) > (# "b")')}, LETTERS)
    # Without a constant there is no need of one.
    program = to_drasp({"a": parse('x = (# "a") >= 1')}, Vocabulary(("a", "b")), positions=20)
    assert compare(program, {"a": parse('x = (# "a") >= 1')}, 8).disagreement is None


def test_remainders_of_positions_become_tables():
    said = {"a": parse('#import position_3_1\nx = (position_3_1 && ((# position_3_1) > (# "b")))')}
    assert compare(to_drasp(said, LETTERS, positions=20), said, 8, any_tokens=False).disagreement is None


# ------------------------------------------------------------------------------------- the theorem

ROUNDED = """
s1 = select(q=token, k=token, op=A)
a1 = aggregate(s=s1, v=token)
m1 = element_wise_op(a1, func=harden)
s2 = select(k=m1, op=B)
a2 = aggregate(s=s2, v=a1)
m2 = element_wise_op(a2, token, func=mlp(F, relu))
logits1 = project(inp=a2, op=R)
logits2 = project(inp=m2, op=S)
prediction = sigmoid(logits1+logits2)
"""


def rounded_program(seed: int):
    generator = torch.Generator().manual_seed(seed)

    def logarithms(*shape: int) -> torch.Tensor:
        top, bottom = (torch.randint(1, 4, shape, generator=generator).double() for _ in range(2))
        return torch.log(top / bottom)

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tensors = {"A": logarithms(3, 3), "B": logarithms(1, 3), "R": tensor(3, 3), "S": tensor(2, 3)}
    tensors |= {"F.0": tensor(3, 2), "F.1": tensor(3, 2), "F.hidden": tensor(2, 3), "F.hidden_bias": tensor(3)}
    tensors |= {"F.out": tensor(3, 2), "F.out_bias": tensor(2)}
    return written(Vocabulary(("a", "b", "c")), ROUNDED, tensors)


@pytest.mark.parametrize(("bits", "seed"), [(0, 0), (0, 1), (1, 2), (1, 3)])
def test_the_construction_of_the_theorem(bits, seed):
    """Rounded to p bits, what is outside C-RASP otherwise (a mean of shares) is inside, and equal."""
    program = rounded_program(seed)
    with pytest.raises(ProgramError, match="a mean of shares is no count"):
        to_crasp(program)
    said = to_crasp(program, precision=bits)
    rounded = RoundedInterpreter(program, bits)
    for ids in all_strings(range(3), 4):
        found = {token: answers(one, ids, "abc") for token, one in said.items()}
        for number, row in enumerate(ids.tolist()):
            for i, expected in enumerate(rounded.said(row)):
                assert {token for token in found if found[token][number, i]} == expected


def test_the_size_of_the_construction_is_known_before():
    program = rounded_program(0)
    assert construction_size(program, 1) == {"a1": 27, "m1": 27, "a2": 27, "m2": 81}
    with pytest.raises(CraspError, match="rounded to 5 bits `a1` takes up to 35,937 values"):
        construction_size(program, 5)
    with pytest.raises(CraspError, match="fewer bits would do"):
        to_crasp(program, precision=5)


def test_rounding_is_downwards_and_exact():
    text = "a1 = aggregate(s=[], v=token)\nlogits1 = project(inp=a1, op=(inp==out))\nprediction = sigmoid(logits1)"
    program = written(Vocabulary(("a", "b")), text)
    values = RoundedInterpreter(program, 1).trace([0, 1, 1])["a1"]
    assert [[float(x) for x in row] for row in values] == [[1, 0], [0.5, 0.5], [0, 0.5]]


def test_scores_must_be_logarithms_of_fractions():
    program = rounded_program(0)
    odd = program.with_tensors({"A": torch.full((3, 3), 0.5).double() * torch.eye(3).double()})
    with pytest.raises(ProgramError, match="not the logarithm of a simple fraction"):
        to_crasp(odd, precision=0)


# --------------------------------------------------------------------------------------- refusals

OUTSIDE = {
    "logits1 = project(inp=pos, op=(inp==out))": "it reads `pos` as such",
    "s1 = select(k=pos, op=(k is first))\na1 = aggregate(s=s1, v=token)": "it reads `pos` as such",
    "s1 = select(q=pos, k=pos, op=P)\na1 = aggregate(s=s1, v=token)": "`pos` is used absolutely",
    "a1 = aggregate(s=[], v=token)\na2 = aggregate(s=[], v=a1)": "a mean of shares is no count",
    "a1 = aggregate(s=[], v=token)\ns1 = select(q=token, k=a1, op=(k==q))\na2 = aggregate(s=s1, v=token)": (
        "its key `a1` is a share"
    ),
    "a1 = aggregate(s=[], v=token)\nn1 = norm(a1, op=N, eps=0.1)\na2 = aggregate(s=[], v=token/n1)": (
        "the root of a sum of squares of shares"
    ),
    "a1 = aggregate(s=[], v=token)\nm1 = element_wise_op(a1, func=mlp(F, relu))\nx = project(inp=m1, op=(inp==out))": (
        "an MLP of several shares"
    ),
    "a1 = aggregate(s=[], v=token)\nh1 = element_wise_op(a1, func=sharpen(2))": "sharpen of shares",
}


@pytest.mark.parametrize("lines", OUTSIDE)
def test_refusals_name_the_line_and_the_reason(lines):
    generator = torch.Generator().manual_seed(0)
    tensors = {"P": torch.randn(152, 152, generator=generator), "N.0": torch.eye(6), "F.0": torch.eye(6)}
    tensors |= {"F.hidden": torch.eye(6), "F.hidden_bias": torch.zeros(6), "F.out": torch.eye(6)}
    tensors |= {"F.out_bias": torch.zeros(6)}
    last = "logits9 = project(inp=token, op=(inp==out))"
    names = [line.split(" = ")[0] for line in lines.splitlines() if "project(" in line] + ["logits9"]
    program = written(LETTERS, f"{lines}\n{last}\nprediction = sigmoid({'+'.join(names)})", tensors)
    with pytest.raises(ProgramError) as error:
        to_crasp(program)
    assert OUTSIDE[lines] in str(error.value)
    assert "is outside C-RASP" in str(error.value)
    assert error.value.place.line >= 4


def test_shares_of_different_denominators():
    text = """
    s1 = select(k=token, op=(1: a=1)*1.0)
    a1 = aggregate(s=s1, v=token)
    a2 = aggregate(s=[], v=token)
    logits1 = project(inp=a1, op=(inp==out))
    logits2 = project(inp=a2, op=(out==inp+1))
    prediction = sigmoid(logits1+logits2)
    """
    with pytest.raises(ProgramError, match="shares with different denominators"):
        to_crasp(written(ABC, text))


def test_a_program_that_needs_too_many_cases():
    """2^26 ways to be there or not."""
    vocabulary = Vocabulary(tuple("abcdefghijklmnopqrstuvwxyz"))
    text = "a1 = aggregate(s=[], v=token)\nh1 = element_wise_op(a1, func=is_pure(0.01))\n"
    text += "logits1 = project(inp=h1, op=R)\nprediction = sigmoid(logits1)"
    with pytest.raises(ProgramError, match="cases, expected at most"):
        to_crasp(written(vocabulary, text, {"R": torch.ones(27, 26)}))


# ----------------------------------------------------------------------------------- the commands


def saved(folder, program):
    folder.mkdir()
    for name in ("program.drasp", "program.safetensors"):
        (folder / name).write_bytes(program_files(program)[name])
    return folder


def test_the_command_writes_a_file_a_token(tmp_path):
    source = saved(tmp_path / "result", PROGRAMS["D4"])
    done = drasp("export", source, "--format", "crasp", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "equal on all 2,047 strings of up to 10 ordinary tokens" in done.out
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        *("a.cr", "b.cr", "EOS.cr", "predefined.py", "export.json")
    }
    manifest = json.loads((tmp_path / "out" / "export.json").read_text())
    assert manifest["tokens"]["EOS"]["depth"] == 1
    assert manifest["checked"]["length"] == 10
    assert "Nothing is proved for longer strings." in (tmp_path / "out" / "a.cr").read_text()


def test_names_of_files(tmp_path):
    vocabulary = Vocabulary(("a", "A", "x/y", "."))
    text = 'logits1 = project(op=(1: a=1 A=1 "x/y"=1 "."=1))\nprediction = sigmoid(logits1)'
    program = written(vocabulary, text)
    assert set(export(program).file_names().values()) == {"a.cr", "token_1.cr", "token_2.cr", "token_3.cr"}


def test_what_cannot_be_exported_ends_in_one_line(tmp_path):
    text = "a1 = aggregate(s=[], v=token)\nh1 = element_wise_op(a1, func=sharpen(2))\n"
    text += "logits1 = project(inp=h1, op=(inp==out))\nprediction = softmax(logits1)"
    source = saved(tmp_path / "result", written(LETTERS, text))
    line = fails("export", source, "--out", tmp_path / "out")
    assert "program.drasp:6:4: `h1 = element_wise_op(a1, func=sharpen(2))` is outside C-RASP" in line
    assert not (tmp_path / "out").exists()
    assert "not known; expected crasp" in fails("export", source, "--format", "prolog", "--out", tmp_path / "out")
    good = saved(tmp_path / "good", PROGRAMS["abcde"])
    line = fails("export", good, "--length", "21", "--out", tmp_path / "out")
    assert "476,837,158,203,125 strings of 5 tokens" in line
    assert "--length 9 would do" in line
    assert "exists already" in fails("export", good, "--out", good)
    assert "positions for 151 tokens" in fails("export", good, "--length", "400", "--out", tmp_path / "out")


@pytest.mark.parametrize("name", ["tomita1", "tomita7", "D2", "D12", "ab_d_bc"])
def test_what_may_come_next_in_a_language_is_in_crasp(name):
    """On all strings behind BOS, prefixes of words or not: by the automaton."""
    language = known(language_of(TASKS[name]))
    tokens = language.vocabulary.tokens
    said = {token: witness(decide(found)) for token, found in next_token_automata(language).items()}
    for words in all_strings(range(len(language.symbols)), 8 if len(language.symbols) == 2 else 5):
        ids = np.pad(words, ((0, 0), (1, 0)), constant_values=language.vocabulary.ids["BOS"])
        allowed = language.allowed_after(ids, np.ones(ids.shape, bool))
        for index, token in enumerate(tokens):
            found = answers(said[token], ids, tokens) if token in said else np.zeros(ids.shape, bool)
            assert (found == allowed[..., index]).all()


def test_a_program_outside_crasp_is_proved_to_be_that_of_its_language(tmp_path):
    """A norm is no matter of counts, but dividing by it changes no sign."""
    lines = str(PROGRAMS["D4"]).replace("inp=a1,", "inp=a1/n1,")
    text = "n1 = norm(token, pos, one, op=N, eps=0.9)\n" + re.sub(r"(?m)^\d+\. ", "", lines)
    shapes = {"N.0": (6, 2), "N.1": (152, 2), "N.2": (1, 2)}
    tensors = {name: torch.full(shape, 0.1) * torch.tensor([1.0, -1.0]) for name, shape in shapes.items()}
    source = saved(tmp_path / "result", written(LETTERS, text, tensors))
    assert "`pos` as such" in fails("export", source, "--out", tmp_path / "out")
    done = drasp("export", source, "--task", "D4", "--length", "12", "--out", tmp_path / "out")
    assert "program against task D4, at offset 0: proved for all" in done.out
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"a.cr", "b.cr", "EOS.cr", "certificate.json", "check_certificate.py", "export.json"} <= files
    assert "is the program of the language of task D4" in (tmp_path / "out" / "a.cr").read_text()
    checked = json.loads((tmp_path / "out" / "export.json").read_text())["checked"]
    assert (checked["task"], checked["length"]) == ("D4", 12)
    assert drasp("check-certificate", tmp_path / "out" / "certificate.json").code == 0


def test_what_is_not_the_program_of_a_language_is_refused(tmp_path):
    d4 = PROGRAMS["D4"]
    with pytest.raises(DraspError, match="not that of the language D3: refuted: after BOS a a a .*--length 2 would do"):
        export_language(d4, TASKS["D3"], 8)
    with pytest.raises(DraspError, match="not that of the language D3: refuted: after BOS a a a "):
        export_language(d4, TASKS["D3"])
    with pytest.raises(DraspError, match="its language is not in C-RASP: states"):
        export_language(PROGRAMS["tomita2"], TASKS["tomita4"])
    with pytest.raises(DraspError, match="task sort: not a language"):
        export_language(d4, TASKS["sort"])


def test_what_is_decided_of_a_decompiled_language():
    decided = "decided without positions: in C-RASP; witness: "
    assert standing(PROGRAMS["tomita2"], TASKS["tomita2"], proved=True) == f"language tomita2, {decided}this program"
    other = f"language D4, {decided}`drasp export PROGRAM --task D4` writes one"
    assert standing(PROGRAMS["D4"], TASKS["D4"], proved=False) == other
    share = written(LETTERS, "a1 = aggregate(s=[], v=token)\nh1 = element_wise_op(a1, func=sharpen(2))\n" + _LOGITS)
    assert standing(share, TASKS["D4"], proved=True) == other
    assert "tomita4, decided without positions: not in C-RASP: states" in str(
        standing(PROGRAMS["tomita2"], TASKS["tomita4"], proved=True)
    )
    assert standing(PROGRAMS["bin_majority"], TASKS["bin_majority"], proved=True) is None


_LOGITS = "logits1 = project(inp=h1, op=(inp==out))\nprediction = sigmoid(logits1)"


def test_a_compiled_counting_program():
    """`drasp compile` makes a transformer of a C-RASP program."""
    said = {"a": parse('x = (# "a") > (# "b")'), "b": parse('y = "a" && ((# (("b" || "a") && (! "b"))) > 2)')}
    compiled = compile_program(to_drasp(said, LETTERS, positions=20))
    ids = np.array([[2, *row] for row in next(all_strings([0, 1], 7)).tolist()])
    inputs = Sequences(torch.tensor(ids), torch.arange(8).expand(len(ids), -1))
    logits = run(compiled.transformer, inputs).logits.numpy()
    for place, token in enumerate(LETTERS.tokens):
        expected = answers(said[token], ids, LETTERS.tokens) if token in said else np.zeros(ids.shape, bool)
        assert ((logits[..., place] > 0) == expected).all()


def test_a_length_that_does_not_fit():
    with pytest.raises(DraspError, match="positions for 151 tokens"):
        compare(PROGRAMS["D4"], {}, 200)


def test_an_mlp_of_one_frequency_is_a_union_of_intervals():
    program = to_crasp(OTHERS["an MLP of one frequency"])["a"]
    comparisons = [d.expression for d in program.definitions if d.name.startswith("c")]
    assert len(comparisons) == 2
    assert "||" in to_text(program)
