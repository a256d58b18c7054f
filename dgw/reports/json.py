"""Runs and plain values as JSON text: what `--json` prints."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dgw.model import Finding, Run
from dgw.workbench.store.exchange import export_run


def render(value: object, findings: Sequence[Finding] = ()) -> str:
    """`value` as indented JSON ending in a newline; a Run in the form that `dgw import` reads, findings beside it."""
    if isinstance(value, Run) and not findings:
        return export_run(value).decode()
    if isinstance(value, Run):
        value = {**msgspec.json.decode(export_run(value)), "findings": msgspec.to_builtins(findings)}
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"
