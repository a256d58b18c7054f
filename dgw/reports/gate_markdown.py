"""A gate's report as GitHub Markdown: for the summary of a step, or a comment. Worst first, and never too long."""

from __future__ import annotations

from collections.abc import Sequence

from dgw.reports.gate_text import about, label, place, reported, time_text, value, verdict, why
from dgw.reports.markdown import escape, table
from dgw.workbench.gate.verdict import Change, GateCase, GateReport

ROWS = 20
"""Cases that are listed; the JSON holds all of them."""
CHANGES = 12
"""Changes that are listed of one case, the ones that fail the gate first."""
LARGEST = 60_000
"""Bytes: a comment on GitHub may have 65,536 characters, the summary of a step 1 MiB."""
LONGEST_CELL = 400


def render(report: GateReport) -> str:
    """One document of at most LARGEST bytes, ending in a newline; what is left out is counted."""
    shown = reported(report)
    for rows in range(min(ROWS, len(shown)), -1, -1):
        text = _document(report, shown, rows)
        if len(text.encode()) <= LARGEST:
            return text
    return f"## dgw gate: {escape(verdict(report))}\n\nThe report is too long for this place; the JSON holds it.\n"


def _document(report: GateReport, shown: Sequence[GateCase], rows: int) -> str:
    parts = [f"## dgw gate: {escape(verdict(report))}"]
    parts.append("\n".join(f"- {name}: {_cell(text)}" for name, text in about(report)))
    if rows:
        head = ("case", "status", "why")
        parts.append(_left([head, *((case.label, case.status, why(case)) for case in shown[:rows])]))
        parts += [_changes(case) for case in shown[:rows] if case.changed or case.explanation]
    if len(shown) > rows:
        parts.append(f"{len(shown) - rows} more in the JSON report.")
    notes = [*(("note", text) for text in report.notes), *(("fault", text) for text in report.faults)]
    if notes:
        parts.append("\n".join(f"- {name}: {_cell(text)}" for name, text in notes[:ROWS]))
    return "\n\n".join(parts) + "\n"


def _changes(case: GateCase) -> str:
    ordered = sorted(case.changed, key=lambda change: not change.worse)
    lines = [f"<details><summary>{_cell(case.label)}</summary>", ""]
    facts = [text for text in (place(case), time_text(case)) if text]
    if facts:
        lines += [_cell(", ".join(facts)), ""]
    if ordered:
        rows = [(_name(change), value(change, "base"), value(change, "head")) for change in ordered[:CHANGES]]
        lines += [table(("", "base", "head"), [[text[:LONGEST_CELL] for text in row] for row in rows]), ""]
    if len(ordered) > CHANGES:
        lines += [f"{len(ordered) - CHANGES} more changes in the JSON report.", ""]
    lines += [line for text in case.explanation for line in (f"> {_cell(text)}", "")]
    return "\n".join([*lines, "</details>"])


def _name(change: Change) -> str:
    scope = "" if change.scope == "case" else f" ({change.scope})"
    return f"{label(change.metric)}{scope}{' - worse' if change.worse else ''}"


def _left(rows: Sequence[Sequence[str]]) -> str:
    """A table of texts, all columns left-aligned."""
    head, *body = [[_cell(cell) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body])


def _cell(text: str) -> str:
    return escape(text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 3]}...")
