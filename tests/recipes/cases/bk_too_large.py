from __future__ import annotations

from tests.recipes.making import record

FIRES = record(
    {"occ_limit_registers": 2, "tensor_pipe_util": 0.5, "tensor_inst": 1.7e7, "shared_mem_per_block": 196_608},
    config={"BM": 128, "BN": 128, "BK": 128, "STAGES": 3},
    tile=(128, 128),
    stalls={"short_scoreboard": 0.3},
)

# registers would keep the second block off as well
NEAR_MISS = record(
    {"occ_limit_registers": 1, "tensor_pipe_util": 0.5, "tensor_inst": 1.7e7, "shared_mem_per_block": 196_608},
    config={"BM": 128, "BN": 128, "BK": 128, "STAGES": 3},
    tile=(128, 128),
    stalls={"short_scoreboard": 0.3},
)
