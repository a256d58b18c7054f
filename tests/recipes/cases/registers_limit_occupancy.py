from __future__ import annotations

from dgw.model import gemm
from tests.recipes.making import record

FIRES = record(
    {
        "occ_limit_registers": 1,
        "occ_limit_shared_mem": 32,
        "tensor_pipe_util": 0.0,
        "tensor_inst": 0,
        "dram_throughput": 0.3,
        "registers_per_thread": 253,
    },
    problem=gemm(1, 28672, 8192, layout="nt"),
    config={},
    tile=(1, 8),
    blocks=3584,
    stalls={"long_scoreboard": 0.8},
)

# few warps are enough to keep DRAM busy
NEAR_MISS = record(
    {
        "occ_limit_registers": 1,
        "occ_limit_shared_mem": 32,
        "tensor_pipe_util": 0.0,
        "tensor_inst": 0,
        "dram_throughput": 0.88,
        "registers_per_thread": 253,
    },
    problem=gemm(1, 28672, 8192, layout="nt"),
    config={},
    tile=(1, 8),
    blocks=3584,
    stalls={"long_scoreboard": 0.8},
)
