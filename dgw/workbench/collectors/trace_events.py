"""Timelines as trace events (JSON), the format that Chrome's about:tracing and Perfetto open.

Written from any timeline, and read where torch.profiler wrote it: that is the stand-in for nsys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dgw.errors import ReportError
from dgw.workbench.collectors.timeline import DOMAIN, Call, Copy, Gpu, Kernel, Range, Span, Timeline

TORCH = "torch-profiler"
RANGE_PREFIX = f"{DOMAIN}@"
"""How a range of domain dgw is called where ranges have no domains."""

_US = 1e-6
_HOST, _GPU = 1, 2  # process ids in a written trace: host threads above GPU streams


def trace_events(timeline: Timeline) -> dict[str, Any]:
    """The timeline as a trace: times in us from its first event, a row for each host thread and GPU stream."""
    everything: list[Kernel | Copy | Call | Range] = [
        *timeline.ranges, *timeline.calls, *timeline.kernels, *timeline.copies
    ]  # fmt: skip
    origin = min((span.start for span in everything), default=0.0)
    threads = {thread: row for row, thread in enumerate(dict.fromkeys(s.thread for s in everything if _on_host(s)))}
    events = [_name(_HOST, "host"), _name(_GPU, timeline.gpu.name or "GPU")]
    events += [_name(_HOST, f"thread {row}", 2 * row + offset) for row in threads.values() for offset in (0, 1)]
    events += [_name(_GPU, f"stream {stream}", stream) for stream in sorted(_streams(timeline))]
    for span in everything:
        # ranges have the row above the calls of their thread: a range may end inside of what the other one covers
        row = span.stream if isinstance(span, Kernel | Copy) else 2 * threads[span.thread] + isinstance(span, Call)
        events.append(
            {
                "ph": "X",
                "cat": {Kernel: "kernel", Copy: "gpu_memcpy", Call: "cuda_api", Range: "nvtx"}[type(span)],
                "name": span.name,
                "pid": _HOST if _on_host(span) else _GPU,
                "tid": row,
                "ts": round((span.start - origin) / _US, 3),
                "dur": round(span.seconds / _US, 3),
                "args": _arguments(span),
            }
        )
    about = {"source": timeline.source, "version": timeline.version}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}


def _on_host(span: Span) -> bool:
    return isinstance(span, Call | Range)


def _streams(timeline: Timeline) -> set[int]:
    return {kernel.stream for kernel in timeline.kernels} | {copy.stream for copy in timeline.copies}


def _name(process: int, name: str, thread: int | None = None) -> dict[str, Any]:
    what = "process_name" if thread is None else "thread_name"
    return {"ph": "M", "name": what, "pid": process, "tid": thread or 0, "args": {"name": name}}


def _arguments(span: Span) -> dict[str, Any]:
    if isinstance(span, Kernel):
        known = {"registers per thread": span.registers, "static shared memory": span.static_shared,
                 "dynamic shared memory": span.dynamic_shared}  # fmt: skip
        return {"grid": list(span.grid), "block": list(span.block), "correlation": span.correlation,
                **{name: value for name, value in known.items() if value >= 0}}  # fmt: skip
    if isinstance(span, Copy):
        return {"bytes": span.bytes, "kind": span.kind, "correlation": span.correlation}
    if isinstance(span, Call):
        return {"correlation": span.correlation}
    return {"domain": span.domain} if isinstance(span, Range) and span.domain else {}


def write_trace(timeline: Timeline, path: Path) -> Path:
    """Write the trace of a timeline; the path."""
    path.write_text(json.dumps(trace_events(timeline), separators=(",", ":")) + "\n", encoding="utf-8")
    return path


def read_torch_trace(path: Path | str) -> Timeline:
    """The timeline in a trace that torch.profiler exported. ReportError when the file is missing or no trace."""
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        listed = content["traceEvents"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReportError(f"{path.name} is no trace of torch.profiler: {error}", "measure these cases again") from error
    events = [event for event in listed if event.get("ph") == "X" and "ts" in event and "dur" in event]
    kernels = tuple(sorted(_kernels(events), key=lambda span: span.start))
    calls = tuple(sorted(_calls(events), key=lambda span: span.start))
    copies = tuple(sorted(_copies(events), key=lambda span: span.start))
    ranges = tuple(sorted(_ranges(events), key=lambda span: span.start))
    nothing = "torch.profiler recorded no kernel: another CUPTI client holds the GPU, or it did not start in time"
    return Timeline(
        source=TORCH, kernels=kernels, calls=calls, copies=copies, ranges=ranges, gpu=_gpu(content),
        absent={} if kernels else {"kernels": nothing},
    )  # fmt: skip


def _spans(events: list[dict[str, Any]], *categories: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for event in events:
        if event.get("cat") in categories:
            start = float(event["ts"]) * _US
            place = {"name": str(event.get("name", "")), "start": start, "end": start + float(event["dur"]) * _US}
            yield place, dict(event.get("args") or {}) | {"_tid": event.get("tid", 0)}


def _kernels(events: list[dict[str, Any]]) -> Iterator[Kernel]:
    for span, args in _spans(events, "kernel"):
        yield Kernel(
            **span,
            correlation=int(args.get("correlation", 0)),
            grid=_triple(args.get("grid")),
            block=_triple(args.get("block")),
            registers=int(args.get("registers per thread", -1)),
            dynamic_shared=int(args.get("shared memory", -1)),
            device=_number(args.get("device")),
            stream=_number(args.get("stream")),
        )


def _calls(events: list[dict[str, Any]]) -> Iterator[Call]:
    for span, args in _spans(events, "cuda_runtime", "cuda_driver"):
        yield Call(**span, correlation=int(args.get("correlation", 0)))


def _copies(events: list[dict[str, Any]]) -> Iterator[Copy]:
    for span, args in _spans(events, "gpu_memcpy", "gpu_memset"):
        yield Copy(
            **span, correlation=int(args.get("correlation", 0)), kind=span["name"], bytes=int(args.get("bytes", 0)),
            stream=_number(args.get("stream")),
        )  # fmt: skip


def _ranges(events: list[dict[str, Any]]) -> Iterator[Range]:
    for span, _ in _spans(events, "user_annotation"):
        domain, mark, name = span["name"].partition("@")
        named = {"name": name} if mark and domain == DOMAIN else {}
        yield Range(**{**span, **named}, domain=DOMAIN if named else "")


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _triple(value: object) -> tuple[int, int, int]:
    return (int(value[0]), int(value[1]), int(value[2])) if isinstance(value, list) and len(value) == 3 else (0, 0, 0)


def _gpu(content: Mapping[str, Any]) -> Gpu:
    for device in content.get("deviceProperties") or ():
        return Gpu(
            str(device.get("name", "")),
            (int(device.get("computeMajor", 0)), int(device.get("computeMinor", 0))),
            int(device.get("numSms", 0)),
        )
    return Gpu()
