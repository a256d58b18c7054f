"""Runs and plain values as JSON text: what `--json` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dgw.model import Case, Evidence, Finding, Record, Run, Step
from dgw.workbench.store.exchange import export_run


def render(value: object, findings: Sequence[Finding] = ()) -> str:
    """`value` as indented JSON ending in a newline; a Run in the form that `dgw import` reads, findings beside it."""
    if isinstance(value, Run) and not findings:
        return export_run(value).decode()
    if isinstance(value, Run):
        value = {**msgspec.json.decode(export_run(value)), "findings": msgspec.to_builtins(findings)}
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"


def findings(found: Iterable[Finding], record: Record | None) -> list[dict[str, Any]]:
    """Findings with every field, so that a reader needs to know no default; `tier` says how exact a figure of `record`
    is, empty where its collector names none or the figure is none of the record's."""
    return [{**msgspec.structs.asdict(one), "evidence": _evidence(one.evidence, record)} for one in found]


def walk(case: Case, sequence: str, steps: Iterable[Step], records: Iterable[Record]) -> dict[str, Any]:
    """The steps of a walk from `case` with every field, those of their findings too. `records`: what it measured."""
    known = [(r, (r.case.problem, r.case.variant, r.case.config)) for r in records]

    def told(step: Step) -> dict[str, Any]:
        asked = (case.problem, step.variant, step.config)
        record = next((one for one, of in known if of == asked), None)
        fields = msgspec.structs.asdict(step)
        return fields | {
            "evidence": _evidence(step.evidence, record), "findings": findings(step.findings, record)
        }  # fmt: skip

    return {"case": case, "sequence": sequence, "steps": [told(step) for step in steps]}


def _evidence(seen: Iterable[Evidence], record: Record | None) -> list[dict[str, Any]]:
    tiers = {} if record is None else {one.metric: one.tier for one in record.measurements if one.scope == "case"}
    return [{**msgspec.structs.asdict(one), "tier": tiers.get(one.metric, "")} for one in seen]
