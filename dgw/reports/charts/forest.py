"""Ratios of two runs with their intervals, one row a case."""

from __future__ import annotations

from dgw.reports.charts import rows
from dgw.reports.charts.drawing import Chart, Line, Mark, Role, Shape
from dgw.reports.charts.scales import logarithmic
from dgw.reports.comparison import FASTER, SLOWER, Comparison, table
from dgw.reports.units import show

MOST = 40
_ROLES: dict[str, Role] = {FASTER: "good", SLOWER: "bad"}


def build(found: Comparison) -> Chart | None:
    """The ratio of every timed pair, at most MOST, in the order of the table; None where there is none."""
    timed = [pair for pair in found.pairs if pair.ratio is not None][:MOST]
    if not timed:
        return None
    entries = [("good", f"{found.names[1]} is faster", "circle"), ("bad", "slower", "circle")]
    legend, top = rows.key([*entries, ("series-7", "no difference shown", "circle")])
    titles = [pair.title for pair in timed]
    texts = [show(pair.ratio, "times") for pair in timed]
    where = rows.frame(titles, texts, top, row_height=22)
    ends = [value for pair in timed for value in (pair.low, pair.high, pair.ratio, 1.0) if value]
    scale = logarithmic(ends, where.plot_left, where.plot_right, room=1.02)
    label = f"time of {found.names[0]} over time of {found.names[1]}, logarithmic"
    one = scale.at(1.0)
    shapes: list[Shape] = [*legend, *rows.axis(where, scale, lambda v: f"{v:g} x", label)]
    shapes.append(Line(((one, where.top), (one, where.bottom)), "line", 1.5))
    for number, pair in enumerate(timed):
        y, role = where.middle(number), _ROLES.get(pair.verdict, "series-7")
        told = f"{pair.title}: {show(pair.ratio, 'times')}, {pair.verdict}"
        if pair.low is not None and pair.high is not None:
            shapes.append(Line(((scale.at(pair.low), y), (scale.at(pair.high), y)), role, 2.5))
            told += f", 95 % interval {show(pair.low, 'times')} .. {show(pair.high, 'times')}"
        shapes.append(Mark(scale.at(pair.ratio or 1.0), y, "circle", role, 5, title=told))
    shapes += rows.names(where, titles, texts)
    shown = table(found)
    caption = (
        f"Right of 1: {found.names[1]} is faster. Lines are 95 % intervals; they hold the spread inside of the runs."
    )
    left = len([pair for pair in found.pairs if pair.ratio is not None]) - len(timed)
    caption += f" {left} more cases stand in the table." if left else ""
    drawing = rows.finished(where, shapes)
    return Chart("forest", "Ratio of the times", caption, drawing, shown.head, shown.rows)
