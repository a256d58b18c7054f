"""Blocks as text for a terminal: metrics down, variants across, in groups, as wide as the terminal and no wider."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dgw.reports.notes import SECTIONS, failure_text
from dgw.reports.tables import SUMMARY, Block, Column, Line, dtype_text
from dgw.reports.units import UNKNOWN, show

GAP = "  "
NARROWEST, WIDEST = 60, 200
BLOCKS_IN_FULL = 3
"""With more problems than this a run is shown as one row per case."""

_BOLD, _DIM, _RED, _GREEN, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[0m"


@dataclass(frozen=True)
class Paint:
    """Styles of a terminal, or of none: with `on=False` text comes back as it is."""

    on: bool = False

    def _wrap(self, code: str, text: str) -> str:
        return f"{code}{text}{_RESET}" if self.on and text.strip() else text

    def head(self, text: str) -> str:
        """A heading."""
        return self._wrap(_BOLD, text)

    def quiet(self, text: str) -> str:
        """What may be overlooked."""
        return self._wrap(_DIM, text)

    def outcome(self, text: str, outcome: str) -> str:
        """Green for `ok`, red for a failure, quiet for `refused`."""
        code = {"ok": _GREEN, "refused": _DIM}.get(outcome, _RED)
        return self._wrap(code, text)


def wrapped(text: str, width: int, first: str, rest: str) -> list[str]:
    """`text` in lines of at most `width`, the first behind `first`, the others behind `rest`; words stay whole."""
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    ) or [first.rstrip()]


def _rows(lines: Sequence[Line], columns: Sequence[int]) -> Iterator[tuple[str, str, list[str]]]:
    """(group, label, texts) of every printed row; a line with intervals takes two."""
    for line in lines:
        yield line.group, line.heading, [line.text(column) for column in columns]
        if line.has_interval:
            yield line.group, "  95 % interval", [line.interval(column) for column in columns]


def _chunks(widths: Sequence[int], label: int, width: int) -> list[list[int]]:
    """Columns that fit beside the labels in `width`; a column too wide for any row stands alone."""
    chunks: list[list[int]] = [[]]
    used = label
    for column, needed in enumerate(widths):
        if chunks[-1] and used + len(GAP) + needed > width:
            chunks.append([])
            used = label
        chunks[-1].append(column)
        used += len(GAP) + needed
    return chunks


def _card(
    block: Block, lines: Sequence[Line], columns: Sequence[int], label: int, widths: Sequence[int], paint: Paint
) -> list[str]:
    titles = [block.columns[column].title.rjust(widths[column]) for column in columns]
    text = [paint.head((" " * label + GAP + GAP.join(titles)).rstrip())]
    group = ""
    for line_group, name, cells in _rows(lines, columns):
        if line_group != group:
            if group:
                text.append("")
            group = line_group
        padded = [cell.rjust(widths[column]) for cell, column in zip(cells, columns, strict=True)]
        if name == "outcome":
            padded = [
                paint.outcome(cell, block.columns[column].record.outcome)
                for cell, column in zip(padded, columns, strict=True)
            ]
        text.append((paint.quiet(name.ljust(label)) + GAP + GAP.join(padded)).rstrip())
    return text


def _notes(block: Block, width: int, paint: Paint) -> list[str]:
    text: list[str] = []
    for heading, sentences in SECTIONS:
        for index, sentence in enumerate(sentences(block)):
            first = f"{heading if index == 0 else '':<11} "
            lines = wrapped(sentence, width, first, " " * 12)
            text += [paint.quiet(line) if heading != "not ok" else line for line in lines]
    return text


def _block(block: Block, width: int, paint: Paint) -> list[str]:
    every = range(len(block.columns))
    rows = list(_rows(block.lines, every))
    label = max(len(name) for _, name, _ in rows)
    widths = [max(len(block.columns[c].title), *(len(cells[c]) for _, _, cells in rows)) for c in every]
    text = [paint.head(line) for line in wrapped(block.title, width, "", "  ")]
    lines: Sequence[Line] = block.lines
    for columns in _chunks(widths, label, width):
        text += ["", *_card(block, lines, columns, label, widths, paint)]
        # what no column knows is said once, beside the first columns
        lines = [line for line in block.lines if any(cell.value is not None for cell in line.cells)]
    return [*text, "", *_notes(block, width, paint)]


def _summary_cells(block: Block, index: int, column: Column) -> list[str]:
    problem, record = block.problem, column.record
    found = [(key, block.line(key)) for key in SUMMARY]
    texts = [UNKNOWN if line is None else show(line.cells[index].value, line.style) for _, line in found]
    return [problem.shape, dtype_text(problem), problem.layout, column.title, record.outcome, *texts]


def _summary(blocks: Sequence[Block], width: int, paint: Paint) -> list[str]:
    head = ["shape", "types", "layout", "variant", "outcome", "of bound", "cold", "rate", "vs cuBLAS", "lower bound"]
    head.append("ld conflicts")
    rows = [_summary_cells(block, i, column) for block in blocks for i, column in enumerate(block.columns)]
    kept = [c for c in range(len(head)) if c < 5 or any(row[c] != UNKNOWN for row in rows)]
    widths = {c: max(len(head[c]), *(len(row[c]) for row in rows)) for c in kept}
    while len(kept) > 5 and sum(widths[c] + len(GAP) for c in kept) - len(GAP) > width:
        kept.pop()
    machines = " and ".join(dict.fromkeys(block.machine for block in blocks))
    text = [*wrapped(f"{len(rows)} cases on {machines}", width, "", "  "), ""]
    text += [paint.head(GAP.join(head[c].ljust(widths[c]) for c in kept).rstrip())]
    outcomes = [column.record.outcome for block in blocks for column in block.columns]
    for row, outcome in zip(rows, outcomes, strict=True):
        cells = [row[c].ljust(widths[c]) if c < 5 else row[c].rjust(widths[c]) for c in kept]
        cells[4] = paint.outcome(cells[4], outcome)
        text.append(GAP.join(cells).rstrip())
    return text


def _summary_failures(blocks: Sequence[Block], width: int) -> list[str]:
    """Each reason once, with the cases that it befell."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for block in blocks:
        for column in block.columns:
            record = column.record
            if record.outcome != "ok":
                where = f"{column.title} {block.problem.shape} {dtype_text(block.problem)} {block.problem.layout}"
                reasons.setdefault((record.outcome, failure_text(record)), []).append(where)
    text = []
    for (outcome, reason), cases in reasons.items():
        more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        text += wrapped(f"{outcome}: {cases[0]}{more}: {reason}", width, "", "  ")
    return text


