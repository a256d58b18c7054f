"""A map on a terminal: the same cells as in the picture, told apart by signs and, where there are any, by colours."""

from __future__ import annotations

import textwrap

from dgw.reports.charts.heatmap import WORDS, heat, ink
from dgw.reports.charts.palette import LIGHT
from dgw.reports.heatmap import Grid, Panel
from dgw.reports.heatmap_cells import STATES, Square
from dgw.reports.terminal import Paint

MARKS = {"best": "[{}]", "tied": "/{}/", "": " {} "}
"""How a value stands: the winner in brackets, what is tied with it between strokes."""


def render(grid: Grid, width: int = 100, colour: bool = False) -> str:
    """The map as text; panels stand side by side where `width` allows it. Trailing newline left out."""
    paint = Paint(colour)
    cell = max(len(_plain(square)) for square in grid.squares)
    cell = max(cell, *(len(str(value)) + 1 for value in grid.x[1]))
    blocks = [_panel(grid, panel, cell, colour) for panel in grid.panels]
    wide = _width(grid, cell)
    lines = [*textwrap.wrap(grid.title, width), *textwrap.wrap(grid.caption, width)]
    lines = [paint.head(line) if number == 0 else paint.quiet(line) for number, line in enumerate(lines)]
    per_line = max(1, (width + 3) // (wide + 3))
    for start in range(0, len(blocks), per_line):
        lines.append("")
        for parts in zip(*blocks[start : start + per_line], strict=True):
            lines.append("   ".join(text + " " * (wide - visible) for text, visible in parts).rstrip())
    return "\n".join([*lines, "", *textwrap.wrap(_key(grid), width)])


def _plain(square: Square) -> str:
    if square.state != "ok":
        return MARKS[square.standing].format(WORDS[square.state])
    return MARKS[square.standing].format(square.text + ("*" if square.bad else ""))


def _labels(grid: Grid) -> int:
    return max(len(grid.y[0]), *(len(str(value)) for value in grid.y[1]))


def _width(grid: Grid, cell: int) -> int:
    return max(_labels(grid) + 1 + cell * len(grid.x[1]), max(len(panel.title) for panel in grid.panels))


def _panel(grid: Grid, panel: Panel, cell: int, colour: bool) -> list[tuple[str, int]]:
    """Lines of one panel, each with the columns that it takes."""
    labels = _labels(grid)
    head = f"{grid.y[0].rjust(labels)} " + "".join(str(value).rjust(cell) for value in grid.x[1])
    top = " " * (labels + 1) + grid.x[0].rjust(cell)
    lines = [(text, len(text)) for text in ([panel.title] if panel.title else []) + [top, head]]
    for value, squares in zip(grid.y[1], panel.rows, strict=True):
        cells = [_coloured(grid, square, _plain(square).rjust(cell), colour) for square in squares]
        lines.append((f"{str(value).rjust(labels)} " + "".join(cells), labels + 1 + cell * len(squares)))
    return lines


def _coloured(grid: Grid, square: Square, text: str, colour: bool) -> str:
    if not colour:
        return text
    if square.value is None:
        return f"\x1b[31m{text}\x1b[0m" if square.state in ("wrong", "failed") else f"\x1b[2m{text}\x1b[0m"
    role = heat(grid.share(square.value))
    ground, letters = (tuple(int(LIGHT[one][i : i + 2], 16) for i in (1, 3, 5)) for one in (role, ink(role)))
    bold = "1;" if square.standing == "best" else ""
    codes = f"{bold}48;2;{ground[0]};{ground[1]};{ground[2]};38;2;{letters[0]};{letters[1]};{letters[2]}"
    return f"\x1b[{codes}m{text}\x1b[0m"


def _key(grid: Grid) -> str:
    parts = [f"{MARKS[standing].format('')} {word}" for standing, word in grid.standings.items()]
    parts += [f"{WORDS[state]} {STATES[state]}" for state in grid.states if WORDS[state] not in STATES[state]]
    parts += [STATES[state] for state in grid.states if WORDS[state] in STATES[state]]
    parts += ["* some configs there are wrong"] if any(s.bad and s.state == "ok" for s in grid.squares) else []
    return "   ".join(parts)
