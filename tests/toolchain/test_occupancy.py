from __future__ import annotations

import json
from pathlib import Path

import pytest

from dgw.errors import UsageError
from dgw.toolchain.devices import DEVICES, device_for_arch
from dgw.toolchain.occupancy import occupancy, register_thread_limit

# Rows made with cudaOccMaxActiveBlocksPerMultiprocessor of NVIDIA's cuda_occupancy.h, at the largest carve-out: arch,
# threads, registers, shared bytes, barriers, then blocks, limit by registers, by shared memory, by warps.
ROWS = json.loads((Path(__file__).parents[1] / "data" / "occupancy.json").read_text())


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a"])
def test_blocks_and_limits_equal_those_of_nvidias_calculator(arch: str) -> None:
    rows = [row[1:] for row in ROWS if row[0] == arch]
    assert len(rows) == 80
    for threads, registers, shared, barriers, blocks, by_registers, by_shared, by_warps in rows:
        got = occupancy(device_for_arch(arch), threads, registers, shared, barriers)
        limits = (got.limits["registers"], got.limits["shared memory"], got.limits["warps"])
        assert (got.blocks_per_sm, *limits) == (blocks, by_registers, by_shared, by_warps), (threads, registers, shared)
        assert got.warps_per_sm == blocks * -(-threads // 32)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "limiter", "blocks", "ratio"),
    [
        (384, 168, 200 * 1024, "registers", 1, 12 / 64),  # a warp-specialised Hopper kernel
        (128, 64, 100 * 1024, "shared memory", 2, 8 / 64),
        (256, 32, 0, "warps", 8, 1.0),
        (32, 32, 0, "blocks", 32, 0.5),
        (128, 32, 227 * 1024, "shared memory", 1, 4 / 64),
        (128, 32, 227 * 1024 + 1, "shared memory", 0, 0.0),
        (1024, 65, 0, "registers", 0, 0.0),
        (1056, 16, 0, "warps", 0, 0.0),
    ],
)
def test_the_limiter_is_the_scarcest_resource(
    threads: int, registers: int, shared: int, limiter: str, blocks: int, ratio: float
) -> None:
    got = occupancy(DEVICES["h200"], threads, registers, shared)
    assert limiter in got.limiters
    assert got.limiter == got.limiters[0]
    assert (got.blocks_per_sm, got.ratio) == (blocks, ratio)


def test_resources_that_tie_are_all_named() -> None:
    assert occupancy(DEVICES["h200"], 64, 32, 0).limiters == ("warps", "registers", "blocks")


def test_barriers_count_from_hopper_on() -> None:
    assert occupancy(DEVICES["h200"], 32, 32, 0, barriers=16).limiter == "barriers"
    assert "barriers" not in occupancy(DEVICES["a100"], 32, 32, 0, barriers=16).limits


@pytest.mark.parametrize(("threads", "registers", "shared"), [(0, 1, 0), (32, -1, 0), (32, 1, -1)])
def test_impossible_blocks_are_usage_errors(threads: int, registers: int, shared: int) -> None:
    with pytest.raises(UsageError):
        occupancy(DEVICES["a100"], threads, registers, shared)


def test_the_registers_of_a_block_bound_its_threads() -> None:
    assert [register_thread_limit(r) for r in (0, 64, 65, 128, 168, 255, 256)] == [1024, 1024, 896, 512, 384, 256, 0]
