"""Certificates: what they say against brute force, refutations, digests, and the checker that lies beside them."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from command import drasp, fails
from drasp.certificates import Certificate, certified, certify, check_certificate
from drasp.certificates.checker import content_digest, packed, recomputed, unpacked
from drasp.certificates.inputs import RULES, all_inputs, framed, how_many
from drasp.certificates.standalone import standalone_checker
from drasp.certificates.tree import Listed, Words
from drasp.compiler import compile_program
from drasp.errors import DraspError
from drasp.language import Interpreter, Program, function_primitive, parse, same_basis
from drasp.language.function_primitives import _REGISTRY as LIBRARY
from drasp.loading import load_model_and_task, resolve_model
from drasp.model_files import digest, load_model
from drasp.tasks import TASKS, Language, Task, answer_task, each_row, language_task, load_task
from drasp.tasks.framed import language_of
from drasp.transformer import Transformer
from drasp.zoo import zoo_models
from typed import known

ABCDE = """
vocab = [a, b, c, d, e, BOS, SEP, EOS, PAD]
special = [BOS, SEP, EOS, PAD]
positions = 152
logits1 = project(inp=token, op=(a->a b; b->b c; c->c d; d->d e; e->e EOS; BOS->a))
prediction = sigmoid(logits1)
""".strip()
MAJORITY = """
vocab = [0, 1, BOS, SEP, EOS, PAD]
special = [BOS, SEP, EOS, PAD]
positions = 154
a1 = aggregate(s=[], v=token)
logits1 = project(inp=a1, op=(inp==out))
prediction = softmax(logits1)
""".strip()


def _model(name: str) -> tuple[Transformer, Task]:
    transformer, task = load_model_and_task(name, None)
    assert task is not None
    return transformer, task


@pytest.fixture(scope="module")
def abcde() -> Certificate:
    return certify(parse(ABCDE), *_model("abcde"), 8)


def _strings(symbols: int, longest: int) -> Iterator[tuple[int, ...]]:
    for length in range(longest + 1):
        yield from product(range(symbols), repeat=length)


# --------------------------------------------------------------------------------------- inputs


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if isinstance(framed(task).answer, Language)])
def test_a_language_has_the_prefixes_of_its_words(name):
    """Against words that are drawn, and, where symbols are few, against all words."""
    task = TASKS[name]
    language = framed(task).answer
    assert isinstance(language, Language)
    tree = all_inputs(task, 6 if 6 in task.lengths else 5, False)
    assert isinstance(tree, Words)
    found, nodes = set[tuple[int, ...]](), tree.root()
    while len(nodes):
        found |= {tuple(tree.tokens[c] for c in codes[1:]) for codes in nodes.codes}
        nodes = tree.children(nodes, tree.longest)[1]
    drawn = set[tuple[int, ...]]()
    inputs = task.inputs(np.random.default_rng(0).choice(task.lengths[:14], 4000), np.random.default_rng(0))
    for row, size in zip(inputs.ids.tolist(), inputs.sizes.tolist(), strict=True):
        drawn |= {tuple(row[1:end]) for end in range(1, min(size - 1, tree.longest + 1) + 1)}
    assert drawn <= found
    assert len(found) == tree.count()
    symbols = len(task.vocabulary) - 4
    if symbols <= 2:  # few enough for words long enough to complete every prefix of up to four
        words = [word for word in _strings(symbols, 8) if language.accepts(word)]
        prefixes = {word[:end] for word in words for end in range(len(word) + 1)}
        assert {word for word in found if len(word) <= 4} == {word for word in prefixes if len(word) <= 4}


@pytest.mark.parametrize("name", RULES)
def test_rules_give_the_inputs_that_tasks_draw(name):
    task = TASKS[name]
    length = {"addition": 6, "majority": 2, "unique_bigram_copy": 3, "bin_majority_interleave": 6}.get(name, 4)
    length = 2 if len(task.vocabulary) > 100 and name != "count" else length
    tree = all_inputs(task, length, False)
    assert isinstance(tree, Listed)
    found = {tuple(row[row >= 0]) for row in tree.rows}
    assert (tree.targets[:, :-1] == tree.rows[:, 1:])[tree.counted[:, :-1]].all()
    assert len(found) == len(tree.rows) <= how_many(task, length)
    if name not in ("bin_majority", "bin_majority_interleave", "majority", "unique_bigram_copy"):
        assert len(found) == how_many(task, length)
    rng = np.random.default_rng(0)
    inputs = task.inputs(rng.choice([n for n in task.lengths if n <= length], 20_000), rng)
    drawn = {tuple(row[:size]) for row, size in zip(inputs.ids.tolist(), inputs.sizes.tolist(), strict=True)}
    assert drawn <= found
    if len(found) < 1000:
        assert drawn == found


def test_too_many_strings_are_counted_and_a_length_is_named():
    program = parse(MAJORITY)
    with pytest.raises(DraspError, match=r"--length 60: up to 2\.3·10\^18 inputs, .*; --length 20 has 2,097,150"):
        certify(program, None, TASKS["bin_majority"], 60)
    with pytest.raises(DraspError, match="lengths 1 to 150"):
        certify(program, None, TASKS["bin_majority"], 151)


# ------------------------------------------------------------------------------- what is found


@pytest.mark.parametrize("all_strings", [False, True])
def test_what_is_proved_and_refuted_is_what_brute_force_finds(all_strings):
    """Programs with random tables, one string after the other, by the interpreter."""
    model, task = _model("tomita2")
    statuses = set[str]()
    for seed in range(8):
        table = torch.randn(6, 6, generator=torch.Generator().manual_seed(seed))
        right = torch.tensor([[-1, 1, -1, -1, 1, -1], [1, -1, -1, -1, -1, -1], [-1, 1, -1, -1, 1, -1.0]])
        table[:3] = right + (seed % 3) * 0.7 * table[:3]
        mean = torch.randn(6, 6, generator=torch.Generator().manual_seed(seed + 100)) * 0.8 * (seed % 4 > 1)
        program = _mixed_program(table, mean)
        found = certify(program, model, task, 5, all_strings).content["found"]
        expected = _brute_force(program, model, task, 5, all_strings)
        for key, (length, strings, shortest) in expected.items():
            result = found[key]
            statuses.add(result["status"])
            assert (result["length"], result["inputs"], result["undecided"]) == (length, strings, 0)
            case = result["counterexample"]
            assert (case and tuple(case["tokens"])) == shortest
    assert statuses == {"proved", "refuted"}


def _mixed_program(table: torch.Tensor, mean: torch.Tensor) -> Program:
    text = """
        vocab = [0, 1, BOS, SEP, EOS, PAD]
        special = [BOS, SEP, EOS, PAD]
        positions = 152
        a1 = aggregate(s=[], v=token)
        logits1 = project(inp=token, op=R1)
        logits2 = project(inp=a1, op=R2)
        prediction = sigmoid(logits1+logits2)
    """
    return parse("\n".join(map(str.strip, text.strip().splitlines())), {"R1": table, "R2": mean})


def _brute_force(program: Program, model: Transformer, task: Task, longest: int, all_strings: bool):
    """For each comparison: the length up to which all is alike, how many strings there are, and a shortest one."""
    language = framed(task).answer
    assert isinstance(language, Language)
    interpreter = Interpreter(program, torch.float64)
    strings = list(_strings(2, longest))
    live = {w for w in strings if language.allowed_after(*_row(w, task))[0, -1].any()}
    looked = {"against_model": strings if all_strings else [w for w in strings if w in live]}
    looked["against_task"] = [w for w in strings if w in live]
    found = {}
    for key, words in looked.items():
        length, shortest = longest, None
        for word in words:
            ids = torch.tensor([[2, *word]])
            said = interpreter(ids, torch.arange(len(word) + 1)[None])[0, -1] > 0
            if key == "against_model":
                other = model(ids, torch.arange(len(word) + 1)[None])[0, -1] > 0
            else:
                other = torch.as_tensor(language.allowed_after(*_row(word, task))[0, -1])
            if (said != other).any():
                length, shortest = len(word) - 1, (2, *word)
                break
        found[key] = (length, sum(len(w) <= length for w in words), shortest)
    return found


def _row(word: tuple[int, ...], task: Task):
    row = np.array([[task.vocabulary.ids["BOS"], *word]])
    return row, np.ones_like(row, bool)


def test_counterexamples_are_of_minimal_length_by_deletion_too():
    """One entry of the table is wrong: the shortest string that shows it, of which no token can be spared."""
    model, task = _model("abcde")
    wrong = parse(ABCDE.replace("d->d e", "d->d"))
    made = certify(wrong, model, task, 9)
    assert made.status == "refuted"
    for result in made.results.values():
        case = result["counterexample"]
        names = [wrong.vocabulary.tokens[t] for t in case["tokens"]]
        assert names == ["BOS", "a", "b", "c", "d"]
        assert (result["length"], case["length"]) == (3, 4)
        assert [wrong.vocabulary.tokens[t] for t in case["program"]] == ["d"]
        assert [wrong.vocabulary.tokens[t] for t in case["expected"]] == ["d", "e"]
    for gone in range(1, 5):
        shorter = [t for i, t in enumerate(made.results["against_task"]["counterexample"]["tokens"]) if i != gone]
        language = framed(task).answer
        assert isinstance(language, Language)
        assert not language.allowed_after(np.array([shorter]), np.ones((1, 4), bool))[0, -1].any() or gone == 4


def test_answers_at_several_positions_are_compared():
    """Of a task `BOS x SEP y EOS`: the program copies, which is wrong where tokens come in another order."""
    task = TASKS["sort"]
    copy = _numbers_program()
    made = certify(copy, None, task, 1)
    case = made.results["against_task"]["counterexample"]
    # In inputs of one token, it does not know that it is at the end.
    assert case["tokens"] == [150, 0, 151, 0]
    assert (case["length"], made.results["against_task"]["length"]) == (1, 0)


def _numbers_program() -> Program:
    names = ", ".join([*(f'"{n}"' for n in range(150)), "BOS", "SEP", "EOS", "PAD"])
    return parse(
        f"vocab = [{names}]\nspecial = [BOS, SEP, EOS, PAD]\npositions = 303\n"
        "a1 = aggregate(s=[], v=token)\nlogits1 = project(inp=a1, op=(inp==out))\nprediction = softmax(logits1)"
    )


def test_ties_are_decided_by_the_first_token():
    """`BOS 0 SEP` has one of each: exact arithmetic says 0, the first of them, and so does the interpreter."""
    made = certify(parse(MAJORITY), None, TASKS["bin_majority"], 6)
    assert made.status == "proved"
    assert made.results["against_task"]["margin"] is None
    assert made.results["against_task"]["inputs"] == sum(2**n for n in range(1, 7)) - 2 - 6 - 20


def test_what_is_too_close_to_call_is_undecided():
    """A logit of -1 · 2/3 + 2 · 1/3, by softmax over equal scores, is 0 in exact arithmetic: no bound tells."""
    text = """
        vocab = [a, BOS, SEP, EOS, PAD]
        special = [BOS, SEP, EOS, PAD]
        positions = 152
        s1 = select(k=pos, op=(uniform selection))
        a1 = aggregate(s=s1, v=token)
        logits1 = project(inp=a1, op=R)
        prediction = sigmoid(logits1)
    """
    table = torch.zeros(5, 5)
    table[0, 0], table[1, 0] = 1, -2
    program = parse("\n".join(map(str.strip, text.strip().splitlines())), {"R": table})
    task = language_task("as", Language("a", "a*"))
    made = certify(program, None, task, 4)
    result = made.results["against_task"]
    # Right away, nothing is said after BOS.
    assert result["status"] == "refuted"
    assert result["counterexample"]["tokens"] == [1]
    table[:, 0], table[:, 3] = 1, 0
    table[0, 3], table[1, 3] = 1, 4
    assert certify(replace(program, tensors={"R": table}), None, task, 4).status == "proved"
    table[0, 3], table[1, 3] = -1, 2
    close = certify(replace(program, tensors={"R": table}), None, task, 2)
    assert close.results["against_task"]["status"] == "undecided"
    assert close.results["against_task"]["undecided"] == 1
    assert close.results["against_task"]["length"] == 1
    assert "undecided: 1 answers up to length 2 are too close to call; proved for all 2 strings" in close.lines


def test_all_offsets_are_looked_at():
    """The program answers rightly at offset 0 alone."""
    task = TASKS["aastar"]
    text = """
        vocab = [a, BOS, SEP, EOS, PAD]
        special = [BOS, SEP, EOS, PAD]
        positions = 152
        logits1 = project(inp=pos, op=R)
        prediction = sigmoid(logits1)
    """
    table = torch.full((152, 5), -1.0)
    table[:, 0] = 1
    table[::2, 3] = 1
    program = parse("\n".join(map(str.strip, text.strip().splitlines())), {"R": table})
    assert certify(program, None, task, 6).status == "proved"
    made = certify(program, None, task, 6, all_offsets=True)
    assert made.status == "refuted"
    assert made.results["against_task"]["counterexample"]["offset"] == 1
    assert "(offset 1)" in made.lines
    table[1::2, 3] = 1
    table[0::2, 3] = -1
    from_1 = certify(replace(program, tensors={"R": table}), None, task, 6, all_offsets=True)
    assert from_1.results["against_task"]["counterexample"]["offset"] == 0


def test_functions_of_a_user_have_no_bounds():
    @function_primitive(basis=same_basis)
    def thrice(xp, inputs):
        return 3 * inputs[0]

    program = parse(ABCDE.replace("logits1", "m = element_wise_op(token, func=thrice)\nlogits1", 1))
    try:
        with pytest.raises(DraspError, match="line m: no error bounds are known for thrice"):
            certify(program, None, TASKS["abcde"], 5)
    finally:
        del LIBRARY["thrice"]


def test_own_tasks_are_certified_on_all_strings(tmp_path):
    task = answer_task("last", "ab", each_row(lambda x: x[-1:]), lengths=range(1, 10), ends=False)
    text = """
        vocab = [a, b, BOS, SEP, EOS, PAD]
        special = [BOS, SEP, EOS, PAD]
        positions = 154
        s1 = select(q=pos, k=pos, op=(k==q-1))
        a1 = aggregate(s=s1, v=token)
        logits1 = project(inp=a1, op=(inp==out))
        prediction = softmax(logits1)
    """
    program = parse("\n".join(map(str.strip, text.strip().splitlines())))
    with pytest.raises(DraspError, match="which inputs its draw can give is not known; --all-strings"):
        certify(program, None, task, 5)
    made = certify(program, None, task, 5, all_strings=True)
    assert made.status == "proved"
    assert made.results["against_task"]["inputs"] == 62
    made.save(tmp_path / "c.json")
    assert check_certificate(tmp_path / "c.json", task).status == "proved"
    with pytest.raises(DraspError, match="'last' is not a task of drasp's own"):
        check_certificate(tmp_path / "c.json")
    other = answer_task("last", "ab", each_row(lambda x: x[:1]), lengths=range(1, 10), ends=False)
    with pytest.raises(DraspError, match="its inputs are not those of task last"):
        check_certificate(tmp_path / "c.json", other)


OWN = """
from drasp.tasks import sequence_task

