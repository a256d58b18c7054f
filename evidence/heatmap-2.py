"""Sweeps on two GPUs of one host: throughput and winners, against one GPU, by local slots and by dask.

Needs two GPUs. `dask`: a scheduler and two workers are started here, each with one of the GPUs.
"""

from __future__ import annotations

import json
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

SHAPES = "4096x4096x4096,4096x4096x2048"
SPACE = ("--fix", "GROUP_M=8,SPREAD=2", "--space", "STAGES=3,4")
SWEEP = ("sweep", "--variant", "cuda/tensor-core", "--shape", SHAPES, *SPACE, "--json")
KEPT = ("time_cold", "time_hot", "tflops", race.VERDICT, "ratio_to_best")


def best(run: Run, shape: str) -> Record:
    """The winner of the race at a shape."""
    return next(r for r in run.records if r.case.problem.shape == shape and race.verdict(r) == "best")


def compare(topic: Topic, how: str, idle: float, one: Done, two: Done) -> None:
    """Throughput, and whether the winners of two GPUs are as fast as those of one.

    `idle` is what the command takes when nothing is left to measure.
    """
    ratio = (one.seconds - idle) / (two.seconds - idle)
    topic.show(f"{how}: throughput of two GPUs over one, beyond what a finished sweep takes", ratio, "ratio", ">=", 1.8)
    alone = {r.case.key: race.screened(r) for r in one.run.records}
    apart = []
    for shape in SHAPES.split(","):
        own, there = alone[best(two.run, shape).case.key], race.screened(best(one.run, shape))
        apart.append(own / there if own and there else None)
    worst = None if None in apart else max(value for value in apart if value is not None)
    limit = 1 + race.MARGIN
    topic.show(f"{how}: winners of two GPUs by one GPU's screening, over its own", worst, "ratio", "<=", limit)
    topic.show(f"{how}: cases of two GPUs", len(two.run.records), "", "==", len(one.run.records))


@contextmanager
def dask(gpus: Sequence[str]) -> Iterator[str]:
    """A scheduler and a worker for each GPU, on this host; yields the scheduler's address."""
    folder = Path(tempfile.mkdtemp(prefix="dgw-dask-"))
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = dict(os.environ, PYTHONPATH=paths, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="1")
    address = folder / "scheduler.json"
    same = ("--scheduler-file", str(address), "--no-dashboard")
    worker = ("--nthreads", "1", "--resources", "GPU=1", "--no-nanny", "--local-directory", str(folder))
    commands = [("dask_scheduler", *same, "--port", "0"), *[("dask_worker", *same, *worker) for _ in gpus]]
    processes = []
    for (name, *rest), gpu in zip(commands, ["", *gpus], strict=True):
        around = {**environment, "CUDA_VISIBLE_DEVICES": gpu} if gpu else environment
        command = [sys.executable, "-m", f"distributed.cli.{name}", *rest]
        quiet = subprocess.DEVNULL
        processes.append(subprocess.Popen(command, env=around, stdin=quiet, stdout=quiet, stderr=quiet))
    try:
        limit = time.monotonic() + 60
        while not address.exists() or not address.read_text().endswith("}"):
            if time.monotonic() > limit:
                raise SystemExit("the dask scheduler does not start")
            time.sleep(0.2)
        time.sleep(5)  # the workers register
        yield "dask://" + json.loads(address.read_text())["address"].partition("://")[2]
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Measure one GPU, two by local slots, two by dask. The compile cache is warm for all three."""
    topic = Topic("heatmap-2")
    gpus = [slot.uuid for slot in visible()]
    if len(gpus) < 2:
        raise SystemExit("this topic needs two GPUs")
    topic.dgw(*SWEEP, "--engine", "static", "--no-store")  # fills the compile cache
    one = topic.dgw(*SWEEP, "--gpus", "0", "--fresh")
    idle = topic.dgw(*SWEEP, "--gpus", "0", "--resume").seconds
    two = topic.dgw(*SWEEP, "--gpus", "0,1", "--fresh")
    compare(topic, "local slots", idle, one, two)
    os.environ["DGW_CACHE"] = str(topic.folder / "cache")  # the workers' too
    with dask(gpus[:2]) as scheduler:
        spread = topic.dgw(*SWEEP, "--engine", scheduler, "--fresh")
    compare(topic, "dask", idle, one, spread)
    topic.write(thin(two.run, KEPT), one=thin(one.run, KEPT), dask=thin(spread.run, KEPT))


if __name__ == "__main__":
    main()
