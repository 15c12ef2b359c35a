"""Studies: files that are refused, a store that survives kills, leases, and tables."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from command import drasp, fails
from drasp.errors import DraspError
from drasp.records import WrongFieldError
from drasp.study import store as store_module
from drasp.study.engine import COMMAND, Agenda, Running, record_of, sweep
from drasp.study.spec import Decompiling, Limits, Study, read_study
from drasp.study.store import Store
from drasp.study.tables import _comparable, all_tables
from drasp.study.unit_record import check_outcome, check_tabled
from drasp.study.units import Unit
from drasp.study.work import shortened
from drasp.tasks import TASKS
from drasp.training.recipe import Recipe

# Newer Pythons warn of copies of processes with threads; those of the test runner do not matter here.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
ROOT = Path(__file__).parents[1]
# Counts on from what an earlier owner left, as trainings and decompilations do; no two units have the same result.
SCRIPT = """
import ctypes, hashlib, json, os, pathlib, signal, sys, time
order = json.load(sys.stdin)
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != order["parent"]:
    sys.exit(1)
work = pathlib.Path(order["work"])
(work / "files" / "model").mkdir(parents=True, exist_ok=True)
begun = work / "begun"
for _ in range(len(begun.read_text()) if begun.exists() else 0, 5):
    time.sleep(SECONDS / 5)
    with begun.open("a") as file:
        file.write("x")
unit = order["unit"]
said = hashlib.sha256(json.dumps(unit["spec"], sort_keys=True).encode()).hexdigest()
if unit["kind"] == "decompilation":
    model = pathlib.Path(order["model"]) / "says.txt"
    said += model.read_text()
