from __future__ import annotations

from tests.recipes.making import record

FIRES = record(
    {"tensor_pipe_util": 0.5, "tensor_inst": 1.7e7},
    config={"BM": 128, "BN": 256, "BK": 16, "STAGES": 2},
    stalls={"long_scoreboard": 0.4, "barrier": 0.2},
)

# as thin, but three tiles ahead
NEAR_MISS = record(
    {"tensor_pipe_util": 0.5, "tensor_inst": 1.7e7},
    config={"BM": 128, "BN": 256, "BK": 16, "STAGES": 4},
    stalls={"long_scoreboard": 0.4, "barrier": 0.2},
)
