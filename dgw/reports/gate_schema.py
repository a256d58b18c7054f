"""The JSON Schema of a gate's report, made from the nouns that it consists of."""

from __future__ import annotations

import msgspec

from dgw.workbench.gate.verdict import SCHEMA, GateReport


def render() -> str:
    """The schema (draft 2020-12) as JSON text ending in a newline: what docs/gate.schema.json holds."""
    found = msgspec.json.schema(GateReport)
    report = found["$defs"]["GateReport"]
    report["properties"]["schema"] = {"const": SCHEMA}
    report["required"] = ["schema", *report["required"]]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"A report of dgw gate ({SCHEMA})"}
    return msgspec.json.format(msgspec.json.encode({**head, **found}), indent=1).decode() + "\n"
