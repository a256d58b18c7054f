"""What every form of a gate's report says in words: changes, ratios, verdicts, and what was compared."""

from __future__ import annotations

from dgw.reports.tables import SPECS
from dgw.reports.units import UNIT_STYLE, percent, show
from dgw.workbench.gate.figures import FIGURES
from dgw.workbench.gate.verdict import Change, GateCase, GateReport, Ratio, Side, sentence
from dgw.workbench.locked_clock import at, locked_at

_LABELS = {spec.key: spec.label for spec in SPECS}


def plain(text: str) -> str:
    """Text on one line without what a terminal would obey."""
    return " ".join("".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in text).split())


def label(metric: str) -> str:
    """What people call a metric."""
    figure = FIGURES.get(metric)
    return figure.label if figure else _LABELS.get(metric, metric.replace("_", " ")).strip()


def value(change: Change, side: str) -> str:
    """One side (`base` or `head`) of a change; `unknown` where it has none."""
    found = change.base if side == "base" else change.head
    return "unknown" if found is None else show(found, UNIT_STYLE.get(change.unit, "count"))


def change_text(change: Change) -> str:
    """A change in a few words: `registers per thread 40 -> 48`."""
    where = "" if change.scope == "case" else f" ({change.scope})"
    return f"{label(change.metric)}{where} {value(change, 'base')} -> {value(change, 'head')}"


def ratio_text(ratio: Ratio) -> str:
    """Time of head over time of base as a difference with its interval: `+2.10 % (+1.50 .. +2.70)`."""
    ends = [f"{100 * (end - 1):+.2f}" for end in (ratio.value, ratio.low, ratio.high)]
    return f"{ends[0]} % ({ends[1]} .. {ends[2]})"


def time_text(case: GateCase) -> str:
    """The times of both sides and their ratio; empty where the case was not timed."""
    if case.ratio is None:
        return ""
    times = [show(seconds, "seconds") for seconds in (case.time_base, case.time_head) if seconds is not None]
    return f"{' -> '.join(times)} {ratio_text(case.ratio)}".strip()


def why(case: GateCase) -> str:
    """Why a case has its status, in one sentence; what was measured where nothing else is said."""
    if case.reasons:
        return "; ".join(case.reasons)
    return time_text(case) or "; ".join(change_text(change) for change in case.changed) or case.status


def place(case: GateCase) -> str:
    """The file of a case's kernel, with the line that matters where there is one; empty where it is not known."""
    return f"{case.source}:{case.line}" if case.source and case.line else case.source


def side_text(side: Side) -> str:
    """What one side is: label, kind, version and commit."""
    extra = [part for part in (side.version, side.commit[:12], side.digest[:12]) if part and part not in side.label]
    return f"{side.label} ({side.kind}{', ' + ', '.join(extra) if extra else ''})"


def about(report: GateReport) -> list[tuple[str, str]]:
    """What was compared and how, as names and texts; what is empty is left out."""
    tally = report.self_test
    mean = report.geometric_mean
    clock = f"SM clock locked{at(hertz)}" if (hertz := locked_at(report.protocol)) else ""
    machine = ", ".join(filter(None, (" ".join(filter(None, (report.device, report.toolchain))), clock)))
    found = [
        ("gate", f"{report.gate}{f', suite {report.suite}' if report.suite else ''}"),
        ("machine", machine),
        ("base", side_text(report.base)),
        ("head", side_text(report.head)),
        ("all shapes", "" if mean is None else f"{mean.status}: {ratio_text(mean.ratio)}, floor {percent(mean.floor)}"),
        (
            "A/A runs",
            ""
            if tally is None
            else f"{tally.false_fails} of {tally.runs} failed, {tally.inconclusive} inconclusive; "
            f"true rate at most {percent(tally.upper_bound)}",
        ),
        ("policy", ", ".join(f"{name} {setting}" for name, setting in report.policy.items())),
        ("length", show(report.seconds, "seconds") if report.seconds is not None else ""),
    ]
    return [(name, text) for name, text in found if text]


def verdict(report: GateReport) -> str:
    """The counts and the exit code in one line."""
    return sentence(report)


def noteworthy(report: GateReport) -> list[GateCase]:
    """The cases that somebody has to look at, worst first."""
    return [case for case in report.worst_first if case.status not in ("identical", "unchanged", "refused")]


def reported(report: GateReport) -> list[GateCase]:
    """The same, and cases that fail nothing although something that was counted changed."""
    told = [case for case in report.worst_first if case.status == "unchanged" and case.changed]
    return [*noteworthy(report), *told]
