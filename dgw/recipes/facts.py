"""What the recipes read of one stored record: its numbers, the work of each pipe, and the tiling where it is declared.

Cycles are those of one SM, averaged over all of them: the elapsed cycles that ncu counted, or on a GPU where they were
not asked for, the time at the clock that it was taken at. Where nothing was measured (the emulator), they are those of
the busiest pipe: a lower bound, and a share of it is a share of that bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, prod

from dgw.model import (
    DTYPE_BITS,
    Case,
    Device,
    Evidence,
    Launch,
    Measurement,
    Pointer,
    Problem,
    Record,
    TensorMap,
)
from dgw.recipes import retyping
from dgw.recipes.overlap import norm, together
from dgw.workbench.locked_clock import clock_of

SECTOR = 32  # bytes
LINE_SECTORS = 4
"""Sectors of a line of 128 bytes, which L1 hands over in a cycle."""
SCHEDULERS = 4
FMA_LANES = 32
L2_BYTES_PER_SM_PER_CLOCK = 64
MMA_ROWS, MMA_COLUMNS, MMA_DEPTH_BYTES = 16, 8, 32
"""One warp instruction of mma.sync multiplies 16 x 8 sums over a depth of 32 bytes."""

STALLS_OF_WORK = ("selected", "not_selected", "math_pipe_throttle", "dispatch_stall", "gmma")
"""Reasons that say that a pipe is at work, not that anything is late."""


def _operands(launch: Launch) -> list[str]:
    return [argument.operand for argument in launch.arguments if isinstance(argument, Pointer | TensorMap)]


@dataclass(frozen=True)
class Facts:
    """One record, the device it was made on (or for), and the other records of its run."""

    record: Record
    device: Device
    others: Sequence[Record] = ()

    @property
    def case(self) -> Case:
        """What was computed, by what, with which tunables."""
        return self.record.case

    @property
    def problem(self) -> Problem:
        """What was computed."""
        return self.record.case.problem

    @cached_property
    def _by_metric(self) -> Mapping[str, Measurement]:
        found: dict[str, Measurement] = {}
        for one in self.record.measurements:
            if one.scope == "case" and (one.metric not in found or found[one.metric].value is None):
                found[one.metric] = one
        return found

    def number(self, metric: str) -> float | None:
        """The number of a metric for the whole case, or None."""
        found = self._by_metric.get(metric)
        return None if found is None or isinstance(found.value, str | None) else float(found.value)

    def text(self, metric: str) -> str:
        """The text of a metric, empty when it is unknown."""
        found = self._by_metric.get(metric)
        return "" if found is None or found.value is None else str(found.value)

    def known(self, metric: str) -> bool:
        """Whether the record has a value of `metric`, or a reason of the kernel's own why there is none to have."""
        found = self._by_metric.get(metric)
        return found is not None and (found.value is not None or found.absent.startswith(("the kernel makes", "no ")))

    def absent(self, metric: str) -> str:
        """Why a metric has no value, empty when nobody said."""
        found = self._by_metric.get(metric)
        return "" if found is None or found.value is not None else found.absent

    def exact(self, metric: str) -> bool:
        """Whether the machine code has the instructions that were counted, as far as the emulator could tell."""
        found = self._by_metric.get(metric)
        return found is not None and found.tier != "ptx-level"

    def total(self, *metrics: str) -> float:
        """The sum of the metrics that are known."""
        return sum(self.number(metric) or 0.0 for metric in metrics)

    def tunable(self, *names: str) -> int | None:
        """The first of the tunables that the config has, as a number."""
        for name in names:
            value = self.case.config.get(name)
            if isinstance(value, int):
                return value
        return None

    def evidence(self, metric: str, threshold: float | None = None, why: str = "") -> Evidence:
        """A number of the record beside what it is compared with."""
        return Evidence(metric=metric, value=self.number(metric), threshold=threshold, why=why)

    def opcode(self, *names: str) -> float | None:
        """Warp instructions of these opcodes (without suffix, in any case); None when none is known by opcode."""
        known, total = False, 0.0
        for one in self.record.measurements:
            if (
                one.metric == "inst_per_opcode"
                and one.scope.startswith("opcode ")
                and isinstance(one.value, int | float)
            ):
                known = True
                base = one.scope.removeprefix("opcode ").split(".")[0].upper()
                total += float(one.value) if base in names else 0.0
        return total if known else None

    # --- where the time goes ---------------------------------------------------------------------------------

    @property
    def measured(self) -> bool:
        """Whether the cycles are those of a GPU; otherwise they are a lower bound."""
        return self.elapsed is not None

    @cached_property
    def elapsed(self) -> float | None:
        """Cycles from the beginning of the kernel to its end; None where it did not run on a GPU."""
        counted = self.number("elapsed_cycles")
        seconds = self.number("time_cold") or self.number("time_hot")
        if counted is not None or seconds is None or self.record.environment.engine != "gpu":
            return counted
        return seconds * (self.number("sm_clock") or self.device.clock_hz)

    @cached_property
    def busy(self) -> Mapping[str, float]:
        """Cycles that each pipe of an SM was at work, averaged over the SMs; pipes of which nothing is known are left
        out. `shared`: wavefronts of shared memory. `l1`: 128 bytes of sectors a cycle. `l2`: 64 bytes a cycle."""
        elapsed, sms = self.elapsed, self.device.sms
        found: dict[str, float | None] = {
            "tensor": self._of(elapsed, "tensor_pipe_util"),
            "fma": self._of(elapsed, "fma_pipe_util"),
            "dram": self._of(elapsed, "dram_throughput"),
            "shared": self._over("smem_wavefronts_actual", sms),
            "issue": self._over("issued" if self.number("issued") is not None else "inst_executed", SCHEDULERS * sms),
        }
        if elapsed is None:
            found |= {"tensor": self.mma_cycles, "dram": self._dram_bound(), "issue": None}
            fma = self.number("fma_inst")
            copied = self.number("ldgsts_inst") and self.sectors_loaded  # past L1
            if copied:
                found["l2"] = (copied + (self.sectors_stored or 0.0)) * SECTOR / L2_BYTES_PER_SM_PER_CLOCK / sms
            found["fma"] = None if fma is None else fma * FMA_LANES / self.device.fma_per_sm_per_clock / sms
        elif self.mma_cycles is not None and not self.uses_wgmma:
            found["tensor"] = max(found["tensor"] or 0.0, self.mma_cycles)
        if self.sectors_loaded is not None:
            sectors = self.sectors_loaded + (self.sectors_stored or 0.0) + self.local_sectors
            found["l1"] = max(sectors / LINE_SECTORS, self.number("l1_tag_requests_global") or 0.0) / sms
        if (l2 := self.number("l2_sectors")) is not None:
            found["l2"] = l2 * SECTOR / L2_BYTES_PER_SM_PER_CLOCK / sms
        return {pipe: cycles for pipe, cycles in found.items() if cycles is not None}

    def _of(self, cycles: float | None, share: str) -> float | None:
        value = self.number(share)
        return None if value is None or cycles is None else value * cycles

    def _over(self, metric: str, divisor: float) -> float | None:
        value = self.number(metric)
        return None if value is None else value / divisor

    def _dram_bound(self) -> float | None:
        if not self.problem.known:
            return None
        return self.problem.compulsory_bytes / self.device.dram_bytes_per_s * self.device.clock_hz

    @property
    def sectors_loaded(self) -> float | None:
        """Sectors of global loads, cp.async included where the counter of the hardware is known."""
        hardware = self.number("global_sectors_hw_ld")
        return self.number("global_sectors_ld") if hardware is None else hardware

    @property
    def sectors_stored(self) -> float | None:
        """Sectors of global stores."""
        hardware = self.number("global_sectors_hw_st")
        return self.number("global_sectors_st") if hardware is None else hardware

    @property
    def local_sectors(self) -> float:
        """Sectors of local memory that were read and written."""
        return self.total("local_load_sectors", "local_store_sectors")

    @property
    def uses_wgmma(self) -> bool:
        """Whether the products are made by wgmma."""
        return bool(self.number("wgmma_inst")) or (self.number("stall_gmma") or 0.0) > 0.0

    @property
    def ring(self) -> bool:
        """Whether tiles come through a ring that the copy engine fills. There warps wait by design: those that start
        copies for a free place, those that multiply for their turn, and the rest at barriers till the end. How they
        waited says nothing then; how busy the tensor pipe was does."""
        return (self.uses_wgmma or self.copy_engine) and not self.number("ldgsts_inst")

    @property
    def rounds(self) -> float:
        """Tiles that a block computes one after another: more than one where blocks stay; 1 when unknown."""
        return max(1.0, self.tiles / self.blocks) if self.tiles and self.blocks else 1.0

    @property
    def uses_tensor_cores(self) -> bool:
        """Whether the products are made by tensor cores: enough instructions for them, or a pipe that is at work."""
        inst = self.number("tensor_inst")
        if self.uses_wgmma:
            return True
        if inst is not None and self.problem.known:
            return inst * self.mma_flops >= 0.5 * self.problem.flops
        return (self.number("tensor_pipe_util") or 0.0) > 0.02

    @property
    def mma_flops(self) -> int:
        """FLOP of one warp instruction of mma.sync for this dtype."""
        size = DTYPE_BITS.get(self.problem.a.dtype, 16) / 8
        return int(2 * MMA_ROWS * MMA_COLUMNS * MMA_DEPTH_BYTES / size)

    @cached_property
    def mma_cycles(self) -> float | None:
        """Cycles that the tensor instructions take at the rate of mma.sync."""
        inst = self.number("tensor_inst")
        rates = self.device.mma_flops_per_sm_per_clock or self.device.tensor_flops_per_sm_per_clock
        rate = rates.get(self.problem.a.dtype)
        if inst is None or rate is None or not self.uses_tensor_cores or self.uses_wgmma:
            return None
        return inst * self.mma_flops / rate / self.device.sms

    @cached_property
    def cycles(self) -> float:
        """Elapsed cycles, or the lower bound where none were counted; 0 when neither is known."""
        if self.elapsed is not None:
            return self.elapsed
        return max(self.busy.values(), default=0.0)

    def share(self, pipe: str) -> float:
        """Share of the cycles that `pipe` was at work."""
        return min(1.0, self.busy.get(pipe, 0.0) / self.cycles) if self.cycles else 0.0

    @property
    def busiest(self) -> tuple[str, float]:
        """The pipe with the most work and its share of the cycles."""
        pipe = max(self.busy, key=lambda name: self.busy[name], default="")
        return pipe, self.share(pipe)

    def relief(self, less: Mapping[str, float], of: Mapping[str, float] | None = None) -> float:
        """Share of the time saved when pipes had so many cycles less to do. Measured, as the busiest pipe before is to
        the busiest pipe then, so are the times: 0 where another pipe is busier. In the emulator pipes are taken to work
        beside each other as well as those of kernels on an H200 do. `of`: what pipes have to do, where that is known
        better than `busy` has it."""
        busy = {**self.busy, **{name: max(cycles, self.busy.get(name, 0.0)) for name, cycles in (of or {}).items()}}
        before = together(busy.values(), self.overlap)
        after = together((max(0.0, cycles - less.get(name, 0.0)) for name, cycles in busy.items()), self.overlap)
        return 1 - after / before if before else 0.0

    @property
    def overlap(self) -> float:
        """How well pipes are taken to work beside each other: 1 one after another, infinite all at once."""
        return inf if self.measured else norm(ahead=bool(self.number("ldgsts_inst")) or self.copy_engine)

    @property
    def slack(self) -> float:
        """Share of the time during which not even the busiest pipe was at work: something was late."""
        return max(0.0, 1.0 - self.busiest[1]) if self.measured else 0.0

    @property
    def idle(self) -> float:
        """Share of the time during which an SM had no warp at all, averaged over the SMs."""
        active, elapsed = self.number("sm_active_cycles"), self.elapsed
        return max(0.0, 1 - active / elapsed) if active is not None and elapsed else 0.0

    def stall(self, *reasons: str) -> float:
        """Share of the warp cycles that went by for these reasons."""
        return self.total(*(f"stall_{reason}" for reason in reasons))

    def late(self, *reasons: str) -> float:
        """Share of the time lost to these reasons: the part of the slack that warps spent on them, of all that they
        spent waiting for something late, and not more than their share of the warp cycles."""
        waiting = sum(
            self.number(m) or 0.0
            for m in self._by_metric
            if m.startswith("stall_")
            and not m.endswith("_per_issue")
            and m.removeprefix("stall_") not in STALLS_OF_WORK
            and m not in ("stall_samples", "stall_reason")
        )
        own = self.stall(*reasons)
        return min(own, max(0.0, self.slack - self.idle) * own / waiting) if waiting else 0.0

    # --- tiles -----------------------------------------------------------------------------------------------

    @property
    def bytes_of_d(self) -> float:
        """Bytes of D, all batch items together; 0 when unknown."""
        return float(self.problem.bytes_of("d")) if self.problem.known else 0.0

    @property
    def tile(self) -> tuple[int, int] | None:
        """Rows and columns of D that a CTA computes at a time."""
        plan = self.record.plan
        return None if plan is None else plan.tile

    @property
    def tiles(self) -> int | None:
        """How many tiles cover D, all batch items together."""
        if self.tile is None or not self.problem.known:
            return None
        rows, columns = self.tile
        return -(-self.problem.m // rows) * -(-self.problem.n // columns) * self.problem.batch

    @property
    def blocks(self) -> float | None:
        """Blocks of the launch that multiplies."""
        plan = self.record.plan
        if plan is None or not plan.launches:
            return self.number("blocks")
        return float(prod(plan.launches[self.product].grid))

    @cached_property
    def product(self) -> int:
        """Which launch of the plan multiplies: the last that reads A or B; those before prepare operands for it."""
        launches = self.record.plan.launches if self.record.plan is not None else ()
        reading = [place for place, launch in enumerate(launches) if set(_operands(launch)) & {"a", "b"}]
        return max(reading, default=0)

    @property
    def copy_engine(self) -> bool:
        """Whether tiles are brought by TMA."""
        launches = self.record.plan.launches if self.record.plan is not None else ()
        mapped = any(isinstance(argument, TensorMap) for launch in launches for argument in launch.arguments)
        return mapped or bool(self.total("tma_inst", "tma_load_bytes"))

    @property
    def launches(self) -> int:
        """Kernels that one multiplication takes; 1 when unknown."""
        plan = self.record.plan
        seen = {m.scope for m in self.record.measurements if m.scope.startswith("kernel ")}
        return max(1, len(plan.launches) if plan is not None else 0, len(seen))

    @property
    def resident(self) -> float:
        """CTAs that fit on an SM; 1 when unknown."""
        limits = ("occ_limit_registers", "occ_limit_shared_mem", "occ_limit_warps", "occ_limit_blocks")
        known = [value for limit in limits if (value := self.number(limit)) is not None]
        return max(1.0, self.number("blocks_per_sm") or (min(known) if known else 1.0))

    # --- words -----------------------------------------------------------------------------------------------

    def line(self, *metrics: str) -> str:
        """The source line with the most of the first metric known by line, as ` at FILE:N`; empty when none is."""
        for metric in metrics:
            best: tuple[float, str] = (0.0, "")
            for one in self.record.measurements:
                if one.metric == metric and one.scope.startswith("line ") and isinstance(one.value, int | float):
                    best = max(best, (float(one.value), one.scope.removeprefix("line ")))
            if best[1]:
                return f" at {best[1]}"
        return ""

    @property
    def other_tiles(self) -> str:
        """How other tiles of this kernel are tried on this problem."""
        return retyping.other_tiles(self.case)

    def command(self, metrics: Sequence[str] = (), variant: str = "") -> str:
        """The command that measures this case again, at its locked clock: with these metrics or by another variant."""
        clock = clock_of(self.record)
        held = f" --lock-clocks {clock * 1e-6:.0f}" if clock else ""
        return f"{retyping.profile(self.case, metrics, variant)}{held}"
