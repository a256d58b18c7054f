from __future__ import annotations

from dgw.model import Record, gemm
from tests.recipes.making import record

PROBLEM = gemm(4096, 4096, 1024, "f32")
PRODUCTS = PROBLEM.flops / 64  # multiply-adds of a warp


def simt(loads: float, stalled: float) -> Record:
    """FMA on tiles in shared memory, with so many wavefronts of loads for a multiply-add of a warp."""
    return record(
        {
            "elapsed_cycles": 9.2e6 if loads > 1 else 1.8e6, "sm_active_cycles": 9.1e6 if loads > 1 else 1.79e6,
            "smem_wavefronts_actual": (loads + 0.02) * PRODUCTS, "smem_wavefronts_ideal": (loads + 0.02) * PRODUCTS,
            "smem_wavefronts_sass_ld": loads * PRODUCTS, "smem_wavefronts_sass_ldsm": 0,
            "smem_wavefronts_sass_ldgsts": 0,
            "ldsm_inst": 0, "ldgsts_inst": 0, "tensor_inst": 0, "tensor_pipe_util": 0.0, "global_sectors_hw_ld": 3e7,
            "fma_pipe_util": 0.11 if loads > 1 else 0.57, "issued": 3 * PRODUCTS, "inst_executed": 3 * PRODUCTS,
        },
        problem=PROBLEM, config={}, tile=(32, 32), blocks=16384, stalls={"mio_throttle": stalled},
    )  # fmt: skip


# a sum a thread: two loads for each multiply-add
FIRES = simt(loads=2.0, stalled=0.6)

# eight by eight sums a thread, as stage swizzled has them
NEAR_MISS = simt(loads=0.1875, stalled=0.1)
