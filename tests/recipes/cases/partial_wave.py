from __future__ import annotations

from dgw.model import gemm
from tests.recipes.making import record

FIRES = record({"sm_active_cycles": 260_000}, problem=gemm(1024, 4224, 4096), blocks=136)

# as many tiles as SMs
NEAR_MISS = record({"sm_active_cycles": 495_000}, problem=gemm(1408, 3072, 4096), blocks=132)
