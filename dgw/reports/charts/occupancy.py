"""How many blocks fit on an SM, as far as each resource is concerned."""

from __future__ import annotations

from dgw.model import Record
from dgw.reports.charts import rows
from dgw.reports.charts.drawing import Chart, Rect, Shape, Text
from dgw.reports.charts.scales import linear
from dgw.reports.tables import Block
from dgw.reports.units import UNKNOWN, count

LIMITS = (
    ("occ_limit_registers", "registers", "series-1"),
    ("occ_limit_shared_mem", "shared memory", "series-2"),
    ("occ_limit_warps", "warps", "series-3"),
    ("occ_limit_blocks", "blocks", "series-7"),
)
CUT = 2
"""A bar is drawn at most this many times as long as the longest of the least limits, else those are not seen."""


def limits(record: Record) -> dict[str, float]:
    """Blocks per SM by resource; static figures first, because they come without a profiler."""
    found = {name: record.number(metric) for metric, name, _ in LIMITS}
    return {name: value for name, value in found.items() if value is not None}


def build(block: Block) -> Chart | None:
    """Four thin bars for every case; the shortest one is what limits it."""
    shown = rows.rows_of(block, lambda record: bool(limits(record)))
    if not shown:
        return None
    found = [limits(row.record) for row in shown]
    legend, top = rows.key((role, name, "rect") for _, name, role in LIMITS)
    titles = [row.title for row in shown]
    achieved, possible = block.line("achieved_occupancy"), block.line("theoretical_occupancy")
    texts = [" of ".join(line.text(row.column) for line in (achieved, possible)
                         if line and line.text(row.column) != UNKNOWN) for row in shown]  # fmt: skip
    where = rows.frame(titles, texts, top, row_height=34)
    most = CUT * max(min(values.values()) for values in found)
    scale = linear([most], where.plot_left, where.plot_right - 24)
    counted = achieved is not None and any(achieved.text(row.column) != UNKNOWN for row in shown)
    said = "occupancy achieved, of what would be possible" if counted else "the occupancy that is possible"
    shapes: list[Shape] = [*legend, *rows.axis(where, scale, count, f"blocks an SM; on the right: {said}")]
    for number, values in enumerate(found):
        least = min(values.values())
        for place, (_, name, role) in enumerate(LIMITS):
            if name not in values:
                continue
            y = where.top + where.row_height * number + 3 + place * 7
            title = f"{titles[number]}: {name} allow {count(values[name])} blocks an SM"
            end = scale.at(values[name])
            shapes.append(Rect(scale.start, y, end - scale.start, 5, role, title))
            if values[name] > scale.high:
                shapes.append(Text(end + 3, y + 6, "+", "muted"))
            elif values[name] == least:
                shapes.append(Rect(end + 2, y, 5, 5, "ink", f"{title}: the limit"))
    shapes += rows.names(where, titles, texts)
    table = tuple(
        (title, *(count(values[name]) if name in values else UNKNOWN for _, name, _ in LIMITS), text or UNKNOWN)
        for title, values, text in zip(titles, found, texts, strict=True)
    )
    caption = "Blocks that would fit on one SM if only that resource counted. The shortest bar, with a mark at its "
    caption += "end, is the limit; bars with a + are longer."
    head = ("case", *(name for _, name, _ in LIMITS), "occupancy")
    caption += rows.of_all(shown, block)
    return Chart("occupancy", "What limits occupancy", caption, rows.finished(where, shapes), head, table)
