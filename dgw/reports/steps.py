"""Steps of a sequence, and causes with their evidence, as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

from dgw.model import Evidence, Finding, Step
from dgw.reports.terminal import Paint, wrapped
from dgw.reports.units import UNIT_STYLE, percent, plain, show
from dgw.workbench.metrics import METRICS

MOST_EVIDENCE = 6
_STYLE = {"high": "wrong", "medium": "", "low": "refused"}


def step(done: Step, width: int = 100, colour: bool = False) -> str:
    """One step: its figures, what was found with evidence, what was tried, and the decision with its reason."""
    paint = Paint(colour)
    lines = [paint.head(done.title)]
    for sentence in done.seen:
        lines += wrapped(sentence, width, "  ", "    ")
    if done.evidence:
        lines += [paint.quiet(line) for line in wrapped(", ".join(figures(done.evidence)), width, "  ", "    ")]
    for finding in done.findings:
        lines += cause(finding, width, paint)
    lines += wrapped(f"{done.decision}: {done.why}", width, "  => ", "     ")
    return "\n".join(lines) + "\n"


def causes(heading: str, findings: Sequence[Finding], width: int = 100, colour: bool = False, first: str = "") -> str:
    """The findings on one case, the costliest first, below what is said `first` of them all."""
    paint = Paint(colour)
    lines = [paint.head(heading), *(wrapped(first, width, "  ", "    ") if first else ())]
    for finding in findings:
        lines += cause(finding, width, paint)
    return "\n".join(lines) + "\n"


def cause(finding: Finding, width: int, paint: Paint) -> list[str]:
    """One finding: verdict, what it costs, how sure that is, evidence, next step."""
    about = "" if finding.cost is None else f"costs about {percent(round(finding.cost, 2))} of the time, "
    first, *rest = wrapped(finding.verdict, width, "  * ", "    ")
    style = _STYLE[finding.confidence]
    lines = [paint.outcome(first, style) if style else first, *rest]
    told = f"{about}confidence {finding.confidence}; {', '.join(figures(finding.evidence[:MOST_EVIDENCE]))}"
    lines += [paint.quiet(line) for line in wrapped(told.rstrip("; "), width, "    ", "    ")]
    if finding.next_step:
        lines += wrapped(f"try: {finding.next_step}", width, "    ", "      ")
    return lines


def figures(evidence: Iterable[Evidence]) -> list[str]:
    """Each observation with what it is compared with."""
    return [_figure(one) for one in evidence if one.value is not None]


def _figure(one: Evidence) -> str:
    against = "" if one.threshold is None else f" against {_text(one.metric, one.threshold)}"
    why = f" ({one.why})" if one.why else ""
    return f"{one.metric} {_text(one.metric, one.value)}{against}{why}"


def _text(metric: str, value: float | int | str | None) -> str:
    known = METRICS.get(metric)
    style = UNIT_STYLE.get(known.unit) if known is not None else None
    if style is not None:
        return show(value, style)
    return plain(value) if isinstance(value, int | float) and isfinite(value) else show(value, "text")
