"""How every variant stands to cuBLAS over many problems."""

from __future__ import annotations

from collections.abc import Sequence

from dgw.reports.charts import rows
from dgw.reports.charts.drawing import Chart, Line, Mark, Shape
from dgw.reports.charts.scales import logarithmic
from dgw.reports.tables import Block
from dgw.reports.units import show


def build(blocks: Sequence[Block]) -> Chart | None:
    """A row for every variant, a mark for every problem; only where there are several problems."""
    found: dict[str, list[tuple[float, str]]] = {}
    for block in blocks:
        for column in block.columns:
            ratio = column.record.number("ratio_to_cublas")
            if ratio and column.record.outcome == "ok":
                name = column.record.case.variant
                found.setdefault(name, []).append((ratio, f"{column.title} {block.problem.shape}"))
    if len(blocks) < 2 or not found:
        return None
    titles = list(found)[: rows.MOST]
    middle = {name: sorted(ratio for ratio, _ in found[name])[len(found[name]) // 2] for name in titles}
    texts = [f"{show(middle[name], 'times')} of {len(found[name])}" for name in titles]
    legend, top = rows.key([("series-1", "a problem", "circle"), ("ink", "median", "bar")])
    where = rows.frame(titles, texts, top)
    scale = logarithmic(
        [1.0, *(ratio for name in titles for ratio, _ in found[name])], where.plot_left, where.plot_right
    )
    one = scale.at(1.0)
    shapes: list[Shape] = [*legend, *rows.axis(where, scale, lambda v: f"{v:g} x", "speed-up on cuBLAS, logarithmic")]
    shapes.append(Line(((one, where.top), (one, where.bottom)), "line", 1.5))
    for number, name in enumerate(titles):
        for ratio, title in found[name]:
            told = f"{title}: {show(ratio, 'times')}"
            shapes.append(Mark(scale.at(ratio), where.middle(number), "circle", "series-1", 3.5, True, told))
        shapes.append(Mark(scale.at(middle[name]), where.middle(number), "bar", "ink", 9))
    shapes += rows.names(where, titles, texts)
    table = tuple(
        (name, str(len(found[name])), show(min(found[name])[0], "times"), show(middle[name], "times"),
         show(max(found[name])[0], "times")) for name in titles
    )  # fmt: skip
    return Chart("ratios", "Against cuBLAS, problem by problem",
                 "Time of cuBLAS over own time, both in turn in the same lane; right of 1 is faster than cuBLAS.",
                 rows.finished(where, shapes), ("variant", "problems", "least", "median", "most"), table)  # fmt: skip
