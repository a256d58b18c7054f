"""The page: everything is computed here and in its neighbours, the template only arranges it."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dgw import __version__
from dgw.model import Evidence, Finding, Run
from dgw.reports.charts import svg
from dgw.reports.charts.catalogue import KINDS
from dgw.reports.charts.drawing import Chart
from dgw.reports.charts.palette import DARK, LIGHT
from dgw.reports.html import cases, details, provenance, summary
from dgw.reports.notes import SECTIONS
from dgw.reports.tables import Block, dtype_text, problem_text
from dgw.reports.units import UNIT_STYLE, percent, plain, show

if TYPE_CHECKING:
    from jinja2 import Template

HERE = Path(__file__).parent
OPEN = 3
"""With more problems than this they are folded, and opened one by one."""
WIDEST = 16
"""Columns of a card; a block with more cases is shown by the table of cases and their details alone."""


@dataclass(frozen=True)
class Drawn:
    """A chart and its SVG, under an id of its own."""

    identity: str
    chart: Chart
    picture: str


@dataclass(frozen=True)
class Extras:
    """What others conclude or draw: findings by case key and of the run, source files, and the maps of its sweeps."""

    by_case: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    of_run: Sequence[Finding] = ()
    sources: details.Sources = field(default_factory=dict)
    maps: Sequence[Chart] = ()


def render(run: Run, blocks: Sequence[Block], extras: Extras | None = None) -> str:
    """The run as an HTML document that needs no network and no other file."""
    extras = extras or Extras()
    numbers = itertools.count(1)
    whole = [drawn(chart, numbers) for kind in KINDS.values() if kind.whole for chart in kind.draw(blocks)]
    folded = len(blocks) > OPEN
    problems = [
        _problem(number, block, extras, numbers, drawing=len(block.columns) > 1 or not folded)
        for number, block in enumerate(blocks)
    ]
    there = {one.chart.key for one in (*whole, *(d for p in problems for d in p["charts"]))}
    heads, environment = provenance.environments(run.records)
    return document(
        "report.html.j2",
        title=summary.title(blocks), facts=summary.facts(run, blocks), tiles=summary.tiles(blocks),
        cases=cases.build(blocks), whole=whole, maps=[drawn(chart, numbers) for chart in extras.maps],
        problems=problems, folded=folded, lead=_lead(blocks, extras), of_run=extras.of_run,
        missing=[(kind.title, kind.needs) for key, kind in KINDS.items() if key not in there],
        environment_heads=heads, environment=environment, protocols=provenance.protocols(run.records),
    )  # fmt: skip


def document(name: str, **content: Any) -> str:
    """A template filled in, with the style and the script that its content security policy allows and nothing else."""
    style, script = _style(), (HERE / "page.js").read_text(encoding="utf-8")
    return _template(name).render(
        **content, version=__version__, style=style, script=script, style_hash=_hash(style), script_hash=_hash(script)
    )


@cache
def _template(name: str) -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(HERE)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["evidence"] = evidence_text
    environment.filters["tone"] = tone
    environment.filters["share"] = percent
    environment.filters["kind"] = claim_kind
    return environment.get_template(name)


def evidence_text(one: Evidence) -> str:
    """The value of an observation, and what it was held against."""
    from dgw.workbench.metrics import METRICS

    unit = METRICS[one.metric].unit if one.metric in METRICS else ""
    style = UNIT_STYLE.get(unit, "")

    def text(value: float | int | str | None) -> str:
        if style or not isinstance(value, int | float):
            return show(value, style or "text")
        return plain(value)

    return text(one.value) + (f" against {text(one.threshold)}" if one.threshold is not None else "")


def tone(outcome: str) -> str:
    """The class of an outcome or a verdict: `ok`, `bad`, or nothing where it is neither."""
    return "ok" if outcome in ("ok", "faster") else "" if outcome in ("no difference shown", "not timed") else "bad"


def claim_kind(verdict: str) -> str:
    """The class of a claim's verdict: `held`, `failed` or nothing."""
    return "held" if verdict.startswith("held") else "failed" if verdict.startswith("did not hold") else ""


@cache
def _style() -> str:
    light, dark = svg.variables(LIGHT), svg.variables(DARK)
    night = f'@media(prefers-color-scheme:dark){{:root:not([data-theme="light"]){{color-scheme:dark;{dark}}}}}'
    chosen = f':root[data-theme="dark"]{{color-scheme:dark;{dark}}}'
    text = (HERE / "page.css").read_text(encoding="utf-8")
    paper = f"@media print{{:root,:root[data-theme]{{color-scheme:light;{light}}}}}"
    return f":root{{color-scheme:light;{light}}}{night}{chosen}{paper}{svg.rules()}\n{text}"


