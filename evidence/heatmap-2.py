"""Sweeps on two GPUs of one host: throughput and winners, against one GPU, by local slots and by dask.

Needs two GPUs. `dask`: a scheduler and two workers are started here, each with one of the GPUs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from topic import ROOT, Done, Topic, thin

from dgw.model import Record, Run
from dgw.workbench.slots import visible
from dgw.workbench.sweep import race

SHAPE = "4096x4096x4096"
SPACE = ("--fix", "GROUP_M=8,SPREAD=2")
SWEEP = ("sweep", "--variant", "cuda/tensor-core", "--shape", SHAPE, *SPACE, "--json", "--fresh")
KEPT = ("time_cold", "time_hot", "tflops", race.VERDICT, "ratio_to_best")


def best(run: Run) -> Record:
    """The winner of the race."""
    return next(record for record in run.records if race.verdict(record) == "best")


def compare(topic: Topic, how: str, one: Done, two: Done) -> None:
    """Throughput, and whether the winner of two GPUs is as fast as that of one."""
    topic.show(f"{how}: throughput of two GPUs over one, whole commands", one.seconds / two.seconds, "ratio", ">=", 1.8)
    alone, winner = {r.case.key: r for r in one.run.records}, best(two.run)
    mine, fastest = alone.get(winner.case.key), best(one.run)
    own = race.screened(mine) if mine is not None else None
    there = race.screened(fastest)
    apart = own / there if own and there else None
    limit = 1 + race.MARGIN
    topic.show(f"{how}: winner of two GPUs, by the screening of one, over its best", apart, "ratio", "<=", limit)
    topic.show(f"{how}: cases of two GPUs", len(two.run.records), "", "==", len(one.run.records))


@contextmanager
def dask(gpus: Sequence[str]) -> Iterator[str]:
    """A scheduler and a worker for each GPU, on this host."""
    folder = Path(tempfile.mkdtemp(prefix="dgw-dask-"))
    environment = dict(os.environ, PYTHONPATH=str(ROOT), DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="1")
    address = folder / "scheduler.json"
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--scheduler-file", str(address), "--port", "0",
             "--no-dashboard"], env=environment,
        )
    ]  # fmt: skip
    for gpu in gpus:
        command = [
            sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(address), "--nthreads", "1",
            "--nworkers", "1", "--resources", "GPU=1", "--no-dashboard", "--local-directory", str(folder),
        ]  # fmt: skip
        processes.append(subprocess.Popen(command, env={**environment, "CUDA_VISIBLE_DEVICES": gpu}))
    try:
        import json

        while not address.exists():
            time.sleep(0.2)
        yield "dask://" + json.loads(address.read_text())["address"].partition("://")[2]
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure one GPU, two by local slots, two by dask. The compile cache is warm for all three."""
    topic = Topic("heatmap-2")
    gpus = [slot.uuid for slot in visible()]
    if len(gpus) < 2:
        raise SystemExit("this topic needs two GPUs")
    topic.dgw(*SWEEP, "--gpus", "0,1")  # fills the compile cache
    one = topic.dgw(*SWEEP, "--gpus", "0")
    two = topic.dgw(*SWEEP, "--gpus", "0,1")
    compare(topic, "local slots", one, two)
    os.environ["DGW_CACHE"] = str(topic.folder / "cache")
    with dask(gpus[:2]) as scheduler:
        spread = topic.dgw(*SWEEP, "--engine", scheduler)
    compare(topic, "dask", one, spread)
    topic.write(thin(two.run, KEPT), one=thin(one.run, KEPT), dask=thin(spread.run, KEPT))


if __name__ == "__main__":
    main()
