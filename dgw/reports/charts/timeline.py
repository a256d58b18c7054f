"""What the GPU and the host did while a case ran once, from the figures of a timeline."""

from __future__ import annotations

from dgw.model import Record
from dgw.reports.charts import rows
from dgw.reports.charts.drawing import Chart, Rect, Shape
from dgw.reports.charts.scales import Scale
from dgw.reports.tables import Block
from dgw.reports.units import show

GPU = (("kernel_time", "kernels", "series-1"), ("gap_time", "gaps", "series-7"), ("copy_time", "copies", "series-3"))
HOST = (("launch_api_time", "launch calls", "series-2"), ("api_time", "other calls", "series-5"))


def _known(record: Record) -> bool:
    return bool(record.number("kernel_time"))


def _lanes(record: Record) -> list[tuple[str, list[tuple[str, str, float]]]]:
    """The GPU's and the host's parts: (name, role, seconds)."""
    gpu = [(name, role, value) for metric, name, role in GPU if (value := record.number(metric))]
    launch, every = record.number("launch_api_time") or 0.0, record.number("api_time") or 0.0
    host = [(name, role, value) for (_, name, role), value in zip(HOST, (launch, every - launch), strict=True)]
    return [("GPU", gpu), ("host", [part for part in host if part[2] > 0])]


def build(block: Block) -> Chart | None:
    """Two strips for every case: the GPU above, the host below, both in seconds from the begin of the range."""
    shown = rows.rows_of(block, _known)
    if not shown:
        return None
    lanes = [_lanes(row.record) for row in shown]
    longest = max(sum(part[2] for part in parts) for lane in lanes for _, parts in lane)
    legend, top = rows.key((role, name, "rect") for _, name, role in (*GPU, *HOST))
    titles = [row.title for row in shown]
    texts = [f"{show(row.record.number('timeline_kernels'), 'count')} kernels" for row in shown]
    where = rows.frame(titles, texts, top, row_height=30)
    scale = Scale(0.0, longest, where.plot_left, where.plot_right - 24)
    label = "time in the timeline, not a benchmark"
    shapes: list[Shape] = [*legend, *rows.axis(where, scale, lambda v: show(v, "seconds") if v else "0", label, 4)]
    for number, lane in enumerate(lanes):
        for place, (owner, parts) in enumerate(lane):
            start = 0.0
            for name, role, seconds in parts:
                left, right = scale.at(start), scale.at(start + seconds)
                y = where.middle(number) - 11 + place * 12
                title = f"{titles[number]}, {owner}: {name} {show(seconds, 'seconds')}"
                shapes.append(Rect(left, y, max(right - left - 0.5, 0.5), 10, role, title))
                start += seconds
    shapes += rows.names(where, titles, texts)
    metrics = [*GPU, *HOST, ("range_time", "range on the host", "")]
    table = tuple((row.title, *(show(row.record.number(m), "seconds") for m, _, _ in metrics)) for row in shown)
    caption = "How long the GPU (above) and the host (below) were busy with what the range of a case launched; parts "
    caption += "are added up, their order is not shown."
    head = ("case", *("API calls" if m == "api_time" else name for m, name, _ in metrics))
    return Chart("timeline", "Timeline", caption + rows.of_all(shown, block), rows.finished(where, shapes), head, table)