def render(blocks: Sequence[Block], width: int = 80, colour: bool = False) -> str:
    """The blocks as text of at most `width` columns (held between 60 and 200), without a trailing newline.

    Few problems are shown in full; many as one row per case, with each reason of failure once below.
    """
    width = max(NARROWEST, min(width, WIDEST))
    paint = Paint(colour)
    if len(blocks) > BLOCKS_IN_FULL:
        failed = _summary_failures(blocks, width)
        return "\n".join([*_summary(blocks, width, paint), *([""] if failed else []), *failed])
    return "\n\n".join("\n".join(_block(block, width, paint)) for block in blocks)


def listing(head: Sequence[str], rows: Sequence[Sequence[str]], width: int = 80, colour: bool = False) -> str:
    """A plain list with a heading; the last column wraps, so that nothing is cut off."""
    width = max(NARROWEST, min(width, WIDEST))
    last = len(head) - 1
    widths = [max(len(head[c]), *(len(row[c]) for row in rows), 0) for c in range(last)]
    indent = sum(widths) + len(GAP) * last
    if indent > width - 20:
        indent = 4
    text = [Paint(colour).head(GAP.join([*(head[c].ljust(widths[c]) for c in range(last)), head[last]]).rstrip())]
    for row in rows:
        first = GAP.join([*(row[c].ljust(widths[c]) for c in range(last)), ""])
        if len(first) > width - 20:
            text += [first.rstrip(), *wrapped(row[last], width, " " * indent, " " * indent)]
        else:
            text += wrapped(row[last], width, first, " " * indent)
    return "\n".join(text)


def grid(head: Sequence[str], rows: Sequence[Sequence[str]], width: int, paint: Paint) -> list[str]:
    """Lines of a table of figures: the first column on the left, the others on the right.

    Where it does not fit, each row's first cell has a line of its own above the others.
    """
    widths = [max(len(head[c]), *(len(row[c]) for row in rows), 0) for c in range(len(head))]

    def line(cells: Sequence[str], first: int) -> str:
        right = [cell.rjust(w) for cell, w in zip(cells[1:], widths[1:], strict=True)]
        return GAP.join([cells[0].ljust(first), *right]).rstrip()

    if sum(widths) + len(GAP) * (len(head) - 1) <= width:
        return [paint.head(line(head, widths[0])), *(line(row, widths[0]) for row in rows)]
    text = [paint.head(line(("", *head[1:]), 0))]
    for row in rows:
        text += [*wrapped(row[0], width, "", "  "), line(("", *row[1:]), 0)]
    return text