def _hash(text: str) -> str:
    """The source expression that allows exactly this inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def drawn(chart: Chart, numbers: itertools.count[int]) -> Drawn:
    """The chart with its SVG, under the next number."""
    identity = f"chart-{next(numbers)}"
    return Drawn(identity, chart, svg.inline(chart, identity))


def _problem(number: int, block: Block, extras: Extras, numbers: itertools.count[int], drawing: bool) -> dict[str, Any]:
    """What the template needs of one problem. One case among many problems is not drawn: its card has the figures."""
    kinds = [kind for kind in KINDS.values() if kind.each] if drawing else []
    charts = [drawn(chart, numbers) for kind in kinds for chart in kind.draw([block])]
    anchors = [cases.anchor(number, column) for column in range(len(block.columns))]
    return {
        "id": f"problem-{number + 1}",
        "title": problem_text(block.problem),
        "machine": block.machine,
        "heads": [(column.title, link) for column, link in zip(block.columns, anchors, strict=True)],
        "groups": _groups(block) if len(block.columns) <= WIDEST else [],
        "notes": [(heading, sentences) for heading, make in SECTIONS if (sentences := make(block))],
        "charts": charts,
        "details": [
            details.build(link, c.title, c.record, extras.sources, extras.by_case.get(c.record.case.key, ()))
            for c, link in zip(block.columns, anchors, strict=True)
        ],
    }


def _groups(block: Block) -> list[tuple[str, list[tuple[str, list[str], bool]]]]:
    """Lines of the card by group: (label, texts, whether it is the interval of the line above)."""
    groups: dict[str, list[tuple[str, list[str], bool]]] = {}
    for line in block.lines:
        every = range(len(block.columns))
        rows = groups.setdefault(line.group, [])
        rows.append((line.heading.strip(), [line.text(column) for column in every], False))
        if line.has_interval:
            rows.append(("95 % interval", [line.interval(column) for column in every], True))
    return list(groups.items())


MOST_LEADING = 12
OF_THE_RUN = ("throttled", "cache-confusion", "low-occupancy-harmless")
"""Recipes that say how a case was measured, or that something does not matter: no cause of a kernel of its own."""


@dataclass
class Lead:
    """The first finding of a case, and the other cases of the same variant that begin with the same recipe."""

    name: str
    anchor: str
    finding: Finding
    also: list[tuple[str, str]] = field(default_factory=list)


def _lead(blocks: Sequence[Block], extras: Extras) -> list[Lead]:
    """The first finding of each case, the costliest first, at most MOST_LEADING; alike ones of a variant are one, and
    what says how cases were measured is one for all."""
    found: list[Lead] = []
    several = len({problem_text(block.problem) for block in blocks}) > 1
    for number, column, block, record in cases.positions(blocks):
        told = [f for f in extras.by_case.get(record.case.key, ()) if not f.verdict.startswith("cannot tell")]
        if told:
            which = f" {_apart(block, blocks)}" if several else ""
            cause = min(told, key=lambda f: f.recipe in OF_THE_RUN)  # the first that is one, else the first
            found.append(Lead(block.columns[column].title + which, cases.anchor(number, column), cause))
    groups: dict[tuple[str, str], Lead] = {}
    for one in sorted(found, key=lambda lead: -(lead.finding.cost or 0.0)):
        variant, _, which = one.name.partition(" ")
        shared = one.finding.recipe in OF_THE_RUN
        first = groups.setdefault(("" if shared else variant, one.finding.recipe), one)
        if first is not one:
            first.also.append((one.name if shared else which, one.anchor))
    return list(groups.values())[:MOST_LEADING]


def _apart(block: Block, blocks: Sequence[Block]) -> str:
    """What tells the problem of a block from the others: its shape, and types, layout or data where they vary."""
    problems = [other.problem for other in blocks]
    parts = [block.problem.shape]
    parts += [dtype_text(block.problem)] if len({dtype_text(p) for p in problems}) > 1 else []
    parts += [block.problem.layout] if len({p.layout for p in problems}) > 1 else []
    parts += [f"{block.problem.data} data"] if len({p.data for p in problems}) > 1 else []
    return ", ".join(parts)
