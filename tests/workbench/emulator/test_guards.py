"""Predicates that are computed twice alike and guard different instructions."""

from __future__ import annotations

import numpy as np

from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry pairs(.param .u64 from, .param .u64 to)
{
  .reg .b16 %rs<3>; .reg .b32 %r<4>; .reg .b64 %rd<8>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to];
  mov.u32 %r2, %tid.x; mul.wide.u32 %rd3, %r2, 2; add.s64 %rd4, %rd1, %rd3;
  mul.wide.u32 %rd5, %r2, 4; add.s64 %rd6, %rd2, %rd5; mov.u32 %r3, 1; add.s64 %rd7, %rd4, 2;
  { .reg .pred p; setp.ne.u32 p, %r3, 0; mov.b16 %rs1, 0; @p ld.global.nc.b16 %rs1, [%rd4]; }
  { .reg .pred p; setp.ne.u32 p, %r3, 0; mov.b16 %rs2, 0; @p ld.global.nc.b16 %rs2, [%rd7]; }
  cvt.f32.f16 %f1, %rs1; cvt.f32.f16 %f2, %rs2; add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd6], %f3;
  ret;
}
"""


def test_a_guard_that_repeats_another_still_guards_its_own_instruction() -> None:
    memory = Memory()
    numbers, sums = np.arange(40, dtype=np.float16), np.zeros(32, dtype=np.float32)
    addresses = [np.uint64(memory.register(name, array)) for name, array in (("from", numbers), ("to", sums))]
    outcome = EmulatedLaunch(PTX, "pairs", (1, 1, 1), (32, 1, 1), addresses, memory).run()
    assert outcome.findings == ()
    assert sums.tolist() == [2 * lane + 1 for lane in range(32)]
