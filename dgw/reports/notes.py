"""What stands below a table, in sentences: reasons for unknown values, failures, flags and the sources of numbers."""

from __future__ import annotations

from collections.abc import Iterable

from dgw.model import Record
from dgw.reports.tables import Block, config_text
from dgw.reports.units import show


def _joined(labels: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(labels))


def unknown(block: Block) -> list[str]:
    """One sentence for every reason: which lines it leaves unknown, and in which columns if not in all."""
    reasons: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for line in (*block.lines, *block.hidden):
        here: dict[str, list[str]] = {}
        for column, cell in zip(block.columns, line.cells, strict=True):
            if cell.value is None and cell.absent:
                here.setdefault(cell.absent, []).append(column.title)
        for reason, columns in here.items():
            reasons.setdefault((reason, tuple(columns)), []).append(line.label.strip())
    sentences = []
    for (reason, titles), labels in reasons.items():
        where = "" if len(titles) == len(block.columns) else f" of {_joined(titles)}"
        sentences.append(f"{_joined(labels)}{where}: {reason}")
    return sentences


def failures(block: Block) -> list[str]:
    """Title, outcome and reason of every column that did not end well."""
    return [
        f"{column.title}: {column.record.outcome}: {failure_text(column.record)}"
        for column in block.columns
        if column.record.outcome != "ok"
    ]


def failure_text(record: Record) -> str:
    """Why a record did not end well, in one line."""
    detail = record.check.detail if record.check is not None and not record.check.passed else ""
    text = record.reason or detail or "no reason was recorded"
    return " ".join(text.split())


def flags(block: Block) -> list[str]:
    """What is implausible or noteworthy, per column."""
    return [f"{column.title}: {flag}" for column in block.columns for flag in column.record.flags]


def defects(block: Block) -> list[str]:
    """What sanitizers found, per column."""
    return [f"{column.title}: {found.sentence}" for column in block.columns for found in column.record.defects]


def configs(block: Block) -> list[str]:
    """The config of every column that has one."""
    return [f"{c.title}: {config_text(c.record.case.config)}" for c in block.columns if c.record.case.config]


def sources(block: Block) -> list[str]:
    """Which lines come from which collector under which protocol."""
    found: dict[str, list[str]] = {}
    for line in block.lines:
        for source in dict.fromkeys(cell.source for cell in line.cells if cell.source):
            found.setdefault(source, []).append(line.group if line.key != "error_of_bound" else "check")
    return [f"{_joined(groups)}: {source}" for source, groups in found.items()]


STATIC = ("registers_per_thread", "theoretical_occupancy", "shared_mem_per_block", "spill_store_bytes")


def launches(block: Block) -> list[str]:
    """Of which of several launches the static figures of a column are, and what those of the others are."""
    return [f"{column.title}: {said}" for column in block.columns if (said := _of_launches(column.record))]


def _of_launches(record: Record) -> str:
    plan, registers = record.plan, record.get(STATIC[0])
    if plan is None or len(plan.launches) < 2 or registers is None or registers.collector != "static":
        return ""
    found = {(m.scope, m.metric): m.value for m in record.measurements if m.collector == "static"}
    told = []
    for number, launch in enumerate(plan.launches):
        values = [found.get((f"kernel {number}", metric)) for metric in STATIC]
        if number == plan.largest or any(value is None for value in values):
            continue
        count, share, shared, spilled = values
        told.append(
            f"{launch.entry} has {count} registers, occupancy {show(share, 'percent')}, {show(shared, 'bytes')} of "
            f"shared memory, {show(spilled, 'bytes')} spilled"
        )
    return (
        f"occupancy, registers, shared memory and spills are those of {plan.launches[plan.largest].entry}, the largest "
        f"of {len(plan.launches)} launches; {'; '.join(told)}"
    ).removesuffix("; ")


SECTIONS = (
    ("not ok", failures),
    ("defects", defects),
    ("noteworthy", flags),
    ("unknown", unknown),
    ("config", configs),
    ("launches", launches),
    ("sources", sources),
)
"""Headings and builders of the notes below a block, in the order shown."""
