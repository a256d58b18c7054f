"""What happened when, host and GPU: the records of a timeline, whoever took it, and what is counted from them.

A case is the NVTX range of domain `dgw` whose name is its key. What it put on the GPU is found by the launch call:
kernels run later than the call that launched them, so their own times do not tell whose they are.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dgw.model import Measurement
from dgw.workbench.collectors.timing import median_interval

DOMAIN = "dgw"
MOST_BOUNDED = 1000
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Span:
    """Something with a begin and an end, in seconds of one clock; `process` and `thread` tell where, 0 unknown."""

    name: str
    start: float
    end: float
    process: int = 0
    thread: int = 0

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Call(Span):
    """A call of the CUDA API. `correlation` ties it to what it put on the GPU."""

    correlation: int = 0


@dataclass(frozen=True, slots=True)
class Kernel(Span):
    """One kernel on the GPU. Blocks and threads per block; bytes of shared memory; -1 where the record does not say."""

    correlation: int = 0
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    registers: int = -1
    static_shared: int = -1
    dynamic_shared: int = -1
    device: int = 0
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Copy(Span):
    """A copy or fill of memory on the GPU; `kind` in words (`Host-to-Device`, `Memset`)."""

    correlation: int = 0
    kind: str = ""
    bytes: int = 0
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Range(Span):
    """An NVTX range."""

    domain: str = ""


@dataclass(frozen=True)
class Gpu:
    """The GPU as the timeline names it; empty or 0 where it does not."""

    name: str = ""
    compute: tuple[int, int] = (0, 0)
    sms: int = 0


@dataclass(frozen=True)
class Timeline:
    """Everything read from one timeline, each kind sorted by start. `absent` says why a kind is empty."""

    source: str  # who took it: nsys, torch-profiler
    version: str = ""
    kernels: tuple[Kernel, ...] = ()
    calls: tuple[Call, ...] = ()
    copies: tuple[Copy, ...] = ()
    ranges: tuple[Range, ...] = ()
    gpu: Gpu = Gpu()
    absent: dict[str, str] = field(default_factory=dict)

    def named(self, name: str) -> list[Range]:
        """The occurrences of a range of domain `dgw`; where domains are not recorded, of a range of any."""
        return [one for one in self.ranges if one.name == name and one.domain in (DOMAIN, "")]

    def within(self, occurrence: Range, waits: bool = False) -> Part:
        """What one occurrence of a range launched.

        `waits` says that the range ends only when the GPU has finished: then, where no call can be tied to a kernel,
        what ran on the GPU meanwhile is what it launched.
        """
        calls = [call for call in self.calls if _inside(call, occurrence) and _same_thread(call, occurrence)]
        wanted = {(process, call.correlation) for call in calls for process in (call.process, 0)}
        kernels = [kernel for kernel in self.kernels if (kernel.process, kernel.correlation) in wanted]
        copies = [copy for copy in self.copies if (copy.process, copy.correlation) in wanted]
        if waits and not kernels:
            kernels = [kernel for kernel in self.kernels if _inside(kernel, occurrence)]
            copies = [copy for copy in self.copies if _inside(copy, occurrence)]
        return Part(occurrence, tuple(kernels), tuple(calls), tuple(copies))


def _inside(span: Span, other: Span) -> bool:
    return other.start <= span.start and span.end <= other.end


def _same_thread(span: Span, other: Span) -> bool:
    return 0 in (span.thread, other.thread) or (span.thread, span.process) == (other.thread, other.process)


@dataclass(frozen=True)
class Part:
    """What one occurrence of a range did."""

    range: Range
    kernels: tuple[Kernel, ...]
    calls: tuple[Call, ...]
    copies: tuple[Copy, ...]

    @property
    def launch_calls(self) -> tuple[Call, ...]:
        """The calls that put kernels on the GPU."""
        launched = {kernel.correlation for kernel in self.kernels}
        return tuple(call for call in self.calls if call.correlation in launched or "Launch" in call.name)


def union(spans: Iterable[Span]) -> list[Interval]:
    """The spans as intervals that do not touch, in order."""
    merged: list[Interval] = []
    for start, end in sorted((span.start, span.end) for span in spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def covered(intervals: Sequence[Interval], start: float, end: float) -> float:
    """Seconds of [start, end] that the intervals cover."""
    return sum(max(0.0, min(stop, end) - max(begin, start)) for begin, stop in intervals)


def gaps(spans: Iterable[Span]) -> list[float]:
    """Seconds between the end of one busy stretch and the begin of the next."""
    busy = union(spans)
    return [after[0] - before[1] for before, after in itertools.pairwise(busy)]


def parts(timeline: Timeline, name: str, waits: bool = False) -> list[Part]:
    """What every occurrence of a range did."""
    return [timeline.within(occurrence, waits) for occurrence in timeline.named(name)]


def absences(source: str, reason: str, protocol: str = "timeline/1") -> list[Measurement]:
    """Every figure of a timeline, absent for one reason."""
    return [absent(metric, unit, source, protocol, reason) for metric, unit in (*METRICS, ("kernel_duration", "s"))]


def measurements(timeline: Timeline, key: str, launches: int, waits: bool = False) -> tuple[Measurement, ...]:
    """What the range `key` shows when each occurrence ran the case `launches` times, one after another.

    Counts and times are those of one occurrence (the median over all of them); `kernel_duration` is the kernel time of
    one execution of the case. Absent with the reason where the timeline cannot tell.
    """
    protocol = protocol_of(timeline)
    found = parts(timeline, key, waits)
    if not any(part.kernels for part in found):
        what, why = ("kernels", "no kernel was launched inside the range of this case") if found else (
            "ranges", "the timeline holds no range of this case")  # fmt: skip
        return tuple(absences(timeline.source, timeline.absent.get(what) or why, protocol))
    return figures(found, launches, timeline.source, protocol)


def figures(found: Sequence[Part], launches: int, source: str, protocol: str) -> tuple[Measurement, ...]:
    """The figures of occurrences that ran a case `launches` times each."""
    values = [
        _of(metric, unit, [value(part) for part in found], source, protocol)
        for (metric, unit), value in zip(METRICS, _VALUES, strict=True)
    ]
    return (*values, durations(found, launches, source, protocol), *_each_kernel(found, source, protocol))


def protocol_of(timeline: Timeline) -> str:
    """How figures of a timeline were obtained, with the version of the tool."""
    return f"timeline/1 {timeline.version}".strip()


METRICS = (
    ("timeline_launches", "count"),
    ("timeline_kernels", "count"),
    ("kernel_time", "s"),
    ("gap_time", "s"),
    ("longest_gap", "s"),
    ("copies", "count"),
    ("copy_bytes", "B"),
    ("copy_time", "s"),
    ("api_time", "s"),
    ("launch_api_time", "s"),
    ("range_time", "s"),
    ("range_overlap", "ratio"),
)
_VALUES: tuple[Callable[[Part], float], ...] = (
    lambda part: len(part.launch_calls),
    lambda part: len(part.kernels),
    lambda part: sum(kernel.seconds for kernel in part.kernels),
    lambda part: sum(gaps(part.kernels)),
    lambda part: max(gaps(part.kernels), default=0.0),
    lambda part: len(part.copies),
    lambda part: sum(copy.bytes for copy in part.copies),
    lambda part: sum(copy.seconds for copy in part.copies),
    lambda part: sum(call.seconds for call in part.calls),
    lambda part: sum(call.seconds for call in part.launch_calls),
    lambda part: part.range.seconds,
    lambda part: _overlap(part),
)


def _overlap(part: Part) -> float:
    """Share of the range during which the GPU worked on what the range launched."""
    busy = union((*part.kernels, *part.copies))
    return covered(busy, part.range.start, part.range.end) / part.range.seconds if part.range.seconds > 0 else 0.0


def _median(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The median and its bounds; of more values than the bounds can be counted for in no time, the median alone."""
    if len(values) <= MOST_BOUNDED:
        return median_interval(values)
    return statistics.median(values), None, None


