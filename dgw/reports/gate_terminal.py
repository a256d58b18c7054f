"""A gate's report for a terminal: worst first, the changes of each case below it, and the verdict last."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from dgw.reports.gate_text import about, change_text, place, plain, reported, time_text, verdict, why
from dgw.reports.terminal import NARROWEST, WIDEST, Paint
from dgw.workbench.gate.verdict import GateCase, GateReport

PARAGRAPHS = 40
"""Cases, or groups of cases of which the same is to be said, that are printed."""

_OUTCOMES = {"improved": "ok", "identical": "ok", "unchanged": "ok", "new": "refused", "refused": "refused"}


def render(report: GateReport, width: int = 80, colour: bool = False) -> str:
    """The report as text of at most `width` columns (held between 60 and 200), without a trailing newline."""
    width = max(NARROWEST, min(width, WIDEST))
    paint = Paint(colour)
    lines = [line for name, text in about(report) for line in _wrapped(f"{name:<11} ", text, width)]
    shown = reported(report)
    groups: dict[tuple[str, ...], list[GateCase]] = {}
    for case in shown:
        groups.setdefault(_alike(case), []).append(case)
    for cases in list(groups.values())[:PARAGRAPHS]:
        lines += ["", *_case(cases, width, paint)]
    if left := sum(map(len, list(groups.values())[PARAGRAPHS:])):
        lines += ["", f"{left} more cases are in the JSON report (--report FILE)"]
    told = {case.key for case in shown}
    lines += _quiet([case for case in report.cases if case.key not in told], width)
    lines += [""] if report.notes or report.faults else []
    for name, texts in (("note", report.notes), ("fault", report.faults)):
        lines += [line for text in texts for line in _wrapped(f"{name:<11} ", text, width)]
    bad = any(_OUTCOMES.get(case.status) is None for case in shown) or bool(report.faults)
    last = [paint.outcome(line, "crashed" if bad else "ok") for line in _wrapped("", verdict(report), width)]
    return "\n".join([*lines, "", *last])


def _alike(case: GateCase) -> tuple[str, ...]:
    """Cases with the same of these are shown together: those of which there is nothing to say but why."""
    told = case.changed or case.explanation or case.ratio
    return (case.status, why(case), case.key if told else "")


def _case(cases: Sequence[GateCase], width: int, paint: Paint) -> list[str]:
    case = cases[0]
    title = _wrapped(f"{case.status}  ", case.label, width)
    painted = paint.outcome(case.status, _OUTCOMES.get(case.status, "crashed"))
    found = [f"{painted}  {paint.head(title[0].removeprefix(case.status).strip())}", *map(paint.head, title[1:])]
    if len(cases) > 1:
        found += _wrapped("  and       ", ", ".join(one.label for one in cases[1:]), width)
    timed = time_text(case)
    texts = [
        ("why", why(case)),
        ("time", timed if timed not in why(case) else ""),
        ("at", place(case) if len(cases) == 1 else ""),
    ]
    for name, text in texts:
        found += _wrapped(f"  {name:<9} ", text, width) if text else []
    for name, changes in (
        ("worse", [change for change in case.changed if change.worse and change_text(change) not in why(case)]),
        ("changed", [change for change in case.changed if not change.worse]),
    ):
        found += _wrapped(f"  {name:<9} ", "; ".join(map(change_text, changes)), width) if changes else []
    for number, text in enumerate(case.explanation):
        found += _wrapped(f"  {'' if number else 'because':<9} ", text, width)
    return found


def _quiet(cases: Sequence[GateCase], width: int) -> list[str]:
    """The cases about which there is nothing to say, counted by variant; refusals with their reasons, each once."""
    lines: list[str] = []
    for status in ("unchanged", "identical"):
        counts: dict[str, int] = {}
        for case in cases:
            if case.status == status:
                counts[case.variant or case.label] = counts.get(case.variant or case.label, 0) + 1
        if counts:
            text = ", ".join(f"{variant} ({count})" for variant, count in sorted(counts.items()))
            lines += _wrapped(f"{status:<11} ", text, width)
    refusals: dict[str, int] = {}
    for case in cases:
        if case.status == "refused":
            refusals[why(case)] = refusals.get(why(case), 0) + 1
    for reason, count in refusals.items():
        lines += _wrapped(f"{'refused':<11} ", f"{reason} ({count} {'case' if count == 1 else 'cases'})", width)
    return ["", *lines] if lines else []


def _wrapped(first: str, text: str, width: int) -> list[str]:
    """At least one line, even of nothing."""
    wrapped = textwrap.wrap(
        plain(text), width, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    )
    return wrapped or [first.rstrip()]
