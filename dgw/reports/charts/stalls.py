"""What warps waited for: shares of warp time, stacked."""

from __future__ import annotations

from dgw.model import Record
from dgw.reports.charts import rows
from dgw.reports.charts.drawing import Chart, Rect, Shape
from dgw.reports.charts.palette import series
from dgw.reports.charts.scales import Scale
from dgw.reports.tables import Block, stall_shares
from dgw.reports.units import percent

NAMED = 6
"""Reasons that have a colour of their own; the others are one segment."""
ISSUING, OTHERS = "issuing", "other reasons"


def shares(record: Record) -> dict[str, float]:
    """Share of warp time by reason, and of issuing."""
    issuing = record.number("stall_selected")
    found = {reason: share for reason, share, _ in stall_shares(record)}
    return {**({ISSUING: issuing} if issuing is not None and found else {}), **found}


def build(block: Block) -> Chart | None:
    """A bar for every case that has stall shares."""
    shown = rows.rows_of(block, lambda record: bool(stall_shares(record)))
    if not shown:
        return None
    by_case = [shares(row.record) for row in shown]
    totals: dict[str, float] = {}
    for found in by_case:
        for reason, share in found.items():
            totals[reason] = totals.get(reason, 0.0) + share
    ranked = sorted((r for r in totals if r != ISSUING), key=lambda reason: (-totals[reason], reason))[:NAMED]
    order = [*([ISSUING] if ISSUING in totals else []), *ranked, OTHERS]
    roles = {ISSUING: series(0), OTHERS: series(6), **dict(zip(ranked, map(series, (1, 2, 3, 4, 5, 7)), strict=False))}
    parts = [{r: f.get(r, 0.0) for r in order[:-1]} | {OTHERS: _rest(f, order)} for f in by_case]
    legend, top = rows.key((roles[reason], reason, "rect") for reason in order)
    titles = [row.title for row in shown]
    where = rows.frame(titles, [""] * len(shown), top)
    scale = Scale(0.0, 1.0, where.plot_left, where.plot_right - 14)
    shapes: list[Shape] = [*legend, *rows.axis(where, scale, percent, "share of warp time")]
    for number, part in enumerate(parts):
        total = max(sum(part.values()), 1.0)
        start = 0.0
        for reason, share in part.items():
            if share <= 0:
                continue
            left, right = scale.at(start / total), scale.at((start + share) / total)
            title = f"{titles[number]}: {reason} {percent(share)}"
            width = right - left - (1 if right - left > 2 else 0)
            shapes.append(Rect(left, where.middle(number) - 8, width, 16, roles[reason], title))
            start += share
    shapes += rows.names(where, titles, [""] * len(shown))
    table = tuple((title, *(percent(part[r]) for r in order)) for title, part in zip(titles, parts, strict=True))
    caption = "Where the time of resident warps went, by the reason that the sampled warp gave; issuing is no stall."
    return Chart("stalls", "Why warps waited", caption + rows.of_all(shown, block), rows.finished(where, shapes),
                 ("case", *order), table)  # fmt: skip


def _rest(found: dict[str, float], order: list[str]) -> float:
    return sum(share for reason, share in found.items() if reason not in order)
