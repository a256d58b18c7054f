from __future__ import annotations

from dgw.model import gemm
from tests.recipes.making import record

FIRES = record({"time_cold": 60e-6, "sm_active_cycles": 20_000}, problem=gemm(1024, 1024, 512), blocks=4, launches=16)

# a pass beside the product
NEAR_MISS = record({"time_cold": 60e-6}, problem=gemm(1024, 1024, 512), blocks=200, launches=2)
