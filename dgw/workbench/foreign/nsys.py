"""Kernels of a timeline as records: one each distinct kernel, one each range of domain dgw, and one for the whole."""

from __future__ import annotations

from dgw.model import Config, Environment, Measurement, Problem, Record
from dgw.workbench.collectors import timeline as timelines
from dgw.workbench.collectors.timeline import DOMAIN, Kernel, Part, Range, Timeline
from dgw.workbench.foreign.naming import Lookup, dimensions, foreign_case, gpu_environment

WHOLE = "whole timeline"


def records(timeline: Timeline, problem: Problem, lookup: Lookup) -> list[Record]:
    """The records of a timeline: the whole, ranges of domain dgw whose key `lookup` knows, each distinct kernel.

    A distinct kernel is one name, grid and block; its samples are the durations of all its launches. What the file has
    no table for is absent with the reason.
    """
    environment = gpu_environment(timeline.gpu.name, timeline.gpu.compute, timeline.gpu.sms)
    protocol = timelines.protocol_of(timeline)
    found = [_whole(timeline, problem, environment, protocol)]
    named = dict.fromkeys(one.name for one in timeline.ranges if one.domain == DOMAIN)
    known = lookup(named)
    for key in (name for name in named if name in known):
        measured = timelines.figures(timelines.parts(timeline, key), 1, timeline.source, protocol)
        found.append(Record(case=known[key], outcome="ok", environment=environment, measurements=measured))
    first = {id(kernel): number for number, kernel in enumerate(timeline.kernels)}
    for same in timelines.alike(timeline.kernels):
        found.append(_kernel(same, first[id(same[0])], problem, environment, timeline.source, protocol))
    return found


def _whole(timeline: Timeline, problem: Problem, environment: Environment, protocol: str) -> Record:
    spans = (*timeline.kernels, *timeline.calls, *timeline.copies, *timeline.ranges)
    case = foreign_case(WHOLE, problem, {})
    if not timeline.kernels:
        reason = timeline.absent.get("kernels", "the timeline holds no kernel")
        measured = tuple(timelines.absences(timeline.source, reason, protocol))
        if spans:
            counted = timelines.figures([_part(timeline)], 1, timeline.source, protocol)
            host = {found.metric: found for found in counted if found.metric in ("api_time", "range_time")}
            measured = tuple(host.get(found.metric, found) for found in measured)
        return Record(case=case, outcome="ok", environment=environment, measurements=measured)
    figures = timelines.figures([_part(timeline)], 1, timeline.source, protocol)
    # the kernels of a whole program are no executions of one case
    kept = tuple(one for one in figures if one.metric not in ("kernel_duration", "kernel_name"))
    return Record(case=case, outcome="ok", environment=environment, measurements=kept)


def _part(timeline: Timeline) -> Part:
    spans = (*timeline.kernels, *timeline.calls, *timeline.copies, *timeline.ranges)
    everything = Range(WHOLE, min(span.start for span in spans), max(span.end for span in spans))
    return Part(everything, timeline.kernels, timeline.calls, timeline.copies)


def _kernel(
    same: list[Kernel], number: int, problem: Problem, environment: Environment, source: str, protocol: str
) -> Record:
    kernel = same[0]
    config: Config = {"LAUNCH": number, "GRID": dimensions(kernel.grid), "BLOCK": dimensions(kernel.block)}
    case = foreign_case(kernel.name, problem, config)
    part = Part(Range("", 0.0, 0.0), tuple(same), (), ())

    def said(metric: str, value: float | int | str, unit: str, scope: str = "case") -> Measurement:
        return Measurement(
            metric=metric, value=value, unit=unit, scope=scope, collector=source, protocol=protocol, tier="cupti"
        )

    measured = [
        said("kernel_name", kernel.name, "text", "kernel 0"),
        timelines.durations([part], len(same), source, protocol),
        said("timeline_kernels", len(same), "count"),
        said("kernel_time", sum(one.seconds for one in same), "s"),
    ]
    if kernel.registers >= 0:
        measured.append(said("registers_per_thread", kernel.registers, "register"))
    if kernel.dynamic_shared >= 0:
        measured.append(said("shared_mem_per_block", max(kernel.static_shared, 0) + kernel.dynamic_shared, "B"))
    return Record(case=case, outcome="ok", environment=environment, measurements=tuple(measured))
