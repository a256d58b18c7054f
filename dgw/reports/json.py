"""Runs and plain values as JSON text: what `--json` prints."""

from __future__ import annotations

import msgspec

from dgw.model import Run
from dgw.workbench.store.exchange import export_run


def render(value: object) -> str:
    """`value` as indented JSON ending in a newline; a Run in the form that `dgw import` reads."""
    if isinstance(value, Run):
        return export_run(value).decode()
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"
