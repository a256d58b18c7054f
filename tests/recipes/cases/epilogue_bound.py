from __future__ import annotations

from dgw.model import gemm
from tests.recipes.making import record

FIRES = record(
    {"ldsm_inst": 1e6, "global_requests_ld": 4e5, "inst_executed": 2e8, "issued": 2e8, "tensor_pipe_util": 0.2},
    problem=gemm(4096, 4096, 512),
)

# some twenty instructions for each element are what scaling, a bias and rounding take
NEAR_MISS = record(
    {"ldsm_inst": 1e6, "global_requests_ld": 4e5, "inst_executed": 1.2e7, "issued": 1.2e7, "tensor_pipe_util": 0.2},
    problem=gemm(4096, 4096, 512),
)
