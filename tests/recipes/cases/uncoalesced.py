from __future__ import annotations

from tests.recipes.making import record

FIRES = record(
    {"global_sectors_hw_ld": 4e8, "l2_sectors": 4e8, "tensor_pipe_util": 0.3, "tensor_inst": 1e7},
    stalls={"long_scoreboard": 0.5},
)

# rows that begin in the middle of a sector
NEAR_MISS = record(
    {"global_sectors_hw_ld": 6e7, "l2_sectors": 7e7, "tensor_pipe_util": 0.3, "tensor_inst": 1e7},
    stalls={"long_scoreboard": 0.5},
)
