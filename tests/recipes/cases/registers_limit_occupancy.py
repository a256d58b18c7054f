from __future__ import annotations

from dgw.model import Record, gemm
from tests.recipes.making import record


def one_row(dram: float) -> Record:
    """A row times a matrix by warps whose registers leave room for one block, with DRAM busy for this share."""
    return record(
        {
            "occ_limit_registers": 1,
            "occ_limit_shared_mem": 32,
            "tensor_pipe_util": 0.0,
            "tensor_inst": 0,
            "dram_throughput": dram,
            "registers_per_thread": 253,
        },
        problem=gemm(1, 28672, 8192, layout="nt"),
        config={},
        tile=(1, 8),
        blocks=3584,
        stalls={"long_scoreboard": 0.8},
    )


FIRES = one_row(dram=0.3)

# few warps are enough to keep DRAM busy
NEAR_MISS = one_row(dram=0.88)
