"""A gate's report as JUnit XML: a suite for every family, a test case for every comparison."""

from __future__ import annotations

import re
from typing import Any

from dgw.errors import Exit
from dgw.reports.gate_text import change_text, place, ratio_text, time_text, verdict, why
from dgw.workbench.gate.verdict import GateCase, GateReport, exit_code

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_RESULTS = {
    "regressed": "Failure", "wrong": "Failure", "failed": "Error", "inconclusive": "Skipped", "identical": "Skipped",
    "not-comparable": "Skipped", "missing": "Skipped", "new": "Skipped", "refused": "Skipped",
}  # fmt: skip
"""Status -> the element that says so; other statuses are passed tests."""


def render(report: GateReport) -> str:
    """The XML. The gate as a whole has a case too, because it can fail without one of its own (nothing compared)."""
    from junitparser import JUnitXml, TestSuite

    xml = JUnitXml(name=f"dgw gate ({report.gate})")
    for family in dict.fromkeys(case.family or "cases" for case in report.worst_first):
        suite = TestSuite(family)
        suite.timestamp = report.created
        for case in report.worst_first:
            if (case.family or "cases") == family:
                suite.add_testcase(_case(case))
        xml.add_testsuite(suite)
    xml.add_testsuite(_whole(report))
    return str(xml.tostring().decode())


def _case(case: GateCase) -> Any:
    import junitparser

    found = junitparser.TestCase(_clean(case.label), classname=_clean(case.variant or "dgw"))
    properties = junitparser.Properties()
    for name, text in _properties(case).items():
        properties.add_property(junitparser.Property(name, _clean(text)))
    found.append(properties)
    if kind := _RESULTS.get(case.status):
        result = getattr(junitparser, kind)(_clean(f"{case.status}: {why(case)}"), case.status)
        result.text = _clean("\n".join([*map(change_text, case.changed), *case.explanation]))
        found.result = [result]
    return found


def _properties(case: GateCase) -> dict[str, str]:
    known = {
        "status": case.status, "key": case.key, "stage": case.stage, "time": time_text(case),
        "ratio": "" if case.ratio is None else ratio_text(case.ratio), "pairs": str(case.pairs or ""),
        "mde": "" if case.mde is None else f"{case.mde:.4f}",
        "p_adjusted": "" if case.p_adjusted is None else f"{case.p_adjusted:.4g}",
        "source": place(case),
    }  # fmt: skip
    return {name: text for name, text in known.items() if text}


def _whole(report: GateReport) -> Any:
    """A suite of one case: the gate itself."""
    import junitparser

    suite = junitparser.TestSuite("gate")
    suite.timestamp = report.created
    case = junitparser.TestCase("the gate as a whole", classname="dgw.gate")
    code = exit_code(report)
    text = _clean("; ".join([verdict(report), *report.faults]))
    if code in (Exit.NOT_COMPARABLE, Exit.FAULT, Exit.MISSING, Exit.INTERRUPTED, Exit.USAGE):
        case.result = [junitparser.Error(text, code.name.lower().replace("_", "-"))]
    elif code is Exit.WRONG:
        case.result = [junitparser.Failure(text, "regressed")]
    elif code is Exit.INCONCLUSIVE:
        case.result = [junitparser.Skipped(text, "inconclusive")]
    if report.seconds is not None:
        case.time = round(report.seconds, 3)
    case.system_out = text
    suite.add_testcase(case)
    return suite


def _clean(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _NOT_XML.sub("\ufffd", text)
