"""A Dask cluster of two worker processes on this machine; its address, and its workers, go into a file."""

import sys
import time
from importlib import import_module
from pathlib import Path


def main() -> None:
    dask, distributed = import_module("dask"), import_module("distributed")
    dask.config.set({"distributed.scheduler.work-stealing": False, "distributed.scheduler.allowed-failures": 10})
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address=None) as cluster:
        processes = [str(worker.pid) for worker in cluster.workers.values()]
        Path(sys.argv[1]).write_text(" ".join([cluster.scheduler_address, *processes]))
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main()
