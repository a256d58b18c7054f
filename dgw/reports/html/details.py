"""Everything known about one case, as lists that a page shows: facts, launches, figures by source, lines of code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dgw.model import Finding, Measurement, Record
from dgw.reports.lines import LINES, RANKED, costly, own_line
from dgw.reports.notes import failure_text
from dgw.reports.tables import SPECS, config_text
from dgw.reports.units import UNIT_STYLE, UNKNOWN, show

LEFT_OUT = "_per_issue"
"""The same stalls in another unit: in the record, and not on the page."""
Sources = Mapping[tuple[str, str], Sequence[str]]
"""Lines of source files by variant id and file name, as the page may quote them."""


@dataclass(frozen=True)
class Figures:
    """What one collector found under one protocol, in one scope: (metric, value, interval)."""

    source: str
    rows: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Costs:
    """Source lines by one metric, most first: (place, figure, share, the line itself or nothing)."""

    metric: str
    rows: tuple[tuple[str, str, str, str], ...]


@dataclass(frozen=True)
class Details:
    """One case. `absent` is (metrics, reason)."""

    anchor: str
    title: str
    outcome: str
    key: str
    facts: tuple[tuple[str, str], ...]
    flags: tuple[str, ...]
    figures: tuple[Figures, ...]
    absent: tuple[tuple[str, str], ...]
    costs: tuple[Costs, ...]
    findings: tuple[Finding, ...]


def build(anchor: str, title: str, record: Record, sources: Sources, findings: Sequence[Finding] = ()) -> Details:
    """The details of a case under `title`."""
    return Details(
        anchor, title, record.outcome, record.case.key, _facts(record),
        (*record.flags, *(defect.sentence for defect in record.defects)), _figures(record), _absent(record),
        tuple(_costs(record, sources)), tuple(findings),
    )  # fmt: skip


def _facts(record: Record) -> tuple[tuple[str, str], ...]:
    facts = [("variant", record.case.variant)]
    if record.outcome != "ok":
        facts.append((record.outcome, failure_text(record)))
    facts += [("config", config_text(record.case.config))] if record.case.config else []
    check = record.check
    if check is not None:
        where = f"{check.compared:,} compared ({check.where}), by {check.collector}"
        facts.append(("check", f"{'passed' if check.passed else 'failed'}, {where}"))
    for launch in record.plan.launches if record.plan is not None else ():
        grid, block = ("x".join(map(str, dims)) for dims in (launch.grid, launch.block))
        shape = f"grid {grid}, block {block}"
        shape += f", cluster {'x'.join(map(str, launch.cluster))}" if launch.cluster != (1, 1, 1) else ""
        shape += ", starts while the one before runs" if launch.overlaps else ""
        shape += ", blocks wait for each other" if launch.together else ""
        shape += f", {show(launch.shared_bytes, 'bytes')} dynamic shared memory" if launch.shared_bytes > 0 else ""
        facts.append(("launch", f"{launch.entry} of {launch.source.path}: {shape}"))
    facts += [("artifact", f"{kept.kind} {kept.name} ({show(kept.bytes, 'bytes')}), SHA-256 {kept.sha256[:16]}")
              for kept in record.artifacts]  # fmt: skip
    return tuple(facts)


def _listed(measurement: Measurement, kernels: int) -> bool:
    scope = measurement.scope
    if measurement.metric.endswith(LEFT_OUT):
        return False
    return scope == "case" or (scope.startswith("kernel ") and kernels > 1)


def _figures(record: Record) -> tuple[Figures, ...]:
    """By collector, protocol and scope; figures of single kernels only where there are several."""
    kernels = len({m.scope for m in record.measurements if m.scope.startswith("kernel ")})
    found: dict[str, list[tuple[str, str, str]]] = {}
    for measurement in record.measurements:
        if measurement.value is None or not _listed(measurement, kernels):
            continue
        source = f"{measurement.collector} ({measurement.protocol})" if measurement.protocol else measurement.collector
        source += f", {measurement.scope}" if measurement.scope != "case" else ""
        found.setdefault(source, []).append((measurement.metric, value_text(measurement), _interval(measurement)))
    return tuple(Figures(source, tuple(rows)) for source, rows in found.items())


STYLES = {spec.key: spec.style for spec in SPECS}
"""What the card shows in a style of its own is shown in the same here."""


def _style(measurement: Measurement) -> str | None:
    styled = STYLES.get(measurement.metric)
    return styled if styled not in (None, "count", "text") else UNIT_STYLE.get(measurement.unit)


def value_text(measurement: Measurement) -> str:
    """A measurement with its unit, as people read it."""
    style = _style(measurement)
    text = show(measurement.value, style or "count")
    named = measurement.unit and measurement.unit not in ("text", "count") and text != UNKNOWN
    return f"{text} {measurement.unit}" if style is None and named else text


def _interval(measurement: Measurement) -> str:
    if measurement.low is None or measurement.high is None:
        return ""
    style = _style(measurement) or "count"
    return f"{show(measurement.low, style)} .. {show(measurement.high, style)}"


def _absent(record: Record) -> tuple[tuple[str, str], ...]:
    reasons: dict[str, list[str]] = {}
    for measurement in record.measurements:
        if measurement.value is None and measurement.scope == "case" and not measurement.metric.endswith(LEFT_OUT):
            reasons.setdefault(measurement.absent or "no reason was recorded", []).append(measurement.metric)
    return tuple((", ".join(dict.fromkeys(metrics)), reason) for reason, metrics in reasons.items())


def _costs(record: Record, sources: Sources) -> list[Costs]:
    found = []
    for metric in RANKED:
        every = costly(record, metric, limit=1_000_000)
        total = sum(value for _, value in every)
        rows = []
        for place, value in every[:LINES]:
            name, _, number = own_line(place).rpartition(":")
            text = sources.get((record.case.variant, name), ())
            line = int(number) if number.isdigit() else 0
            quoted = text[line - 1].strip() if 0 < line <= len(text) else ""
            rows.append((place, show(value, "count"), show(value / total, "percent"), quoted))
        if rows:
            found.append(Costs(metric, tuple(rows)))
    return found
