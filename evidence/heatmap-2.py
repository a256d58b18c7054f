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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from parts import FAILURES
from topic import ROOT, Done, Topic, thin

from dgw.model import Record, Run
from dgw.workbench.slots import visible
from dgw.workbench.sweep import race

SHAPES = "4096x4096x4096,4096x4096x2048"
SPACE = ("--fix", "GROUP_M=8,SPREAD=2", "--space", "STAGES=3,4")
SWEEP = ("sweep", "--variant", "cuda/tensor-core", "--shape", SHAPES, *SPACE, "--json")
KEPT = ("time_cold", "time_hot", "tflops", race.VERDICT, "ratio_to_best")


@dataclass
class Findings:
    """What has been measured so far: runs and the seconds of whole commands, by name."""

    topic: Topic
    runs: dict[str, Run] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def sweep(self, name: str, *arguments: str) -> Done:
        """Do the sweep with these options; its seconds are kept, and its run where it measured (`--fresh`)."""
        done = self.topic.dgw(*SWEEP, *arguments)
        if "--fresh" in arguments:
            self.runs[name] = done.run
        self.seconds[name] = done.seconds
        return done

    def step(self, name: str, do: Callable[[Findings], None]) -> None:
        """One step; one that breaks leaves a row that says so. What there is so far is written after each."""
        try:
            do(self)
        except FAILURES as error:
            self.topic.show(f"{name}: measured to its end", f"{type(error).__name__}: {error}"[:300], "", "==", "yes")
        if self.runs:
            kept = {name: thin(run, KEPT) for name, run in self.runs.items()}
            first = "two" if "two" in kept else next(iter(kept))
            self.topic.write(kept.pop(first), seconds=self.seconds, **kept)


def best(run: Run, shape: str) -> Record:
    """The winner of the race at a shape."""
    return next(r for r in run.records if r.case.problem.shape == shape and race.verdict(r) == "best")


def as_good(winner: Record, run: Run) -> bool:
    """Whether the race of `run` found the case the best, or not slower than its best."""
    return any(r.case.key == winner.case.key and race.verdict(r) in ("best", "tied") for r in run.records)


def compare(topic: Topic, how: str, one: Run, two: Run) -> None:
    """Whether the race of one GPU finds the winners of two as good as its own; `tied` is within its noise."""
    shapes = SHAPES.split(",")
    winners = [(best(one, shape), best(two, shape)) for shape in shapes]
    same = sum(as_good(apart, one) for _, apart in winners)
    claim = f"{how}: shapes at which the winner of two GPUs is best or tied in the race of one"
    topic.show(claim, same, "shapes", "==", len(shapes))
    alone = {r.case.key: race.screened(r) for r in one.records}
    ratios = []
    for own, apart in winners:
        there, here = alone.get(apart.case.key), race.screened(own)
        ratios.append(there / here if there and here else None)
    worst = None if None in ratios else max(value for value in ratios if value is not None)
    topic.figure(f"{how}: single screening of the winner of two GPUs on one GPU, over that of its own", worst, "ratio")
    topic.show(f"{how}: cases of two GPUs", len(two.records), "", "==", len(one.records))


def throughput(found: Findings, how: str, two: str, idle: str) -> None:
    """What two GPUs do in the time of one; what a command takes that measures nothing is not theirs."""
    seconds = found.seconds
    ratio = (seconds["one"] - seconds["idle"]) / (seconds[two] - seconds[idle])
    claim = f"{how}: throughput of two GPUs over one, each beyond what a finished sweep takes the same way"
    found.topic.show(claim, ratio, "ratio", ">=", 1.8)


def by_one(found: Findings) -> None:
    """One GPU, and the same sweep when nothing is left to measure."""
    found.sweep("one", "--gpus", "0", "--fresh")
    found.sweep("idle", "--gpus", "0", "--resume")


def by_slots(found: Findings) -> None:
    """Two GPUs by local slots."""
    found.sweep("two", "--gpus", "0,1", "--fresh")
    throughput(found, "local slots", "two", "idle")
    compare(found.topic, "local slots", found.runs["one"], found.runs["two"])


def by_dask(gpus: Sequence[str]) -> Callable[[Findings], None]:
    """Two GPUs by dask, and the same when nothing is left to measure."""

    def do(found: Findings) -> None:
        with dask(gpus) as scheduler:
            found.sweep("dask", "--engine", scheduler, "--fresh")
            compare(found.topic, "dask", found.runs["one"], found.runs["dask"])
            found.sweep("dask_idle", "--engine", scheduler, "--resume")
        throughput(found, "dask", "dask", "dask_idle")

    return do


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
        where = json.loads(address.read_text())["address"]
        _wait_for_workers(where, len(gpus))
        yield "dask://" + where.partition("://")[2]
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for_workers(address: str, count: int) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=60)


def main() -> None:
    """Measure one GPU, two by local slots, two by dask. The compile cache is warm for all three."""
    found = Findings(Topic("heatmap-2"))
    gpus = [slot.uuid for slot in visible()]
    if len(gpus) < 2:
        raise SystemExit("this topic needs two GPUs")
    found.topic.dgw(*SWEEP, "--engine", "static", "--no-store")  # fills the compile cache
    os.environ["DGW_CACHE"] = str(found.topic.folder / "cache")  # the workers' too
    found.step("one GPU", by_one)
    found.step("local slots", by_slots)
    found.step("dask", by_dask(gpus[:2]))


if __name__ == "__main__":
    main()
