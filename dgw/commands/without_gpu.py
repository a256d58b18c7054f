"""Cases on a machine without a GPU: static facts, the emulator's counts, a lower bound, and no invented time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from dgw.errors import DgwError
from dgw.model import Case, Device, Measurement, Record, Source, Variant

if TYPE_CHECKING:
    from dgw.toolchain.build import Recent
    from dgw.workbench.prepare import Prepared

TIMES = ("time_cold", "time_hot", "tflops", "ratio_to_cublas", "energy")
COUNTERS = (
    "achieved_occupancy", "conflict_ratio_ld", "conflict_ratio_st", "conflict_ratio_hw_ld", "conflict_ratio_hw_st",
    "tensor_pipe_util", "dram_bytes", "dram_bandwidth", "l2_hit_rate", "stall_long_scoreboard",
)  # fmt: skip
SIDES = {"ld": "loads", "st": "stores"}
BOUND = ("bound_time", "bound_pipe")
UNABLE = "the emulator cannot run it"
FOREIGN = "it is foreign code, which runs on a GPU only"


@dataclass(frozen=True)
class CpuEngine:
    """How cases run on the CPU. `reason` is why their time is not measured: there is no GPU.

    With `strict` a case that the emulator cannot execute is refused; without, its static facts are still a record.
    """

    variants: Mapping[str, Variant]
    device: Device
    cache: Path
    kind: Literal["emulator", "static"]
    reason: str
    full_grid: bool = False
    strict: bool = False

    def run(self, cases: Sequence[Case], keep: Callable[[Record], None], progress: Callable[..., None]) -> None:
        """Give every case to `keep` as a record, one after another."""
        from dgw.toolchain.cache import CompileCache
        from dgw.workbench.prepare import warm_cache

        cache = CompileCache(self.cache)
        progress(0, len(cases), "compiling")
        recent = warm_cache(((case, self.variants[case.variant]) for case in cases), self.device, cache)
        for done, case in enumerate(cases):
            progress(done, len(cases), f"{case.variant} {case.problem.shape}")
            keep(self._record(case, recent))
        progress(len(cases), len(cases), "")

    def _record(self, case: Case, recent: Recent) -> Record:
        from dgw.workbench.prepare import prepare

        prepared = prepare(case, self.variants[case.variant], self.device, recent)
        record = prepared.record
        if not prepared.runnable:
            return record
        if prepared.plan is None:
            return msgspec.structs.replace(record, outcome="refused", reason=FOREIGN)
        if self.kind == "emulator":
            record = self._emulated(record, prepared)
        return self._with_absences(record)

    def _emulated(self, record: Record, prepared: Prepared) -> Record:
        from dgw.workbench.collectors.emulator import emulate

        def ptx_of(source: Source) -> str:
            return prepared.builds[source].ptx

        def cubin_of(source: Source) -> bytes:
            return prepared.builds[source].cubin

        assert prepared.plan is not None
        keep = self.cache / "sass"
        environment = msgspec.structs.replace(record.environment, engine="emulator")
        record = msgspec.structs.replace(record, environment=environment)
        try:
            found = emulate(record.case, prepared.plan, ptx_of, cubin_of, self.device, self.full_grid, keep)
        except DgwError as error:
            unable = f"{UNABLE}: {error.message}"
            if self.strict:
                return msgspec.structs.replace(record, outcome="refused", reason=unable)
            return msgspec.structs.replace(record, flags=(*record.flags, f"not checked, not counted: {unable}"))
        except Exception as error:  # a fault of the emulator costs this case, not the others
            reason = f"the emulator failed: {type(error).__name__}: {error}"
            return msgspec.structs.replace(record, outcome="crashed", reason=reason)
        return msgspec.structs.replace(
            record,
            outcome="ok" if found.check.passed else "wrong",
            reason="" if found.check.passed else found.check.detail,
            check=found.check,
            measurements=_merged(found.measurements, record.measurements),
        )

    def _with_absences(self, record: Record) -> Record:
        """The record with a reason for everything that only a GPU can tell."""
        if record.outcome != "ok":
            return record
        known = {m.metric for m in record.measurements if m.value is not None}
        absent = [
            Measurement(
                metric=name,
                collector=self.kind,
                absent=self._why(record, name),
                unit="ratio" if "stall" in name else "",
            )
            for name in (*TIMES, *COUNTERS)
            if name not in known
        ]
        kept = tuple(m for m in record.measurements if m.value is not None or m.metric not in (*TIMES, *COUNTERS))
        return msgspec.structs.replace(record, measurements=(*kept, *absent))

    def _why(self, record: Record, metric: str) -> str:
        """Why `metric` has no value: a ratio of nothing, or something that only a GPU can tell."""
        side = metric.removeprefix("conflict_ratio_")
        if side in SIDES and record.number(f"smem_wavefronts_{side}") == 0:
            return f"the kernel makes no shared-memory {SIDES[side]}"
        return f"not measured because {self.reason}"


def _merged(counted: Sequence[Measurement], static: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Both, with one lower bound: what was counted, or what the problem alone says where that is larger."""
    bounds = {
        side: next((m.value for m in found if m.metric == "bound_time" and m.scope == "case"), None)
        for side, found in (("counted", counted), ("static", static))
    }
    weaker = static
    if isinstance(bounds["counted"], int | float) and isinstance(bounds["static"], int | float):
        weaker = static if bounds["counted"] >= bounds["static"] else counted
    dropped = {id(m) for m in weaker if m.metric in BOUND and m.scope == "case"}
    return tuple(m for m in (*counted, *static) if id(m) not in dropped)
