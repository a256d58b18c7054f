from __future__ import annotations

from tests.recipes.making import record

FIRES = record(
    {"tensor_inst": 1e4, "tensor_pipe_util": 0.001, "fma_pipe_util": 0.8, "issued": 2.6e9, "elapsed_cycles": 6e6}
)

# an epilogue keeps the FMA pipe busy while the tensor cores multiply
NEAR_MISS = record({"fma_pipe_util": 0.3})
