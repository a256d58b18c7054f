"""Drawings as PNG, drawn by matplotlib from the same shapes as the SVG."""

from __future__ import annotations

import io
from typing import Any

from dgw.reports.charts.drawing import Chart, Line, Mark, Rect, Shape
from dgw.reports.charts.palette import LIGHT
from dgw.reports.charts.svg import _lines, corners

DOTS = 2.0
"""Pixels of the picture for each pixel of the drawing."""
_POINTS = 72 / 96  # a font size in pixels, as matplotlib wants it: at 96 dots an inch
_ALIGN = {"start": "left", "middle": "center", "end": "right"}


def render(chart: Chart) -> bytes:
    """The chart as a PNG with its title and caption above, in the colours of day, twice as fine as drawn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = chart.drawing
    caption = _lines(chart.caption, drawing.width)
    top = 34.0 + 15 * len(caption)
    height = drawing.height + top + 8
    figure = Figure(figsize=(drawing.width / 96, height / 96), dpi=96 * DOTS, facecolor=LIGHT["paper"])
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    _text(axes, 16, 22, chart.title, size=13, weight="bold")
    for number, line in enumerate(caption):
        _text(axes, 16, 40 + 15 * number, line, colour=LIGHT["muted"])
    for order, shape in enumerate(drawing.shapes):
        _draw(axes, shape, top, order + 2)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Title": chart.title, "Software": "dgw"})
    return out.getvalue()


def _text(axes: Any, x: float, y: float, text: str, **look: Any) -> None:
    axes.text(
        x, y, text.replace("$", r"\$"), fontsize=look.get("size", 11) * _POINTS, color=look.get("colour", LIGHT["ink"]),
        ha=look.get("align", "left"), va="baseline", weight=look.get("weight", "normal"),
        rotation=look.get("rotation", 0), rotation_mode="anchor", zorder=look.get("order", 1),
    )  # fmt: skip


def _draw(axes: Any, shape: Shape, down: float, order: int) -> None:
    from matplotlib.patches import Circle, Polygon, Rectangle

    colour = LIGHT[shape.role]
    if isinstance(shape, Rect):
        axes.add_patch(
            Rectangle((shape.x, shape.y + down), max(shape.width, 0.0), shape.height, color=colour, lw=0, zorder=order)
        )
    elif isinstance(shape, Line):
        xs, ys = [x for x, _ in shape.points], [y + down for _, y in shape.points]
        style = (0, (4, 3)) if shape.dashed else "solid"
        axes.plot(xs, ys, color=colour, linewidth=shape.thick * _POINTS, linestyle=style, zorder=order)
    elif isinstance(shape, Mark):
        x, y, r = shape.x, shape.y + down, shape.size
        look: dict[str, Any] = {
            "facecolor": LIGHT["paper"] if shape.hollow else colour,
            "edgecolor": colour,
            "zorder": order,
        }
        look["linewidth"] = 1.2 if shape.hollow else 0
        if shape.symbol == "circle":
            axes.add_patch(Circle((x, y), r, **look))
        elif shape.symbol in ("bar", "cross"):
            axes.plot([x, x], [y - r, y + r], color=colour, linewidth=2, zorder=order)
            if shape.symbol == "cross":
                axes.plot([x - r, x + r], [y, y], color=colour, linewidth=1.5, zorder=order)
        else:
            axes.add_patch(Polygon([(px, py + down) for px, py in corners(shape)], **look))
    else:
        _text(
            axes, shape.x, shape.y + down, shape.text, colour=colour, align=_ALIGN[shape.anchor],
            weight="bold" if shape.bold else "normal", rotation=shape.angle, order=order,
        )  # fmt: skip
