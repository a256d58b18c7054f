"""How many blocks of a kernel fit on one SM, and what stops one more from fitting.

The rules are those of NVIDIA's occupancy calculator for sm_80 and newer: registers are given to warps in units of 256,
from one of four sub-partitions of an SM; shared memory is given to blocks in units of 128 bytes, after the bytes that
the system reserves per block. Shared memory is counted against the largest carve-out of the device.
"""

from __future__ import annotations

from dataclasses import dataclass

from dgw.errors import UsageError
from dgw.model import Device, sm

WARP = 32
SUB_PARTITIONS = 4
REGISTER_UNIT = 256  # registers, per warp
SHARED_UNIT = 128  # bytes, per block
MAX_REGISTERS_PER_THREAD = 255
MAX_THREADS_PER_BLOCK = 1024
REGISTERS_PER_BLOCK = 65536
_BARRIERS_COUNT_FROM = 90  # the calculator charges named barriers from Hopper on
_ONE_BARRIER_SET = (103, 110, 120, 121)  # as many barriers as blocks; the others have twice as many


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps resident on one SM; `ratio` is warps over the device's most.

    `limits` maps each resource (warps, registers, shared memory, blocks, barriers) to the blocks that it would allow;
    a resource that the kernel does not use has no entry. `limiter` is the scarcest one, `limiters` all that tie.
    """

    blocks_per_sm: int
    warps_per_sm: int
    ratio: float
    limiter: str
    limiters: tuple[str, ...]
    limits: dict[str, int]


def occupancy(device: Device, threads: int, registers: int, shared_bytes: int = 0, barriers: int = 0) -> Occupancy:
    """Theoretical occupancy of blocks of `threads` with `registers` a thread and `shared_bytes` (static and dynamic).

    `barriers` is the number of named barriers a block uses; it counts from sm_90 on. UsageError for a block of no
    threads or a negative amount; a block that does not fit at all gives 0 blocks and the limiter that refuses it.
    """
    if threads < 1 or registers < 0 or shared_bytes < 0 or barriers < 0:
        raise UsageError(
            f"a block of {threads} threads, {registers} registers, {shared_bytes} B of shared memory cannot be",
            hint="give at least one thread and no negative amount",
        )
    warps = -(-threads // WARP)
    max_warps = device.max_threads_per_sm // WARP
    limits = {"warps": max_warps // warps if threads <= MAX_THREADS_PER_BLOCK else 0}
    if registers:
        limits["registers"] = _register_limit(device, warps, registers)
    used = _round_up(shared_bytes + device.shared_reserved_per_block, SHARED_UNIT)
    if shared_bytes > device.shared_per_block:
        limits["shared memory"] = 0
    elif used:
        limits["shared memory"] = device.shared_per_sm // used
    limits["blocks"] = device.max_blocks_per_sm
    if barriers and sm(device.arch) >= _BARRIERS_COUNT_FROM:
        sets = 1 if sm(device.arch) in _ONE_BARRIER_SET else 2
        limits["barriers"] = sets * device.max_blocks_per_sm // barriers
    blocks = min(limits.values())
    limiters = tuple(name for name, limit in limits.items() if limit == blocks)
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        ratio=blocks * warps / max_warps,
        limiter=limiters[0],
        limiters=limiters,
        limits=limits,
    )


def register_thread_limit(registers: int) -> int:
    """The largest block that the registers of one block allow, a multiple of the warp; 1024 at most."""
    if registers < 1:
        return MAX_THREADS_PER_BLOCK
    if registers > MAX_REGISTERS_PER_THREAD:
        return 0
    warps = REGISTERS_PER_BLOCK // _round_up(registers * WARP, REGISTER_UNIT)
    return min(MAX_THREADS_PER_BLOCK, warps // SUB_PARTITIONS * SUB_PARTITIONS * WARP)


def _register_limit(device: Device, warps: int, registers: int) -> int:
    per_warp = _round_up(registers * WARP, REGISTER_UNIT)
    # The launch check counts registers as if all four sub-partitions were given the same number of warps.
    if registers > MAX_REGISTERS_PER_THREAD or per_warp * _round_up(warps, SUB_PARTITIONS) > REGISTERS_PER_BLOCK:
        return 0
    per_partition = device.registers_per_sm // SUB_PARTITIONS
    return per_partition // per_warp * SUB_PARTITIONS // warps


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
