"""Runs the units of a study: each in a process of its own, under a lease, until all are finished.

One loop serves a machine with several jobs, a worker among many, and a single unit on a Dask worker. It never waits for
one unit alone: it looks at all that run, shows that it is alive, and starts what can be started.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from drasp.input_files import MAX_TENSORS, read_bytes, read_json_if_there
from drasp.records import drasp_version
from drasp.study.spec import Limits, Study
from drasp.study.store import LEASE_SECONDS, SCHEMA_VERSION, Lease, Store
from drasp.study.units import Unit
from drasp.study.work import FILES, OUTCOME

COMMAND = (sys.executable, "-P", "-m", "drasp.study.work")  # -P: no module is taken from the current folder
_POLL = 0.1
_RENEW = LEASE_SECONDS / 6
_TRY_AGAIN = 2.0  # seconds until units that others had are looked at again
_GRACE = 10.0  # seconds for a unit to store what it has, when it is interrupted
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Advance:
    """How far a study is. `unit` and `record` are what has just been finished, by this process or by another."""

    finished: int
    total: int
    failed: int
    running: int
    seconds_left: float | None
    unit: Unit | None = None
    record: Mapping[str, Any] | None = None


Watch = Callable[[Advance], None]


class Running:
    """A unit's process, and the lease under which it runs."""

    def __init__(self, store: Store, lease: Lease, limits: Limits, command: Sequence[str] = COMMAND) -> None:
        self.store, self.lease, self._limits = store, lease, limits
        self._began = self._renewed = time.monotonic()
        self._too_long = False
        self._log = lease.work / "log.txt"
        for file in (lease.work / OUTCOME, self._log):
            file.unlink(missing_ok=True)
        with self._log.open("xb") as log:  # an earlier owner may have left a link there
            # In a session of its own, so that Ctrl-C reaches the parent alone, which then says what is to be done.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **_ONE_THREAD},
            )  # fmt: skip
        order = {
            "unit": lease.unit.to_json(),
            "work": str(lease.work.resolve()),
            "model": model_of(store, lease.unit),
            "memory_gb": limits.memory_gb,
            "parent": os.getpid(),
        }
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode())
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended already, and its log says why

    def ended(self) -> bool:
        """Whether there is nothing more to wait for. The lease is renewed, and limits are kept, on the way."""
        now = time.monotonic()
        if now - self._renewed > _RENEW:
            self._renewed = now
            if not self.lease.renew():
                self._kill()  # another has it
        if now - self._began > 60 * self._limits.minutes and self._process.poll() is None:
            self._too_long = True
            self._kill()
        return self._process.poll() is not None

    def commit(self) -> dict[str, Any] | None:
        """The record of the ended process, which is now in the store; None where the lease has gone to another."""
        outcome = self._outcome()
        files = _files_in(self.lease.work / FILES) if outcome["status"] == "done" else {}
        made = record_of(self.lease.unit, outcome)
        return made if self.store.commit(self.lease, made, files) else None

    def stop(self) -> None:
        """Interrupts the unit, which keeps what it has."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._kill()
        self.store.release(self.lease)

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _outcome(self) -> dict[str, Any]:
        code = self._process.wait()
        seconds = round(time.monotonic() - self._began, 2)
        found = read_json_if_there(self.lease.work / OUTCOME)
        if found is not None:
            return found
        if self._too_long:
            reason = f"longer than the study's limit of {self._limits.minutes:g} minutes"
        elif code < 0:
            reason = f"its process was ended by {signal.Signals(-code).name}"
        else:
            said = self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
            # What a lack of memory does while modules are imported has many names.
            limit = f"{self._limits.memory_gb:g} GB of memory"
            reason = f"its process, of at most {limit}, ended with code {code}: {said[-1] if said else 'nothing said'}"
        return failure(reason, seconds)


def model_of(store: Store, unit: Unit) -> str | None:
    """The folder, or the zoo's name, of the model that a unit decompiles."""
    if unit.needs is None:
        return unit.place
    step = unit.spec["model"]["step"]
    return str((store.units / unit.needs / (f"model-{step}" if step else "model")).resolve())


def record_of(unit: Unit, outcome: Mapping[str, Any]) -> dict[str, Any]:
    made_by = {"schema_version": SCHEMA_VERSION, "drasp_version": drasp_version(), "code": code_digest()}
    return {**made_by, "id": unit.id, "kind": unit.kind, "label": unit.label, "spec": unit.spec, **outcome}


def failure(reason: str, seconds: float = 0.0) -> dict[str, Any]:
    """The outcome of a unit that did not end by itself."""
    measured = {"seconds": seconds, "processor_seconds": None, "peak_memory_mb": None}
    return {"status": "failed", "reason": reason, "result": None, **measured}


@cache
def code_digest() -> str:
    """The digest of drasp's own modules: between two versions, results of other code can be told apart by it."""
    package = Path(__file__).parents[1]
    made = sha256()
    for file in sorted(package.rglob("*.py")):
        made.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return made.hexdigest()[:12]


def _files_in(folder: Path) -> dict[str, bytes]:
    """What a unit has made: not what it left hidden, or half done."""
    found = sorted(file for file in folder.rglob("*") if file.is_file())
    names = {file.relative_to(folder).as_posix(): file for file in found}
    return {
        name: read_bytes(file, MAX_TENSORS)
        for name, file in names.items()
        if not name.startswith(".") and not name.endswith(".training")
    }


