"""wgmma with A in registers, which none of dgw's kernels uses: the product, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dgw.kernels.declaring import INCLUDE
from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory
from tests.workbench.emulator.compiling import ptx_of

ROWS, COLUMNS, DEPTH = 64, 16, 16
KERNEL = """
#include "dgw/tma.cuh"
#include "dgw/wgmma.cuh"
using namespace dgw;
extern "C" __global__ void product(const unsigned short* a, const unsigned short* b, float* d) {
    __shared__ __align__(1024) unsigned char shared[2048];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u32 i = threadIdx.x; i < 256; i += 128) {  // b has 16 lines of 16, and each gets 128 bytes
        const u32 line = i / 16, place = (line * 128 + i % 16 * 2) ^ (line % 8 * 16);
        *reinterpret_cast<unsigned short*>(shared + place) = b[i];
    }
    publish_to_engines();
    __syncthreads();
    u32 f[4];
    for (int i = 0; i < 4; ++i) {
        const u32 row = warp * 16 + lane / 4 + i % 2 * 8, k = i / 2 * 8 + lane % 4 * 2;
        f[i] = *reinterpret_cast<const u32*>(a + row * 16 + k);
    }
    const u64 matrix = shared_address(shared) >> 4 | u64(8192 >> 4) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
    float s[8] = {};
    for (u32 again = 0; again < 2; ++again) {
        begin_multiplications();
        asm volatile(
            "{ .reg .pred p; setp.ne.u32 p, %13, 0;\\n"
            "wgmma.mma_async.sync.aligned.m64n16k16.f32.TYPE.TYPE {%0, %1, %2, %3, %4, %5, %6, %7}, "
            "{%8, %9, %10, %11}, %12, p, 1, 1, ACROSS; }"
            : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7])
            : "r"(f[0]), "r"(f[1]), "r"(f[2]), "r"(f[3]), "l"(matrix), "r"(again));
        commit_multiplications();
        wait_for_multiplications<0>();
    }
    for (int i = 0; i < 8; ++i) {
        const u32 row = warp * 16 + lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        d[row * 16 + column] = s[i];
    }
}
"""


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize(("name", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_fragments_of_a_are_multiplied_with_b_in_shared_memory(name: str, dtype: Any, across: bool) -> None:
    """Twice: first instead of what the sums were, then in addition to it. `across`: lines of B run along n."""
    random = np.random.default_rng(ROWS)
    a, b = ((random.integers(-32, 33, (lines, 16)) / 8).astype(dtype) for lines in (ROWS, 16))
    d, memory = np.zeros((ROWS, COLUMNS), np.float32), Memory()
    at = [memory.register(*one, writable=False) for one in (("a", a.view(np.uint16)), ("b", b.view(np.uint16)))]
    text = KERNEL.replace("TYPE", name).replace("ACROSS", str(int(across)))
    launch = EmulatedLaunch(
        ptx_of(text, "sm_90a", (f"-I{INCLUDE}",)), "product", (1, 1, 1), (128, 1, 1),
        [*at, memory.register("d", d)], memory,
    )  # fmt: skip
    assert launch.run().findings == ()
    right = b.astype(np.float32) if across else b.astype(np.float32).T  # [k, n]
    assert np.array_equal(d, 2 * (a.astype(np.float32) @ right))
