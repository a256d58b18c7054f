from __future__ import annotations

from tests.recipes.making import record

FIRES = record(
    {
        "smem_wavefronts_actual": 8e7,
        "smem_wavefronts_ideal": 2e7,
        "conflict_ratio_ld": 0.9,
        "smem_wavefronts_sass_ldsm": 6e7,
        "tensor_pipe_util": 0.4,
        "tensor_inst": 1e7,
    }
)

# seven per cent of the passes, which hide behind other work
NEAR_MISS = record({"smem_wavefronts_actual": 4.6e7, "smem_wavefronts_ideal": 4.3e7, "conflict_ratio_ld": 0.09})
