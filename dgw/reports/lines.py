"""Source lines that cost most, from measurements whose scope is a line.

A profiler names the innermost line, `async.cuh:39`; the emulator also the line of the kernel's own file from which that
was inlined, `swizzled.cu:73 (async.cuh:39)`. Both are joined by the innermost line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dgw.model import Record
from dgw.reports.terminal import Paint, listing
from dgw.reports.units import UNKNOWN, show

PREFIX = "line "
LINES = 8
"""Lines shown per metric and variant."""
RANKED = ("smem_wavefronts_actual", "smem_wavefronts_sass_ld", "global_sectors_ld", "inst_executed", "stall_samples")
"""The metrics by which lines are ranked, each where it exists."""
BESIDE_STALLS = ("smem_wavefronts_actual", "global_sectors_ld", "inst_executed")
"""Emulated figures that stand beside the stalls of a line."""
EMULATOR = "emulator"


def costly(record: Record, metric: str, limit: int = LINES) -> list[tuple[str, float]]:
    """The `limit` lines (`FILE:N`) with the most of `metric`, most first; lines without any are left out.

    Where the emulator and a profiler have it, these are the profiler's figures.
    """
    known = _by_collector(record, metric)
    found = next((lines for collector, lines in known.items() if collector != EMULATOR), known.get(EMULATOR, {}))
    return sorted(found.items(), key=lambda line: (-line[1], line[0]))[:limit]


def innermost(place: str) -> str:
    """`async.cuh:39` of `swizzled.cu:73 (async.cuh:39)`, and of itself."""
    return place[place.index("(") + 1 : -1] if place.endswith(")") else place


def own_line(place: str) -> str:
    """`swizzled.cu:73` of `swizzled.cu:73 (async.cuh:39)`, and of itself."""
    return place.partition(" (")[0]


def render(records: Sequence[Record], width: int = 80, colour: bool = False) -> str:
    """For every variant and metric known by line: the lines that cost most and their share of all lines."""
    parts = [
        Paint(colour).head(f"{record.case.variant} at {record.case.problem.shape}: {metric} by source line")
        + "\n"
        + listing(columns, rows, width, colour)
        for record in records
        for metric in RANKED
        for columns, rows in [_table(record, metric)]
        if rows
    ]
    return "\n\n".join(parts) or "No figure is known by source line."


def _table(record: Record, metric: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    every = costly(record, metric, limit=1_000_000)
    total = sum(value for _, value in every)
    columns = ["line", metric, "share"]
    beside: list[Mapping[str, str]] = []
    if metric == "stall_samples":
        columns.append("mostly")
        beside.append(_reasons(record))
    wanted = BESIDE_STALLS if metric == "stall_samples" else (metric,)
    for name in wanted:
        known = _by_collector(record, name)
        if EMULATOR in known and len(_by_collector(record, metric).keys() | known.keys()) > 1:
            columns.append(f"{name}, emulated")
            beside.append({line: show(value, "count") for line, value in _inner_sums(known[EMULATOR]).items()})
    sites = _sites(record)
    rows = [
        (
            sites.get(line, line), show(value, "count"), show(value / total, "percent"),
            *(column.get(innermost(line), UNKNOWN) for column in beside),
        )
        for line, value in every[:LINES]
    ]  # fmt: skip
    return tuple(columns), rows


def _by_collector(record: Record, metric: str) -> dict[str, dict[str, float]]:
    """Collector -> line -> value, without zeros."""
    found: dict[str, dict[str, float]] = {}
    for m in record.measurements:
        if m.metric == metric and m.scope.startswith(PREFIX) and isinstance(m.value, int | float) and m.value > 0:
            lines = found.setdefault(m.collector, {})
            place = m.scope.removeprefix(PREFIX)
            lines[place] = lines.get(place, 0.0) + float(m.value)
    return found


def _inner_sums(lines: Mapping[str, float]) -> dict[str, float]:
    found: dict[str, float] = {}
    for place, value in lines.items():
        found[innermost(place)] = found.get(innermost(place), 0.0) + value
    return found


def _reasons(record: Record) -> dict[str, str]:
    """Line -> what the warps that stall there mostly wait for."""
    return {
        m.scope.removeprefix(PREFIX): str(m.value).replace("_", " ")
        for m in record.measurements
        if m.metric == "stall_reason" and m.scope.startswith(PREFIX) and m.value is not None
    }


def _sites(record: Record) -> dict[str, str]:
    """Innermost line -> its line in the kernel's own file, for lines that only one line of the kernel leads to."""
    places: dict[str, set[str]] = {}
    for m in record.measurements:
        if m.collector == EMULATOR and m.scope.startswith(PREFIX):
            place = m.scope.removeprefix(PREFIX)
            places.setdefault(innermost(place), set()).add(place)
    return {inner: next(iter(found)) for inner, found in places.items() if len(found) == 1}
