"""The picture of a map: coloured cells with their values, and cells without one that look unlike each other."""

from __future__ import annotations

from dgw.reports.charts.drawing import CHARACTER, WIDTH, Chart, Drawing, Line, Rect, Shape, Text
from dgw.reports.charts.palette import HEAT, LIGHT, contrast
from dgw.reports.heatmap import Grid, Panel
from dgw.reports.heatmap_cells import STATES, Square
from dgw.reports.tables import config_text
from dgw.reports.units import show

WIDEST = 1120.0
"""Pixels beyond which panels go to the next line."""
HEIGHT = 30.0
GAP, MARGIN, LABELS = 34.0, 16.0, 44.0
WORDS = {"wrong": "wrong", "failed": "failed", "infeasible": "-", "not-run": "·", "absent": "n/a"}
"""What stands in a cell without a value."""


def heat(share: float) -> str:
    """The role of the colour for a share of the way from bad (0) to good (1)."""
    return f"heat-{min(len(HEAT) - 1, int(share * len(HEAT)))}"


def ink(role: str) -> str:
    """The role of text that is legible on a colour of the map, by day and by night."""
    return max(("heat-dark", "heat-light"), key=lambda one: contrast(LIGHT[one], LIGHT[role]))


def build(grid: Grid) -> Chart:
    """The chart of a map, with its figures as a table."""
    width = _cell_width(grid)
    panel_width = LABELS + width * len(grid.x[1])
    panel_height = HEIGHT * len(grid.y[1]) + 58
    per_line = max(1, min(len(grid.panels), int((WIDEST - 2 * MARGIN + GAP) // (panel_width + GAP))))
    if len(grid.facets) == 2:
        inner = len({panel.at[1] for panel in grid.panels})
        per_line = inner if inner <= per_line else per_line
    shapes: list[Shape] = []
    for number, panel in enumerate(grid.panels):
        left = MARGIN + number % per_line * (panel_width + GAP)
        top = 6.0 + number // per_line * (panel_height + 12)
        shapes += _panel(grid, panel, left, top, width)
    lines = -(-len(grid.panels) // per_line)
    total = max(WIDTH, 2 * MARGIN + per_line * (panel_width + GAP) - GAP)
    bottom = 6.0 + lines * (panel_height + 12)
    key, bottom = _key(grid, bottom + 10, total)
    head = (*grid.facets, grid.y[0], grid.x[0], grid.label, "standing", "config", "why there is no value")
    return Chart("heatmap", grid.title, grid.caption, Drawing(total, bottom, (*shapes, *key)), head, _rows(grid))


def _cell_width(grid: Grid) -> float:
    longest = max((len(_text(square)) for square in grid.squares), default=1)
    names = max(len(str(value)) for value in grid.x[1])
    cells = len(grid.x[1]) * max(1, min(2, len(grid.panels)))
    roomy = 84.0 if cells <= 8 else 62.0 if cells <= 16 else 40.0
    return max(roomy, max(longest, names) * CHARACTER + 10)


def _text(square: Square) -> str:
    if square.state != "ok":
        return WORDS[square.state]
    return square.text + ("*" if square.bad else "")


def _panel(grid: Grid, panel: Panel, left: float, top: float, width: float) -> list[Shape]:
    x0, y0 = left + LABELS, top + 22
    shapes: list[Shape] = [Text(x0, top + 12, panel.title, bold=True)] if panel.title else []
    for row, (value, squares) in enumerate(zip(grid.y[1], panel.rows, strict=True)):
        y = y0 + row * HEIGHT
        shapes.append(Text(x0 - 6, y + HEIGHT / 2 + 4, str(value), "muted", "end"))
        for column, square in enumerate(squares):
            shapes += _cell(grid, square, x0 + column * width, y, width)
    bottom = y0 + HEIGHT * len(panel.rows)
    for column, value in enumerate(grid.x[1]):
        shapes.append(Text(x0 + (column + 0.5) * width, bottom + 15, str(value), "muted", "middle"))
    shapes.append(Text(x0 + width * len(grid.x[1]) / 2, bottom + 31, grid.x[0], "ink", "middle"))
    shapes.append(Text(left + 8, y0 + HEIGHT * len(panel.rows) / 2, grid.y[0], "ink", "middle", angle=90))
    # the outline of the winner lies above its neighbours
    for row, squares in enumerate(panel.rows):
        for column, square in enumerate(squares):
            if square.standing == "best":
                shapes += _outline(x0 + column * width, y0 + row * HEIGHT, width)
    return shapes


def _cell(grid: Grid, square: Square, x: float, y: float, width: float) -> list[Shape]:
    middle, base = x + width / 2, y + HEIGHT / 2 + 4
    text, told = _text(square), _told(grid, square)
    if square.value is None:
        return _empty(square, x, y, width, told)
    role = heat(grid.share(square.value))
    shapes: list[Shape] = [Rect(x + 0.5, y + 0.5, width - 1, HEIGHT - 1, role, told)]
    if square.standing == "tied":
        shapes += _hatch(x, y, width, ink(role))
        wide = len(text) * CHARACTER + 6
        shapes.append(Rect(middle - wide / 2, y + 6, wide, HEIGHT - 12, role))
    shapes.append(Text(middle, base, text, ink(role), "middle", bold=square.standing == "best"))
    return shapes


def _empty(square: Square, x: float, y: float, width: float, told: str) -> list[Shape]:
    """Wrong: red and crossed out. Failed: red, one stroke. Cannot run: grey. Not run: blank with a dot. n/a: framed."""
    middle, base = x + width / 2, y + HEIGHT / 2 + 4
    a, b, c, d = x + 1.5, y + 1.5, x + width - 1.5, y + HEIGHT - 1.5
    ground = "grid" if square.state == "infeasible" else "paper"
    shapes: list[Shape] = [Rect(x + 0.5, y + 0.5, width - 1, HEIGHT - 1, ground, told)]
    role = "bad" if square.state in ("wrong", "failed") else "line"
    frame = ((a, b), (c, b), (c, d), (a, d), (a, b))
    if square.state in ("wrong", "failed", "absent"):
        shapes.append(Line(frame, role, 1.2, dashed=square.state == "absent"))
    if square.state == "wrong":
        shapes += [Line(((a, b), (c, d)), role, 0.8), Line(((a, d), (c, b)), role, 0.8)]
    elif square.state == "failed":
        shapes.append(Line(((a, d), (c, b)), role, 0.8))
    text = WORDS[square.state]
    if square.state in ("wrong", "failed"):
        wide = len(text) * CHARACTER + 4
        shapes.append(Rect(middle - wide / 2, y + 7, wide, HEIGHT - 14, ground))
    shapes.append(Text(middle, base, text, "bad" if role == "bad" else "muted", "middle"))
    return shapes


def _hatch(x: float, y: float, width: float, role: str) -> list[Shape]:
    lines: list[Shape] = []
    step, start = 9.0, x - HEIGHT + 9.0
    while start < x + width:
        low, high = max(start, x + 1), min(start + HEIGHT, x + width - 1)
        if high > low:
            lines.append(Line(((low, y + HEIGHT - (low - start)), (high, y + HEIGHT - (high - start))), role, 0.9))
        start += step
    return lines


def _outline(x: float, y: float, width: float) -> list[Shape]:
    a, b, c, d = x + 1.5, y + 1.5, x + width - 1.5, y + HEIGHT - 1.5
    frame = ((a, b), (c, b), (c, d), (a, d), (a, b))
    return [Line(frame, "heat-dark", 5.0), Line(frame, "heat-light", 2.0)]


def _told(grid: Grid, square: Square) -> str:
    """What a pointer is told of a cell."""
    if square.record is None:
        return STATES[square.state] if square.state != "ok" else ""
    config = config_text(square.record.case.config)
    value = show(square.value, grid.style) if square.value is not None else STATES.get(square.state, "")
    parts = [f"{value}: {config}", square.standing, square.reason]
    parts.append(f"{square.bad} of {square.configs} configs are wrong" if square.bad and square.state == "ok" else "")
    return "; ".join(part for part in parts if part)


def _key(grid: Grid, top: float, right: float) -> tuple[list[Shape], float]:
    """The scale, and what the signs mean that occur."""
    shapes: list[Shape] = []
    if any(square.value is not None for square in grid.squares):
        shapes += _scale(grid, top)
        top += 22
    entries: list[tuple[str, str]] = list(grid.standings.items())
    entries += [(state, STATES[state]) for state in grid.states]
    entries += [("*", "* some configs there are wrong")] if any(s.bad and s.state == "ok" for s in grid.squares) else []
    at = MARGIN
    for name, text in entries:
        sign = 0.0 if name == "*" else 52.0
        needed = sign + len(text) * CHARACTER + 18
        if at > MARGIN and at + needed > right:
            at, top = MARGIN, top + HEIGHT + 4
        shapes += _sign(name, at, top) if sign else []
        shapes.append(Text(at + sign + 4, top + HEIGHT / 2 + 4, text, "muted"))
        at += needed
    return shapes, top + (HEIGHT + 8 if entries else 8)


def _scale(grid: Grid, top: float) -> list[Shape]:
    """The colours from the bad end to the good one; the one colour that there is where all values are equal."""
    if grid.low == grid.high:
        swatch = Rect(MARGIN, top + 2, 14, 12, heat(grid.share(grid.low)))
        return [swatch, Text(MARGIN + 22, top + 12, show(grid.low, grid.style), "muted")]
    ends = (grid.low, grid.high) if grid.better != "lower" else (grid.high, grid.low)
    low, high = (show(value, grid.style) for value in ends)
    x = MARGIN + len(low) * CHARACTER + 8
    steps = [Rect(x + number * 14, top + 2, 14, 12, f"heat-{number}") for number in range(len(HEAT))]
    right = x + len(HEAT) * 14 + 8
    return [Text(MARGIN, top + 12, low, "muted"), *steps, Text(right, top + 12, high, "muted")]


def _sign(name: str, x: float, y: float) -> list[Shape]:
    width = 48.0
    if name in ("best", "tied"):
        role = heat(1.0)
        shapes: list[Shape] = [Rect(x, y + 0.5, width, HEIGHT - 1, role)]
        return shapes + (_outline(x, y, width) if name == "best" else _hatch(x, y, width, ink(role)))
    return _empty(Square(name), x, y, width, "")  # type: ignore[arg-type]


def _rows(grid: Grid) -> tuple[tuple[str, ...], ...]:
    rows = []
    for panel in grid.panels:
        for value, squares in zip(grid.y[1], panel.rows, strict=True):
            for at, square in zip(grid.x[1], squares, strict=True):
                config = config_text(square.record.case.config) if square.record is not None else ""
                shown = show(square.value, grid.style) if square.value is not None else STATES.get(square.state, "")
                where = (*(str(one) for _, one in panel.at), str(value), str(at))
                rows.append((*where, shown, square.standing, config, square.reason))
    return tuple(rows)
