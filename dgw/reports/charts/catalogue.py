"""Every chart there is, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dgw.reports.charts import conflicts, occupancy, ratios, roofline, stalls, timeline, times, traffic
from dgw.reports.charts.drawing import Chart, stacked
from dgw.reports.tables import Block, problem_text


@dataclass(frozen=True)
class Kind:
    """One kind of chart: of all blocks together (`whole`) or of one block; `needs` says what it is drawn from."""

    title: str
    needs: str
    whole: Callable[[Sequence[Block]], Chart | None] | None = None
    each: Callable[[Block], Chart | None] | None = None

    def draw(self, blocks: Sequence[Block]) -> list[Chart]:
        """The charts of this kind that `blocks` allow, in their order."""
        if self.whole is not None:
            chart = self.whole(blocks)
            return [] if chart is None else [chart]
        assert self.each is not None
        return [chart for block in blocks if (chart := self.each(block)) is not None]


_COUNTERS = "counters of Nsight Compute: dgw profile --counters std on a GPU"

KINDS: Mapping[str, Kind] = {
    "roofline": Kind("Roofline", "times measured on a GPU: dgw profile", whole=roofline.build),
    "ratios": Kind("Against cuBLAS", "several problems timed beside cuBLAS: --against cublas", whole=ratios.build),
    "times": Kind("Time of one GEMM", "times or lower bounds: dgw profile", each=times.build),
    "stalls": Kind("Why warps waited", _COUNTERS, each=stalls.build),
    "occupancy": Kind("What limits occupancy", "compiled kernels, or counters: dgw profile", each=occupancy.build),
    "conflicts": Kind("Bank conflicts", "counters, or the emulator: dgw profile", each=conflicts.build),
    "traffic": Kind("DRAM traffic", _COUNTERS, each=traffic.build),
    "timeline": Kind("Timeline", "a timeline of nsys: dgw profile --timeline on a GPU", each=timeline.build),
}
"""By the name that `dgw report --chart` takes, in the order shown."""

STACKED = 12
"""Problems of which one file shows the charts."""


def picture(name: str, blocks: Sequence[Block]) -> Chart | None:
    """The chart of a kind as one picture: of several problems below each other, at most STACKED. None: no figures."""
    kind = KINDS[name]
    if kind.whole is not None:
        return kind.whole(blocks)
    assert kind.each is not None
    found = [(chart, problem_text(block.problem)) for block in blocks if (chart := kind.each(block)) is not None]
    if not found:
        return None
    return stacked([chart for chart, _ in found[:STACKED]], [title for _, title in found[:STACKED]])


def available(blocks: Sequence[Block]) -> list[str]:
    """The names of the charts that `blocks` have figures for."""
    return [name for name, kind in KINDS.items() if kind.draw(blocks)]