# All inputs of one to three tokens: what comes next, in a circle, is asked for at the last token or at all of them.
words = [w for n in (1, 2, 3) for w in product(range(3), repeat=n)]
ends = [(w, [len(w) - 1], [(w[-1] + 1) % 3]) for w in words]
many = [(w, None, [(t + 1) % 3 for t in w]) for w in words if len(w) > 1]
turn = sequence_task("turn", ["a", "b", "c"], every=[*ends, *many])
# Inputs that begin alike may ask for different answers: what the next token is.
guess = sequence_task("guess", ["a", "b", "c"], every=[(w, [0, 1], w[1:]) for w in words if len(w) == 3])
untold = sequence_task("untold", ["a", "b", "c"], every=[(w, None) for w in words])
either = sequence_task(
    "either", ["a", "b", "c"], every=[(w, [0], [[0, 1] if w[0] == 2 else [w[0] + 1]]) for w in words], output="sigmoid"
)
drawn = sequence_task("drawn", ["a", "b", "c"], draw=lambda rng, n: [([0], None)] * n)
"""
TURN = """
vocab = [a, b, c, spare3]
special = [spare3]
positions = 5
logits1 = project(inp=token, op=(a->b; b->c; c->a))
prediction = softmax(logits1)
""".strip()


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> str:
    """The file of the tasks that list all inputs."""
    file = tmp_path_factory.mktemp("own") / "own.py"
    file.write_text(f"from itertools import product\n{OWN}")
    return str(file)


def test_a_task_that_lists_all_inputs_is_certified(own, tmp_path):
    """A model has a token that the task lacks; the certificate holds, by both checkers."""
    task, program = load_task(f"{own}:turn"), parse(TURN)
    made = certify(program, compile_program(program).transformer, task, 3)
    assert made.sentence.startswith("proved for all 75 inputs up to length 3, smallest margin ")
    assert made.results["against_task"]["inputs"] == 3 + 9 + 27 + 9 + 27
    assert certify(program, None, task, 2).results["against_task"]["inputs"] == 3 + 9 + 9
    made.save(tmp_path / "c.json")
    assert check_certificate(tmp_path / "c.json", task).lines == made.lines
    assert _standalone(tmp_path / "c.json").returncode == 0
    with pytest.raises(DraspError, match="its inputs are not those of task guess"):
        check_certificate(tmp_path / "c.json", load_task(f"{own}:guess"))
    content = json.loads((tmp_path / "c.json").read_text())
    for column in ("rows", "counted"):
        twice = unpacked(content["task"][column]).copy()
        twice[1] = twice[0]
        content["task"][column] = packed(twice)
    content["digest"] = content_digest(content)
    (tmp_path / "c.json").write_text(json.dumps(content))
    assert "one of them is there twice" in _standalone(tmp_path / "c.json").stdout
    found = certified(program, None, task)
    assert found is not None
    assert found.results["against_task"] == made.results["against_task"]


@pytest.mark.parametrize("name", ["turn", "guess", "either"])
def test_what_is_found_of_listed_inputs_is_what_brute_force_finds(own, name):
    """One input after the other, by the interpreter, with random tables that look at what came before."""
    task, statuses = load_task(f"{own}:{name}"), set[str]()
    inputs = task.measured(0, np.random.default_rng(0))
    right = 4 * torch.eye(3)[[1, 2, 0]] - 2
    for seed in range(8):
        random = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(seed)) * (seed % 4 > 1)
        tables = {"R1": (right if seed % 2 else -right) + random[0], "R2": random[1]}
        program = parse(
            "vocab = [a, b, c]\npositions = 4\na1 = aggregate(s=[], v=token)\nlogits1 = project(inp=token, op=R1)\n"
            f"logits2 = project(inp=a1, op=R2)\nprediction = {task.output}(logits1+logits2)",
            tables,
        )
        result = certify(program, None, task, 3).results["against_task"]
        logits = Interpreter(program, torch.float64)(inputs.ids, inputs.positions)
        said = logits > 0 if task.output == "sigmoid" else logits.argmax(-1)
        differs = (said != inputs.targets).view(*inputs.counted.shape, -1).any(-1) & inputs.counted
        wrong = [
            (int(inputs.lengths[row]), tuple(inputs.ids[row, : place + 1].tolist()))
            for row, place in differs.nonzero().tolist()
        ]
        case = result["counterexample"]
        assert (case and (case["length"], tuple(case["tokens"]))) == (min(wrong) if wrong else None)
        assert result["length"] == (min(wrong)[0] - 1 if wrong else 3)
        assert result["inputs"] == int((inputs.lengths <= result["length"]).sum())
        statuses.add(result["status"])
    assert statuses == ({"refuted"} if name != "turn" else {"proved", "refuted"})


def test_of_listed_inputs_is_said_what_is_not_known(own, tmp_path):
    (tmp_path / "turn.drasp").write_text(TURN)
    options = ("--length", "3", "--out", tmp_path / "c.json")
    said = fails("certify", tmp_path / "turn.drasp", "--task", f"{own}:untold", *options)
    assert "task untold: says of no input what is right; name a model to compare the program with" in said
    compile_program(parse(TURN)).save(tmp_path / "model")
    done = drasp("certify", tmp_path / "turn.drasp", tmp_path / "model", "--task", f"{own}:untold", *options)
    assert (done.code, done.out.count("proved for all 39 inputs up to length 3")) == (0, 1)
    said = fails("certify", tmp_path / "turn.drasp", "--task", f"{own}:turn", *options, "--all-strings")
    assert "task turn: every= lists all its inputs; leave out --all-strings" in said
    said = fails("certify", tmp_path / "turn.drasp", "--task", f"{own}:drawn", *options[:1], "1", *options[2:])
    assert "task drawn: which inputs its draw can give is not known; all are known of inputs BOS x SEP y EOS" in said


def test_the_greatest_length_that_there_is_time_for():
    model, task = _model("tomita2")
    program = parse(
        "vocab = [0, 1, BOS, SEP, EOS, PAD]\nspecial = [BOS, SEP, EOS, PAD]\npositions = 152\n"
        "logits1 = project(inp=token, op=(0->1 EOS; 1->0; BOS->1 EOS))\nprediction = sigmoid(logits1)"
    )
    made = certified(program, model, task, seconds=60.0)
    assert made is not None
    assert made.results["against_model"]["length"] == 150
    assert made.sentence.startswith("proved for all 151 strings up to length 150, smallest margin ")
    assert made.lines.startswith(
        f"program against the model, at offset 0: {made.sentence}\nprogram against task tomita2"
    )
    assert made.line == f"{made.lines.splitlines()[0]}; against task tomita2: the same"
    assert (known(made.record.against_model).inputs, made.record.sentence) == (151, made.sentence)
    own = answer_task("own", "01", each_row(lambda x: x[-1:]), lengths=range(1, 20), longest_input=20, room=20)
    assert certified(parse(MAJORITY), model, own, seconds=1.0) is None


# ----------------------------------------------------------------------------------- the file


def test_certificates_hold_and_tampered_ones_are_refused(abcde, tmp_path):
    """By drasp and by the checker that lies beside them, which runs without drasp."""
    file = tmp_path / "deep" / "certificate.json"
    abcde.save(file)
    assert check_certificate(file).lines == abcde.lines
    held = _standalone(file)
    assert (held.returncode, held.stdout) == (0, f"{file}: holds\n{abcde.lines}\n")
    for name, tamper in _TAMPERINGS.items():
        content = json.loads(file.read_text())
        tamper(content)
        if name != "digest":
            content["digest"] = content_digest(content)
        changed = file.with_name(f"{name}.json")
        changed.write_text(json.dumps(content))
        with pytest.raises(DraspError, match="refused"):
            check_certificate(changed)
    files = [file.with_name(f"{name}.json") for name in _TAMPERINGS if name not in ("steps", "automaton")]
    refused = _standalone(*files)
    assert refused.returncode == 1
    assert [line.split(": ")[:2] for line in refused.stdout.splitlines()] == [[str(f), "refused"] for f in files]


def _standalone(*files: Path) -> subprocess.CompletedProcess:
    checker = files[0].parent / "check_certificate.py"
    return subprocess.run([sys.executable, "-I", checker, *files], capture_output=True, text=True, check=False)


def _with_weight(content: dict, name: str) -> None:
    array = unpacked(content["model"]["weights"][name]).copy()
    array.flat[0] += 1
    content["model"]["weights"][name] = packed(array)


def _with_automaton(content: dict) -> None:
    """e may be followed by nothing: then it is another task."""
    after = unpacked(content["task"]["after"]).copy()
    after[-1] = 0
    content["task"]["after"] = packed(after)
    content["found"] = json.loads(json.dumps(content["found"]))


def _looked_at(offsets: list[list[int]]) -> Callable[[dict], None]:
    """What is found is true of these offsets, and is less than what the certificate claims."""

    def tamper(content: dict) -> None:
        content["claim"]["offsets"] = offsets
        content["found"] = json.loads(json.dumps(recomputed(content)))

    return tamper


_TAMPERINGS = {
    "digest": lambda c: c.update(drasp_version="9.9"),
    "weight": lambda c: _with_weight(c, "h.0.mlp.c_fc.weight"),
    "text": lambda c: c["program"].update(text=c["program"]["text"].replace("d->d e", "d->d")),
    "steps": lambda c: c["program"]["steps"][0].update(text="something else"),
    "inputs": lambda c: c["found"]["against_model"].update(inputs=10**6),
    "margin": lambda c: c["found"]["against_model"].update(margin=50.0),
    "status": lambda c: c["found"]["against_task"].update(status="refuted"),
    "length": lambda c: c["claim"].update(length=9, offsets=[[0, 9]]),
    "automaton": _with_automaton,
    "endless": lambda c: c["claim"].update(all_strings=True, length=100, offsets=[[0, 100]]),
    "missing": lambda c: c["program"].pop("steps"),
    "nothing found": lambda c: c.pop("found"),
    "no name": lambda c: c["task"].pop("name"),
    "assumptions": lambda c: c.update(assumptions="none"),
    "array": lambda c: c["program"]["library"]["op of logits1"].update(shape=[9, 10**9]),
    "less room": _looked_at([[0, 3]]),
    "offset twice": _looked_at([[0, 8], [0, 8]]),
    "before 0": _looked_at([[-1, 8]]),
    "nowhere": lambda c: c["claim"].update(offsets=[]),
    "not all strings": lambda c: c["claim"].update(all_strings=0),
    "no end": lambda c: c["claim"].update(length=10**30, offsets=[[0, 10**30]]),
    "positions": lambda c: c["program"].update(n_positions=10**15),
    "said beside": lambda c: c["claim"].update(offset="all"),
    "model said beside": lambda c: c["model"].update(name="another"),
    "no heads": lambda c: c["model"]["layers"][0].update(heads=0),
    "endless factor": lambda c: c["model"]["layers"][0].update(scale=float("inf")),
    "no text": lambda c: c["task"].update(name=["abcde"]),
    "version": lambda c: c.update(schema_version=2.0),
}


def test_a_certificate_that_names_something_twice_is_refused(abcde, tmp_path):
    """Readers of JSON do not agree on which of the two is meant."""
    file = tmp_path / "c.json"
    abcde.save(file)
    file.write_text(file.read_text().replace('"found": {', '"found": {"inputs": 1},\n "found": {', 1))
    with pytest.raises(DraspError, match="names 'found' twice"):
        check_certificate(file)
    assert "names 'found' twice" in _standalone(file).stdout


def test_the_checker_says_which_offsets_it_looked_at(abcde, tmp_path):
    """It does not know which ones the task has: that these are all is for drasp to check."""
    file = tmp_path / "c.json"
    abcde.save(file)
    for offsets, said in (
        ([[5, 8]], "at offset 5: "),
        ([[0, 8], [1, 8]], "at offsets 0 to 1: "),
        ([[0, 8], [2, 5]], "at 2 offsets from 0 on as far as there is room: "),
    ):
        content = json.loads(file.read_text())
        _looked_at(offsets)(content)
        content["digest"] = content_digest(content)
        changed = file.with_name("changed.json")
        changed.write_text(json.dumps(content))
        assert f"program against the model, {said}proved for all" in _standalone(changed).stdout
        with pytest.raises(DraspError, match="offsets are neither 0 alone nor all that the task has"):
            check_certificate(changed)


def test_the_checker_needs_numpy_alone_and_no_name_twice():
    import ast

    tree = ast.parse(standalone_checker())
    modules = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert {module.split(".")[0] for module in modules} <= {*sys.stdlib_module_names, "numpy"}
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names += [t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)]
    assert len(names) == len(set(names))


def test_refutations_are_checked_too(tmp_path):
    model, task = _model("abcde")
    made = certify(parse(ABCDE.replace("d->d e", "d->d")), model, task, 6)
    made.save(tmp_path / "c.json")
    assert check_certificate(tmp_path / "c.json").status == "refuted"
    assert "refuted: after BOS a b c d the program says d, the model d e" in _standalone(tmp_path / "c.json").stdout


# ------------------------------------------------------------------------------- command line


def test_the_commands_say_what_was_found(tmp_path):
    (tmp_path / "program.drasp").write_text(ABCDE)
    (tmp_path / "wrong.drasp").write_text(ABCDE.replace("d->d e", "d->d"))
    out = tmp_path / "c.json"
    proved = drasp("certify", tmp_path / "program.drasp", "abcde", "--length", "6", "--out", out)
    assert proved.code == 0
    assert "program against the model, at offset 0: proved for all" in proved.out
    assert drasp("check-certificate", out).out.startswith(f"{out}: holds\n")
    refuted = drasp("certify", tmp_path / "wrong.drasp", "--task", "abcde", "--length", "6", "--out", out, "--json")
    assert refuted.code == 1
    said = json.loads(refuted.out)
    assert said["status"] == "refuted"
    assert said["against_task"]["counterexample"]["tokens"] == [5, 0, 1, 2, 3]


def test_the_commands_refuse_what_makes_no_sense(tmp_path):
    program, out = tmp_path / "program.drasp", tmp_path / "c.json"
    program.write_text(ABCDE)
    options = ("--length", "6", "--out", out)
    assert "does not say which task it is for" in fails("certify", program, *options)
    assert "expected 0 or all" in fails("certify", program, "abcde", *options, "--offsets", "3")
    assert "tokens are not those of task tomita1" in fails("certify", program, "tomita1", *options)
    assert "expected a file" in fails("certify", program, "abcde", "--length", "6", "--out", tmp_path)
    strings = fails("certify", program, "abcde", "--length", "30", "--out", out, "--all-strings")
    assert "up to 1.2·10^21 inputs, and 200,000,000 can be looked at; --length 11 has 61,035,156" in strings
    assert not out.exists()
    assert "no such file" in fails("check-certificate", out)
    out.write_text("[]")
    assert "expected a certificate with schema_version 2" in fails("check-certificate", out)
    out.write_text('{"schema_version": 2}')
    assert "not a whole certificate" in fails("check-certificate", out)


def test_the_table_of_language_models_is_of_the_zoo_and_in_the_documentation():
    root = Path(__file__).parents[1]
    rows = {row["model"]: row for row in json.loads((root / "bench/certificates.json").read_text())}
    documented = (root / "docs/certificates.md").read_text()
    languages = [model.name for model in zoo_models() if language_of(TASKS[model.name]) is not None]
    assert set(languages) <= set(rows)
    for name, row in rows.items():
        found = row["found"]["against_model"]
        assert f"| {row['lines']} | " in documented
        assert f"| {found['inputs']:,} strings up to {found['length']} | " in documented
        if name in languages:
            assert row["digest"] == digest(load_model(resolve_model(name)))
