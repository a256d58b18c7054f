"""Pictures with one row for each case: names on the left, values on the right, what is drawn in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dgw.model import Record
from dgw.reports.charts.drawing import CHARACTER, WIDTH, Drawing, Line, Role, Shape, Symbol, Text, legend, shortened
from dgw.reports.charts.scales import Scale, tick_text
from dgw.reports.tables import Block

MOST = 24
"""Cases of one picture; the table has all of them."""
LEFT = 8.0
GAP = 12.0


@dataclass(frozen=True)
class Row:
    """One case: its title in the block, and its column there."""

    title: str
    record: Record
    column: int


def rows_of(block: Block, known: Callable[[Record], bool]) -> list[Row]:
    """The cases that a picture can show, at most MOST of them, in the order of the block."""
    found = [Row(c.title, c.record, i) for i, c in enumerate(block.columns) if known(c.record)]
    return found[:MOST]


def of_all(shown: Sequence[Row], block: Block) -> str:
    """What a caption says when not every case is drawn; empty when every one is."""
    left = len(block.columns) - len(shown)
    return f" {left} of {len(block.columns)} cases are not drawn." if left else ""


@dataclass(frozen=True)
class Frame:
    """Where rows, names and values of a picture are."""

    plot_left: float
    plot_right: float
    top: float
    row_height: float
    count: int

    @property
    def bottom(self) -> float:
        """Where the rows end."""
        return self.top + self.row_height * self.count

    def middle(self, row: int) -> float:
        """The y of the middle of a row."""
        return self.top + self.row_height * (row + 0.5)


def frame(titles: Sequence[str], values: Sequence[str], top: float, row_height: float = 24.0) -> Frame:
    """Room for the names (at most a third of the width) and the values of every row."""
    name = min(max((len(title) for title in titles), default=0) * CHARACTER + 4, WIDTH * 0.32)
    value = max((len(value) for value in values), default=0) * CHARACTER + (GAP if any(values) else 0)
    return Frame(LEFT + name + GAP, WIDTH - LEFT - value, top, row_height, len(titles))


def names(where: Frame, titles: Sequence[str], values: Sequence[str]) -> list[Shape]:
    """Names and values of the rows."""
    shapes: list[Shape] = []
    for row, (title, value) in enumerate(zip(titles, values, strict=True)):
        y = where.middle(row) + 4
        shapes.append(Text(LEFT, y, shortened(title, where.plot_left - LEFT - GAP)))
        if value:
            shapes.append(Text(WIDTH - LEFT, y, value, "ink", "end"))
    return shapes


def axis(where: Frame, scale: Scale, show: Callable[[float], str], label: str, most: int = 6) -> list[Shape]:
    """Grid lines through the rows, their values below, and what they mean."""
    ticks = [(scale.at(tick), tick_text(show, tick)) for tick in scale.ticks(most)]
    shapes: list[Shape] = [Line(((x, where.top), (x, where.bottom)), "grid") for x, _ in ticks]
    shapes += [Text(x, where.bottom + 16, text, "muted", "middle") for x, text in ticks]
    middle = (where.plot_left + where.plot_right) / 2
    shapes.append(Text(middle, where.bottom + 34, label, "muted", "middle"))
    return shapes


def key(entries: Iterable[tuple[Role, str, Symbol | str]]) -> tuple[list[Shape], float]:
    """The legend above the rows and where the rows may begin."""
    shapes, below = legend(list(entries), LEFT, 14, WIDTH - LEFT)  # type: ignore[arg-type]
    return shapes, below - 2


def finished(where: Frame, shapes: Sequence[Shape]) -> Drawing:
    """The drawing, high enough for the axis below the rows."""
    return Drawing(WIDTH, where.bottom + 44, tuple(shapes))
