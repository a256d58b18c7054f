"""The second reader: CSV of `ncu --csv`, raw page (one row a kernel) or details page (one row a metric).

Both may follow output of the program and be followed by a list of kernels; units may be scaled (Kbyte, us) when
`--print-units base` was not given, numbers may have thousands separators, and names of kernels hold commas.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dgw.errors import ReportError
from dgw.workbench.collectors.ncu_command import DOMAIN
from dgw.workbench.collectors.ncu_reader import KernelCounters, Value
from dgw.workbench.collectors.ncu_units import parse_number

_RANGE = re.compile(rf"(?:^|[\s\"]){DOMAIN}:([^:\"]+)")
_HEADER = re.compile(r'"?ID"?,')
_CYCLES, _ACTIVE, _ELAPSED = "gpc__cycles_elapsed", "pct_of_peak_sustained_active", "pct_of_peak_sustained_elapsed"

LABELS: Mapping[str, str] = {
    "Duration": "gpu__time_duration.sum",
    "SM Frequency": f"{_CYCLES}.avg.per_second",
    "Elapsed Cycles": f"{_CYCLES}.max",
    "SM Active Cycles": "sm__cycles_active.avg",
    "Achieved Occupancy": f"sm__warps_active.avg.{_ACTIVE}",
    "Achieved Active Warps Per SM": "sm__warps_active.avg.per_cycle_active",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Block Limit Registers": "launch__occupancy_limit_registers",
    "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
    "Block Limit Warps": "launch__occupancy_limit_warps",
    "Block Limit SM": "launch__occupancy_limit_blocks",
    "Block Limit Barriers": "launch__occupancy_limit_barriers",
    "Registers Per Thread": "launch__registers_per_thread",
    "Block Size": "launch__block_size",
    "Grid Size": "launch__grid_size",
    "Cluster Size": "launch__cluster_size",
    "Waves Per SM": "launch__waves_per_multiprocessor",
    "Compute (SM) Throughput": f"sm__throughput.avg.{_ELAPSED}",
    "Memory Throughput": f"gpu__compute_memory_throughput.avg.{_ELAPSED}",
    "DRAM Throughput": f"gpu__dram_throughput.avg.{_ELAPSED}",
    "L1/TEX Cache Throughput": f"l1tex__throughput.avg.{_ACTIVE}",
    "L2 Cache Throughput": f"lts__throughput.avg.{_ELAPSED}",
    "L1/TEX Hit Rate": "l1tex__t_sector_hit_rate.pct",
    "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
    "Executed Instructions": "smsp__inst_executed.sum",
    "Executed Ipc Active": "sm__inst_executed.avg.per_cycle_active",
}
"""What the details page calls the counters of the table. `Memory Throughput` is also a rate; its unit tells which."""


def read_csv(text: str | Path) -> list[KernelCounters]:
    """The kernels in CSV of ncu, in order; ReportError when there is no header of ncu in it."""
    if isinstance(text, Path):
        text = text.read_text(encoding="utf-8", errors="replace")
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if _HEADER.match(line)), None)
    if start is None:
        raise ReportError(
            'this is not CSV of ncu: no line begins with "ID"', "export it with ncu -i X --csv --page raw"
        )
    rows = csv.reader(lines[start:])
    header = next(rows)
    if "Metric Name" in header:
        return _details(header, rows)
    return _raw(header, rows)


def holds_csv(path: Path) -> bool:
    """Whether a file is CSV of ncu, or at least what ncu said in its place."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return any(_HEADER.match(line) or line.startswith("==") for line in text.splitlines())


def _raw(header: list[str], rows: Iterable[list[str]]) -> list[KernelCounters]:
    kernels, units = [], dict.fromkeys(header, "")
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        if not cells.get("ID", "").strip():
            units = cells
        elif cells["ID"].strip().isdigit():
            values = dict(_cells(cells))
            named = {name: units.get(name, "") for name in values}
            kernels.append(KernelCounters(_key(cells), cells.get("Kernel Name", ""), values, named))
        else:
            break
    return kernels


def _cells(cells: Mapping[str, str]) -> Iterator[tuple[str, Value]]:
    for name, cell in cells.items():
        if "__" in name or name.startswith("memory_"):
            value = _value(cell)
            if value is not None:
                yield name, value


def _value(cell: str) -> Value | None:
    try:
        return parse_number(cell)
    except ValueError:
        return cell


def _key(cells: Mapping[str, str]) -> str:
    for name, cell in cells.items():
        if "Range:" in name:
            found = _RANGE.findall(cell)
            if found:
                return str(found[-1])
    return ""


def _details(header: list[str], rows: Iterable[list[str]]) -> list[KernelCounters]:
    first: dict[str, dict[str, str]] = {}
    values: dict[str, dict[str, Value]] = {}
    units: dict[str, dict[str, str]] = {}
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        number = cells.get("ID", "").strip()
        if not number.isdigit():
            break
        first.setdefault(number, cells)
        values.setdefault(number, {})
        units.setdefault(number, {})
        label, unit = cells.get("Metric Name", ""), cells.get("Metric Unit", "")
        value = _value(cells.get("Metric Value", ""))
        if label and value is not None:
            name = _name(label, unit)
            values[number][name] = value
            units[number][name] = unit
    return [
        KernelCounters(_key(cells), cells.get("Kernel Name", ""), values[number], units[number])
        for number, cells in first.items()
    ]


def _name(label: str, unit: str) -> str:
    if label == "Memory Throughput" and unit != "%":
        return "dram__bytes.sum.per_second"
    return LABELS.get(label, label)
