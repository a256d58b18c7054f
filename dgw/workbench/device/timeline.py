"""The child's side of a timeline: what runs in the ranges that nsys or torch.profiler record."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from dgw.model import Measurement
from dgw.workbench.collectors.timing import median_interval
from dgw.workbench.collectors.trace_events import RANGE_PREFIX
from dgw.workbench.device.bench import Competitor
from dgw.workbench.device.context import Gpu
from dgw.workbench.protocol import Policy

DIRECT = 10
"""Launches one after another in a case's own range."""
REPLAYS = 10
"""Occurrences of the range in which its CUDA graph is replayed; that range is called `KEY/replay`."""

Mark = Callable[[str], AbstractContextManager[Any]]


def replay_range(key: str) -> str:
    """The name of the range in which a case's graph is replayed."""
    return f"{key}/replay"


@contextlib.contextmanager
def _nvtx(name: str) -> Iterator[None]:
    import nvtx

    nvtx.push_range(name, domain="dgw")
    try:
        yield
    finally:
        nvtx.pop_range(domain="dgw")


@contextlib.contextmanager
def marking(trace: str, profiler: Any = None) -> Iterator[Mark]:
    """Gives the way to mark ranges: NVTX for nsys, or, where `trace` names a file, torch.profiler, which writes it.

    `profiler` stands in for `torch.profiler`. A first, empty session comes before: the first one in a process may
    record nothing. Raises ImportError without torch.
    """
    if not trace:
        yield _nvtx
        return
    if profiler is None:
        import torch

        torch.cuda.init()
        profiler = torch.profiler
    kinds = [profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA]
    with profiler.profile(activities=kinds):
        pass
    with profiler.profile(activities=kinds) as session:
        yield lambda name: profiler.record_function(f"{RANGE_PREFIX}{name}")
    session.export_chrome_trace(str(Path(trace)))


def run_marked(gpu: Gpu, competitor: Competitor, mark: Mark, policy: Policy) -> tuple[Measurement, ...]:
    """Run one case in its ranges, each of which waits for the GPU; `replay_time` and `replay_launches` of the replays.

    `replay_time` is what CUDA events say of the very replays that the profiler records: it shows whether the two agree,
    and is never compared with times that were taken without a profiler.
    """
    competitor.run_once()
    with mark(competitor.key):
        for _ in range(DIRECT):
            competitor.enqueue()
        gpu.synchronise()
    competitor.prepare(1, policy)
    graph, launches = competitor.graph("hot")
    samples = []
    for _ in range(REPLAYS):
        with mark(replay_range(competitor.key)):
            samples.append(gpu.elapsed(graph.launch) / launches)
    middle, low, high = median_interval(samples)
    protocol = "hot-graph under a profiler/1"
    return (
        Measurement(metric="replay_launches", value=launches, unit="count", collector="timing", protocol=protocol),
        Measurement(
            metric="replay_time", value=middle, unit="s", collector="timing", protocol=protocol,
            samples=tuple(samples), low=low, high=high,
        ),
    )  # fmt: skip
