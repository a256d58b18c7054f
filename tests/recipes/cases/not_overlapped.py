from __future__ import annotations

from tests.recipes.making import record

FIRES = record({"tensor_pipe_util": 0.4, "tensor_inst": 1.3e7}, stalls={"long_scoreboard": 0.6, "barrier": 0.3})

# memory is at its limit: asking earlier brings nothing
NEAR_MISS = record(
    {"tensor_pipe_util": 0.4, "tensor_inst": 1.3e7, "dram_throughput": 0.85},
    stalls={"long_scoreboard": 0.6, "barrier": 0.3},
)
