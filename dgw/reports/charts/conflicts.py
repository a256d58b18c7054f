"""Shared-memory bank conflicts: the share of wavefronts that they cause."""

from __future__ import annotations

from dgw.model import Record
from dgw.reports.charts import rows
from dgw.reports.charts.drawing import Chart, Mark, Rect, Shape, Text
from dgw.reports.charts.scales import Scale
from dgw.reports.tables import Block
from dgw.reports.units import UNKNOWN, percent, show

KINDS = (("ld", "loads", "series-1"), ("st", "stores", "series-2"))


def _known(record: Record) -> bool:
    return any(record.number(f"conflict_ratio_{kind}") is not None or _none(record, kind) for kind, _, _ in KINDS)


def build(block: Block) -> Chart | None:
    """Loads and stores of every case: exact per instruction as a bar, as the hardware counted it as a tick."""
    shown = rows.rows_of(block, _known)
    if all(row.record.number(f"conflict_ratio_{kind}") is None for row in shown for kind, _, _ in KINDS):
        return None
    hardware = any(row.record.number(f"conflict_ratio_hw_{kind}") is not None for row in shown for kind, _, _ in KINDS)
    entries = [(role, name, "rect") for _, name, role in KINDS]
    legend, top = rows.key([*entries, *([("ink", "as the hardware counts", "bar")] if hardware else [])])
    titles = [row.title for row in shown]
    texts = [" / ".join(_text(row.record, f"conflict_ratio_{kind}") for kind, _, _ in KINDS) for row in shown]
    where = rows.frame(titles, texts, top, row_height=28)
    scale = Scale(0.0, 1.0, where.plot_left, where.plot_right - 16)
    shapes: list[Shape] = [*legend, *rows.axis(where, scale, percent, "share of wavefronts that conflicts cause")]
    for number, row in enumerate(shown):
        for place, (kind, name, role) in enumerate(KINDS):
            y = where.middle(number) - 9 + place * 10
            exact, seen = (row.record.number(f"conflict_ratio_{way}{kind}") for way in ("", "hw_"))
            title = f"{row.title}: {name} {_text(row.record, f'conflict_ratio_{kind}')}"
            if exact is None:
                shapes.append(Text(scale.start + 4, y + 8, "none" if _none(row.record, kind) else UNKNOWN, "muted"))
                continue
            width = max(scale.at(exact) - scale.start, 1.5)
            shapes.append(Rect(scale.start, y, width, 8, role, title))
            if seen is not None:
                shapes.append(Mark(scale.at(seen), y + 4, "bar", "ink", 5, title=f"{title}, hardware {percent(seen)}"))
    shapes += rows.names(where, titles, texts)
    keys = [f"conflict_ratio_{way}{kind}" for kind, _, _ in KINDS for way in ("", "hw_")]
    head = [f"{name}{way}" for _, name, _ in KINDS for way in ("", " (hw)")]
    table = tuple((row.title, *(_text(row.record, metric) for metric in keys)) for row in shown)
    caption = "Wavefronts of shared memory beyond those that the same instructions need without a bank conflict."
    return Chart("conflicts", "Bank conflicts", caption + rows.of_all(shown, block), rows.finished(where, shapes),
                 ("case", *head), table)  # fmt: skip


def _text(record: Record, metric: str) -> str:
    return show(record.number(metric), "percent")


def _none(record: Record, kind: str) -> bool:
    found = record.get(f"conflict_ratio_{kind}")
    return found is not None and found.absent.startswith("no ")
