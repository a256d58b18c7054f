"""The time below which no kernel can compute a Problem on a device: arithmetic at peak, compulsory bytes at peak."""

from __future__ import annotations

from dataclasses import dataclass

from dgw.errors import UsageError
from dgw.model import DTYPE_BITS, Device, Problem

# An input dtype that the tensor cores lack is converted, without loss, to the next one here.
_WIDER = {"s4": "s8", "s8": "f16", "e4m3": "f16", "bf16": "f32", "f16": "f32", "tf32": "f32"}


@dataclass(frozen=True)
class LowerBound:
    """`seconds` = the largest part; `binds` names it: `tensor`, `fma` (arithmetic) or `dram`. `parts` in seconds.

    `flops_per_s` is the peak that was used for arithmetic; None, and no part for it, when the device's is not known.
    """

    seconds: float
    binds: str
    parts: dict[str, float]
    flops_per_s: float | None


def lower_bound(problem: Problem, device: Device, cold: bool = True) -> LowerBound:
    """The lower bound of `problem` on `device`: max(FLOP / peak rate, compulsory bytes / peak DRAM rate).

    The rate is that of the slower of A's and B's dtypes, at the device's highest clock; f32 inputs are multiplied by
    the FMA pipe (a kernel that splits them into narrower tensor-core products is not bound by this). With `cold` false,
    what the L2 may still hold from before is not charged to DRAM. UsageError for a dtype without any rate.
    """
    compulsory = problem.compulsory_bytes
    moved = compulsory if cold else max(0, compulsory - device.l2_bytes)
    parts = {"dram": moved / device.dram_bytes_per_s}
    rate = None
    if device.tensor_flops_per_sm_per_clock or problem.a.dtype == problem.b.dtype == "f32":
        pipe, rate = peak_rate(problem, device)
        parts = {pipe: problem.flops / rate, **parts}
    binds = max(parts, key=lambda part: parts[part])
    return LowerBound(seconds=parts[binds], binds=binds, parts=parts, flops_per_s=rate)


def peak_rate(problem: Problem, device: Device) -> tuple[str, float]:
    """(pipe, FLOP/s) that bounds the arithmetic of `problem`: `tensor`, or `fma` when no tensor core does it."""
    rates = [_rate(operand.dtype, problem.accumulator, device) for operand in (problem.a, problem.b)]
    pipe, per_clock = min(rates, key=lambda rate: rate[1])
    return pipe, per_clock * device.sms * device.clock_hz


def _rate(dtype: str, accumulator: str, device: Device) -> tuple[str, int]:
    """(pipe, FLOP per SM and clock) for inputs of `dtype`; f32 goes to the FMA pipe."""
    table = device.tensor_flops_per_sm_per_clock
    wanted = dtype
    while wanted != "f32":
        found = table.get(f"{wanted}/{accumulator}", table.get(wanted))
        if found is not None:
            return "tensor", found
        if wanted not in _WIDER:
            break
        wanted = _WIDER[wanted]
    if wanted != "f32":
        known = ", ".join(name for name in DTYPE_BITS if name in table)
        raise UsageError(f"{device.name} has no known rate for {dtype}", hint=f"use one of {known}, f32")
    return "fma", 2 * device.fma_per_sm_per_clock
