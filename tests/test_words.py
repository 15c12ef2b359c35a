"""Programs in words: sentences that a person would write of hand-written programs, whatever form the numbers have."""

import json
import random
import re
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from drasp.absence import absence
from drasp.fitting.means import means_over
from drasp.language import Interpreter, Program, check, parse
from drasp.language.interpreter import pattern_of
from drasp.language.syntax import Aggregate, ElementWise, Norm, Prediction, Project, Select
from drasp.loading import load_model, resolve_model
from drasp.rewriting.positions import within
from drasp.sequences import Sequences
from drasp.tasks import TASKS
from drasp.translation import translate
from drasp.words import names_told, paragraph, sentence, sentences
from random_programs import random_program, randoms
from unnamed import without_names

HEADER = "vocab = [a, b, c, d, BOS, SEP, EOS, PAD]\nspecial = [BOS, SEP, EOS, PAD]\npositions = 24\n"
SAY = "\nl1 = project(inp=a1, op=(inp==out)*10, special_op=(uniform selection))\nprediction = softmax(l1)"
HEAD = "\na1 = aggregate(s=s1, v=token)"

SELECTS = {
    "q=pos, k=pos, op=(k==q-1)*20": "looks for the position before",
    "q=pos, k=pos, op=(k==q-3)": "looks for the position 3 before",
    "q=pos, k=pos, op=(k==q)": "looks for its own position",
    "q=pos, k=pos, op=((q-k)%2==1)": "looks for positions at an odd distance",
    "q=pos, k=pos, op=((q-k)%3==1)": "looks for positions at a distance of 1, 4, 7 …",
    "q=pos, k=pos, op=(q-2<=k<=q-1)": "looks for the positions 1 to 2 before",
    "q=pos, k=pos, op=(k==q-1)*0.9": "leans towards the position before",
    "k=token, op=(k==BOS)*20": "looks for positions where the token is BOS",
    "k=token, op=(k==BOS)*-20": "looks for positions where the token is not BOS",
    "k=token, op=(*: a=1 b=2 c=3 d=4)*8": "looks for positions where the token is d, else c, else b, else a",
    "k=token, op=(k==BOS)*0.1": "leans towards all positions alike",
    "k=pos, op=(k is last)*200": "looks for the latest position",
    "k=pos, op=(k is first)*20": "leans towards the first position",
    "q=token, k=pos, op=(k is last)*3": "leans towards late positions",
    "q=token, k=token, op=(k==q)": "looks for positions where the token is the query's token",
    "q=token, k=token, op=(k is next above q)": (
        "looks for positions where the token is the next above the query's token"
    ),
    "q=token, k=token, op=(k==q), special_op=(k==BOS)": (
        "looks for positions where the token is the query's token; from SEP, where the token is BOS"
    ),
    "q=token, k=token, op=(a: b=9; *: c=9)": (
        "looks for positions by what the query's token is (a: where the token is b; "
        "b, c, d, BOS or SEP: where the token is c)"
    ),
}
PROJECTS = {
    ("token", "(inp==out)", "softmax"): "says the token",
    ("token", "(inp==out)*-1", "softmax"): "speaks against the token",
    ("token", "(a: b=3; b: a=3)", "softmax"): "speaks for b where the token is a; speaks for a where the token is b",
    ("token", "(a->b EOS; BOS->a b)", "sigmoid"): "allows b and EOS where the token is a; "
    "allows a and b where the token is BOS",
    ("one", "(*: a=5 EOS=-5)*1", "sigmoid"): "always allows a",
    ("a1", "(inp==out)", "softmax"): "says what the mix of all tokens so far holds most of",
    ("a1", "(a: b=2 EOS=-2)", "sigmoid"): (
        "speaks for b and against EOS, the more of a there is in the mix of all tokens so far"
    ),
}


def program(text: str) -> Program:
    return parse(HEADER + text)


@pytest.mark.parametrize(("arguments", "words"), SELECTS.items())
def test_selects(arguments: str, words: str):
    made = program(f"s1 = select({arguments}){HEAD}{SAY}")
    assert sentence(made, made.statements[0]) == words
    assert sentences(without_names(made)) == sentences(made)


@pytest.mark.parametrize(("source", "words"), PROJECTS.items())
def test_projects(source: tuple[str, str, str], words: str):
    variable, op, output = source
    made = program(f"a1 = aggregate(s=[], v=token)\nl1 = project(inp={variable}, op={op})\nprediction = {output}(l1)")
    assert sentence(made, made.statements[1]) == words
    assert sentences(without_names(made)) == sentences(made)


