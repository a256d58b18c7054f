from __future__ import annotations

from dgw.model import gemm
from tests.recipes.making import record

FIRES = record({"time_cold": 8e-6, "time_hot": 8e-6}, problem=gemm(1, 8192, 8192, layout="nt"))

# DRAM can do that
NEAR_MISS = record({"time_cold": 32e-6, "time_hot": 30e-6}, problem=gemm(1, 8192, 8192, layout="nt"))