(work / "files" / "model" / "says.txt").write_text(said)
outcome = {"status": "done", "reason": None, "result": {"checkpoints": [], "said": said}, "seconds": time.monotonic()}
(work / "outcome.json").write_text(json.dumps({**outcome, "peak_memory_mb": os.getpid()}))
"""

LITTLE = """
[[train]]
tasks = ["bin_majority", "parity"]
seeds = [0, 1, 2]
[[decompile]]
seeds = [0, 1]
"""


def working(seconds: float = 0.0) -> tuple[str, ...]:
    """The command of units that do nothing for a while."""
    return (sys.executable, "-c", SCRIPT.replace("SECONDS", str(seconds)))


def study_of(text: str, folder: Path) -> Study:
    file = folder / "spec.toml"
    file.write_text(text)
    return read_study(file)


def opened(study: Study, folder: Path) -> Store:
    store = Store(folder)
    store.open(study.name, study.text)
    return store


def records_of(store: Store) -> list[dict[str, Any]]:
    return [store.record(unit_id) for unit_id in sorted(store.finished())]


def told(store: Store) -> dict[str, Any]:
    """All records and files, but for times and memory."""
    found = {}
    for record in records_of(store):
        for measured in ("seconds", "processor_seconds", "peak_memory_mb"):
            record.pop(measured, None)
        found[record["id"]] = record
    for file in store.units.rglob("*.txt"):
        found[str(file.relative_to(store.units))] = file.read_text()
    return found


# ---------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense = [", "not readable as TOML"),
        ("colour = 1", "unknown key colour"),
        ("[limits]\nhours = 3", "unknown key limits.hours; expected memory_gb, minutes"),
        ("[limits]\nminutes = 0", "limits: expected numbers above 0"),
        ("[[train]]\ntasks = ['bin_majorty']", "train.tasks: unknown task 'bin_majorty'; the nearest are bin_majority"),
        ("[[train]]\ntasks = ['x.py:mine']", "a study has drasp's own tasks only"),
        ("[[train]]\ntasks = []", "train.tasks: an empty list leaves nothing to do"),
        ("[[train]]\ntasks = ['sort']\nseeds = []", "train.seeds: an empty list"),
        ("[[train]]\ntasks = ['sort']\nseeds = 3", "train.seeds: expected a list, found 3"),
        ("[[train]]\ntasks = ['sort']\nseeds = [true]", "train.seeds: expected a whole number, found True"),
        ("[[train]]\ntasks = ['sort']\ndims = [16]\nheads = [3]", "train: dim 16: expected a multiple of --heads 3"),
        ("[[train]]\nseeds = [1]", "train.tasks is missing"),
        ("[train]\ntasks = ['sort']", "train: expected tables, each under [[train]]"),
        ("[[models]]\nnames = ['no such model']", "no such folder, and no zoo model of that name"),
        ("[[models]]\nnames = ['sort']", "nothing to do"),
        ("[[decompile]]\nseeds = [1]", "no model in it"),
        ("[[models]]\nnames = ['sort']\n[[decompile]]\nmethods = ['slow']", "no such method"),
        ("[[models]]\nnames = ['sort']\n[[decompile]]\nlengths = [0]", "decompile.lengths: expected lengths from 1"),
        ("[[models]]\nnames = ['sort']\n[[decompile]]\ntasks = ['D2']", "decompile.tasks: no model of D2"),
    ],
)
def test_what_is_wrong_with_a_study_file_is_one_line(tmp_path, text, said):
    file = tmp_path / "spec.toml"
    file.write_text(text)
    error = fails("sweep", file, "--out", tmp_path / "out")
    assert said in error
    assert str(file) in error
    assert not (tmp_path / "out").exists()


def test_a_study_is_the_product_of_its_lists_and_ids_are_of_what_is_done(tmp_path):
    study = study_of(LITTLE, tmp_path)
    units = study.units()
    assert [unit.kind for unit in units] == ["training", "decompilation", "decompilation"] * 6
    assert len({unit.id for unit in units}) == 18
    assert {unit.needs for unit in units if unit.needs} == {unit.id for unit in units if unit.kind == "training"}
    assert [unit.label for unit in units if unit.kind == "training"] == [
        f"train {task}-1l1h16d3lr00drop seed {seed}" for seed in (0, 1, 2) for task in ("bin_majority", "parity")
    ]
    again = study_of(LITTLE.replace("[0, 1, 2]", "[2, 1]"), tmp_path).units()
    assert {unit.id for unit in again} < {unit.id for unit in units}
    other = study_of(LITTLE.replace("seeds = [0, 1]", "max_lines = 41"), tmp_path).units()
    assert not {u.id for u in other if u.kind == "decompilation"} & {u.id for u in units}


@pytest.mark.parametrize("name", ["smoke", "seeds", "checkpoints", "paper"])
def test_the_studies_that_ship_can_be_read(name):
    study = read_study(ROOT / "studies" / f"{name}.toml")
    assert study.name == name
    assert study.models
    assert study.chosen


def test_shorter_inputs_are_drawn_with_the_same_positions():
    import numpy as np

    for name in ("sort", "D3", "aaaastar", "count"):
        task = shortened(TASKS[name], 50)
        pool = task.pool(300, np.random.default_rng(0))
        assert 40 <= int(pool.lengths.max()) <= 50
        assert task.n_positions == TASKS[name].n_positions
        assert int(pool.offsets.max()) > 60
    assert shortened(TASKS["sort"], 150) is TASKS["sort"]
    with pytest.raises(DraspError, match="no inputs up to length 2"):
        shortened(TASKS["abcde"], 2)


# ---------------------------------------------------------------------------------------- store


def test_folders_that_are_no_store_of_this_version_are_refused(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text(LITTLE)
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("x")
    assert "holds other files" in fails("sweep", spec, "--out", other)
    assert [file.name for file in other.iterdir()] == ["mine.txt"]
    store = opened(read_study(spec), tmp_path / "store")
    content = json.loads((store.folder / "study.json").read_text())
    (store.folder / "study.json").write_text(json.dumps(content | {"drasp_version": "0.0.9"}))
    assert "by drasp 0.0.9" in fails("sweep", spec, "--out", store.folder)
    assert "by drasp 0.0.9" in fails("tables", store.folder)
    assert "expected a folder that `drasp sweep` wrote" in fails("tables", other)
    assert "--worker" in fails("sweep", spec, "--out", store.folder, "--worker", "--scheduler", "tcp://x:1")


@pytest.mark.parametrize("killed_at", ["store", "units", "leases", "work"])
def test_a_store_that_was_being_made_when_its_run_was_killed_is_made_again(tmp_path, monkeypatch, killed_at):
    spec = tmp_path / "spec.toml"
    spec.write_text("[[models]]\nnames = ['tomita1']\n[[decompile]]")
    real, study = Path.mkdir, read_study(spec)

    def mkdir(folder: Path, *given: Any, **more: Any) -> None:
        if folder.name == killed_at:
            raise KeyboardInterrupt
        real(folder, *given, **more)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(KeyboardInterrupt):
        opened(study, tmp_path / "store")
    monkeypatch.undo()
    (tmp_path / "store").mkdir(exist_ok=True)
    (tmp_path / "store/.study.json.drasp-lock").touch()
    names = sorted(entry.name for entry in opened(study, tmp_path / "store").folder.iterdir())
    assert names == ["leases", "study.json", "units", "work"]


def test_a_folder_in_use_is_refused(tmp_path):
    from drasp.output_folder import reserved

    spec = tmp_path / "spec.toml"
    spec.write_text(LITTLE)
    out = tmp_path / "out"

    def hold() -> None:
        with reserved(out):
            time.sleep(60)

    process = forked(hold)
    try:
        while not (tmp_path / ".out.drasp-lock").exists():
            time.sleep(0.01)
        time.sleep(0.05)
        assert "another drasp is writing there" in fails("sweep", spec, "--out", out)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def test_one_lease_a_unit_and_only_its_holder_commits(tmp_path, monkeypatch):
    study = study_of(LITTLE, tmp_path)
    store = opened(study, tmp_path / "store")
    unit = study.units()[0]
    first = store.claim(unit)
    assert first is not None
    assert store.claim(unit) is None
    (first.work / "half").write_text("done")
    monkeypatch.setattr(store_module, "LEASE_SECONDS", -1.0)
    second = store.claim(unit)
    assert second is not None
    assert (second.work / "half").read_text() == "done"
    assert not first.renew()
    of_first, of_second = (made_up(unit, 0) | {"label": label} for label in ("first", "second"))
    assert store.commit(first, of_first, {}) is False
    assert not store.finished()
    assert store.commit(second, of_second, {"a.txt": b"x"}) is True
    assert store.record(unit.id)["label"] == "second"
    assert store.commit(first, of_first, {}) is False
    assert store.claim(unit) is None
    assert not list((store.folder / "leases").iterdir())
    assert not list((store.folder / "work").iterdir())


def test_a_lease_of_a_process_that_is_gone_is_free_at_once(tmp_path):
    study = study_of(LITTLE, tmp_path)
    store = opened(study, tmp_path / "store")
    lease = store.claim(study.units()[0])
    assert lease is not None
    content = json.loads(lease.file.read_text())
    lease.file.write_text(json.dumps(content | {"machine": "elsewhere"}))
    assert store.claim(lease.unit) is None
    # The number is that of a living process, which was started at another time.
    lease.file.write_text(json.dumps(content | {"started": "1"}))
    assert store.claim(lease.unit) is not None


def test_who_was_killed_while_it_asked_for_the_time_or_held_a_lock_leaves_nothing(tmp_path):
    study = study_of(LITTLE, tmp_path)
    store = opened(study, tmp_path / "store")
    unit, other = study.units()[:2]
    lease = store.claim(unit)
    assert lease is not None
    clock = lease.file.with_suffix(".clock")
    clock.symlink_to(tmp_path / "elsewhere")
    assert store.claim(unit) is None
    assert not clock.is_symlink()
    assert not (tmp_path / "elsewhere").exists()
    assert store.commit(lease, record_of(unit, {"status": "failed", "reason": "none", "seconds": 1.0}), {})
    clock.touch()
    (store.units / f".{unit.id}.drasp-lock").touch()
    begun = store.claim(other)
    store.tidy()
    assert begun is not None
    assert list(clock.parent.iterdir()) == [begun.file]
    assert [entry.name for entry in store.units.iterdir()] == [unit.id]


# ---------------------------------------------------------------------------------------- sweeps


def forked(run: Callable[[], object]) -> int:
    """Starts a process that does something and ends; a copy of this one, which spares importing torch."""
    process = os.fork()
    if process == 0:
        try:
            run()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return process


def test_killed_at_several_moments_it_ends_with_the_same_records(tmp_path):
    study = study_of(LITTLE, tmp_path)
    whole = opened(study, tmp_path / "whole")
    sweep(study, whole, 4, command=working())
    assert len(whole.finished()) == 18
    killed = opened(study, tmp_path / "killed")
    seen = [0]
    for more in (1, 3, 4):
        process = forked(lambda: sweep(study, killed, 2, command=working(0.05)))
        until = time.monotonic() + 60
        while len(killed.finished()) < seen[-1] + more and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        time.sleep(0.3)
        seen.append(len(killed.finished()))
        before = sorted(killed.folder.rglob("*"))
        time.sleep(0.3)
        assert sorted(killed.folder.rglob("*")) == before, "units end with their parent"
    assert 0 < seen[1] < seen[2] < seen[3] < 18
    sweep(study, killed, 4, command=working())
    assert told(killed) == told(whole)
    assert not list((killed.folder / "leases").iterdir())
    assert not list((killed.folder / "work").iterdir())


def test_limits_and_crashes_are_rows_with_their_reason(tmp_path):
    study = study_of(LITTLE + "\n[limits]\nminutes = 0.005\n", tmp_path)
    units = sorted(study.units(), key=lambda unit: unit.kind, reverse=True)
    slow = units[0]
    store = opened(study, tmp_path / "store")

    def ended(unit: Unit, code: str, limits: Limits) -> str:
        lease = store.claim(unit)
        assert lease is not None
        running = Running(store, lease, limits, (sys.executable, "-c", code))
        while not running.ended():
            time.sleep(0.02)
        record = running.commit()
        assert record is not None
        assert record == store.record(unit.id)
        return record["reason"]

    assert ended(slow, "import time; time.sleep(60)", study.limits) == "longer than the study's limit of 0.005 minutes"
    assert ended(units[1], "import os; os.kill(os.getpid(), 9)", Limits()) == "its process was ended by SIGKILL"
    assert "code 1: ValueError: no" in ended(units[2], "raise ValueError('no')", Limits())
    plan = sweep(replace(study, limits=Limits()), store, 3, command=working())
    assert len(plan.finished) == 18
    assert len(plan.failed) == 3 + 6
    reasons = {store.record(u.id)["reason"] for u in units if u.needs == slow.id}
    assert reasons == {f"its training {slow.id} failed"}
    (table,) = all_tables([store.record(i) for i in plan.failed], store.units)
    assert len(table.rows) == 9


def test_ctrl_c_gives_leases_back(tmp_path):
    study = study_of(LITTLE, tmp_path)
    store = opened(study, tmp_path / "store")
    process = forked(lambda: sweep(study, store, 2, command=working(30)))
    leases, until = store.folder / "leases", time.monotonic() + 60
    while len(list(store.folder.glob("work/*/*/log.txt"))) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.2)
    assert len(list(leases.glob("*.json"))) == 2
    os.kill(process, signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 1
    assert not list(leases.glob("*.json"))


# ---------------------------------------------------------------------------------------- tables


def made_up(unit: Unit, number: int, verdict: str = "decompiled") -> dict[str, Any]:
    accuracy = {o: {"1-50": 1.0, "51-100": 1.0, "101-150": 0.8 + 0.04 * number} for o in ("offset 0", "random offsets")}
    result: dict[str, Any] = {"accuracy": accuracy, "steps": 100, "checkpoints": []}
    counts = {kind: {"named": 1, "tables": 0, "total": 2} for kind in ("select", "project", "elementwise")}
    if unit.kind == "decompilation":
        graph = [
            "a1 = aggregate(s=[], v=token) # layer 0 head 0",
            f"m1 = element_wise_op(a1/n1, one/n1{', token' * (number % 2)}, func=mlp(F1, gelu_new)) # layer 0 mlp",
            f"logits1 = project(inp=a1, op=R1) # out{number % 2}",
        ]
        result |= {
            "verdict": verdict, "grade": "complete", "reasons": [], "match_accuracy": 1.0, "lines": 3,
            "match_interval": [0.9, 1.0], "pruned_lines": 3, "pruned_match_accuracy": 0.98, "task_accuracy": 1.0,
            "norms": {"constant": 2, "kept": 0}, "primitives": counts,
            "evidence": {}, "frontier": [[3, 1.0, True]], "stages": {"what hardly matters": 0.99}, "graph": graph,
            "program": ["one"],
        }  # fmt: skip
    measured = {"seconds": 1.0, "processor_seconds": 0.5, "peak_memory_mb": 1}
    outcome = {"status": "done", "reason": None, "result": result, **measured}
    return record_of(unit, outcome)


def test_tables_count_what_the_records_say(tmp_path):
    from safetensors.torch import save_file

    study = study_of(
        "[[train]]\ntasks = ['bin_majority']\nseeds = [0, 1, 2, 3]\n[[decompile]]\nseeds = [0, 1]", tmp_path
    )
    store = opened(study, tmp_path / "store")
    base = torch.randn(4, 4, dtype=torch.float64)
    for unit in study.units():
        lease = store.claim(unit)
        assert lease is not None
        seed = unit.spec["model"]["seed"] if unit.kind == "decompilation" else 0
        store.commit(lease, made_up(unit, seed, "answers_only" if seed == 3 else "decompiled"), {})
        save_file(
            {"R1": base * (-1) ** (seed // 2), "F1": torch.randn(3, 3)}, store.units / unit.id / "pruned.safetensors"
        )
    tables = {table.key: table for table in all_tables(records_of(store), store.units)}
    assert len(tables["a1"].rows) == len(tables["b"].rows) == 8
    # Of seeds 0 to 2, which are decompiled, 0 and 2 have the same graph, and tensors of opposite sign.
    (row,) = tables["c"].rows
    assert row[1:7] == (4, 3, 4, 1, 2, 1)
    assert row[7] == pytest.approx(-1.0)
    assert ("select: named", 3, 6, 0.5, 0.34) in tables["f2"].rows
    assert tables["f2"].rows[-1][1:3] == (2, 3)
    assert [row[1:5] for row in tables["g"].rows] == [(2, 2, 1, 1)] * 3 + [(2, 0, 1, 1)]
    assert {row[0]: row[1:] for row in tables["h"].rows} == {
        "generalises": (1, 0, 0, 1, 0, "21 of 27"),
        "does not": (3, 3, 3, 0, 0, "0 of 21"),
    }
    assert [row[2:4] for row in tables["cost"].rows] == [(8, 0.5), (4, 0.5)]
    assert not tables.keys() & {"a2", "d", "e", "failed"}
    assert all(re.match(r"\d+ (models|units)", table.note) for table in tables.values())
    told = drasp("tables", store.folder)
    assert (told.code, told.err) == (0, "")
    written = store.folder / "tables"
    assert json.loads((written / "tables.json").read_text())["tables"][0]["key"] == "a1"
    assert (written / "c.csv").read_text().count("\n") == 2
    assert (written / "tables.md").read_text().count("\n## (") == len(tables)
    assert r"bin\_majority-1l1h16d3lr00drop" in (written / "tables.tex").read_text()
    assert (written / "frontiers.svg").read_text().startswith("<?xml")
    command = f"drasp sweep spec.toml --out {store.folder.name}; drasp tables {store.folder.name}"
    for name in ("tables.md", "tables.tex", "tables.html"):
        assert (written / name).read_text().replace("\\_", "_").count(command) == len(tables)
    page = (written / "tables.html").read_text()
    assert "<script" not in page
    assert page.count("<table") == len(tables)


def test_the_study_that_was_begun_goes_on_and_its_tables_are_of_its_records(tmp_path):
    folder = ROOT / "studies" / "results" / "seeds"
    study, store = read_study(ROOT / "studies" / "seeds.toml"), Store(folder)
    known = {unit.id: unit for unit in study.units()}
    records = records_of(store)
    plan = Agenda.of(study, store)
    assert plan.finished == {record["id"] for record in records} <= known.keys()
    assert all(known[record["id"]].to_json()["spec"] == record["spec"] for record in records)
    # What is left to be decompiled finds its model.
    ready = [unit for unit in plan.ready() if unit.needs]
    assert all((store.units / str(unit.needs) / "model" / "model.safetensors").is_file() for unit in ready)
    stored = json.loads((folder / "tables" / "tables.json").read_text())["tables"]
    for table, kept in zip(all_tables(records, store.units), stored, strict=True):
        assert (table.key, table.note, list(table.columns)) == (kept["key"], kept["note"], kept["columns"])
        for row, kept_row in zip(table.rows, kept["rows"], strict=True):
            # Correlations differ in their last digits from machine to machine.
            assert [pytest.approx(cell) if isinstance(cell, float) else cell for cell in row] == kept_row


def test_tensors_in_a_learnt_basis_are_not_compared():
    lines = [
        "s1 = select(q=token, k=pos, op=A1) # x",
        "a1 = aggregate(s=s1, v=token)",
        "m1 = element_wise_op(a1, func=mlp(F1, gelu_new))",
        "a2 = aggregate(s=[], v=m1)",
        "logits1 = project(inp=a2, op=R1)",
        "logits2 = project(inp=a1, op=R2)",
    ]
    assert _comparable(lines) == ["A1", "R2"]


@pytest.mark.long
def test_ten_thousand_units_take_seconds(tmp_path):
    seeds = list(range(2500))
    # Processor time, so that other work on the machine does not matter.
    text = f"[[train]]\ntasks = ['bin_majority']\nseeds = {seeds}\n[[decompile]]\nseeds = [0, 1, 2]"
    began = time.process_time()
    study = study_of(text, tmp_path)
    store = opened(study, tmp_path / "store")
    assert len(Agenda.of(study, store).ready()) == 2500
    planned = time.process_time() - began
    for unit in study.units():
        (store.units / unit.id).mkdir()
        (store.units / unit.id / "unit.json").write_text(json.dumps(made_up(unit, 3)))
    began = time.process_time()
    assert len(sweep(study, store, 1).finished) == 10_000
    resumed = time.process_time() - began
    began = time.process_time()
    assert all_tables(records_of(store), store.units)
    tabulated = time.process_time() - began
    print(f"planned {planned:.1f} s, resumed {resumed:.1f} s, tabulated {tabulated:.1f} s")
    assert max(planned, resumed) < 10
    assert tabulated < 20


# --------------------------------------------------------------------------------- real units, Dask


@pytest.mark.long
def test_a_real_unit_fails_in_words_when_memory_or_the_model_is_missing(tmp_path):
    study = study_of("[limits]\nmemory_gb = 0.2\n[[train]]\ntasks = ['bin_majority']\nsteps = 1", tmp_path)
    store = opened(study, tmp_path / "store")
    plan = sweep(study, store, 1)
    (failed,) = plan.failed
    assert "memory" in store.record(failed)["reason"]


SMALL = """
[[train]]
tasks = ["bin_majority"]
seeds = [0, 1]
steps = 200
[[models]]
names = ["abcde"]
[[decompile]]
quick = true
"""


def real(spec: Path, folder: Path, *more: str, stderr: int | None = None) -> subprocess.Popen[bytes]:
    code = "from drasp.cli import main; main()"
    arguments = [sys.executable, "-c", code, "sweep", str(spec), "--out", str(folder), "--quiet", *more]
    return subprocess.Popen(arguments, env=environment(), stdout=subprocess.DEVNULL, stderr=stderr)


def environment() -> dict[str, str]:
    """Units are processes of their own, which must find this drasp."""
    others = [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *others])}


@pytest.mark.long
def test_real_units_killed_at_several_moments_end_with_the_same_records(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text(SMALL)
    assert real(spec, tmp_path / "whole", "--jobs", "2").wait() == 0
    for seconds in (4, 9, 14):
        process = real(spec, tmp_path / "killed", "--jobs", "2")
        time.sleep(seconds)
        process.kill()
        process.wait()
    # The rest by two workers at once.
    workers = [real(spec, tmp_path / "killed", "--worker") for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert told(Store(tmp_path / "killed")) == told(Store(tmp_path / "whole"))


def test_a_scheduler_that_cannot_be_reached_is_one_line(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text(SMALL)
    if find_spec("distributed") is None:
        wanted = "--scheduler needs Dask; install it with: pip install 'drasp[cluster]'"
        assert wanted in fails("sweep", spec, "--out", tmp_path / "out", "--scheduler", "tcp://127.0.0.1:1")
    else:
        said = fails("sweep", spec, "--out", tmp_path / "out", "--scheduler", "nonsense://127.0.0.1:1")
        assert "--scheduler nonsense://127.0.0.1:1: cannot be reached" in said


@pytest.fixture
def cluster(tmp_path) -> Iterator[tuple[str, list[int]]]:
    """The address of a Dask cluster of two processes, and all its processes, the scheduler's first."""
    process = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "local_cluster.py", str(tmp_path / "address")],
        env=environment(),
    )
    until = time.monotonic() + 60
    while not (tmp_path / "address").exists() and time.monotonic() < until:
        time.sleep(0.1)
    address, *workers = (tmp_path / "address").read_text().split()
    yield address, [process.pid, *map(int, workers)]
    process.terminate()
    process.wait()


