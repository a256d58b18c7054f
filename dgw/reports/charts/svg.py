"""Drawings as SVG: inside of a page, which brings the colours, or as a file that brings its own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

from dgw.reports.charts.drawing import CHARACTER, Chart, Drawing, Line, Mark, Rect, Shape, Text
from dgw.reports.charts.palette import DARK, LIGHT

NAMESPACE = 'xmlns="http://www.w3.org/2000/svg"'
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"

_ANCHORS = {"start": "", "middle": "m", "end": "e"}  # classes


def inline(chart: Chart, identity: str) -> str:
    """The chart as an element of an HTML page, which says the caption in an element with the id `identity`-c.

    `identity` is unique on the page and prefixes the ids inside.
    """
    head = f'aria-labelledby="{identity}-t" aria-describedby="{identity}-c">'
    return _element(chart, head, f'<title id="{identity}-t">{escape(chart.title)}</title>')


def standalone(chart: Chart) -> str:
    """The chart as a file of its own, with its title and caption drawn, in both colour schemes."""
    drawing, top = chart.drawing, 50.0
    heading = (
        Text(16, 22, chart.title, bold=True),
        *(Text(16, 40 + 15 * n, line, "muted") for n, line in enumerate(_lines(chart.caption, drawing.width))),
    )
    top = 34.0 + 15 * (len(heading) - 1)
    moved = f'<g transform="translate(0 {top:g})">{_shapes(drawing.shapes)}</g>'
    whole = Drawing(drawing.width, drawing.height + top + 8, heading)
    head = f'width="{whole.width:g}" height="{whole.height:g}" aria-labelledby="t" aria-describedby="d" {NAMESPACE}>'
    told = f'<title id="t">{escape(chart.title)}</title><desc id="d">{escape(chart.caption)}</desc>'
    background = f'<rect class="paper" width="{whole.width:g}" height="{whole.height:g}"/>'
    body = f"{told}<style>{stylesheet()}</style>{background}{moved}"
    return _element(replace(chart, drawing=whole), head, body) + "\n"


def stylesheet() -> str:
    """The rules of a file: fonts, and every role in the colours of day and night."""
    night = f"@media(prefers-color-scheme:dark){{:root{{{variables(DARK)}}}}}"
    return f":root{{{variables(LIGHT)}}}{night}{rules()}"


def variables(colours: Mapping[str, str]) -> str:
    """The colours as custom properties."""
    return "".join(f"--{role}:{colour};" for role, colour in colours.items())


def rules() -> str:
    """How shapes of a role look, by custom properties."""
    text = f"svg text{{font:12px {FONT};font-variant-numeric:tabular-nums;fill:var(--ink)}}svg .b{{font-weight:600}}"
    text += "svg .e{text-anchor:end}svg .m{text-anchor:middle}"
    text += "svg .l{fill:none}svg .h{fill:var(--paper);stroke-width:1.6}"
    for role in LIGHT:
        text += f"svg .{role}{{fill:var(--{role})}}svg .l.{role}{{fill:none;stroke:var(--{role})}}"
        text += f"svg .h.{role}{{fill:var(--paper);stroke:var(--{role})}}"
    return text


def _lines(text: str, width: float) -> list[str]:
    import textwrap

    return textwrap.wrap(text, int((width - 32) / CHARACTER)) or [""]


def _element(chart: Chart, head: str, body: str) -> str:
    drawing = chart.drawing
    size = f'viewBox="0 0 {drawing.width:g} {drawing.height:g}"'
    return f'<svg {size} role="img" {head}{body}{_shapes(drawing.shapes)}</svg>'


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _titled(tag: str, title: str) -> str:
    """A closed tag, or one that holds its title; `tag` ends without its bracket."""
    name = tag[1:].partition(" ")[0]
    return f"{tag}><title>{escape(title)}</title></{name}>" if title else f"{tag}/>"


def _shapes(shapes: Sequence[Shape]) -> str:
    """The shapes in order; plain lines of one role that follow each other are one path."""
    text = []
    for role, group in itertools.groupby(shapes, _plain_line):
        if role:
            corners_ = (point for shape in group if isinstance(shape, Line) for point in enumerate(shape.points))
            path = "".join(f"{'L' if i else 'M'}{_number(x)} {_number(y)}" for i, (x, y) in corners_)
            text.append(f'<path class="l {role}" d="{path}"/>')
        else:
            text += [_shape(shape) for shape in group]
    return "".join(text)


def _plain_line(shape: Shape) -> str:
    plain = isinstance(shape, Line) and not shape.title and not shape.dashed and shape.thick == 1
    return shape.role if plain else ""


def _shape(shape: Shape) -> str:
    if isinstance(shape, Rect):
        box = (shape.x, shape.y, max(shape.width, 0.0), shape.height)
        x, y, width, height = map(_number, box)
        return _titled(
            f'<rect class="{shape.role}" x="{x}" y="{y}" width="{width}" height="{height}"', shape.title
        )  # fmt: skip
    if isinstance(shape, Line):
        points = " ".join(f"{_number(x)},{_number(y)}" for x, y in shape.points)
        extra = f' stroke-width="{shape.thick:g}"' if shape.thick != 1 else ""
        extra += ' stroke-dasharray="4 3"' if shape.dashed else ""
        return _titled(f'<polyline class="l {shape.role}" points="{points}"{extra}', shape.title)
    if isinstance(shape, Mark):
        return _mark(shape)
    extra, (x, y) = "", (_number(shape.x), _number(shape.y))
    if shape.angle:
        extra += f' transform="rotate({_number(-shape.angle)} {x} {y})"'
    classes = [shape.role if shape.role != "ink" else "", "b" if shape.bold else "", _ANCHORS[shape.anchor]]
    named = " ".join(filter(None, classes))
    extra = f' class="{named}"{extra}' if named else extra
    return f'<text x="{x}" y="{y}"{extra}>{escape(shape.text)}</text>'


def _mark(mark: Mark) -> str:
    classes = f"h {mark.role}" if mark.hollow else mark.role
    x, y, r = mark.x, mark.y, mark.size
    if mark.symbol == "circle":
        return _titled(
            f'<circle class="{classes}" cx="{_number(x)}" cy="{_number(y)}" r="{_number(r)}"', mark.title
        )  # fmt: skip
    if mark.symbol in ("bar", "cross"):
        thick = 3 if mark.symbol == "bar" else 2
        path = f"M{_number(x)} {_number(y - r)}V{_number(y + r)}"
        path += f"M{_number(x - r)} {_number(y)}H{_number(x + r)}" if mark.symbol == "cross" else ""
        return _titled(f'<path class="l {mark.role}" stroke-width="{thick}" d="{path}"', mark.title)
    points = " ".join(f"{_number(px)},{_number(py)}" for px, py in corners(mark))
    return _titled(f'<polygon class="{classes}" points="{points}"', mark.title)


def corners(mark: Mark) -> list[tuple[float, float]]:
    """The corners of a square, diamond or triangle."""
    x, y, r = mark.x, mark.y, mark.size
    if mark.symbol == "square":
        s = r * 0.88
        return [(x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s)]
    if mark.symbol == "diamond":
        s = r * 1.25
        return [(x, y - s), (x + s, y), (x, y + s), (x - s, y)]
    return [(x, y - r * 1.2), (x + r * 1.15, y + r * 0.85), (x - r * 1.15, y + r * 0.85)]