def _of(metric: str, unit: str, values: Sequence[float], collector: str, protocol: str) -> Measurement:
    middle, low, high = _median(values)
    if unit in ("count", "B"):
        middle, low, high = sorted(values)[(len(values) - 1) // 2], None, None
    samples = tuple(float(value) for value in values) if len(values) > 1 else ()
    return Measurement(
        metric=metric, value=middle, unit=unit, collector=collector, protocol=protocol, samples=samples, low=low,
        high=high, tier="cupti",
    )  # fmt: skip


def absent(metric: str, unit: str, collector: str, protocol: str, reason: str) -> Measurement:
    """No value, and why."""
    return Measurement(metric=metric, unit=unit, collector=collector, protocol=protocol, absent=reason, tier="cupti")


def durations(
    parts: Sequence[Part], launches: int, collector: str, protocol: str, metric: str = "kernel_duration"
) -> Measurement:
    """`metric` (s): kernel time of one execution of the case, its kernels added up, over every occurrence.

    A sample is one execution where the kernels of an occurrence divide into `launches`, else there is none.
    """
    samples: list[float] = []
    for part in parts:
        each, rest = divmod(len(part.kernels), launches)
        if rest or not each:
            reason = f"{len(part.kernels)} kernels were recorded for {launches} launches"
            return absent(metric, "s", collector, protocol, reason)
        times = [kernel.seconds for kernel in part.kernels]
        samples += [sum(times[i : i + each]) for i in range(0, len(times), each)]
    middle, low, high = _median(samples)
    return Measurement(
        metric=metric, value=middle, unit="s", collector=collector, protocol=protocol,
        samples=tuple(samples), low=low, high=high, tier="cupti",
    )  # fmt: skip


def _each_kernel(parts: Sequence[Part], source: str, protocol: str) -> list[Measurement]:
    """`kernel_duration` and name of each distinct kernel (name, grid, block), in order of first launch."""
    found: list[Measurement] = []
    for number, same in enumerate(alike(kernel for part in parts for kernel in part.kernels)):
        scope, first = f"kernel {number}", same[0]
        middle, low, high = _median([kernel.seconds for kernel in same])
        found += [
            Measurement(metric="kernel_name", value=first.name, unit="text", scope=scope, collector=source,
                        protocol=protocol, tier="cupti"),
            Measurement(metric="kernel_duration", value=middle, unit="s", scope=scope, collector=source,
                        protocol=protocol, samples=tuple(kernel.seconds for kernel in same), low=low, high=high,
                        tier="cupti"),
        ]  # fmt: skip
    return found


def alike(kernels: Iterable[Kernel]) -> list[list[Kernel]]:
    """Kernels grouped by name, grid and block, in order of first appearance."""
    groups: dict[tuple[object, ...], list[Kernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.name, kernel.grid, kernel.block), []).append(kernel)
    return list(groups.values())
