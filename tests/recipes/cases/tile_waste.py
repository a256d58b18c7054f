from __future__ import annotations

from dgw.model import gemm
from tests.recipes.making import record

FIRES = record(problem=gemm(320, 16896, 4096), tile=(256, 128), blocks=264)

# sixteen rows of four thousand
NEAR_MISS = record(problem=gemm(4080, 4096, 4096))
