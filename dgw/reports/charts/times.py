"""How long a GEMM takes, beside the least that it can take."""

from __future__ import annotations

from dgw.model import Record
from dgw.reports.charts import rows
from dgw.reports.charts.drawing import Chart, Line, Mark, Rect, Shape
from dgw.reports.charts.scales import logarithmic
from dgw.reports.tables import Block
from dgw.reports.tables import Line as Figures
from dgw.reports.units import show

TIMES = (("time_cold", "series-1", "circle", "cold"), ("time_hot", "series-2", "circle", "hot"))


def _known(record: Record) -> bool:
    return record.outcome != "refused" and any(
        record.number(metric) for metric in ("time_cold", "time_hot", "bound_time")
    )


def build(block: Block) -> Chart | None:
    """Cold and hot times with their intervals and the lower bound of every case, on a logarithmic axis."""
    shown = rows.rows_of(block, _known)
    lines = {key: block.line(key) for key in ("time_cold", "time_hot", "bound_time")}
    values = [v for line in lines.values() if line for row in shown if (v := _number(line, row.column))]
    if not values:
        return None
    timed = [entry for entry in TIMES if lines[entry[0]] is not None]
    entries = [(role, f"time {name}", symbol) for _, role, symbol, name in timed]
    bound = lines["bound_time"]
    legend, top = rows.key([*entries, *([("ink", "lower bound", "bar")] if bound else [])])
    main = next((lines[key] for key, *_ in TIMES if lines[key]), bound)
    assert main is not None
    titles = [row.title for row in shown]
    texts = [show(main.cells[row.column].value, "seconds") for row in shown]
    where = rows.frame(titles, texts, top)
    scale = logarithmic(values, where.plot_left, where.plot_right, room=1.4)
    shapes: list[Shape] = [
        *legend,
        *rows.axis(where, scale, lambda v: show(v, "seconds"), "time of a GEMM, logarithmic"),
    ]
    for number, row in enumerate(shown):
        y = where.middle(number)
        low = _number(bound, row.column) if bound else None
        if low:
            title = f"{row.title}: lower bound {show(low, 'seconds')}"
            shapes.append(Mark(scale.at(low), y, "bar", "ink", 8, title=title))
        for metric, role, _, name in reversed(timed):
            line = lines[metric]
            assert line is not None
            cell = line.cells[row.column]
            value = _number(line, row.column)
            if value is None:
                continue
            title = f"{row.title}: {name} {show(value, 'seconds')}"
            if cell.low is not None and cell.high is not None:
                title += f", 95 % interval {show(cell.low, 'seconds')} .. {show(cell.high, 'seconds')}"
                shapes.append(Line(((scale.at(cell.low), y), (scale.at(cell.high), y)), role, 2))
            if low and name == "cold":
                start = scale.at(low)
                shapes.append(Rect(start, y - 1, max(scale.at(value) - start, 0), 2, "grid"))
            shapes.append(Mark(scale.at(value), y, "circle", role, 5, hollow=name == "hot", title=title))
    shapes += rows.names(where, titles, texts)
    caption = "Median time of one GEMM with operands from DRAM (cold) and from L2 (hot)." if timed else (
        "The least time that the counted work takes; no time was measured.")  # fmt: skip
    caption += rows.of_all(shown, block)
    used = [line for line in lines.values() if line is not None]
    table = tuple((row.title, *(line.text(row.column) for line in used)) for row in shown)
    return Chart("times", "Time of one GEMM", caption, rows.finished(where, shapes),
                 ("case", *(line.heading for line in used)), table)  # fmt: skip


def _number(line: Figures | None, column: int) -> float | None:
    value = line.cells[column].value if line is not None else None
    return float(value) if isinstance(value, int | float) and value > 0 else None
