"""Blocks as CSV: one row per case, values in base units, so that a spreadsheet can calculate with them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from dgw.reports.notes import failure_text
from dgw.reports.tables import SPECS, Block, config_text

IDENTITY = (
    "case", "variant", "config", "shape", "a", "b", "d", "layout", "data", "seed", "device", "engine", "outcome",
    "reason",
)  # fmt: skip
_UNIT = {
    "seconds": "s", "energy": "J", "bytes": "B", "bandwidth": "B/s", "frequency": "Hz", "rate": "FLOP/s",
    "work": "FLOP", "percent": "ratio", "times": "ratio", "power": "W",
}  # fmt: skip


def _heading(key: str, style: str) -> str:
    return f"{key} [{_UNIT[style]}]" if style in _UNIT else key


def safe(value: object) -> object:
    """Text that starts like a formula is quoted, because spreadsheets execute it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def render(blocks: Sequence[Block]) -> str:
    """One heading row, then one row per case; an unknown value is an empty field, never 0."""
    specs = [spec for spec in SPECS if spec.key != "outcome"]
    head = [*IDENTITY]
    for spec in specs:
        name = _heading(spec.key, spec.style)
        head += [name, f"{spec.key} low", f"{spec.key} high"] if spec.style in ("seconds", "times") else [name]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for block in blocks:
        problem = block.problem
        for index, column in enumerate(block.columns):
            record = column.record
            row: list[object] = [
                record.case.key, record.case.variant, config_text(record.case.config), problem.shape,
                problem.a.dtype, problem.b.dtype, problem.d.dtype, problem.layout, problem.data, problem.seed,
                record.environment.device, record.environment.engine, record.outcome,
                failure_text(record) if record.outcome != "ok" else "",
            ]  # fmt: skip
            for spec in specs:
                line = block.line(spec.key)
                cell = line.cells[index] if line is not None else None
                row.append(None if cell is None else cell.value)
                if spec.style in ("seconds", "times"):
                    row += [None, None] if cell is None else [cell.low, cell.high]
            writer.writerow([safe(value) for value in row])
    return out.getvalue()
