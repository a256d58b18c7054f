"""A time below which the counted work cannot be done: each resource at its peak rate, everything else for free.

It is a bound and never called a time. Only work that surely happens on the hardware is counted, and every rate is the
peak of the data sheet, so no measured time is below it:

tensor
    FLOP of the tensor-core instructions over the best dense rate of their dtype.
fma
    f32 multiply-adds over the lanes of an SM (`Device.fma_per_sm_per_clock`).
lsu
    One wavefront of shared memory a clock, and at least one clock for each global request. Only where the audit found
    the memory instructions of the machine code to be those that were counted.
issue
    Four warp schedulers, one instruction a clock each: tensor, multiply-add and audited memory instructions only,
    because the number of all others in the machine code is not known from PTX.
l2
    Distinct 32-byte sectors of each CTA, 64 B a clock into an SM. What goes through L1 may be shared by the CTAs that
    are resident on the SM, so it counts once for as many as fit.
dram
    Each input byte read and each output byte written once, at the rate of the memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dgw.model import Device, Problem
from dgw.workbench.emulator.costs import SECTOR_BYTES

SCHEDULERS = 4
L2_BYTES_PER_SM_PER_CLOCK = 64
_WIDER = {"s4": "s8", "s8": "f16", "e4m3": "f16", "bf16": "f16", "tf32": "f16"}


@dataclass(frozen=True)
class Work:
    """What one launch does, all CTAs together; `exact_memory`: the audit of shared and global accesses was clean.

    `mma_flops` is by input dtype, `fma` counts warp instructions; `cached`, `uncached` and `stored` are sectors,
    distinct within each CTA; `resident` is how many CTAs fit on an SM, `smallest` the lightest CTA's share of the work.
    """

    ctas: int
    mma_flops: Mapping[str, int]
    mma: int
    fma: int
    wavefronts: int
    memory_instructions: int
    global_requests: int
    cached: int = 0
    uncached: int = 0
    stored: int = 0
    resident: int = 32
    exact_memory: bool = False
    smallest: float = 0.0


@dataclass(frozen=True)
class Bound:
    """`seconds` is the largest of `parts`, `pipe` its name, `cycles` those of the busiest SM for each pipe."""

    seconds: float
    pipe: str
    parts: Mapping[str, float]
    cycles: Mapping[str, float]


def lower_bound(problem: Problem, device: Device, launches: list[Work]) -> Bound:
    """The bound of all launches of a plan, one after another, on `device`; operands come from DRAM."""
    cycles: dict[str, float] = {}
    for work in launches:
        share = _busiest_share(work, device)
        for pipe, total in _cycles(work, device).items():
            cycles[pipe] = cycles.get(pipe, 0.0) + total * share
    parts = {pipe: count / device.clock_hz for pipe, count in cycles.items()}
    parts["dram"] = problem.compulsory_bytes / device.dram_bytes_per_s
    pipe = max(parts, key=lambda name: parts[name])
    return Bound(parts[pipe], pipe, parts, cycles)


def _busiest_share(work: Work, device: Device) -> float:
    """Share of the whole work that the busiest SM does at least: an even split over the SMs that have a CTA at all
    (with fewer CTAs than SMs the heaviest CTA, which is not below the average), or as many of the lightest CTA as one
    SM must take."""
    rounds = -(-work.ctas // device.sms)
    return max(1.0 / max(1, min(device.sms, work.ctas)), rounds * work.smallest)


def _cycles(work: Work, device: Device) -> dict[str, float]:
    """Cycles that one SM would need for all of it, by pipe; pipes without work are left out."""
    found = {
        "tensor": sum(flops / _tensor_rate(dtype, device) for dtype, flops in work.mma_flops.items()),
        "fma": work.fma * 32 / device.fma_per_sm_per_clock,
        "issue": (work.mma + work.fma + (work.memory_instructions if work.exact_memory else 0)) / SCHEDULERS,
        "l2": (work.cached / work.resident + work.uncached + work.stored) * SECTOR_BYTES / L2_BYTES_PER_SM_PER_CLOCK,
    }
    if work.exact_memory:
        found["lsu"] = float(work.wavefronts + work.global_requests)
    return {pipe: cycles for pipe, cycles in found.items() if cycles}


def _tensor_rate(dtype: str, device: Device) -> int:
    """FLOP an SM and clock, at the best rate that the device has for the dtype or the one it is widened to."""
    rates = device.tensor_flops_per_sm_per_clock
    wanted = dtype
    while wanted not in rates and wanted in _WIDER:
        wanted = _WIDER[wanted]
    best = [rate for name, rate in rates.items() if name.partition("/")[0] == wanted]
    return max(best or list(rates.values()) or [1 << 20])
