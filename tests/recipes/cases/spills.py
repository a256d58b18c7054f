from __future__ import annotations

from tests.recipes.making import record

FIRES = record(
    {
        "spill_store_bytes": 400,
        "spill_load_bytes": 600,
        "local_load_sectors": 6e7,
        "local_store_sectors": 3e7,
        "tensor_pipe_util": 0.4,
        "tensor_inst": 1.3e7,
    },
    stalls={"long_scoreboard": 0.5},
)

# spilled on a path that was not taken
NEAR_MISS = record({"spill_store_bytes": 8, "spill_load_bytes": 8, "tensor_pipe_util": 0.4, "tensor_inst": 1.3e7})
