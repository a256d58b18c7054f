from __future__ import annotations

from dgw.model import gemm
from tests.recipes.making import record

FIRES = record(
    {"dram_throughput": 0.8, "dram_bytes": 290e6, "tensor_pipe_util": 0.3, "tensor_inst": 3e6},
    problem=gemm(16, 8192, 16384, layout="nt"),
    tile=(16, 128),
)

# half of what DRAM can do is not its limit
NEAR_MISS = record(
    {"dram_throughput": 0.5, "dram_bytes": 290e6, "tensor_pipe_util": 0.3, "tensor_inst": 3e6},
    problem=gemm(16, 8192, 16384, layout="nt"),
    tile=(16, 128),
)
