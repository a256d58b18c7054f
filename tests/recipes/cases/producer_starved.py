from __future__ import annotations

from tests.recipes.making import record

FIRES = record(
    {"wgmma_inst": 1e6, "tensor_pipe_util": 0.5, "tensor_pipe_util_active": 0.5, "ldgsts_inst": 0},
    stalls={"long_scoreboard": 0.5, "barrier": 0.3, "gmma": 0.1, "math_pipe_throttle": 0.0},
)

# warps wait, as those of a ring do, but the tensor pipe does not
NEAR_MISS = record(
    {"wgmma_inst": 1e6, "tensor_pipe_util": 0.9, "tensor_pipe_util_active": 0.93, "ldgsts_inst": 0},
    stalls={"long_scoreboard": 0.3, "barrier": 0.3, "gmma": 0.2, "math_pipe_throttle": 0.0},
)
