"""The rate of mma.sync on this GPU, now: what the kernels of that family cannot exceed."""

from __future__ import annotations

import struct
from collections.abc import Callable

from dgw.model import Measurement
from dgw.workbench.collectors.timing import median_interval
from dgw.workbench.device.context import Gpu
from dgw.workbench.device.launch import Kernels

PROTOCOL = "mma-rate/1"
K_OF = {"f16": 16, "bf16": 16, "tf32": 8}
CHAINS, WARPS = 8, 8  # products in flight per warp, warps per block: as in mma_rate.cu
BLOCKS_PER_SM = 2
TURNS = 7
TURN_S = 0.008


def flops(dtype: str, iterations: int, blocks: int) -> int:
    """FLOP of one launch: 2 M N K of every m16n8 product."""
    return 2 * 16 * 8 * K_OF[dtype] * CHAINS * iterations * WARPS * blocks


def measure(gpu: Gpu, kernels: Kernels, cubin: str, dtype: str) -> Measurement | None:
    """`mma_sync_rate` (FLOP/s, median of TURNS launches of about TURN_S); None for a dtype without such a kernel.

    Measured right after the members of a group, so at the clocks that they left.
    """
    if dtype not in K_OF:
        return None
    kernel = kernels.get(cubin, f"rate_{dtype}")
    blocks = BLOCKS_PER_SM * gpu.attribute("MULTIPROCESSOR_COUNT")
    sink = gpu.allocate(4)

    def launch(iterations: int) -> Callable[[], None]:
        return kernel.bind((blocks, 1, 1), (32 * WARPS, 1, 1), [struct.pack("<I", iterations), struct.pack("<Q", sink)])

    try:
        trial = 2000
        gpu.elapsed(launch(trial))
        iterations = max(1, round(trial * TURN_S / max(gpu.elapsed(launch(trial)), 1e-6)))
        work = flops(dtype, iterations, blocks)
        rates = [work / gpu.elapsed(launch(iterations)) for _ in range(TURNS)]
    finally:
        gpu.free(sink)
    middle, low, high = median_interval(rates)
    return Measurement(
        metric="mma_sync_rate", value=middle, unit="FLOP/s", collector="timing", protocol=PROTOCOL,
        samples=tuple(rates), low=low, high=high,
    )  # fmt: skip
