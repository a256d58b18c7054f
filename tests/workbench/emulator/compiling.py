"""Compiles test kernels to PTX with NVRTC, and runs GEMM kernels in the emulator."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory
from dgw.workbench.emulator.observer import Dim3, Observer, Outcome

HERE = Path(__file__).parent


def _include() -> str:
    import nvidia

    for root in nvidia.__path__:
        for header in Path(root).glob("*/include/cuda_fp16.h"):
            return str(header.parent)
    raise FileNotFoundError("cuda_fp16.h")


@functools.cache
def ptx_of(text: str, arch: str = "sm_80", options: tuple[str, ...] = ()) -> str:
    """PTX of CUDA source text with line information; the file is called kernel.cu."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    flags = [f"--gpu-architecture=compute_{arch[3:]}", f"-I{_include()}", "-lineinfo", "-std=c++17", *options]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
    if int(error):
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        raise AssertionError(log.decode())
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = b" " * size
    nvrtc.nvrtcGetPTX(program, ptx)
    return ptx.decode().rstrip("\0 ")


@dataclass
class GemmRun:
    """What a GEMM kernel did: its outcome, what it wrote, and the exact product."""

    outcome: Outcome
    result: NDArray[np.float64]
    expected: NDArray[np.float64]
    output_address: int

    @property
    def correct(self) -> bool:
        """Whether every element is exact (the inputs are small integers)."""
        return bool(np.array_equal(self.result, self.expected))


def run_gemm(
    text: str,
    entry: str,
    shape: tuple[int, int, int],
    tile: tuple[int, int],
    block: int,
    shared_bytes: int = 0,
    out: type = np.float16,
    grid: Dim3 | None = None,
    ctas: Sequence[Dim3] | None = None,
    observer: Observer | None = None,
) -> GemmRun:
    """Run a kernel (A, B, C, M, N, K) on small integers, f16 inputs, row-major, C filled with NaN."""
    m, n, k = shape
    random = np.random.default_rng(m * 7 + n * 5 + k)
    a = random.integers(-3, 4, (m, k)).astype(np.float16)
    b = random.integers(-3, 4, (k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, dtype=out)
    memory = Memory()
    pointers = [
        memory.register("a", a, writable=False),
        memory.register("b", b, writable=False),
        memory.register("c", c),
    ]
    where = grid if grid is not None else (-(-n // tile[1]), -(-m // tile[0]), 1)
    launch = EmulatedLaunch(ptx_of(text), entry, where, (block, 1, 1), [*pointers, m, n, k], memory, shared_bytes)
    outcome = launch.run(ctas, observer)
    expected = (a.astype(np.float64) @ b.astype(np.float64)).astype(out)
    return GemmRun(outcome, c.astype(np.float64), expected.astype(np.float64), pointers[2])
