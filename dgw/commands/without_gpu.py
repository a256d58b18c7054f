"""Cases on a machine without a GPU: static facts, the emulator's counts, a lower bound, and no invented time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from dgw.errors import DgwError
from dgw.model import Case, Device, Measurement, Record, Source, Variant

TIMES = ("time_cold", "time_hot", "tflops", "ratio_to_cublas", "energy")
COUNTERS = (
    "achieved_occupancy", "conflict_ratio_ld", "conflict_ratio_st", "conflict_ratio_hw_ld", "conflict_ratio_hw_st",
    "tensor_pipe_util", "dram_bytes", "dram_bandwidth", "l2_hit_rate", "stall_long_scoreboard",
)  # fmt: skip


@dataclass(frozen=True)
class CpuEngine:
    """How cases run on the CPU. `reason` is why their time is not measured: there is no GPU."""

    variants: Mapping[str, Variant]
    device: Device
    cache: Path
    kind: Literal["emulator", "static"]
    reason: str
    full_grid: bool = False

    def run(self, cases: Sequence[Case], keep: Callable[[Record], None], progress: Callable[..., None]) -> None:
        """Give every case to `keep` as a record, one after another."""
        from dgw.toolchain.cache import CompileCache

        cache = CompileCache(self.cache)
        for done, case in enumerate(cases):
            progress(done, len(cases), f"{case.variant} {case.problem.shape}")
            keep(self._record(case, cache))
        progress(len(cases), len(cases), "")

    def _record(self, case: Case, cache: Any) -> Record:
        from dgw.workbench.prepare import prepare

        variant = self.variants[case.variant]
        prepared = prepare(case, variant, self.device, cache)
        record = prepared.record
        if record.outcome == "ok" and prepared.plan is not None and self.kind == "emulator":
            record = self._emulated(record, prepared, variant)
        return self._with_absences(record)

    def _emulated(self, record: Record, prepared: Any, variant: Variant) -> Record:
        from dgw.workbench.collectors.emulator import emulate

        def ptx_of(source: Source) -> str:
            return str(prepared.builds[source].ptx)

        def cubin_of(source: Source) -> bytes:
            return bytes(prepared.builds[source].cubin)

        environment = msgspec.structs.replace(record.environment, engine="emulator")
        try:
            found = emulate(record.case, prepared.plan, ptx_of, cubin_of, self.device, self.full_grid)
        except DgwError as error:
            return msgspec.structs.replace(
                record, environment=environment, outcome="crashed", reason=f"{error.message}; {error.hint}"
            )
        return msgspec.structs.replace(
            record,
            environment=environment,
            outcome="ok" if found.check.passed else "wrong",
            reason="" if found.check.passed else found.check.detail,
            check=found.check,
            measurements=(*record.measurements, *found.measurements),
        )

    def _with_absences(self, record: Record) -> Record:
        """The record with a reason for everything that only a GPU can tell."""
        if record.outcome != "ok":
            return record
        collector = "emulator" if self.kind == "emulator" else "static"
        known = {m.metric for m in record.measurements if m.value is not None}
        reason = f"not measured because {self.reason}"
        absent = [
            Measurement(metric=name, collector=collector, absent=reason, unit="ratio" if "stall" in name else "")
            for name in (*TIMES, *COUNTERS)
            if name not in known
        ]
        kept = tuple(m for m in record.measurements if m.value is not None or m.metric not in (*TIMES, *COUNTERS))
        return msgspec.structs.replace(record, measurements=(*kept, *absent))