@given(st.integers(1, 8), st.floats(10, 1e4), st.integers(0, 2**31))
def test_the_position_that_is_named_is_the_one_attended_to(distance: int, scale: float, seed: int):
    made = program(f"s1 = select(q=pos, k=pos, op=(k==q-{distance})*{scale:.3f}){HEAD}{SAY}")
    noisy = without_names(made)
    noise = torch.randn(24, 24, generator=torch.Generator().manual_seed(seed)) * 0.2
    noisy = noisy.with_tensors({"Ts1": noisy.tensors["Ts1"] + noise})
    words = "the position before" if distance == 1 else f"the position {distance} before"
    assert sentence(noisy, noisy.statements[0]) == f"looks for {words}"
    inputs = Sequences(torch.zeros(1, 20, dtype=torch.long), torch.arange(20)[None])
    weights = Interpreter.of(noisy).run(inputs, record=[pattern_of("a1")]).values[pattern_of("a1")][0]
    assert (weights[distance:].argmax(1) == torch.arange(20 - distance)).all()


def test_a_position_that_has_most_of_the_weight_is_told_where_others_come_near_it():
    """The lead over the next is small in the range of scores, as a trained model's often is."""
    scores = torch.where(torch.arange(24)[None] == torch.arange(24)[:, None] - 2, 9.0, 0.0)
    scores[:, 0] = torch.where(torch.arange(24) > 2, 8.5, scores[:, 0])
    scores[0, 0], scores[1, 1] = 9.0, 9.0
    made = parse(f"{HEADER}s1 = select(q=pos, k=pos, op=A1){HEAD}{SAY}", {"A1": scores})
    assert sentence(made, made.statements[0]) == "leans towards the position 2 before"
    flat = parse(f"{HEADER}s1 = select(q=pos, k=pos, op=A1){HEAD}{SAY}", {"A1": scores / 9})
    assert (
        sentence(flat, flat.statements[0])
        == "leans towards positions by a table of the query's position and the key's position"
    )


@pytest.mark.parametrize("behind", [0.0, 9.0])
def test_positions_that_no_input_reaches_do_not_count(behind: float):
    """As in a model of 24 positions that was trained on inputs of 9 tokens: the others are flat, or noise."""
    scores = torch.randn(24, 24, generator=torch.Generator().manual_seed(0)) * behind
    scores[:9, :9] = 20.0 * (torch.arange(9)[None] == torch.arange(9)[:, None] - 2)
    made = parse(f"{HEADER}s1 = select(q=pos, k=pos, op=A1){HEAD}{SAY}", {"A1": scores})
    assert "position 2 before" not in sentence(made, made.statements[0])
    reached = within(made, 9)
    assert sentence(reached, made.statements[0]) == "looks for the position 2 before"
    assert paragraph(reached).startswith("`a1` attends to the position 2 before, and takes the token there. ")


def test_a_program_whose_function_takes_no_single_position_stays_whole():
    header = HEADER.replace("24", "12")
    made = parse(f"{header}h1 = element_wise_op(pos, func=compare)\nl1 = project(op=(a=1))\nprediction = softmax(l1)")
    assert within(made, 1) is made
    assert within(made, 2).n_positions == 2


