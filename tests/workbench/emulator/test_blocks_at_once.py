"""Blocks and warps that look in memory until others have stored something."""

from __future__ import annotations

import numpy as np
import pytest

from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory
from dgw.workbench.emulator.observer import Outcome
from tests.workbench.emulator.compiling import ptx_of

MEETING = """
extern "C" __global__ void meet(unsigned int* count, unsigned int* found) {
    if (threadIdx.x == 0) {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" :: "l"(count) : "memory");
        unsigned int seen = 0;
        while (seen < gridDim.x)
            asm volatile("ld.LOAD.global.u32 %0, [%1];" : "=r"(seen) : "l"(count) : "memory");
        found[blockIdx.x] = seen;
    }
}
"""
"""Every block waits for all others."""

HANDING_OVER = """
extern "C" __global__ void hand_over(volatile int* flag, int* found) {
    if (threadIdx.x < 32) {
        while (*flag == 0) {}
        found[threadIdx.x] = *flag;
    } else if (threadIdx.x == 32) {
        *flag = 7;
    }
}
"""
"""The warp that waits comes before the one that it waits for."""


def run(text: str, entry: str, grid: int, threads: int, count: int, at_once: bool) -> tuple[Outcome, list[int]]:
    memory = Memory()
    first = memory.register("first", np.zeros(4, np.int32))
    found = np.zeros(count, np.int32)
    second = memory.register("found", found)
    launch = EmulatedLaunch(
        ptx_of(text), entry, (grid, 1, 1), (threads, 1, 1), [first, second], memory, at_once=at_once
    )
    return launch.run(step_limit=20_000), found.tolist()


@pytest.mark.parametrize("load", ["acquire.gpu", "relaxed.gpu", "volatile"])
def test_blocks_that_run_at_once_may_wait_for_each_other(load: str) -> None:
    blocks = 70  # of 64 threads: more than are stacked where nobody waits
    outcome, found = run(MEETING.replace("LOAD", load), "meet", blocks, 64, blocks, at_once=True)
    assert outcome.findings == ()
    assert found == [blocks] * blocks


def test_blocks_that_run_one_after_another_would_wait_for_ever() -> None:
    outcome, _ = run(MEETING.replace("LOAD", "acquire.gpu"), "meet", 70, 64, 70, at_once=False)
    assert [finding.kind for finding in outcome.findings] == ["step-limit"]


def test_a_warp_that_looks_lets_the_one_it_waits_for_go_first() -> None:
    outcome, found = run(HANDING_OVER, "hand_over", 1, 64, 32, at_once=False)
    assert outcome.findings == ()
    assert found == [7] * 32


TESTED = """
extern "C" __global__ void test(int* unused, int* found) {
    __shared__ __align__(8) unsigned long long barriers[2];
    __shared__ int handed;
    const unsigned at = (unsigned)__cvta_generic_to_shared(barriers), warp = threadIdx.x / 32;
    if (threadIdx.x < BARRIERS)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;" :: "r"(at + threadIdx.x * 8) : "memory");
    __syncthreads();
    if (threadIdx.x == 0) handed = 7;
    if (warp == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at + 8) : "memory");
    unsigned done = 0, looks = 0;
    for (; !done; ++looks)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at + warp * 8) : "memory");
    found[threadIdx.x] = handed * 10 + (looks > 1);
    if (warp == 1) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at) : "memory");
}
"""
"""A warp arrives where the other looks, which then arrives where the first one looks."""


def test_a_warp_that_looks_at_a_barrier_lets_those_go_first_who_arrive() -> None:
    outcome, found = run(TESTED.replace("BARRIERS", "2"), "test", 1, 64, 64, at_once=False)
    assert outcome.findings == ()
    assert found[:32] == [71] * 32  # nobody has arrived yet when this one looks for the first time
    assert {one // 10 for one in found[32:]} == {7}


def test_a_barrier_that_nobody_has_made_is_reported_when_it_is_looked_at() -> None:
    outcome, _ = run(TESTED.replace("BARRIERS", "1"), "test", 1, 64, 64, at_once=False)
    assert "barrier" in {finding.kind for finding in outcome.findings}
