"""What folders say of themselves: records of all versions, damaged and hostile ones, and whose run a checkpoint is."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import CASES
from command import drasp, fails
from drasp.decompiler.checkpoint import State
from drasp.decompiler.pipeline import decompile
from drasp.decompiler.search import Search
from drasp.errors import DraspError
from drasp.language import program_files
from drasp.loading import ZOO_FOLDER
from drasp.model_files import digest, load_model
from drasp.records import FrontierRecord, Identity, NormsRecord, PassRecord, Record, read_record
from drasp.settings import EVIDENCE, QUICK
from drasp.tasks import TASKS, answer_task, each_row
from drasp.tasks.framed import Framed
from small_graphs import random_transformer
from typed import known, of_kind

MAJORITY = next(case.program for case in CASES if case.name == "binary majority")
# As drasp 0.1 wrote it.
VERSION_1 = {
    "schema_version": 1,
    "model": "bin_majority",
    "task": "bin_majority",
    "seed": 0,
    "method": "fast",
    "verdict": "decompiled",
    "reasons": [],
    "match_accuracy": 1.0,
    "match_interval": [0.998, 1],
    "lines": 3,
    "primitives": {"select": {"named": 0, "tables": 0, "total": 0}},
    "pruned_match_accuracy": 1.0,
    "pruned_lines": 3,
    "samples": 2000,
    "task_accuracy": None,
    "seconds": 2,
    "naming_seconds": 0.1,
    "peak_memory_mb": 300,
    "frontier": [{"lines": 3, "match_accuracy": 1.0, "match_interval": [0.998, 1.0]}],
    "passes": [{"name": "cut edges", "seconds": 1.0, "left": 3, "match_accuracy": 1.0}],
    "norms": {"constant": 1, "kept": 0},
    "min_match": 0.9,
    "max_lines": 40,
}
# As it was written before there were measures of the means.
VERSION_2 = VERSION_1 | {
    "schema_version": 2,
    "model_digest": "a" * 64,
    "settings": {"method": "fast", "quick": False, "min_match": 0.9, "max_lines": 40},
    "drasp_version": "0.1.0",
    "size": None,
    "largest_logit_difference": None,
    "passes": [{"name": "cut edges", "seconds": 1.0, "left": 3, "unit": "edges", "match_accuracy": 1.0}],
}


def result_folder(folder: Path, record: object) -> Path:
    files = program_files(MAJORITY)
    (folder / "frontier").mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    for suffix in ("drasp", "safetensors"):
        (folder / "frontier" / f"3.{suffix}").write_bytes(files[f"program.{suffix}"])
    (folder / "result.json").write_text(record if isinstance(record, str) else json.dumps(record))
    return folder


# --------------------------------------------------------------------------------------- hostile


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ("translate MODEL --out OUT", True),
        ("decompile MODEL --out OUT", True),
        ("verify PROGRAM MODEL", True),
        ("name PROGRAM MODEL --out OUT", True),
        ("report PROGRAM --model MODEL", True),
        ("explain PROGRAM 1", False),
        ("report PROGRAM", False),
        ("figures PROGRAM", False),
        ("explore .", False),
        ("decompile MODEL --out PROGRAM --pick 3", False),
    ],
)
@pytest.mark.parametrize("where", ["absolute", "relative"])
def test_nothing_that_a_folder_says_is_run(tmp_path, monkeypatch, command, refused, where):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text(f"from pathlib import Path\nPath({str(tmp_path / 'marker')!r}).touch()\n")
    task = f"{tmp_path / 'evil.py' if where == 'absolute' else 'evil.py'}:mine"
    shutil.copytree(ZOO_FOLDER / "bin_majority", "MODEL")
    Path("MODEL/task.json").write_text(json.dumps({"task": task}))
    metrics = json.loads(Path("MODEL/metrics.json").read_text())
    metrics["recipe"]["task"] = task
    Path("MODEL/metrics.json").write_text(json.dumps(metrics))
    result_folder(Path("PROGRAM"), VERSION_1 | {"task": task, "model": "MODEL"})
    finished = drasp(*command.split())
    assert not Path("marker").exists()
    assert "Traceback" not in finished.err
    if refused:
        assert finished.code == 1
        assert finished.err.endswith(f"{task!r} is not a task of drasp's own; name the task with --task file.py:name\n")
    else:
        assert finished.code == 0, finished.err
    assert not Path("OUT").exists()


# --------------------------------------------------------------------------------------- records

numbers = st.floats(-1e200, 1e200)
counts, texts = st.integers(-(2**63) + 1, 2**63 - 1), st.text()
intervals = st.tuples(numbers, numbers)
steps = st.tuples(texts, numbers, counts, st.sampled_from(["edges", "lines"]), numbers)
facts = st.fixed_dictionaries(
    {
        "method": texts,
        "lines": counts,
        "model": st.none() | texts,
        "model_digest": texts,
        "settings": st.dictionaries(texts, counts | texts | st.lists(numbers)),
        "drasp_version": texts,
        "match_accuracy": st.none() | numbers,
        "match_interval": st.none() | intervals,
        "reasons": st.none() | st.lists(texts).map(tuple),
        "primitives": st.none() | st.dictionaries(texts, st.dictionaries(texts, counts)),
        "grade": st.none() | texts,
        "fitted_share": st.none() | numbers,
        "causal": st.none() | st.dictionaries(texts, numbers | texts | st.lists(counts)),
    }
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("result")


points = st.tuples(counts, numbers, intervals, st.none() | st.booleans(), st.none() | texts)


@given(facts, st.lists(steps), st.lists(points))
def test_a_record_is_read_as_it_was_written(folder, facts, passes, frontier):
    points, norms = tuple(FrontierRecord(*point) for point in frontier), NormsRecord(1, 2)
    record = Record(**facts, passes=tuple(PassRecord(*step) for step in passes), frontier=points, norms=norms)
    (folder / "result.json").write_text(record.to_text())
    assert read_record(folder) == record
    assert read_record(folder / "program.drasp") == record


def test_the_commands_write_what_can_be_read(tmp_path):
    (tmp_path / "pruned").mkdir()
    for name, content in program_files(MAJORITY).items():
        (tmp_path / "pruned" / name).write_bytes(content)
    for command in ("translate bin_majority", "decompile bin_majority --quick --seed 5", "name PRUNED bin_majority"):
        out = tmp_path / command.split()[0]
        finished = drasp(*command.replace("PRUNED", str(tmp_path / "pruned")).split(), "--out", out)
        assert finished.code == 0, finished.err
        record = read_record(out)
        assert record is not None
        assert (record.schema_version, record.model, record.task) == (3, "bin_majority", "bin_majority")
        assert record.model_digest == digest(load_model(ZOO_FOLDER / "bin_majority"))
    decompiled = read_record(tmp_path / "decompile")
    assert decompiled is not None
    assert (decompiled.method, decompiled.seed) == ("fast", 5)
    asked = {"method": "fast", "quick": True, "min_match": 0.9, "max_lines": 40, "accept": "causal", "naming": "drasp"}
    assert decompiled.settings == {**asked, "search": QUICK.to_json(), "evidence": EVIDENCE.to_json()}
    assert {step.unit for step in decompiled.passes or ()} <= {"edges", "lines"}


@pytest.mark.parametrize("old", [VERSION_1, VERSION_2], ids=["version 1", "version 2"])
def test_an_older_record_serves_every_command(tmp_path, old):
    folder = result_folder(tmp_path / "old", old)
    record = read_record(folder)
    assert record is not None
    assert record.passes == (PassRecord("cut edges", 1.0, 3, "edges" if old is VERSION_2 else None, 1.0),)
    for name in ("model_digest", "settings", "drasp_version"):
        assert getattr(record, name) == old.get(name)
    assert (record.grade, record.causal, record.fitted_share) == (None, None, None)
    assert record.frontier == (FrontierRecord(3, 1.0, (0.998, 1.0), None, None),)
    commands = (f"report {folder}", f"figures {folder}", f"explore {tmp_path}", f"decompile x --out {folder} --pick 3")
    for command in commands:
        finished = drasp(*command.split())
        assert finished.code == 0, finished.err
    again = read_record(folder)
    assert again is not None
    assert again.verdict == "answers_only", "what it does was not measured"
    same = replace(again, primitives=record.primitives, verdict=record.verdict)
    assert same == record, "the same program was picked again"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{", "expected a JSON object"),
        ("[" * 100_000, "expected a JSON object"),
        ([], "expected a JSON object"),
        ({}, "schema_version is missing"),
        (VERSION_1 | {"schema_version": 7}, "schema_version 7 is of a newer drasp"),
        (VERSION_1 | {"schema_version": 0}, "schema_version 0 is of no drasp; this one reads 1 to 3"),
        (VERSION_1 | {"schema_version": 2}, "model_digest is missing"),
        (VERSION_1 | {"schema_version": "1"}, "expected a whole number for schema_version, found '1'"),
        (VERSION_1 | {"lines": "3"}, "expected a whole number for lines, found '3'"),
        (VERSION_1 | {"lines": True}, "expected a whole number for lines, found True"),
        (VERSION_1 | {"task": 3}, "expected a text for task, found 3"),
        (VERSION_1 | {"seconds": float("nan")}, "expected a number for seconds, found nan"),
        (VERSION_1 | {"seconds": 10**400}, "a whole number of more than 128 bits"),
        (VERSION_1 | {"match_interval": [0.5]}, "expected a list for match_interval, found [0.5]"),
        (VERSION_1 | {"frontier": [{"lines": 3}]}, "frontier[0].match_accuracy is missing"),
        (VERSION_1 | {"primitives": {"a\nb": 3}}, r"expected an object for primitives['a\nb'], found 3"),
        (VERSION_1 | {"passes": [3]}, "expected an object for passes[0], found 3"),
        (
            VERSION_1 | {"primitives": {"select": {"named": "x"}}},
            "a whole number for primitives['select']['named'], found 'x'",
        ),
    ],
)
def test_what_is_wrong_with_a_record_is_one_line(tmp_path, record, message):
    folder = result_folder(tmp_path / "bad", record)
    for command in (
        f"report {folder}",
        f"explore {tmp_path}",
        f"explain {folder} 1",
        f"decompile x --out {folder} --pick 3",
    ):
        said = fails(*command.split())
        assert said.startswith(f"drasp: {folder}/result.json: ")
        assert message in said


def test_explore_names_what_it_leaves_out(tmp_path):
    result_folder(tmp_path / "good", VERSION_1)
    bad = result_folder(tmp_path / "bad", VERSION_1 | {"lines": "x"})
    empty = result_folder(tmp_path / "empty", VERSION_1)
    (empty / "program.drasp").unlink()
    made = drasp("explore", tmp_path)
    assert made.out == f"wrote {tmp_path}/index.html, an index of 1 results\n"
    assert made.err.splitlines() == [
        f"drasp: left out {bad}/result.json: expected a whole number for lines, found 'x'; make the result anew",
        f"drasp: left out {empty}/result.json: no program.drasp beside it, as a result has",
    ]


# --------------------------------------------------------------------------------------- digests


def test_a_digest_is_that_of_weights_and_form(tmp_path):
    model = load_model(ZOO_FOLDER / "D3")
    shutil.copytree(ZOO_FOLDER / "D3", tmp_path / "copy")
    assert digest(load_model(tmp_path / "copy")) == digest(model)
    layer = model.layers[0]
    mlp = known(layer.mlp)
    bias = mlp.output.bias.clone()
    bias[0] = bias[0].nextafter(bias[0] + 1)
    others = [
        load_model(ZOO_FOLDER / "D2"),
        replace(model, token_embedding=model.token_embedding.double()),
        replace(model, layers=()),
        replace(model, layers=(replace(layer, mlp=replace(mlp, activation="relu")),)),
        replace(model, layers=(replace(layer, attention=replace(layer.attention, scale=1.0)),)),
        replace(model, layers=(replace(layer, mlp=replace(mlp, output=replace(mlp.output, bias=bias))),)),
        replace(model, final_norm=replace(model.final_norm, eps=1e-6)),
    ]
    assert len({digest(each) for each in (model, *others)}) == 1 + len(others)


def test_the_digest_of_a_task_is_that_of_what_it_draws():
    assert len({task.digest() for task in TASKS.values()}) == len(TASKS)
    one, other = (answer_task("mine", "ab", each_row(lambda x, i=i: [x[i]])) for i in (0, -1))
    assert one.digest() == answer_task("mine", "ab", each_row(lambda x: x[:1])).digest()
    assert one.digest() != other.digest()


# ----------------------------------------------------------------------------------- checkpoints

MODEL, TASK = random_transformer(0, 1, 1), TASKS["bin_majority"]
SETTINGS = {"method": "fast", "quick": False, "some": (1, 2)}


def search(file: Path, resume: bool, model=MODEL, task=TASK, seed=0, asked=SETTINGS) -> Search:
    return Search(model, task, seed, lambda _: None, checkpoint=file, resume=resume, asked=asked)


@pytest.fixture
def file(tmp_path) -> Path:
    """That of a run which took 100 seconds for its one pass."""
    begun = search(tmp_path / "out.decompiling", resume=False)
    begun.start -= 100
    begun.once("one", lambda _: State(begun.nothing, MAJORITY), State(begun.nothing))
    return tmp_path / "out.decompiling"


def test_a_finished_pass_is_not_run_again(file):
    resumed = search(file, resume=True)
    state = resumed.once("one", lambda _: pytest.fail("run again"), State(resumed.nothing))
    assert state.program == MAJORITY
    assert state.graph.kept == resumed.nothing.kept


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": random_transformer(1, 1, 1)}, "was begun with model_digest "),
        ({"model": random_transformer(0, 2, 2)}, "was begun with model_digest "),
        ({"task": replace(TASK, name="mine")}, "was begun with task bin_majority, found mine"),
        (
            {"task": replace(TASK, source=replace(of_kind(Framed, TASK.source), answer=each_row(lambda x: x[:1])))},
            "was begun with task_digest ",
        ),
        ({"seed": 1}, "was begun with seed 0, found 1"),
        ({"asked": SETTINGS | {"quick": True}}, "was begun with quick False, found True"),
        ({"asked": SETTINGS | {"some": (1, 3)}}, "was begun with some [1, 2], found [1, 3]"),
        ({"asked": SETTINGS | {"more": 1}}, "was begun with more None, found 1"),
    ],
)
def test_a_run_is_not_resumed_as_another(file, changed, message):
    with pytest.raises(DraspError) as error:
        search(file, True, **changed)
    assert str(error.value).startswith(f"{file}: {message}")
    assert str(error.value).endswith("; go on with the same, or remove it to begin again")
    assert "\n" not in str(error.value)


def test_a_run_is_not_resumed_by_another_version(file, monkeypatch):
    monkeypatch.setattr("drasp.decompiler.search.drasp_version", lambda: "9.9")
    with pytest.raises(DraspError, match="was begun with drasp_version .*, found 9.9"):
        search(file, resume=True)


def test_a_pass_does_not_take_what_another_gave(file):
    resumed = search(file, resume=True)
    with pytest.raises(DraspError, match="expected pass two, found one; remove it to begin again"):
        resumed.once("two", lambda state: state, State(resumed.nothing))


def test_time_before_an_interruption_counts(file):
    resumed = search(file, resume=True)
    assert 100 <= resumed.seconds < 160
    resumed.note("a pass", 3, "lines", 0.5)
    assert resumed.progress.passes[-1].seconds >= 100
    # That of a pass which does not end counts too, and what it noted does not.
    resumed.start -= 1000
    resumed.store()
    again = search(file, resume=True)
    assert 1100 <= again.seconds < 1160
    assert again.progress.passes == []
    assert len(again.progress.states) == 1


@pytest.mark.long
def test_an_interrupted_decompilation_keeps_its_time(tmp_path, monkeypatch):
    file = tmp_path / "out.decompiling"

    def interrupt(self, *_):
        self.start -= 1000
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Search, "judged", interrupt)
        with pytest.raises(KeyboardInterrupt):
            decompile(load_model(ZOO_FOLDER / "abcde"), TASKS["abcde"], checkpoint=file)
    result = decompile(load_model(ZOO_FOLDER / "abcde"), TASKS["abcde"], checkpoint=file, resume=True)
    assert 1000 < result.seconds < 1100


def test_damaged_checkpoints_are_one_line(file, tmp_path):
    whole = file.read_bytes()
    broken = {
        "cut off": whole[:-9],
        "empty": b"",
        "text": b"damaged",
        "no list": whole.replace(b'\\"states\\": [', b'\\"states\\": 1'),
        "another number": whole[:-1] + bytes([whole[-1] ^ 1]),
        "other seconds": whole.replace(b'\\"seconds\\": 1', b'\\"seconds\\": 2'),
        "no digest": whole.replace(b'"digest"', b'"Digest"'),
    }
    assert all(content != whole for content in broken.values())
    for content in broken.values():
        file.write_bytes(content)
        with pytest.raises(DraspError, match="damaged; remove it to begin again$"):
            search(file, resume=True)


def test_differences_name_every_field():
    one = Identity("a" * 64, "sort", "b" * 64, 0, {"method": "fast"}, "0.1.0")
    other = Identity("c" * 64, "count", "d" * 64, 1, {"method": "ugs"}, "0.2.0")
    assert list(one.differences(one)) == []
    assert list(one.differences(other)) == [
        "model_digest aaaaaaaaaaaa, found cccccccccccc",
        "task sort, found count",
        "task_digest bbbbbbbbbbbb, found dddddddddddd",
        "seed 0, found 1",
        "drasp_version 0.1.0, found 0.2.0",
        "method fast, found ugs",
    ]
