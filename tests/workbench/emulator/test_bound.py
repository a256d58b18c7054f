"""The lower bound: peak rates, the busiest SM, and nothing that the hardware may avoid."""

from __future__ import annotations

import dataclasses

import pytest

from dgw.model import gemm
from dgw.toolchain.devices import device
from dgw.workbench.emulator.bound import Work, lower_bound

H200 = device("h200")
CUBE = gemm(4096, 4096, 4096)
MMA = Work(
    ctas=1024, mma_flops={"f16": CUBE.flops}, mma=CUBE.flops // 4096, fma=0, wavefronts=10**8,
    memory_instructions=10**7, global_requests=10**6, cached=0, uncached=2**20, stored=2**20, smallest=1 / 1024,
)  # fmt: skip


def test_tensor_work_is_bounded_by_the_best_rate_of_its_dtype() -> None:
    bound = lower_bound(CUBE, H200, [MMA])
    assert bound.pipe == "tensor"
    rate = H200.tensor_flops_per_sm_per_clock["f16"]
    assert bound.cycles["tensor"] == pytest.approx(8 * CUBE.flops / 1024 / rate)  # 1024 CTAs: 8 rounds on 132 SMs
    assert bound.seconds < 0.18e-3  # the fastest that was measured


def test_wavefronts_bind_only_when_the_audit_was_clean() -> None:
    assert "lsu" not in lower_bound(CUBE, H200, [MMA]).parts
    audited = lower_bound(CUBE, H200, [dataclasses.replace(MMA, exact_memory=True)])
    assert audited.pipe == "lsu"
    assert audited.parts["lsu"] == pytest.approx(8 / 1024 * (10**8 + 10**6) / H200.clock_hz)


def test_f32_work_is_bounded_by_the_fma_lanes() -> None:
    work = Work(ctas=132, mma_flops={}, mma=0, fma=132 * 4096, wavefronts=0, memory_instructions=0, global_requests=0)
    bound = lower_bound(gemm(256, 256, 256, "f32"), H200, [work])
    assert bound.cycles["fma"] == 4096 * 32 / H200.fma_per_sm_per_clock


def test_little_work_is_bounded_by_dram() -> None:
    tiny = Work(ctas=1, mma_flops={}, mma=0, fma=1, wavefronts=0, memory_instructions=0, global_requests=0)
    bound = lower_bound(gemm(1, 4096, 4096), H200, [tiny])
    assert bound.pipe == "dram"
    assert bound.seconds == gemm(1, 4096, 4096).compulsory_bytes / H200.dram_bytes_per_s


def test_launches_follow_each_other() -> None:
    once, twice = lower_bound(CUBE, H200, [MMA]), lower_bound(CUBE, H200, [MMA, MMA])
    assert twice.cycles["tensor"] == 2 * once.cycles["tensor"]


def test_sectors_through_l1_count_once_for_all_resident_ctas() -> None:
    cached = dataclasses.replace(MMA, cached=2**20, uncached=0, stored=0, resident=4, mma_flops={})
    past = dataclasses.replace(cached, cached=0, uncached=2**20)
    assert lower_bound(CUBE, H200, [past]).cycles["l2"] == 4 * lower_bound(CUBE, H200, [cached]).cycles["l2"]


def test_two_ctas_keep_two_sms_busy_and_the_heavier_has_at_least_half_of_the_work() -> None:
    work = Work(ctas=2, mma_flops={}, mma=0, fma=2 * 4096, wavefronts=0, memory_instructions=0, global_requests=0)
    bound = lower_bound(gemm(127, 255, 96, "f32"), H200, [work])
    assert bound.cycles["fma"] == 4096 * 32 / H200.fma_per_sm_per_clock
