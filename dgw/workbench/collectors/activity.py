"""Kernel durations by CUPTI activity records: a second opinion on the time lane's samples, over the same replays.

The records come through torch's profiler, so this imports torch; it must not run while ncu or nsys is attached.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dgw.model import Measurement
from dgw.workbench.collectors.timing import median_interval

COLLECTOR = "cupti"


def kernel_durations(trace: dict[str, Any]) -> list[float]:
    """Seconds of every kernel in a Chrome trace as torch's profiler writes it (microseconds), in order of start."""
    kernels = [event for event in trace.get("traceEvents", []) if event.get("cat") == "kernel" and "dur" in event]
    return [float(event["dur"]) * 1e-6 for event in sorted(kernels, key=lambda event: float(event["ts"]))]


def record_replays(replay: Callable[[], None], synchronise: Callable[[], None]) -> list[float]:
    """Kernel durations (s) of what `replay` enqueues."""
    import torch

    torch.cuda.init()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        replay()
        synchronise()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return kernel_durations(json.loads(path.read_text(encoding="utf-8")))


def unavailable(reason: str, cache: str) -> Measurement:
    """No kernel_duration, and why."""
    return Measurement(
        metric="kernel_duration",
        unit="s",
        collector=COLLECTOR,
        protocol=f"activity/1 {cache}",
        absent=reason,
        tier="cupti",
    )


def measurement(durations: Sequence[float], launches: int, cache: str) -> Measurement:
    """`kernel_duration` (s): kernel time of one of the `launches` that were replayed, its kernels added up."""
    if not durations or launches < 1 or len(durations) % launches:
        return unavailable(f"CUPTI recorded {len(durations)} kernels for {launches} launches", cache)
    each = len(durations) // launches
    samples = tuple(sum(durations[i : i + each]) for i in range(0, len(durations), each))
    middle, low, high = median_interval(samples)
    return Measurement(
        metric="kernel_duration", value=middle, unit="s", collector=COLLECTOR, protocol=f"activity/1 {cache}",
        samples=samples, low=low, high=high, tier="cupti",
    )  # fmt: skip
