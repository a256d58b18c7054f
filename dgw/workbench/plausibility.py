"""Results that cannot be, said with the figures: above the roofline, no time at all, a cold lane that was not cold.

Also a locked SM clock that did not hold: the time is what it is, but not one at that clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from dgw.model import Device, Measurement, Record
from dgw.toolchain.limits import lower_bound
from dgw.workbench.clocks import WITHIN
from dgw.workbench.locked_clock import locked_at

NOT_RANKED = ("above the roofline", "zero time")  # a Record with such a flag is kept out of rankings
CYCLES_APART = 0.15
TIMES = ("time_cold", "time_hot")
HIT_RATE_SLACK = 0.02


def ranked(record: Record) -> bool:
    """Whether the record may be ranked: its outcome is ok, and neither its time nor its rate is impossible."""
    return record.outcome == "ok" and not any(flag.startswith(NOT_RANKED) for flag in record.flags)


def flags(record: Record, device: Device) -> tuple[str, ...]:
    """Everything implausible about `record` on `device`, one sentence with figures each."""
    found = [
        _zero_time(record),
        *_above_roofline(record, device),
        _warm_cold_lane(record, device),
        _cycles_apart(record, device),
        *clock_flags(record.measurements),
    ]
    return tuple(flag for flag in found if flag)


def _times(record: Record) -> list[Measurement]:
    return [m for m in record.measurements if m.metric in TIMES and isinstance(m.value, float | int)]


def _zero_time(record: Record) -> str:
    for measured in _times(record):
        if not isinstance(measured.value, str) and measured.value is not None and measured.value <= 0:
            return f"zero time: {measured.metric} is {measured.value:g} s"
    return ""


def _above_roofline(record: Record, device: Device) -> list[str]:
    """A hot lane may find its operands in L2, so only the part that L2 cannot hold counts against DRAM there."""
    found = []
    for measured in _times(record):
        bound = lower_bound(record.case.problem, device, cold=measured.metric == "time_cold")
        value = float(measured.value or 0.0)
        if 0 < value < bound.seconds:
            found.append(
                f"above the roofline: {measured.metric} {value * 1e6:.4g} us is below the {bound.binds} bound of "
                f"{device.name}, {bound.seconds * 1e6:.4g} us"
            )
    return found


def _warm_cold_lane(record: Record, device: Device) -> str:
    """Each sector of a cold input misses L2 once, which bounds the hit rate; ncu flushes, so it must hold there.

    A cold time that implies more DRAM traffic than the device has says the same of the time lane.
    """
    cold, hit = record.number("time_cold"), record.number("l2_hit_rate")
    if cold is None or cold <= 0 or hit is None:
        return ""
    sectors, moved = record.number("l2_sectors"), record.number("dram_read_bytes")
    if sectors:
        problem = record.case.problem
        inputs = problem.bytes_of(*(name for name in problem.operands() if name != "d"))
        highest = max(0.0, 1 - inputs / 32 / sectors)
        if hit > highest + HIT_RATE_SLACK:
            return f"cold lane with a hot L2: hit rate {100 * hit:.1f} %, and cold operands allow {100 * highest:.1f} %"
    if moved and moved / cold > device.dram_bytes_per_s:
        return (
            f"cold lane with a hot L2: {moved / 1e6:,.1f} MB of DRAM reads in {cold * 1e6:.4g} us are above the "
            f"{device.dram_bytes_per_s * 1e-12:.3g} TB/s of {device.name} (L2 hit rate {100 * hit:.1f} %)"
        )
    return ""


def _cycles_apart(record: Record, device: Device) -> str:
    """ncu flushes the caches first, so its cycles belong to the cold time; the clock is that of the time lane."""
    cold, clock, cycles = record.number("time_cold"), record.number("sm_clock"), record.number("elapsed_cycles")
    if not cold or not clock or not cycles:
        return ""
    expected = cold * clock
    apart = cycles / expected - 1
    if abs(apart) <= CYCLES_APART:
        return ""
    return (
        f"cycles apart: ncu counted {cycles:,.0f} elapsed cycles, the cold time {cold * 1e6:.4g} us at "
        f"{clock * 1e-6:.0f} MHz is {expected:,.0f} ({100 * apart:+.0f} %)"
    )


def clock_flags(measurements: Sequence[Measurement]) -> tuple[str, ...]:
    """One sentence where a reading of the SM clock while the times were sampled is off the locked one; else nothing.

    The first time and the first readings count, as in a record: those of its final figures.
    """
    protocol = next((m.protocol for m in measurements if m.metric in TIMES and m.value is not None), "")
    locked, clock = locked_at(protocol), next((m for m in measurements if m.metric == "sm_clock"), None)
    if not locked or clock is None or not isinstance(clock.value, int | float):
        return ()
    low, high = (float(clock.value if end is None else end) for end in (clock.low, clock.high))
    if max(abs(low - locked), abs(high - locked)) <= WITHIN * locked:
        return ()
    named = next((str(m.value) for m in measurements if m.metric == "throttle" and m.value is not None), "unknown")
    why = "the power or heat limit took over" if locked - low > WITHIN * locked else "it was not held"
    return (
        f"left the locked clock of {protocol}: the SM clock was {low * 1e-6:.0f} .. {high * 1e-6:.0f} MHz, median "
        f"{clock.value * 1e-6:.0f}, while sampling: {why} (limits by NVML: {named})",
    )
