"""Findings as text: the verdict, why it matters, and the next step."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from dgw.model import Finding
from dgw.reports.terminal import Paint


def render(findings: Sequence[Finding], width: int = 100, colour: bool = False) -> str:
    """One finding a paragraph: its verdict, and below it what it is for. Claims that did not hold stand out."""
    paint = Paint(colour)
    lines = []
    for found in findings:
        first, *rest = textwrap.wrap(found.verdict, max(40, width), subsequent_indent="  ", break_long_words=False)
        style = (
            "crashed" if found.verdict.startswith("did not hold") else "ok" if found.verdict.startswith("held") else ""
        )
        lines.append(paint.outcome(first, style) if style else first)
        lines += rest
        why = found.evidence[0].why if len(found.evidence) == 1 else ""
        if why:
            lines += [paint.quiet(line) for line in _indented(f"because {why}", width)]
    return "\n".join(lines)


def _indented(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(40, width), initial_indent="    ", subsequent_indent="    ", break_long_words=False)
