"""Blocks as GitHub Markdown: the same lines as the terminal, each block a table."""

from __future__ import annotations

from collections.abc import Sequence

from dgw.reports.notes import SECTIONS
from dgw.reports.tables import Block


def escape(text: str) -> str:
    """Text that no Markdown table takes for its own syntax or for HTML."""
    for character, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|")):
        text = text.replace(character, instead)
    return " ".join(text.split())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose other columns are right-aligned."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    body = [[escape(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in [[escape(h) for h in lines[0]], lines[1], *body])


def card(block: Block) -> str:
    """The table of a block alone: metrics down, variants across."""
    every = range(len(block.columns))
    rows = []
    for line in block.lines:
        rows.append([line.heading.strip(), *(line.text(column) for column in every)])
        if line.has_interval:
            rows.append([f"{line.label}, 95 % interval", *(line.interval(column) for column in every)])
    return table(["", *(column.title for column in block.columns)], rows)


def _block(block: Block) -> str:
    parts = [f"### {escape(block.title)}", card(block)]
    notes = [f"- {heading}: {escape(sentence)}" for heading, build in SECTIONS for sentence in build(block)]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def render(blocks: Sequence[Block], title: str = "") -> str:
    """All blocks as one document, ending in a newline."""
    heading = [f"# {escape(title)}"] if title else []
    return "\n\n".join([*heading, *(_block(block) for block in blocks)]) + "\n"
