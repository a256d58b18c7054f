from __future__ import annotations

from dgw.model import gemm
from tests.recipes.making import record

FIRES = record({"dram_throughput": 0.15}, problem=gemm(1, 8192, 8192, layout="nt"), blocks=32)

# one row for a warp
NEAR_MISS = record(
    {"dram_throughput": 0.85, "elapsed_cycles": 60_000},
    problem=gemm(1, 8192, 8192, layout="nt"),
    tile=(1, 4),
    blocks=2048,
)
