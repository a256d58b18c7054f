from __future__ import annotations

from tests.recipes.making import record

FIRES = record(
    {"dram_read_bytes": 4e9, "dram_throughput": 0.8, "tensor_pipe_util": 0.5, "tensor_inst": 1.7e7},
    stalls={"long_scoreboard": 0.5},
)

# less than three readings of the inputs
NEAR_MISS = record(
    {"dram_read_bytes": 1.8e8, "dram_throughput": 0.2, "tensor_pipe_util": 0.5, "tensor_inst": 1.7e7},
    stalls={"long_scoreboard": 0.5},
)
