"""Counters of Nsight Compute as measurements: per kernel (`kernel i`) and of the whole case (`case`).

The pieces: :mod:`ncu_command` (how ncu is run), :mod:`ncu_reader` and :mod:`ncu_csv` (what it wrote), :mod:`ncu_errors`
(what went wrong), :mod:`ncu_combine` (several kernels together, derived ratios). Their public names are here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dgw.model import Measurement
from dgw.workbench.collectors.ncu_combine import Counted, conflict_ratio, of_case, of_kernel
from dgw.workbench.collectors.ncu_command import DOMAIN, PROTOCOL, ncu_command, ncu_environment, page_command
from dgw.workbench.collectors.ncu_csv import read_csv
from dgw.workbench.collectors.ncu_errors import NcuProblem, absent_names, diagnose, recognise
from dgw.workbench.collectors.ncu_reader import (
    STALL_SAMPLES,
    Instance,
    KernelCounters,
    damage,
    load_reader,
    read_kernels,
    read_report,
)
from dgw.workbench.metrics import NOT_A_TIME, Absent, Metric, absence, with_inputs

__all__ = [
    "DOMAIN", "PROTOCOL", "Counted", "Instance", "KernelCounters", "NcuProblem", "absent_names", "conflict_ratio",
    "damage", "diagnose", "line_measurements", "load_reader", "measurements", "ncu_command", "ncu_environment",
    "page_command", "read_csv", "read_kernels", "read_report", "recognise",
]  # fmt: skip

COLLECTOR = "ncu"
_BY_LINE = {
    "memory_l1_wavefronts_shared": "smem_wavefronts_actual",
    "memory_l1_wavefronts_shared_ideal": "smem_wavefronts_ideal",
}


def measurements(
    kernels: Sequence[KernelCounters],
    metrics: Iterable[Metric],
    arch: str,
    *,
    reason: str = "",
    protocol: str = PROTOCOL,
) -> tuple[Measurement, ...]:
    """What ncu can say of `metrics`, per kernel and for the case; absent with the reason where it cannot.

    `reason` explains why there are no kernels (or why some counters are missing), such as the cause of an NcuProblem.
    Metrics that no report of ncu holds are left out, and so is the duration under ncu, which is never a time.
    """
    wanted = [metric for metric in metrics if metric.from_ncu and metric.key != NOT_A_TIME]
    if not kernels:
        why = reason or "no kernel of this case was profiled"
        return tuple(_absent(metric, absence(metric, arch) or why, protocol) for metric in wanted)
    needed = with_inputs(wanted)
    each = [of_kernel(kernel, needed, arch) for kernel in kernels]
    whole = of_case(each, needed, arch)
    found = list(_scope(whole, wanted, "case", protocol, reason))
    for number, counted in enumerate(each):
        found += [m for m in _scope(counted, wanted, f"kernel {number}", protocol, reason) if not m.absent]
    if any(metric.key == "inst_per_opcode" for metric in wanted):
        found += _opcodes(whole, protocol)
    return tuple(found)


def _absent(metric: Metric, reason: str, protocol: str) -> Measurement:
    return Measurement(
        metric=metric.key, unit=metric.unit, collector=COLLECTOR, protocol=protocol, absent=reason, tier=metric.tier
    )


def _scope(
    counted: Counted, metrics: Iterable[Metric], scope: str, protocol: str, reason: str
) -> Iterator[Measurement]:
    for metric in metrics:
        value = counted.values[metric.key]
        if isinstance(value, Absent):
            lost = value.reason.startswith("ncu did not collect") and reason
            yield _absent(metric, f"{value.reason}: {reason}" if lost else value.reason, protocol)
            continue
        yield Measurement(
            metric=metric.key,
            value=value,
            unit=metric.unit,
            scope=scope,
            collector=COLLECTOR,
            protocol=protocol,
            tier=metric.tier,
        )


def _opcodes(counted: Counted, protocol: str) -> list[Measurement]:
    totals: dict[str, float] = {}
    for part in counted.instances.get("sass__inst_executed_per_opcode", ()):
        totals[part.opcode] = totals.get(part.opcode, 0.0) + part.value
    return [
        Measurement(
            metric="inst_per_opcode",
            value=int(count),
            unit="inst",
            scope=f"opcode {opcode}",
            collector=COLLECTOR,
            protocol=protocol,
            tier="sass",
        )
        for opcode, count in sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    ]


def line_measurements(kernels: Iterable[KernelCounters], protocol: str = PROTOCOL) -> tuple[Measurement, ...]:
    """Counters by source line (scope `line FILE:N`): wavefronts of shared memory, and samples of stalled warps.

    Of a line with samples, `stall_samples` counts all but those of warps that could issue, and `stall_reason` names the
    commonest one.
    """
    counts: dict[tuple[str, str], float] = {}
    reasons: dict[str, dict[str, float]] = {}
    for kernel in kernels:
        for name, parts in kernel.instances.items():
            stall = name.removeprefix(STALL_SAMPLES) if name.startswith(STALL_SAMPLES) else ""
            if stall in ("selected", "not_selected") or stall.endswith("_not_issued"):
                continue
            for part in (part for part in parts if part.place):
                key = "stall_samples" if stall else _BY_LINE.get(name, "")
                if key:
                    counts[part.place, key] = counts.get((part.place, key), 0.0) + part.value
                if stall:
                    here = reasons.setdefault(part.place, {})
                    here[stall] = here.get(stall, 0.0) + part.value
    found = [_line(place, key, int(count), protocol) for (place, key), count in sorted(counts.items())]
    for place, here in sorted(reasons.items()):
        found.append(_line(place, "stall_reason", max(sorted(here), key=lambda name: here[name]), protocol))
    return tuple(found)


def _line(place: str, key: str, value: int | str, protocol: str) -> Measurement:
    unit = {"stall_samples": "sample", "stall_reason": "text"}.get(key, "wavefront")
    tier = "hardware" if key.startswith("stall") else "sass"
    return Measurement(
        metric=key, value=value, unit=unit, scope=f"line {place}", collector=COLLECTOR, protocol=protocol, tier=tier
    )
