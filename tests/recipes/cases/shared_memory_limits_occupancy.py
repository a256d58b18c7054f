from __future__ import annotations

from dgw.model import gemm
from tests.recipes.making import record

FIRES = record(
    {
        "occ_limit_registers": 16,
        "occ_limit_shared_mem": 2,
        "tensor_pipe_util": 0.0,
        "tensor_inst": 0,
        "dram_throughput": 0.3,
        "shared_mem_per_block": 112_000,
    },
    problem=gemm(1, 28672, 8192, layout="nt"),
    config={},
    tile=(1, 4),
    blocks=7168,
    stalls={"long_scoreboard": 0.8},
)

# registers allow no more blocks either
NEAR_MISS = record(
    {
        "occ_limit_registers": 2,
        "occ_limit_shared_mem": 2,
        "tensor_pipe_util": 0.0,
        "tensor_inst": 0,
        "dram_throughput": 0.3,
        "shared_mem_per_block": 112_000,
    },
    problem=gemm(1, 28672, 8192, layout="nt"),
    config={},
    tile=(1, 4),
    blocks=7168,
    stalls={"long_scoreboard": 0.8},
)
