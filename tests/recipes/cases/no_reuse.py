from __future__ import annotations

from dgw.model import Record, gemm
from tests.recipes.making import record


def untiled(loads: float, tile: tuple[int, int], blocks: int) -> Record:
    """FMA without shared memory, with so many global loads of a warp."""
    return record(
        {
            "global_requests_ld": loads,
            "smem_wavefronts_actual": 0,
            "ldgsts_inst": 0,
            "tensor_inst": 0,
            "tensor_pipe_util": 0.0,
        },
        problem=gemm(4096, 4096, 4096, "f32"),
        config={},
        tile=tile,
        blocks=blocks,
    )


FIRES = untiled(4e9, tile=(8, 32), blocks=65536)

# sums in registers use each load eight times
NEAR_MISS = untiled(4e8, tile=(64, 64), blocks=4096)
