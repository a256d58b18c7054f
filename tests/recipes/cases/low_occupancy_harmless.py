from __future__ import annotations

from tests.recipes.making import record

FIRES = record()

# nothing is busy, so occupancy may be what is missing
NEAR_MISS = record({"tensor_pipe_util": 0.5, "tensor_inst": 1.7e7})