needs_dask = pytest.mark.skipif(
    find_spec("distributed") is None, reason="Dask is not installed (pip install 'drasp[cluster]')"
)


@pytest.mark.long
@needs_dask
def test_a_dask_cluster_gives_the_same_records_though_a_worker_is_killed(tmp_path, cluster):
    spec = tmp_path / "spec.toml"
    spec.write_text(SMALL)
    assert real(spec, tmp_path / "whole", "--jobs", "2").wait() == 0
    address, processes = cluster
    process = real(spec, tmp_path / "dask", "--scheduler", address)
    time.sleep(6)
    os.kill(processes[1], signal.SIGKILL)
    assert process.wait(300) == 0
    assert told(Store(tmp_path / "dask")) == told(Store(tmp_path / "whole"))


@pytest.mark.long
@needs_dask
def test_a_scheduler_that_is_lost_is_one_line(tmp_path, cluster):
    spec = tmp_path / "spec.toml"
    spec.write_text(SMALL)
    address, processes = cluster
    process = real(spec, tmp_path / "out", "--scheduler", address, stderr=subprocess.PIPE)
    while not list(tmp_path.glob("out/work/*")):
        time.sleep(0.1)
    for each in processes:
        os.kill(each, signal.SIGKILL)
    said = process.communicate(timeout=120)[1].decode()
    assert said == f"drasp: --scheduler {address}: was lost; what is finished is kept: the same command goes on\n"
    assert process.returncode == 1


