"""A gate's report as workflow commands of GitHub Actions, which show beside the lines of a pull request.

GitHub keeps ten annotations of a kind from one step and drops the others without a word, so the tenth counts the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from dgw.reports.gate_text import noteworthy, verdict, why
from dgw.workbench.gate.verdict import GateCase, GateReport

MOST = 10
_KINDS = {"improved": "notice", "new": "notice", "inconclusive": "warning"}
LONGEST = 1000


def render(report: GateReport) -> str:
    """One command a line, ending in a newline; empty where there is nothing to say."""
    shown = noteworthy(report)
    lines = [_command("error", f"dgw gate: {fault}") for fault in report.faults[: MOST - 1]]
    for kind in ("error", "warning", "notice"):
        cases = [case for case in shown if _KINDS.get(case.status, "error") == kind]
        room = MOST - (len(lines) if kind == "error" else 0)
        lines += _limited(kind, cases, room, verdict(report))
    return "\n".join([*lines, ""]) if lines else ""


def _limited(kind: str, cases: Sequence[GateCase], room: int, whole: str) -> list[str]:
    if len(cases) <= room:
        return [_annotation(kind, case) for case in cases]
    kept = cases[: room - 1]
    return [*(_annotation(kind, case) for case in kept), _command(kind, f"{len(cases) - len(kept)} more: {whole}")]


def _annotation(kind: str, case: GateCase) -> str:
    place = {"file": case.source, "line": str(case.line or 1)} if case.source else {}
    return _command(kind, why(case), **place, title=f"{case.label}: {case.status}")


def _command(kind: str, text: str, **properties: str) -> str:
    given = ",".join(f"{name}={_property(setting)}" for name, setting in properties.items())
    return f"::{kind}{f' {given}' if given else ''}::{_data(text[:LONGEST])}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
