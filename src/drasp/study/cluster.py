"""A study on a Dask cluster: the same units and the same store, run by its workers."""

import logging
import os
from dataclasses import asdict
from importlib import import_module
from typing import Any

from drasp.errors import DraspError
from drasp.study.engine import Agenda, Watch, failure, record_of, run_one
from drasp.study.spec import Study
from drasp.study.store import Store
from drasp.study.units import Unit
from drasp.terminal import one_line

_TIMEOUT = 10  # seconds, for the scheduler to answer


def sweep_on(address: str, study: Study, store: Store, watch: Watch = lambda _: None) -> Agenda:
    """Runs all units that are not finished on the workers of a scheduler, which share the store's folder.

    Dask gives the unit of a worker that has died to another one. Should it give up, the unit is a failed row.
    """
    client, as_completed = _connected(address)
    store.tidy()
    plan = Agenda.of(study, store)
    folder, limits = str(store.folder.resolve()), asdict(study.limits)
    sent: dict[Any, Unit] = {}
    known: set[str] = set()

    def send() -> list[Any]:
        fresh = []
        for unit in plan.ready():
            if unit.id not in known and unit.needs not in plan.failed:
                # A key of its own for each run, since Dask would else give back what it remembers.
                key = f"{unit.id}-{os.urandom(4).hex()}"
                future = client.submit(run_one, folder, unit.to_json(), limits, key=key, pure=False)
                sent[future] = unit
                known.add(unit.id)
                fresh.append(future)
        return fresh

    try:
        queue = as_completed(send(), loop=client.loop, raise_errors=False)
        watch(plan.progress(0, _workers(client)))
        for future in queue:
            unit = sent.pop(future)
            if future.status == "error":
                error = future.exception()
                _fail(store, unit, one_line(f"the cluster gave it up: {type(error).__name__}: {error}"))
            elif future.status != "finished":
                raise DraspError(f"--scheduler {address}: was lost; what is finished is kept: the same command goes on")
            record = store.record(unit.id)
            plan.finish(unit, record)
            _fail_followers(plan)
            queue.update(send())
            watch(plan.progress(queue.count(), _workers(client), unit, record))
    finally:
        client.close()
    return plan


def _connected(address: str) -> tuple[Any, Any]:
    """A client of the scheduler, and Dask's function for waiting; nothing else of drasp needs Dask."""
    try:
        distributed = import_module("distributed")
    except ModuleNotFoundError:
        raise DraspError("--scheduler needs Dask; install it with: pip install 'drasp[cluster]'") from None
    # A scheduler that is lost is one line of ours; its client would print where in its code it was noticed.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        return distributed.Client(address, timeout=_TIMEOUT, set_as_default=False), distributed.as_completed
    except (OSError, TimeoutError, ValueError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DraspError(f"--scheduler {address}: cannot be reached ({said}); expected tcp://HOST:PORT") from None


def _workers(client: Any) -> int:
    return max(1, len(client.scheduler_info(n_workers=-1)["workers"]))


def _fail(store: Store, unit: Unit, reason: str) -> None:
    """A failed row, unless the unit was finished all the same."""
    while unit.id not in store.finished():
        if (lease := store.claim(unit)) is not None:
            store.commit(lease, record_of(unit, failure(reason)), {})


def _fail_followers(plan: Agenda) -> None:
    for unit in [each for each in plan.waiting.values() if each.needs in plan.failed]:
        _fail(plan.store, unit, f"its training {unit.needs} failed")
        plan.finish(unit, plan.store.record(unit.id))
