from __future__ import annotations

from dgw.model import gemm
from tests.recipes.making import record

FIRES = record(
    {
        "global_requests_ld": 4e9,
        "smem_wavefronts_actual": 0,
        "ldgsts_inst": 0,
        "tensor_inst": 0,
        "tensor_pipe_util": 0.0,
    },
    problem=gemm(4096, 4096, 4096, "f32"),
    config={},
    tile=(8, 32),
    blocks=65536,
)

# sums in registers use each load eight times
NEAR_MISS = record(
    {
        "global_requests_ld": 4e8,
        "smem_wavefronts_actual": 0,
        "ldgsts_inst": 0,
        "tensor_inst": 0,
        "tensor_pipe_util": 0.0,
    },
    problem=gemm(4096, 4096, 4096, "f32"),
    config={},
    tile=(64, 64),
    blocks=4096,
)
