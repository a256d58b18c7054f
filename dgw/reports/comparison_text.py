"""A comparison of two runs for a terminal, as Markdown, CSV and JSON."""

from __future__ import annotations

import csv as writer
import io
from collections.abc import Callable, Mapping
from typing import Any

from dgw.reports import json as values
from dgw.reports.comparison import ALIKE, FASTER, SLOWER, UNTIMED, Comparison, table
from dgw.reports.csv import safe
from dgw.reports.markdown import escape
from dgw.reports.markdown import table as markdown_table
from dgw.reports.terminal import NARROWEST, WIDEST, Paint, grid, wrapped
from dgw.reports.units import show

SCHEMA = "dgw.comparison/1"
RATIO = (
    "The first run's time over the second's. The interval holds the spread inside of both runs, not what changed "
    "between them; dgw gate measures in turn."
)


def summary(found: Comparison) -> str:
    """One sentence: how many cases are faster, slower or neither, and the mean."""
    kinds = ((FASTER, "faster"), (SLOWER, "slower"), (ALIKE, "without a difference"), (UNTIMED, "not timed"))
    counts = [(found.count(verdict), what) for verdict, what in kinds]
    text = ", ".join(f"{count} {what}" for count, what in counts if count)
    mean = f"; geometric mean of the ratios {show(found.mean, 'times')}" if found.mean is not None else ""
    plural = "s" if len(found.pairs) != 1 else ""
    return f"{found.title}, {len(found.pairs)} case{plural} compared: {text}{mean}"


def notes(found: Comparison) -> list[tuple[str, list[str]]]:
    """What stands below the table: changes, what could not be compared, and where both sides were measured."""
    changed = [pair for pair in found.pairs if pair.changes]
    changes = [f"{pair.title}: {', '.join(change.text for change in pair.changes)}" for pair in changed]
    reasons: dict[str, list[str]] = {}
    for pair in found.pairs:
        if pair.untimed:
            reasons.setdefault(pair.untimed, []).append(pair.title)
    sides = [
        f"{name}: run {run.id}, {run.created[:16].replace('T', ' ')} UTC, {found.machines(side)}, dgw {run.version}"
        for side, (name, run) in enumerate(zip(found.names, (found.base, found.head), strict=True))
    ]
    boards = {record.environment.device_uuid for pair in found.pairs for record in (pair.base, pair.head)}
    models = {record.environment.device for pair in found.pairs for record in (pair.base, pair.head)}
    if len(boards - {""}) > 1 and len(models) == 1:
        sides.append("The runs come from two boards of one model, which differ by some per cent.")
    parts = [
        ("changed", changes),
        ("because", [f"{pair.title}: {' '.join(pair.because)}" for pair in found.pairs if pair.because]),
        ("not timed", [f"{', '.join(titles)}: {reason}" for reason, titles in reasons.items()]),
        ("refused", [f"{title}: {reason}" for title, reason in found.refused]),
        ("only in the first", [", ".join(found.only_base)] if found.only_base else []),
        ("only in the second", [", ".join(found.only_head)] if found.only_head else []),
        ("sides", sides),
        ("ratio", [RATIO]),
    ]
    return [(heading, sentences) for heading, sentences in parts if sentences]


def terminal(found: Comparison, width: int = 80, colour: bool = False) -> str:
    """The comparison as text of at most `width` columns, without a trailing newline."""
    width, paint = max(NARROWEST, min(width, WIDEST)), Paint(colour)
    shown = table(found)
    text = [paint.head(line) for line in wrapped(summary(found), width, "", "  ")]
    text += ["", *grid(shown.head, shown.rows, width, paint), ""]
    for heading, sentences in notes(found):
        for index, sentence in enumerate(sentences):
            first = f"{heading if index == 0 else '':<18} "
            text += [paint.quiet(line) for line in wrapped(sentence, width, first, " " * 19)]
    return "\n".join(text)


def markdown(found: Comparison) -> str:
    """The comparison as one document, ending in a newline."""
    shown = table(found)
    below = [f"- {heading}: {escape(sentence)}" for heading, sentences in notes(found) for sentence in sentences]
    return "\n\n".join([f"# {escape(summary(found))}", markdown_table(shown.head, shown.rows), "\n".join(below)]) + "\n"


def csv(found: Comparison) -> str:
    """One row for every pair, in base units; unknown is empty."""
    out = io.StringIO()
    lines = writer.writer(out, lineterminator="\n")
    lines.writerow(("case", "shape", "variant", "config", "lane", "first [s]", "second [s]", "ratio", "ratio low",
                    "ratio high", "verdict", "changed"))  # fmt: skip
    for row in _plain(found):
        config = ",".join(f"{k}={v}" for k, v in row["config"].items())
        changed = "; ".join(change["text"] for change in row["changes"])
        lines.writerow([safe(value) for value in (
            row["case"], row["shape"], row["variant"], config, row["lane"], row["first"], row["second"], row["ratio"],
            row["low"], row["high"], row["verdict"], changed,
        )])  # fmt: skip
    return out.getvalue()


def json(found: Comparison) -> str:
    """The comparison as JSON with a schema of its own, in base units."""
    return values.render({
        "schema": SCHEMA, "first": found.base.id, "second": found.head.id, "mean": found.mean, "cases": _plain(found),
        "refused": [{"case": title, "reason": reason} for title, reason in found.refused],
        "only_first": found.only_base, "only_second": found.only_head,
    })  # fmt: skip


def _plain(found: Comparison) -> list[dict[str, Any]]:
    return [
        {
            "case": pair.title, "shape": pair.base.case.problem.shape, "variant": pair.base.case.variant,
            "config": pair.base.case.config, "lane": pair.metric,
            "first": pair.base.number(pair.metric), "second": pair.head.number(pair.metric),
            "ratio": pair.ratio, "low": pair.low, "high": pair.high, "verdict": pair.verdict,
            "because": pair.because,
            "changes": [
                {"figure": change.label, "first": change.before, "second": change.after, "text": change.text}
                for change in pair.changes
            ],
        }
        for pair in found.pairs
    ]  # fmt: skip


FORMS: Mapping[str, Callable[[Comparison], str]] = {".md": markdown, ".csv": csv, ".json": json}
"""By the ending of the file."""
