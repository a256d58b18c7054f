from __future__ import annotations

from tests.recipes.making import record

FIRES = record({"barrier_inst": 528 * 8 * 640, "tensor_pipe_util": 0.5, "tensor_inst": 1.7e7}, stalls={"barrier": 0.5})

# two barriers for each k tile are what a loop needs; who is late has another name
NEAR_MISS = record(
    {"barrier_inst": 528 * 8 * 128, "tensor_pipe_util": 0.5, "tensor_inst": 1.7e7}, stalls={"barrier": 0.5}
)