@given(randoms, st.integers(1, 12), st.integers(0, 2**31))
def test_a_program_on_its_first_positions_gives_the_same_logits_there(rng: random.Random, count: int, seed: int):
    whole = random_program(rng)
    part = within(whole, count)
    assert not check(part)
    # What a function of `pos` says may have directions that are no positions; then nothing is cut off.
    assume(part is not whole or count >= whole.n_positions)
    assert part.n_positions == min(count, whole.n_positions)
    positions = torch.arange(part.n_positions)[None]
    ids = torch.randint(len(whole.vocabulary), positions.shape, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(
        Interpreter(part, torch.float64)(ids, positions), Interpreter(whole, torch.float64)(ids, positions)
    )


def test_variables_are_called_by_what_they_are():
    first = program(
        f"""s1 = select(q=pos, k=pos, op=(k==q-1)*20)
        a0 = aggregate(s=s1, v=token)
        s2 = select(k=a0, op=(k==BOS)*20)
        a1 = aggregate(s=s2, v=token){SAY}"""
    )
    assert sentences(first) == [
        "looks for the position before",
        "attends to the position before, and takes the token there",
        "looks for positions where the token before is BOS",
        "attends to positions where the token before is BOS, and takes the token there",
        "says the token where the token before is BOS",
        "is the token that is spoken for most",
    ]
    assert paragraph(first) == (
        "`a0` attends to the position before, and takes the token there. "
        "`a1` attends to positions where the token before is BOS, and takes the token there. "
        "`l1` says the token where the token before is BOS. The answer is the token that is spoken for most."
    )


def test_weights_that_differ_little_make_a_mean():
    """Of six keys, BOS with a lead of 0.9 has a third of the weight: it is not what is taken."""
    said = "averages the token over all positions so far, with more weight"
    for op, words in (
        ("k=token, op=(k==BOS)*0.9", f"{said} on positions where the token is BOS"),
        (
            "q=token, k=token, op=(a: BOS=1; b: a=1)*0.9",
            f"{said} by what the query's token is (a: where the token is BOS; ",
        ),
        ("k=token, op=(k==BOS)*3", "attends most to positions where the token is BOS, and takes the token there"),
        ("k=token, op=(k==BOS)*0.1", "attends to all positions so far alike, and averages the token"),
    ):
        made = program(f"s1 = select({op}){HEAD}{SAY}")
        assert sentence(made, made.statements[1]).startswith(words)
    faint = program(f"s1 = select(k=token, op=(k==BOS)*0.9){HEAD}{SAY}")
    assert sentences(faint)[2] == "says what `a1` holds most of"


def test_selects_that_an_aggregate_adds_up_are_told_each():
    both = program(
        f"""s1 = select(k=token, op=(k==BOS)*0.9)
        s2 = select(q=pos, k=pos, op=(k==q-1)*0.9)
        a1 = aggregate(s=s1+s2, v=token){SAY}"""
    )
    assert paragraph(both).startswith(
        "`s1` leans towards positions where the token is BOS. `s2` leans towards the position before. "
        "`a1` attends most to positions by the scores `s1` and `s2` together, and takes the token there. "
    )


@pytest.mark.parametrize(
    ("named", "tables", "words"),
    [
        (3, 0, "3 of 5 operations named"),
        (3, 1, "3 of 5 operations named, one as a table"),
        (5, 4, "5 of 5 operations named, 4 as tables"),
        (2, 2, "mostly unnamed (2 of 5 operations named, 2 as tables)"),
    ],
)
def test_a_program_that_is_mostly_unnamed_says_so(named: int, tables: int, words: str):
    counts = {
        "select": {"named": 0, "tables": 0, "total": 1},
        "project": {"named": named, "tables": tables, "total": 4},
    }
    assert names_told(counts) == words


ROOT = Path(__file__).parents[1]
TOLD = json.loads((ROOT / "bench" / "words.json").read_text("utf-8"))


@pytest.mark.parametrize("row", TOLD, ids=[row["model"] for row in TOLD])
def test_the_documentation_tells_the_published_models_as_the_words_do(row: dict):
    page = (ROOT / "docs" / "published_words.md").read_text("utf-8")
    listing = "\n".join(f"    {line}" for line in row["program"].splitlines())
    assert f"{row['model']}: {row['verdict']}.\n\n{listing}\n\n> {row['words']}\n\n**Judged.** " in page
    task = TASKS[row["model"].split("-")[0]]
    names = ", ".join(task.vocabulary.tokens)
    header = f"vocab = [{names}]\nspecial = [{', '.join(task.vocabulary.special)}]\npositions = {task.n_positions}\n"
    if re.search(r"op=[A-Z]\d|R\d|F\d", row["program"]) is None:  # else its numbers are in another file
        alone = parse(f"{header}{row['program']}")
        assert (sentences(alone), paragraph(alone)) == (row["sentences"], row["words"])


def test_of_every_kind_of_line_it_is_told_what_changes_without_it():
    task = TASKS["bin_majority"]
    program = translate(load_model(resolve_model("bin_majority")), task.vocabulary, task.output)
    kinds = {type(statement): statement for statement in program.statements}
    assert {Aggregate, ElementWise, Norm, Prediction, Project, Select} == kinds.keys()
    for kind, statement in kinds.items():
        found = absence(program, statement, task)
        assert (found is None) == (kind is Prediction)


@given(data=st.data())
def test_means_are_those_of_what_is_more_than_padding(data):
    """Values may be the same for all inputs or positions, and norms are one number at each."""
    sizes = [data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)) for _ in range(2)]
    batches, wanted = [], {"vector": [], "norm": [], "everywhere": []}
    for batch in sizes:
        values = {
            "vector": torch.randn(len(batch), 4, 3, dtype=torch.float64),
            "norm": torch.randn(len(batch), 4, dtype=torch.float64),
            "everywhere": torch.randn(1, 1, 2, dtype=torch.float64),
        }
        batches.append((values, torch.arange(4) < torch.tensor(batch)[:, None]))
        for row, size in enumerate(batch):
            for position in range(size):
                wanted["vector"].append(values["vector"][row, position])
                wanted["norm"].append(values["norm"][row, position])
                wanted["everywhere"].append(values["everywhere"][0, 0])
    for name, mean in means_over(batches).items():
        torch.testing.assert_close(mean, torch.stack(wanted[name]).mean(0))
