from __future__ import annotations

from dgw.model import gemm
from tests.recipes.making import record

FIRES = record({"sm_active_cycles": 8_000, "blocks": 2}, problem=gemm(256, 256, 8192), blocks=2)

# three quarters of the SMs have a block: a matter of waves
NEAR_MISS = record({"sm_active_cycles": 380_000, "blocks": 100}, problem=gemm(1280, 2560, 8192), blocks=100)
