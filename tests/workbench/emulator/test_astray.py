"""Kernels that are launched as they were not written for."""

from __future__ import annotations

import numpy as np

from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory
from tests.workbench.emulator.compiling import ptx_of

FAR = """extern "C" __global__ void k(float* d) { d[(1ll << 40) + blockIdx.x * blockDim.x + threadIdx.x] = 1; }"""


def test_a_grid_whose_threads_go_astray_by_the_thousand_is_not_run_to_its_end() -> None:
    memory = Memory()
    pointers = [memory.register("d", np.zeros(4, np.float32))]
    outcome = EmulatedLaunch(ptx_of(FAR, "sm_80"), "k", (4096, 1, 1), (256, 1, 1), pointers, memory).run()
    assert not outcome.completed
    assert {finding.kind for finding in outcome.findings} == {"out-of-bounds"}
    assert int(outcome.block_warps.max()) < 4096 * 8 / 2
