"""Tables in the text, the other forms of a program, differences, explanations, and the commands."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from cases import CASES
from command import drasp, fails
from drasp.errors import DraspError
from drasp.fitting.head import Head
from drasp.language import Interpreter, Program, check, load_program, parse, program_files
from drasp.language.remarks import remark
from drasp.language.syntax import to_text
from drasp.language.tables import canonical_text, read_table, write_followers, write_table
from drasp.naming.difference import difference
from drasp.naming.explain import _clusters, explain, text
from drasp.naming.inputs import inputs_for
from drasp.naming.rounding import _whole_column
from drasp.settings import DEFAULT
from drasp.sites import parse_site
from drasp.tasks import load_task

LABELS = ("a", "k", "B S", "#", "*", "->", ";", '"')
HEADER = f"vocab = [{', '.join(json.dumps(label) for label in LABELS)}]\npositions = 9\n"


@pytest.mark.parametrize("seed", range(20))
def test_tables_read_back_as_they_were_written(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-3, 4, (8, 8)) * (rng.random((8, 8)) < rng.random())
    written = write_table(matrix, LABELS, LABELS)
    if not matrix.any():
        assert written == ""
        return
    assert np.array_equal(read_table(written, LABELS, LABELS, 0), matrix)
    assert canonical_text(written) == written
    followers = write_followers(matrix, LABELS, LABELS)
    assert np.array_equal(read_table(followers, LABELS, LABELS, -1) > 0, matrix > 0)
    lines = [f"l1 = project(inp=token, op=({written})*2)", f"l2 = project(inp=token, op=({followers or 'a->a'}))"]
    program = parse(HEADER + "\n".join([*lines, "prediction = softmax(l1+l2)"]))
    assert not check(program)
    assert parse(to_text(program)) == program
    assert np.array_equal(Interpreter(program).ops["l1"].numpy(), 2.0 * matrix)


def test_a_table_is_read_in_any_spacing() -> None:
    assert canonical_text('a :b=+3   "B S" = -2;*:a=1') == 'a: b=3 "B S"=-2; *: a=1'
    assert canonical_text("a ->  b  c;*->d") == "a->b c; *->d"


def test_a_tensor_of_one_row_is_written_without_a_label() -> None:
    for values, form in {(2, 0, 0, -1): "a=2 d=-1", (1, 1, 0, 0): "a=1 b=1", (3, 7, 7, 7): "a=3 *=7"}.items():
        matrix = np.array([values])
        assert write_table(matrix, ("1",), tuple("abcd")) == form
        for written in (form, f"1: {form}", f"*: {form}"):
            assert np.array_equal(read_table(written, ("1",), tuple("abcd"), 0), matrix)
        assert canonical_text(f"*: {form}") == form == canonical_text(form)
        program = parse(f"vocab = [a, b, c, d]\npositions = 9\nl1 = project(op=({form})*2)\nprediction = softmax(l1)")
        assert parse(to_text(program)) == program
        assert np.array_equal(Interpreter(program).ops["l1"].numpy(), 2.0 * matrix)
    assert write_followers(np.array([[1, -1, 1]]), ("1",), ("a", "b", "c")) == "*->a c"


@pytest.mark.parametrize(
    ("op", "problem"),
    [
        ("x: a=1", "x is not a direction of the variable"),
        ("a: y=1", "y is not a direction"),
        ("a: b", "unknown primitive"),
    ],
)
def test_mistakes_in_tables_are_named(op: str, problem: str) -> None:
    text = HEADER + f"l1 = project(inp=token, op=({op}))\nprediction = softmax(l1)"
    with pytest.raises(DraspError, match=problem):
        Interpreter(parse(text))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_forms_exist_for_every_program(case) -> None:
    files = program_files(case.program)
    read = json.loads(files["program.json"])
    assert read["schema_version"] == 1
    assert [line["name"] for line in read["lines"]] == [s.name for s in case.program.statements]
    for line, statement in zip(read["lines"], case.program.statements, strict=True):
        assert (line["kind"], line["comment"]) == (statement.kind, remark(statement))
        assert tuple(map(parse_site, line["sites"])) == statement.sites
    assert {name: tensor["shape"] for name, tensor in read["tensors"].items()} == {
        name: list(tensor.shape) for name, tensor in case.program.tensors.items()
    }
    latex = files["program.tex"].decode()
    assert latex.count("\\begin{Verbatim}") == 1
    body = latex.split("\\begin{Verbatim}[commandchars=\\\\\\{\\}]\n")[1].split("\n\\end{Verbatim}")[0]
    plain = body.replace("\\{", "").replace("\\}", "").replace("\\textbackslash{}", "")
    assert plain.count("{") == plain.count("}")
    assert f"{case.program.lines}. prediction" in body
    for statement in case.program.statements:
        assert remark(statement) in body


def test_equal_programs_have_no_difference() -> None:
    program = CASES[2].program
    renamed = parse(to_text(program).replace("a1", "z9").replace("s2", "match"), program.tensors)
    assert difference(program, renamed) == []
    other = replace(program, tensors={"c": program.tensors["c"] * 2})
    [line] = difference(program, other)
    assert line.endswith("entries differ by up to 10, of 20")
    shorter = parse(to_text(program).replace("k==q-1", "k==q-2"), program.tensors)
    assert any(line.startswith("+s1 = select(q=pos, k=pos, op=(k==q-2)") for line in difference(program, shorter))


# --------------------------------------------------------------------------------------------- explanations

TASK = load_task("D3")


def explained(text_: str, **tensors: torch.Tensor) -> Program:
    vocabulary = TASK.vocabulary
    header = f"vocab = [{', '.join(vocabulary.tokens)}]\nspecial = [{', '.join(vocabulary.special)}]\n"
    return parse(f"{header}positions = {TASK.n_positions}\n{text_}", tensors)


HISTOGRAM = "a1 = aggregate(s=[], v=token)\nm1 = element_wise_op(a1, func=harden)\n"


def test_inputs_are_sorted_by_what_they_promote() -> None:
    program = explained(HISTOGRAM + "l1 = project(inp=m1, op=(inp==out))\nprediction = sigmoid(l1)")
    found = explain(program, 2, *inputs_for(program, TASK))
    [path] = found.logits
    assert path.lines == ("l1",)
    effect = next(effect for effect in path.tokens if effect.token == "a")
    [best] = [dict(value.entries)["a"] for value in effect.most[0].inputs]
    assert effect.most[0].promoted == 10_000
    assert best == max(dict(effect.most[0].inputs[0].entries).values())
    assert effect.least[0].promoted == 0
    assert json.loads(json.dumps(asdict(found)))["line"] == 2
    assert "a, through l1" in text(found)


def test_queries_come_in_kinds() -> None:
    program = explained(
        "m1 = element_wise_op(token, pos, func=keep(1))\ns1 = select(q=m1, k=token, op=(k==q))\n"
        "a1 = aggregate(s=s1, v=token)\nl1 = project(inp=a1, op=(inp==out))\nprediction = sigmoid(l1)"
    )
    found = explain(program, 1, *inputs_for(program, TASK))
    [path] = found.attention
    assert path.side == "query"
    for kind in path.kinds:
        [own] = [value for value in kind.query if value.variable == "token"]
        likeliest = max(own.entries, key=lambda entry: entry[1])[0]
        assert kind.most[0].inputs[0].entries[0][0] == likeliest


def test_mixing_between_two_functions_is_warned_of() -> None:
    mixed = explained(
        HISTOGRAM + "a2 = aggregate(s=[], v=m1)\nm2 = element_wise_op(a2, func=harden)\n"
        "l1 = project(inp=m2, op=(inp==out))\nprediction = sigmoid(l1)"
    )
    [warning] = explain(mixed, 2, *inputs_for(mixed, TASK)).warnings
    assert "`a2` mixes positions before `m2`" in warning
    alone = parse(
        to_text(mixed).replace("s=[], v=m1", "s=s9, v=m1").replace("3. a2", "s9 = select(q=pos, k=pos, op=(k==q))\na2")
    )
    assert explain(alone, 2, *inputs_for(alone, TASK)).warnings == ()


def test_only_functions_are_explained() -> None:
    program = explained(HISTOGRAM + "l1 = project(inp=m1, op=(inp==out))\nprediction = sigmoid(l1)")
    inputs = inputs_for(program, TASK)
    with pytest.raises(DraspError, match="line 1: `a1 = aggregate.*is no element_wise_op"):
        explain(program, 1, *inputs)
    with pytest.raises(DraspError, match="lines 1 to 4"):
        explain(program, 9, *inputs)


def test_clusters_of_points_that_lie_apart() -> None:
    points = torch.tensor([[0.0], [0.1], [5.0], [5.1], [5.2], [9.0]])
    assert [members.tolist() for members in _clusters(points, 3)] == [
        [False, False, True, True, True, False],
        [True, True, False, False, False, False],
        [False, False, False, False, False, True],
    ]


def test_a_column_needs_a_margin() -> None:
    """2·x > y at ties of x and y: 1 and -1 would leave the answer to rounding."""
    features = torch.tensor([[1.0, 1.0], [2.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    said = torch.tensor([[True], [True], [False], [False]])
    head = Head("sigmoid", (), (), features, said, torch.arange(4))
    whole = _whole_column(head, torch.tensor([1.6, -1.0]), 0, DEFAULT.naming)
    logits = features @ whole
    assert ((logits > 0) == said[:, 0]).all()
    assert whole.equal(whole.round())
    assert logits.abs().min() > 0
    assert not _whole_column(replace(head, said=torch.zeros(4, 1, dtype=torch.bool)), whole, 0, DEFAULT.naming).any()


# -------------------------------------------------------------------------------------------------- commands


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("named")
    program = explained(HISTOGRAM + "l1 = project(inp=m1, op=(inp==out))\nprediction = sigmoid(l1)")
    for name, content in program_files(program).items():
        (folder / name).write_bytes(content)
    return folder


def test_explain_command(folder) -> None:
    assert "name a task with --task" in drasp("explain", folder, "2").err
    finished = drasp("explain", folder, "2", "--task", "D3")
    assert finished.code == 0, finished.err
    assert finished.out.startswith("2. m1 = element_wise_op(a1, func=harden)")
    assert json.loads(drasp("explain", folder, "2", "--task", "D3", "--json").out)["line"] == 2
    assert "its tokens are not those of task sort" in fails("explain", folder, "2", "--task", "sort")
    assert fails("explain", folder, "9") == "drasp: line 9: the program has lines 1 to 4"
    head = drasp("explain", folder, "1", "--task", "D3").out
    assert "In words: `a1` attends to all positions so far alike, and averages the token." in head
    assert "Without it: with its mean in its place, " in head
    assert drasp("explain", folder).out.endswith(
        "`a1` attends to all positions so far alike, and averages the token. "
        "`m1` keeps what the mix of all tokens so far holds most of. "
        "`l1` allows a where what the mix of all tokens so far holds most of is a; "
        "allows b where what the mix of all tokens so far holds most of is b. "
        "The answer is every token for which more speaks than against it.\n"
    )


def test_explain_shows_tensors_with_labels_and_the_effect_of_lines(tmp_path) -> None:
    (tmp_path / "first.drasp").write_text(
        "vocab = [0, 1, BOS, SEP, EOS, PAD]\nspecial = [BOS, SEP, EOS, PAD]\npositions = 154\n"
        "a1 = aggregate(s=[], v=token)\nlogits1 = project(inp=a1, op=(inp==out))\n"
        "logits2 = project(op=(*: 0=1)*0)\nprediction = softmax(logits1+logits2)\n"
    )
    idle = drasp("explain", tmp_path / "first.drasp", "3", "--task", "bin_majority")
    assert "Without it: if it says nothing, 0% of 300 inputs are answered otherwise" in idle.out
    rows = [line.split() for line in idle.out.splitlines() if line.startswith(("always", "  "))]
    assert rows == [["0", "1", "BOS", "SEP", "EOS", "PAD"], ["always", *"······"]]
    # Without the project, all logits are 0, and the first token is said: right for the inputs with more 0 than 1.
    said = json.loads(drasp("explain", tmp_path / "first.drasp", "2", "--task", "bin_majority", "--json").out)
    assert 0.4 < said["without"]["changed"] / said["without"]["inputs"] < 0.6
    assert (said["without"]["answer"], said["without"]["without"]) == ("1", "0")
    assert said["tensor"]["axes"][0] == {"name": "input: a1", "labels": ["0", "1", "BOS", "SEP", "EOS", "PAD"]}


def test_explain_tells_no_whole_program_that_nobody_would_read(tmp_path) -> None:
    header = "vocab = [0, 1, BOS, SEP, EOS, PAD]\nspecial = [BOS, SEP, EOS, PAD]\npositions = 154\n"
    means = "".join(f"a{n} = aggregate(s=[], v=token)\n" for n in range(1, 100))
    end = "logits1 = project(inp=a1, op=(inp==out))\nprediction = softmax(logits1)\n"
    (tmp_path / "long.drasp").write_text(header + means + end)
    said = fails("explain", tmp_path / "long.drasp")
    assert "long.drasp: 101 lines, and at most 100 are told as a whole; `drasp explain " in said
    assert "In words: `a7` attends" in drasp("explain", tmp_path / "long.drasp", "7").out
    (tmp_path / "long.drasp").write_text(header + means.replace("a99 = aggregate(s=[], v=token)\n", "") + end)
    assert drasp("explain", tmp_path / "long.drasp").code == 0


def test_diff_command(folder, tmp_path) -> None:
    assert drasp("diff", folder, folder).code == 0
    other = tmp_path / "other.drasp"
    other.write_text((folder / "program.drasp").read_text().replace("harden", "no_op"))
    finished = drasp("diff", folder, other)
    assert finished.code == 1
    assert "-m1 = element_wise_op(a1, func=harden)" in finished.out


def test_naming_that_is_interrupted_ends_in_one_line(folder, tmp_path, monkeypatch) -> None:
    def interrupted(*_arguments, **_options) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("drasp.naming.result.name_program", interrupted)
    message = fails("name", folder, "D3", "--out", tmp_path / "named")
    assert message == "drasp: interrupted; nothing was written"
    assert not (tmp_path / "named").exists()


def test_name_command(tmp_path) -> None:
    task = load_task("bin_majority")
    text = "a1 = aggregate(s=[], v=token)\nlogits1 = project(inp=a1, op=R)\nprediction = softmax(logits1)"
    header = f"vocab = [{', '.join(task.vocabulary.tokens)}]\nspecial = [BOS, SEP, EOS, PAD]\n"
    program = parse(
        f"{header}positions = {task.n_positions}\n{text}", {"R": 7 * torch.eye(6) + 0.1 * torch.ones(6, 6).tril()}
    )
    (tmp_path / "pruned").mkdir()
    for name, content in program_files(program).items():
        (tmp_path / "pruned" / name).write_bytes(content)
    finished = drasp("name", tmp_path / "pruned", "bin_majority", "--out", tmp_path / "named")
    assert finished.code == 0, finished.err
    assert "op=(inp==out)" in finished.out
    assert "name projects" in finished.err, "it says what it is doing"
    record = json.loads((tmp_path / "named" / "result.json").read_text())
    assert record["match_accuracy"] >= record["pruned_match_accuracy"] - 0.02
    assert record["primitives"]["project"]["named"] == 1
    assert load_program(tmp_path / "named").lines == 3
    assert "its tokens are not those of" in fails("name", tmp_path / "pruned", "abcde", "--out", tmp_path / "x")
