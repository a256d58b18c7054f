from __future__ import annotations

from dgw.model import gemm
from tests.recipes.making import record

FIRES = record({"fma_pipe_util": 0.0, "tensor_inst": 1e6}, problem=gemm(4096, 4096, 7168, "e4m3", out="f16"))

# its sums are added up outside the tensor cores
NEAR_MISS = record({"fma_pipe_util": 0.6, "tensor_inst": 1e6}, problem=gemm(4096, 4096, 7168, "e4m3", out="f16"))
