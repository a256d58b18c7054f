"""Source lines that cost most, from measurements whose scope is a line."""

from __future__ import annotations

from collections.abc import Sequence

from dgw.model import Record
from dgw.reports.terminal import Paint, listing
from dgw.reports.units import show

PREFIX = "line "
LINES = 8
"""Lines shown per metric and variant."""
RANKED = ("smem_wavefronts_actual", "smem_wavefronts_sass_ld", "global_sectors_ld", "inst_executed", "stall_samples")
"""The metrics by which lines are ranked, each where it exists."""


def costly(record: Record, metric: str, limit: int = LINES) -> list[tuple[str, float]]:
    """The `limit` lines (`FILE:N`) with the most of `metric`, most first; lines without any are left out."""
    found = [
        (m.scope.removeprefix(PREFIX), float(m.value))
        for m in record.measurements
        if m.metric == metric and m.scope.startswith(PREFIX) and isinstance(m.value, int | float) and m.value > 0
    ]
    return sorted(found, key=lambda line: (-line[1], line[0]))[:limit]


def render(records: Sequence[Record], width: int = 80, colour: bool = False) -> str:
    """For every variant and metric known by line: the lines that cost most and their share of all lines."""
    parts = []
    for record in records:
        for metric in RANKED:
            every = costly(record, metric, limit=1_000_000)
            if not every:
                continue
            total = sum(value for _, value in every)
            rows = [(line, show(value, "count"), show(value / total, "percent")) for line, value in every[:LINES]]
            heading = f"{record.case.variant} at {record.case.problem.shape}: {metric} by source line"
            parts.append(Paint(colour).head(heading) + "\n" + listing(("line", metric, "share"), rows, width, colour))
    return "\n\n".join(parts) or "No figure is known by source line."
