"""What a picture is made of, whoever draws it: rectangles, lines, marks and text in a box, coloured by role.

Coordinates are pixels, the origin is the upper left corner. A role names what a colour is for; the palette says which
colour that is, by day and by night.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Role = str
"""`series-1` to `series-8`, or one of `ink muted line grid paper accent`."""

Anchor = Literal["start", "middle", "end"]
Symbol = Literal["circle", "square", "diamond", "triangle", "cross", "bar"]
Point = tuple[float, float]

WIDTH = 560.0
"""Pixels of a picture that stands beside another one on a wide screen and fills a narrow one."""
CHARACTER = 6.9
"""Pixels of one character of the smallest text, on average: enough to leave room, never to place text inside text."""


@dataclass(frozen=True)
class Rect:
    """A filled rectangle; `title` is what a pointer or a screen reader is told."""

    x: float
    y: float
    width: float
    height: float
    role: Role
    title: str = ""


@dataclass(frozen=True)
class Line:
    """A line through points; `dashed` or not."""

    points: tuple[Point, ...]
    role: Role = "line"
    thick: float = 1.0
    dashed: bool = False
    title: str = ""


@dataclass(frozen=True)
class Mark:
    """A symbol centred on a point, filled or hollow."""

    x: float
    y: float
    symbol: Symbol
    role: Role
    size: float = 5.0
    hollow: bool = False
    title: str = ""


@dataclass(frozen=True)
class Text:
    """One line of text whose baseline starts, centres or ends at a point."""

    x: float
    y: float
    text: str
    role: Role = "ink"
    anchor: Anchor = "start"
    bold: bool = False
    angle: float = 0.0  # degrees against the clock: 90 reads upwards


Shape = Rect | Line | Mark | Text


@dataclass(frozen=True)
class Drawing:
    """Shapes in the order in which they are drawn, in a box of `width` x `height` pixels."""

    width: float
    height: float
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class Chart:
    """A drawing with what one needs who cannot see it: a title, a caption, and its figures as a table."""

    key: str
    title: str
    caption: str
    drawing: Drawing
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def shortened(text: str, width: float) -> str:
    """`text` as it fits in `width` pixels, cut in the middle, because ends tell configs and kernels apart."""
    room = max(4, int(width / CHARACTER))
    if len(text) <= room:
        return text
    head = (room - 1) // 2
    return f"{text[:head]}…{text[len(text) - (room - 1 - head) :]}"


def legend(
    entries: Sequence[tuple[Role, str, Symbol | Literal["rect"]]], x: float, y: float, right: float
) -> tuple[list[Shape], float]:
    """Entries side by side from (x, y), wrapped at `right`; the shapes and the y below them."""
    shapes: list[Shape] = []
    at = x
    for role, text, symbol in entries:
        needed = 18 + len(text) * CHARACTER + 12
        if at > x and at + needed > right:
            at, y = x, y + 18
        if symbol == "rect":
            shapes.append(Rect(at, y - 9, 10, 10, role))
        else:
            shapes.append(Mark(at + 5, y - 4, symbol, role))
        shapes.append(Text(at + 16, y, text, "ink"))
        at += needed
    return shapes, y + 18 if entries else y


def moved(shape: Shape, down: float) -> Shape:
    """The shape, `down` pixels lower."""
    if isinstance(shape, Line):
        return replace(shape, points=tuple((x, y + down) for x, y in shape.points))
    return replace(shape, y=shape.y + down)


def stacked(charts: Sequence[Chart], headings: Sequence[str]) -> Chart:
    """Charts of one kind below each other, each under its heading; their tables become one, the heading in front."""
    first = charts[0]
    if len(charts) == 1:
        return first
    shapes: list[Shape] = []
    rows: list[tuple[str, ...]] = []
    top = 0.0
    for chart, heading in zip(charts, headings, strict=True):
        shapes.append(Text(8, top + 16, shortened(heading, first.drawing.width - 16), bold=True))
        shapes += [moved(shape, top + 26) for shape in chart.drawing.shapes]
        rows += [(f"{heading}: {row[0]}", *row[1:]) for row in chart.rows]
        top += chart.drawing.height + 40
    return Chart(first.key, first.title, first.caption, Drawing(first.drawing.width, top, tuple(shapes)),
                 first.head, tuple(rows))  # fmt: skip