# ---------------------------------------------------------------------------------------- folders of others


def test_records_of_units_are_looked_at_when_they_are_read(tmp_path):
    study = study_of("[[models]]\nnames = ['tomita1']\n[[decompile]]", tmp_path)
    store = opened(study, tmp_path / "store")
    (unit,) = study.units()
    lease = store.claim(unit)
    assert lease is not None
    store.commit(lease, made_up(unit, 0), {})
    file = store.units / unit.id / "unit.json"
    good = json.loads(file.read_text())
    for change, message, stops_sweep in (
        ({"status": "odd"}, "status 'done'", True),
        ({"kind": 5}, "for kind, found 5", True),
        ({"seconds": "x"}, "for seconds, found 'x'", True),
        ({"spec": good["spec"] | {"task": "../../elsewhere"}}, "not those of unit", True),
        ({"result": good["result"] | {"frontier": [5]}}, "for frontier[0], found 5", False),
        ({"result": good["result"] | {"accuracy": {}}}, "result.accuracy: expected", False),
        ({"processor_seconds": None}, "for processor_seconds, found None", False),
        ({"peak_memory_mb": "x"}, "for peak_memory_mb, found 'x'", False),
    ):
        file.write_text(json.dumps(good | change))
        assert message in fails("tables", store.folder)
        ended = drasp("sweep", tmp_path / "spec.toml", "--out", store.folder, "--quiet")
        assert (ended.code, message in ended.err) == (stops_sweep, stops_sweep)
    assert not (store.folder / "tables").exists()


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (None, "spec.recipe: expected an object"),
        ({"task": "sort"}, "spec.recipe: layers is missing"),
        (asdict(Recipe("sort")) | {"lr": 2.0}, "spec.recipe: --lr 2.0"),
        (asdict(Recipe("../elsewhere")), "spec.recipe.task: '../elsewhere' is not a task"),
    ],
)
def test_trainings_of_others_are_looked_at_too(tmp_path, recipe, message):
    store = opened(study_of("[[models]]\nnames = ['tomita1']\n[[decompile]]", tmp_path), tmp_path / "store")
    unit = Unit("training", {"recipe": recipe}, "theirs")
    measured = {"seconds": 1.0, "processor_seconds": 1.0, "peak_memory_mb": 1}
    outcome = {"status": "done", "reason": None, "result": {"checkpoints": []}, **measured}
    (store.units / unit.id).mkdir()
    (store.units / unit.id / "unit.json").write_text(json.dumps(record_of(unit, outcome)))
    assert message in fails("tables", store.folder)


