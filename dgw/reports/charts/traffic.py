"""Bytes that went to and from DRAM, beside those that no kernel can avoid."""

from __future__ import annotations

from dgw.model import Record
from dgw.reports.charts import rows
from dgw.reports.charts.drawing import Chart, Mark, Rect, Shape
from dgw.reports.charts.scales import linear
from dgw.reports.tables import Block
from dgw.reports.units import show

PARTS = (("dram_read_bytes", "read", "series-1"), ("dram_write_bytes", "written", "series-2"))


def _parts(record: Record) -> dict[str, float]:
    found = {name: record.number(metric) for metric, name, _ in PARTS}
    known = {name: value for name, value in found.items() if value is not None}
    total = record.number("dram_bytes")
    return known or ({"read": total} if total is not None else {})


def build(block: Block) -> Chart | None:
    """Bytes read and written of every case, stacked."""
    shown = rows.rows_of(block, lambda record: bool(_parts(record)))
    if not shown:
        return None
    legend, top = rows.key([*((role, name, "rect") for _, name, role in PARTS), ("ink", "compulsory", "bar")])
    titles = [row.title for row in shown]
    totals = [sum(_parts(row.record).values()) for row in shown]
    compulsory = float(block.problem.compulsory_bytes) if block.problem.known else 0.0
    least = [row.record.number("compulsory_bytes") or compulsory for row in shown]
    texts = [f"L2 hit {show(row.record.number('l2_hit_rate'), 'percent')}" for row in shown]
    where = rows.frame(titles, texts, top)
    scale = linear([*totals, *least], where.plot_left, where.plot_right - 24)
    axis = rows.axis(where, scale, lambda v: show(v, "bytes") if v else "0", "bytes a GEMM", 5)
    shapes: list[Shape] = [*legend, *axis]
    for number, row in enumerate(shown):
        start = 0.0
        for _, name, role in PARTS:
            value = _parts(row.record).get(name, 0.0)
            left, right = scale.at(start), scale.at(start + value)
            title = f"{row.title}: {name} {show(value, 'bytes')}"
            shapes.append(Rect(left, where.middle(number) - 7, right - left, 14, role, title))
            start += value
        if least[number]:
            title = f"{row.title}: compulsory {show(least[number], 'bytes')}"
            shapes.append(Mark(scale.at(least[number]), where.middle(number), "bar", "ink", 9, title=title))
    shapes += rows.names(where, titles, texts)
    table = tuple(
        (row.title, *(show(_parts(row.record).get(name), "bytes") for _, name, _ in PARTS),
         show(bound or None, "bytes"), show(row.record.number("l2_hit_rate"), "percent"))
        for row, bound in zip(shown, least, strict=True)
    )  # fmt: skip
    caption = "DRAM traffic of one launch with flushed caches; the black tick is each input read once and the output "
    caption += "written once."
    return Chart("traffic", "DRAM traffic", caption + rows.of_all(shown, block), rows.finished(where, shapes),
                 ("case", *(name for _, name, _ in PARTS), "compulsory", "L2 hit rate"), table)  # fmt: skip