@dataclass
class Agenda:
    """What is left to do. Units appear when it is known that they exist: those of checkpoints after their training."""

    study: Study
    store: Store
    waiting: dict[str, Unit] = field(default_factory=dict[str, Unit])
    failed: set[str] = field(default_factory=set[str])
    finished: set[str] = field(default_factory=set[str])
    _seconds: dict[tuple[str, ...], list[float]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, study: Study, store: Store) -> "Agenda":
        plan = cls(study, store)
        there = store.finished()
        units = study.units()
        plan.waiting = {unit.id: unit for unit in units if unit.id not in there}
        for unit in units:
            if unit.id in there:
                plan.finish(unit, store.record(unit.id), there)
        return plan

    def finish(self, unit: Unit, record: Mapping[str, Any], there: set[str] | None = None) -> None:
        """Notes a finished unit, and what follows from it."""
        self.waiting.pop(unit.id, None)
        self.finished.add(unit.id)
        if record["status"] == "failed":
            self.failed.add(unit.id)
            return
        self._seconds[unit.group].append(record["seconds"])
        if unit.kind == "training":
            for each in self.study.after(unit, record["result"]["checkpoints"]):
                if each.id in (self.store.finished() if there is None else there):
                    self.finish(each, self.store.record(each.id), there)
                elif each.id not in self.finished:
                    self.waiting[each.id] = each

    def ready(self) -> list[Unit]:
        return [unit for unit in self.waiting.values() if unit.needs is None or unit.needs in self.finished]

    def progress(self, running: int, jobs: int, unit: Unit | None = None, record: Any = None) -> Advance:
        total = len(self.waiting) + len(self.finished)
        return Advance(len(self.finished), total, len(self.failed), running, self._left(jobs), unit, record)

    def _left(self, jobs: int) -> float | None:
        """The seconds left, by the mean of finished units of the same group, or else kind; None without any."""
        means = {group: sum(each) / len(each) for group, each in self._seconds.items()}
        kinds: dict[str, list[float]] = defaultdict(list)
        for group, mean in means.items():
            kinds[group[0]].append(mean)
        total = 0.0
        for unit in self.waiting.values():
            if unit.group in means:
                total += means[unit.group]
            elif kinds[unit.kind]:
                total += sum(kinds[unit.kind]) / len(kinds[unit.kind])
            else:
                return None
        return total / jobs


def sweep(
    study: Study, store: Store, jobs: int, watch: Watch = lambda _: None, command: Sequence[str] = COMMAND
) -> Agenda:
    """Runs all units that are not finished, `jobs` at a time; others may work in the same store.

    Interrupted, it lets running units keep what they have. The same call goes on.
    """
    store.tidy()
    plan = Agenda.of(study, store)
    running: dict[str, Running] = {}
    looked = 0.0
    watch(plan.progress(0, jobs))
    try:
        while plan.waiting:
            ended = [each for each in running.values() if each.ended()]
            for each in ended:
                unit = each.lease.unit
                del running[unit.id]
                # Where another had taken the lease, the unit waits until that one has finished it.
                if (record := each.commit()) is not None:
                    plan.finish(unit, record)
                    watch(plan.progress(len(running), jobs, unit, record))
            if len(running) < jobs and (ended or time.monotonic() - looked > _TRY_AGAIN):
                looked = time.monotonic()
                _start(plan, running, jobs, watch, command)
            elif running:
                time.sleep(_POLL)
            else:
                time.sleep(_POLL * 5)  # others are at what is left
    finally:
        for each in running.values():
            each.stop()
    return plan


def _start(plan: Agenda, running: dict[str, Running], jobs: int, watch: Watch, command: Sequence[str]) -> None:
    """Starts as many units as there is room for; notes those that others have finished meanwhile."""
    there = plan.store.finished()
    for unit in plan.ready():
        if len(running) >= jobs:
            return
        if unit.id in running:
            continue
        if unit.id in there:
            record = plan.store.record(unit.id)
            plan.finish(unit, record)
            watch(plan.progress(len(running), jobs, unit, record))
            continue
        lease = plan.store.claim(unit)
        if lease is None:
            continue
        if unit.needs in plan.failed:
            made = record_of(unit, failure(f"its training {unit.needs} failed"))
            if plan.store.commit(lease, made, {}):
                plan.finish(unit, made)
                watch(plan.progress(len(running), jobs, unit, made))
            continue
        running[unit.id] = Running(plan.store, lease, plan.study.limits, command)


def run_one(folder: str, order: Mapping[str, Any], limits: Mapping[str, float]) -> dict[str, Any]:
    """Finishes one unit, here or by waiting for whoever has its lease; what a Dask worker runs. Gives a small dict."""
    store, unit = Store(Path(folder)), Unit(**order)
    while unit.id not in store.finished():
        lease = store.claim(unit)
        if lease is None:
            time.sleep(1.0)
            continue
        process = Running(store, lease, Limits(**limits))
        try:
            while not process.ended():
                time.sleep(_POLL)
        except BaseException:
            process.stop()
            raise
        process.commit()
    record = store.record(unit.id)
    return {"id": unit.id, "status": record["status"], "seconds": record["seconds"]}


def forget_failed(study: Study, store: Store) -> int:
    """Takes the study's failed units out of the store, so that they are run again; gives how many there were."""
    failed = Agenda.of(study, store).failed
    for unit_id in failed:
        store.forget(unit_id)
    return len(failed)
