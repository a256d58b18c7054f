"""Where figures come from: the machines, and the protocols under which they were taken."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dgw.model import Record
from dgw.workbench.locked_clock import locked_at

PROTOCOLS = (
    ("cold-graph", "Replays of a CUDA graph over rotated sets of buffers, together at least twice as large as L2, "
     "without a profiler; median of the samples with a 95 % interval."),
    ("hot-graph", "Replays of a CUDA graph over one set of buffers, without a profiler; median with a 95 % interval."),
    ("paired", "Times taken in turn with the baseline in the same process, compared pair by pair."),
    ("mma-rate", "mma.sync on registers alone, measured right after the same turns."),
    ("nvml", "Read from the driver (NVML) while the samples were taken."),
    ("ncu", "Counters of Nsight Compute in a pass of its own, caches flushed before every replay of a kernel; its "
     "durations are no times."),
    ("timeline", "A timeline by nsys or torch.profiler in a pass of its own."),
    ("screen", "The short protocol that chooses what is measured properly; never compared with final figures."),
)  # fmt: skip
"""What a protocol is, by how its name begins."""
COLLECTORS = {
    "static": "Computed from the compiled machine code and the device table; needs no GPU.",
    "emulator": "Counted while the compiled PTX was executed on the CPU; counts are real, time does not exist there.",
    "gpu": "Computed on the GPU.",
}


def protocols(records: Sequence[Record]) -> list[tuple[str, str, int]]:
    """(collector and protocol, what it is, how many figures of cases come from it), most figures first."""
    found: dict[tuple[str, str], int] = {}
    for record in records:
        for measurement in record.measurements:
            if measurement.scope == "case" and measurement.value is not None:
                source = measurement.collector, measurement.protocol
                found[source] = found.get(source, 0) + 1
    ranked = sorted(found.items(), key=lambda item: -item[1])
    return [(f"{c} ({p})" if p else c, meaning(c, p), count) for (c, p), count in ranked]


def meaning(collector: str, protocol: str) -> str:
    """What a figure of this collector under this protocol is; empty where nothing is written down."""
    locked = locked_at(protocol)
    held = f" The SM clock was locked at {locked * 1e-6:.0f} MHz." if locked else ""
    for begin, text in PROTOCOLS:
        if protocol.startswith(begin):
            return f"{text}{held}"
    return COLLECTORS.get(collector, "")


def environments(records: Sequence[Record]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Heads and rows of a table of the different machines: one column each, known facts down."""
    every = list(dict.fromkeys(record.environment for record in records))
    built = [msgspec.to_builtins(environment) for environment in every]
    counts = [sum(record.environment == environment for record in records) for environment in every]
    names = list(dict.fromkeys(key for facts in built for key in facts))
    rows = [(name.replace("_", " "), [str(facts.get(name, "-") or "-") for facts in built]) for name in names]
    return [f"{count} case{'s' if count != 1 else ''}" for count in counts], rows
