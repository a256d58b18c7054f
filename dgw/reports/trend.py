"""Trends for a terminal: a line for each series, with its last value and its steps."""

from __future__ import annotations

from collections.abc import Sequence

from dgw.reports.terminal import Paint
from dgw.workbench.gate.trend import Series, Step

BARS = "▁▂▃▄▅▆▇█"
SHOWN = 40
"""Points of a series that are drawn; older ones count, but are not shown."""


def render(series: Sequence[Series], rule: str, colour: bool = False) -> str:
    """The series, those that dropped last first; without a trailing newline."""
    paint = Paint(colour)
    ordered = sorted(series, key=lambda one: one.open_drop.change if one.open_drop else 0.0)
    lines: list[str] = []
    for one in ordered:
        lines += [*_series(one, paint), ""]
    dropped = sum(one.open_drop is not None for one in series)
    return "\n".join([*lines, f"{len(series)} series, {dropped} dropped and did not recover; change points by {rule}"])


def _series(one: Series, paint: Paint) -> list[str]:
    last = one.points[-1]
    where = ", ".join(filter(None, (one.device, one.driver and f"driver {one.driver}", _library(one), one.protocol)))
    between = f" ({last.low:.3f} .. {last.high:.3f})" if last.low is not None and last.high is not None else ""
    found = [
        paint.head(one.label),
        f"  {_drawn(one)}  {one.metric} {last.value:.3f}{between}, {len(one.points)} points since "
        f"{one.points[0].created[:10]}",
        f"  {where}",
    ]
    return [*found, *(_step(step, paint) for step in one.steps)]


def _library(one: Series) -> str:
    return f"cuBLAS {one.library}" if one.library else ""


def _drawn(one: Series) -> str:
    """The last points as bars between the lowest and the highest of them."""
    values = [point.value for point in one.points[-SHOWN:]]
    low, high = min(values), max(values)
    if high == low:
        return BARS[3] * len(values)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in values)


def _step(step: Step, paint: Paint) -> str:
    text = (
        f"  {step.created[:10]} {step.commit[:12] or 'unknown commit'}: {step.before:.3f} -> {step.after:.3f} "
        f"({100 * step.change:+.1f} %), p {step.p:.1g}"
    )
    return paint.outcome(text, "crashed" if step.change < 0 else "ok")