def test_no_figure_is_named_by_a_foreign_task():
    spec = {"task": "../../elsewhere", "model": {"name": "m", "digest": "d", "step": None}, **asdict(Decompiling())}
    unit = Unit("decompilation", spec, "odd")
    record = made_up(unit, 0)
    check_outcome(record, unit.id)  # whoever made it knows what an id is
    with pytest.raises(WrongFieldError, match=r"spec\.task"):
        check_tabled(record)


@pytest.mark.parametrize("what", ["", "/earlier", "/earlier/files"])
def test_links_among_what_is_left_of_a_unit_are_not_followed(tmp_path, what):
    store = opened(study := study_of(LITTLE, tmp_path), tmp_path / "store")
    unit = study.units()[0]
    (tmp_path / "mine").mkdir()
    link = store.folder / f"work/{unit.id}{what}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / "mine")
    lease = store.claim(unit)
    assert lease is not None
    assert lease.work.resolve() == (store.folder / "work" / unit.id / lease.token).resolve()
    assert not (lease.work / "files").exists()
    assert not any((tmp_path / "mine").iterdir())


def test_units_import_nothing_from_the_current_folder(tmp_path):
    (tmp_path / "json.py").write_text("from pathlib import Path\nPath('sprung').touch()\n")
    ended = subprocess.run(COMMAND, cwd=tmp_path, input=b"", capture_output=True, timeout=60, check=False)
    assert b"JSONDecodeError" in ended.stderr  # the real module has read the order
    assert not (tmp_path / "sprung").exists()


def test_a_log_that_is_a_link_is_not_written_through(tmp_path):
    study = study_of(LITTLE, tmp_path)
    store = opened(study, tmp_path / "store")
    unit = study.units()[0]
    (tmp_path / "mine").write_text("mine")
    left = store.folder / "work" / unit.id / "earlier"
    left.mkdir(parents=True)
    (left / "log.txt").symlink_to(tmp_path / "mine")
    lease = store.claim(unit)
    assert lease is not None
    running = Running(store, lease, Limits(), command=(sys.executable, "-c", "print('said')"))
    while not running.ended():
        time.sleep(0.02)
    assert (tmp_path / "mine").read_text() == "mine"
    assert (lease.work / "log.txt").read_text() == "said\n"
