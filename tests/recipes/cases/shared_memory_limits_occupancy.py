from __future__ import annotations

from dgw.model import Record, gemm
from tests.recipes.making import record


def one_row(registers: int) -> Record:
    """A row times a matrix by blocks of which shared memory holds two, and registers so many."""
    return record(
        {
            "occ_limit_registers": registers,
            "occ_limit_shared_mem": 2,
            "tensor_pipe_util": 0.0,
            "tensor_inst": 0,
            "dram_throughput": 0.3,
            "shared_mem_per_block": 112_000,
        },
        problem=gemm(1, 28672, 8192, layout="nt"),
        config={},
        tile=(1, 4),
        blocks=7168,
        stalls={"long_scoreboard": 0.8},
    )


FIRES = one_row(registers=16)

# registers allow no more blocks either
NEAR_MISS = one_row(registers=2)
