"""What is approved, for a terminal: each file with its cases and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dgw.reports.terminal import Paint, listing
from dgw.reports.units import show
from dgw.workbench.baselines import Approval, BaselineFile
from dgw.workbench.gate.figures import FIGURES

COLUMNS = ("registers_per_thread", "shared_mem_per_block", "theoretical_occupancy", "inst_executed")
CONFLICTS = tuple(key for key in FIGURES if key.startswith("smem_bank_conflicts"))
SPILLS = ("spill_store_bytes", "spill_load_bytes")


def render(files: Sequence[BaselineFile], width: int = 80, colour: bool = False) -> str:
    """All files, one after another, without a trailing newline."""
    return "\n\n".join(_file(file, width, colour) for file in files)


def _file(file: BaselineFile, width: int, colour: bool) -> str:
    title = f"{file.family} on {file.arch}, {file.compiler}: {len(file.cases)} cases"
    head = ("device", "regs", "shared", "occupancy", "instructions", "conflicts", "spilled", "case")
    rows = []
    for approved in file.cases.values():
        figures = approved.facts.figures
        styles = ("count", "bytes", "percent", "count")
        cells = [show(figures.get(key), style) for key, style in zip(COLUMNS, styles, strict=True)]
        sums = [show(_sum(figures, CONFLICTS), "count"), show(_sum(figures, SPILLS), "bytes")]
        rows.append([approved.facts.device, *cells, *sums, approved.facts.label])
    entries = [
        (str(number), entry.approved, str(len(entry.changes)), _reason(entry))
        for number, entry in enumerate(file.history)
    ]
    return "\n\n".join(
        [
            Paint(colour).head(title),
            listing(head, rows, width, colour),
            listing(("nr", "approved", "cases", "reason"), entries, width, colour),
        ]
    )


def _sum(figures: Mapping[str, float], keys: Sequence[str]) -> float | None:
    """Of figures of one kind; None where one of them is unknown."""
    return sum(figures[key] for key in keys) if all(key in figures for key in keys) else None


def _reason(entry: Approval) -> str:
    return f"{entry.reason} (until {entry.until})" if entry.until else entry.reason
