"""Two runs beside each other, as one HTML file of the same kind as the page of a run."""

from __future__ import annotations

import itertools
import shlex

from dgw.model import Run
from dgw.reports.charts import forest
from dgw.reports.comparison import ALIKE, FASTER, SLOWER, Comparison, Pair, table
from dgw.reports.comparison_text import notes, summary
from dgw.reports.html import provenance
from dgw.reports.html.cases import Cases, Row, Shown
from dgw.reports.html.page import document, drawn
from dgw.reports.html.summary import Tile
from dgw.reports.units import show


def render(found: Comparison) -> str:
    """The comparison as an HTML document that needs no network and no other file."""
    chart = forest.build(found)
    numbers = itertools.count(1)
    records = [[pair.base for pair in found.pairs], [pair.head for pair in found.pairs]]
    sides = [provenance.environments(side) for side in records]
    labels = list(dict.fromkeys(label for _, rows in sides for label, _ in rows))
    heads = [f"{name}, {head}" for name, (counts, _) in zip(found.names, sides, strict=True) for head in counts]
    facts = [(label, [text for counts, rows in sides for text in dict(rows).get(label, ["-"] * len(counts))])
             for label in labels]  # fmt: skip
    return document(
        "comparison.html.j2",
        title=found.title, summary=summary(found), tiles=_tiles(found),
        facts=[_facts(name, run) for name, run in zip(found.names, (found.base, found.head), strict=True)],
        cases=_cases(found), charts=[drawn(chart, numbers)] if chart is not None else [],
        explained=[pair for pair in found.pairs if pair.because],
        changed=[pair for pair in found.pairs if pair.changes], names=found.names,
        notes=[(heading, sentences) for heading, sentences in notes(found) if heading not in ("changed", "because")],
        environment_heads=heads, environment=facts,
    )  # fmt: skip


def _facts(name: str, run: Run) -> tuple[str, str]:
    return name, f"{run.id}, {run.created[:16].replace('T', ' ')} UTC, {shlex.join(run.command)}"


def _tiles(found: Comparison) -> list[Tile]:
    counts = [(FASTER, "the interval lies above 1"), (SLOWER, "the interval lies below 1"), (ALIKE, "it holds 1")]
    tiles = [Tile("cases compared", str(len(found.pairs)), f"{len(found.refused)} refused" if found.refused else "")]
    tiles += [Tile(verdict, str(found.count(verdict)), note) for verdict, note in counts]
    return [*tiles, *([Tile("geometric mean", show(found.mean, "times"), "of the ratios")] if found.mean else [])]


def _cases(found: Comparison) -> Cases:
    shown = table(found)
    numeric = [False, False, True, True, True, True, False]
    rows = []
    for pair, cells in zip(found.pairs, shown.rows, strict=True):
        values = [None, *_values(pair), None]
        family = pair.base.case.variant.partition("/")[0]
        rows.append(Row("", cells[0], family, pair.verdict, tuple(map(Shown, cells[1:], values))))
    return Cases(tuple(zip(shown.head, numeric, strict=True)), tuple(rows))


def _values(pair: Pair) -> list[float | None]:
    """What the columns of a pair are sorted by: both times, the ratio, and the lower end of its interval."""
    times = [record.number(pair.metric) if pair.metric else None for record in (pair.base, pair.head)]
    return [*times, pair.ratio, pair.low]
