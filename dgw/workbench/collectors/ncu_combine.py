"""Values of one kernel, of several kernels together, and of what is derived from them.

Counts add up. A ratio is derived again from summed numerators and denominators: numerator = value x denominator, and
the metric table names the denominator (`weight`). What cannot be had is an :class:`~dgw.workbench.metrics.Absent`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dgw.workbench.collectors.ncu_reader import Instance, KernelCounters, Value
from dgw.workbench.collectors.ncu_units import to_base
from dgw.workbench.metrics import METRICS, Absent, Metric, absence, counter_name

Found = Value | Absent

NO_ACCESS = "no shared-memory"
"""How the reason begins where a kernel makes no accesses of a kind, and has no conflicts of it therefore."""
_LOADS, _STORES = ("LDS", "LDSM"), ("STS", "STSM")
_SASS_COUNTERS = {"ld": ("smem_wavefronts_sass_ld", "smem_wavefronts_sass_ldsm"),
                  "st": ("smem_wavefronts_sass_st", "smem_wavefronts_sass_stsm")}  # fmt: skip
PER_OPCODE = "sass__inst_executed_per_opcode"
MATRIX_OPCODE = re.compile(r"(UTC)?[BDHIOQ]G?MMA")
"""mma.sync (HMMA, IMMA, QMMA, DMMA ...), wgmma (HGMMA ...), tcgen05 (UTCHMMA ...)."""
_STALLS = tuple(key for key in METRICS if key.startswith("stall_") and key.endswith("_per_issue"))


@dataclass(frozen=True)
class Counted:
    """Metric key -> value in base units, or why there is none, and the parts by instruction (counter -> instances)."""

    values: Mapping[str, Found]
    instances: Mapping[str, tuple[Instance, ...]] = field(default_factory=dict)

    def number(self, key: str) -> float | None:
        """The value of `key` when it is a number."""
        found = self.values.get(key)
        return None if found is None or isinstance(found, Absent | str) else float(found)


def of_kernel(kernel: KernelCounters, metrics: Iterable[Metric], arch: str) -> Counted:
    """The values of one kernel for `metrics` (their inputs and weights included), derived ones too."""
    metrics = list(metrics)
    values: dict[str, Found] = {m.key: _direct(kernel, m, arch) for m in metrics if m.combine != "derived" and m.names}
    return _derive(Counted(values, kernel.instances), metrics, arch)


def _direct(kernel: KernelCounters, metric: Metric, arch: str) -> Found:
    name = counter_name(metric, arch)
    if isinstance(name, Absent):
        return name
    if name.startswith("group:"):
        return _samples(kernel)
    value = kernel.values.get(name)
    if value is None:
        return Absent(f"ncu did not collect {name} on this GPU")
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return Absent(f"ncu gave no number for {name}")
    scaled = to_base(value, kernel.units.get(name, ""), metric.ncu_unit)
    return value if scaled == value else scaled


def _samples(kernel: KernelCounters) -> Found:
    counts = [v for name, v in kernel.values.items() if "pcsamp_warps_issue_stalled" in name and not isinstance(v, str)]
    return sum(counts) if counts else Absent("ncu took no samples of stalled warps")


def of_case(kernels: Sequence[Counted], metrics: Iterable[Metric], arch: str) -> Counted:
    """The values of all kernels of a case together; one kernel is its own case."""
    if len(kernels) == 1:
        return kernels[0]
    metrics = list(metrics)
    values = {m.key: _together(kernels, m) for m in metrics if m.combine != "derived" and m.names}
    instances: dict[str, tuple[Instance, ...]] = {}
    for kernel in kernels:
        for name, parts in kernel.instances.items():
            instances[name] = instances.get(name, ()) + parts
    return _derive(Counted(values, instances), metrics, arch)


def _together(kernels: Sequence[Counted], metric: Metric) -> Found:
    found = [kernel.values[metric.key] for kernel in kernels]
    for number, value in enumerate(found):
        if isinstance(value, Absent):
            return value if len(set(found)) == 1 else Absent(f"kernel {number}: {value.reason}")
    numbers = [value for value in found if isinstance(value, int | float)]
    if metric.combine == "same" or len(numbers) < len(found):
        return found[0] if len(set(found)) == 1 else Absent("differs between the kernels of this case")
    if metric.combine == "sum":
        return sum(numbers)
    weights = [kernel.number(metric.weight) for kernel in kernels]
    known = [weight for weight in weights if weight is not None]
    if len(known) < len(kernels):
        return Absent(f"needs {metric.weight} of each kernel to combine them")
    if sum(known) == 0:
        return Absent(f"{metric.weight} is 0 for every kernel of this case")
    return sum(n * w for n, w in zip(numbers, known, strict=True)) / sum(known)


def _derive(counted: Counted, metrics: Sequence[Metric], arch: str) -> Counted:
    values = dict(counted.values)
    for metric in metrics:
        if metric.combine == "derived":
            reason = absence(metric, arch)
            values[metric.key] = Absent(reason) if reason else _derived(metric.key, counted)
    return Counted(values, counted.instances)


def _derived(key: str, counted: Counted) -> Found:
    if key == "occupancy_limiter":
        return _limiter(counted)
    if key == "mma_inst":
        return _matrix_instructions(counted)
    if key.startswith("conflict_ratio_hw_"):
        return _hardware_conflicts(counted, key[-2:])
    if key.startswith("conflict_ratio_"):
        return conflict_ratio(counted, key[-2:])
    return _stall_share(counted, f"{key}_per_issue")


def _limiter(counted: Counted) -> Found:
    names = {"registers": "registers", "shared_mem": "shared memory", "warps": "warps", "blocks": "blocks"}
    limits = {name: counted.number(f"occ_limit_{key}") for key, name in names.items()}
    known = {name: limit for name, limit in limits.items() if limit is not None}
    if len(known) < len(limits):
        return Absent("ncu did not report every limit of the occupancy")
    return ", ".join(name for name, limit in known.items() if limit == min(known.values()))


def _matrix_instructions(counted: Counted) -> Found:
    parts = counted.instances.get(PER_OPCODE)
    if parts is None or counted.number("inst_per_opcode") is None:
        return Absent("ncu did not collect instructions by opcode")
    return int(sum(part.value for part in parts if MATRIX_OPCODE.fullmatch(part.opcode.partition(".")[0])))


def _hardware_conflicts(counted: Counted, op: str) -> Found:
    conflicts, wavefronts = counted.number(f"smem_bank_conflicts_{op}"), counted.number(f"smem_wavefronts_{op}")
    if conflicts is None or wavefronts is None:
        return Absent("needs bank conflicts and wavefronts, and ncu did not give both")
    return conflicts / wavefronts if wavefronts else Absent(f"{NO_ACCESS} {_word(op)}")


def _word(op: str) -> str:
    return "loads" if op == "ld" else "stores"


def _stall_share(counted: Counted, key: str) -> Found:
    own = counted.values.get(key, Absent("not collected"))
    if isinstance(own, Absent):
        return own
    known = [counted.values[name] for name in _STALLS if name in counted.values]
    lost = [v for v in known if isinstance(v, Absent) and not v.reason.startswith("not on this GPU")]
    if lost or len(known) < len(_STALLS):
        return Absent("a share needs every stall reason, and ncu did not give them all")
    total = sum(v for v in known if isinstance(v, int | float))
    return float(own) / total if total else Absent("no warp ever waited")


def conflict_ratio(counted: Counted, op: str) -> Found:
    """(actual - ideal) / actual wavefronts of shared-memory loads (`ld`: LDS, LDSM) or stores (`st`: STS, STSM).

    ncu gives actual and ideal wavefronts by instruction; the opcode says which instructions count. Without opcodes the
    totals still decide when nothing conflicts at all, or when every wavefront belongs to this kind of instruction.
    """
    actual, ideal = counted.number("smem_wavefronts_actual"), counted.number("smem_wavefronts_ideal")
    if actual is None or ideal is None:
        return Absent("ncu did not collect wavefronts by instruction")
    own = _by_opcode(counted, _LOADS if op == "ld" else _STORES)
    if own is not None:
        return (own[0] - own[1]) / own[0] if own[0] else Absent(f"{NO_ACCESS} {_word(op)}")
    counted_here = _sass_wavefronts(counted, op)
    if counted_here == 0:
        return Absent(f"{NO_ACCESS} {_word(op)}")
    if actual == ideal:
        return 0.0 if actual else Absent(f"{NO_ACCESS} {_word(op)}")
    if counted_here is not None and counted_here == actual:
        return (actual - ideal) / actual
    return Absent("the report names no opcodes, and loads and stores cannot be told apart without them")


def _by_opcode(counted: Counted, opcodes: tuple[str, ...]) -> tuple[float, float] | None:
    actual = counted.instances.get("memory_l1_wavefronts_shared", ())
    ideal = counted.instances.get("memory_l1_wavefronts_shared_ideal", ())
    if not actual or not ideal or any(not part.opcode for part in (*actual, *ideal)):
        return None
    return _of(actual, opcodes), _of(ideal, opcodes)


def _of(parts: Iterable[Instance], opcodes: tuple[str, ...]) -> float:
    return sum(part.value for part in parts if part.opcode.partition(".")[0] in opcodes)


def _sass_wavefronts(counted: Counted, op: str) -> float | None:
    """Wavefronts of loads or stores by the counters of each opcode; None when one that exists is missing."""
    total = 0.0
    for key in _SASS_COUNTERS[op]:
        number = counted.number(key)
        found = counted.values.get(key)
        if number is None and not (isinstance(found, Absent) and found.reason.startswith("not on this GPU")):
            return None
        total += number or 0.0
    return total
