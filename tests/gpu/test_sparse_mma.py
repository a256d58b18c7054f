"""mma.sp on the GPU and in the emulator: the same registers, random metadata, the same bits.

NVIDIA's manual shows the places of sparsity metadata in figures only; here silicon says whether the emulator reads them
right. Inputs are small integers, so that every sum is exact and both results must be equal bit for bit.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dgw.toolchain.nvrtc import compile_program
from dgw.workbench.device.context import Gpu
from dgw.workbench.device.launch import Kernels
from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.memory import Memory
from dgw.workbench.environment import device_of

WARPS = 16
PAIRS = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110)  # two different columns of four, the lower one first
FORMS = [("f16", 16, s) for s in range(4)] + [("f16", 32, s) for s in range(2)] + [("bf16", 32, s) for s in range(2)]
FORMS += [("s8", 32, s) for s in range(2)] + [("s8", 64, 0)]

TEXT = """
extern "C" __global__ void sparse(const unsigned* a, const unsigned* b, const unsigned* metadata, const unsigned* c,
                                  unsigned* d) {
    const int t = blockIdx.x * 32 + threadIdx.x;
    unsigned out[4];
    asm volatile("mma.sp%s.sync.aligned.m16n8k%d.row.col.%s.%s.%s.%s {%%0, %%1, %%2, %%3}, {%s}, {%s}, "
                 "{%%4, %%5, %%6, %%7}, %%8, %d;"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(c[t * 4]), "r"(c[t * 4 + 1]), "r"(c[t * 4 + 2]), "r"(c[t * 4 + 3]), "r"(metadata[t])%s);
    for (int i = 0; i < 4; ++i) d[t * 4 + i] = out[i];
}
"""


def program(dtype: str, k: int, selector: int, ordered: bool) -> tuple[str, int]:
    """The kernel's text and how many registers of A (and of B) a lane has."""
    count = k * (8 if dtype == "s8" else 16) // 128
    out = "s32" if dtype == "s8" else "f32"
    kind = "::ordered_metadata" if ordered else ""
    a, b = (", ".join(f"%{9 + first + i}" for i in range(count)) for first in (0, count))
    inputs = "".join(f', "r"({name}[t * {count} + {i}])' for name in "ab" for i in range(count))
    return TEXT % (kind, k, out, dtype, dtype, out, a, b, selector, inputs), count


def packed(draw: np.random.Generator, dtype: str, count: int) -> NDArray[np.uint32]:
    """Registers of all lanes that hold integers from -3 to 3."""
    values = draw.integers(-3, 4, WARPS * 32 * count * (4 if dtype == "s8" else 2))
    if dtype == "s8":
        return values.astype(np.int8).view(np.uint32)
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint32)
    return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(np.uint32)


def operands(dtype: str, count: int, seed: int) -> list[NDArray[np.uint32]]:
    """A, B, metadata, C."""
    draw = np.random.default_rng(seed)
    nibbles = draw.choice(np.array(PAIRS, dtype=np.uint32), (WARPS * 32, 8))
    metadata = (nibbles << np.arange(0, 32, 4, dtype=np.uint32)).sum(axis=1).astype(np.uint32)
    integers = draw.integers(-50, 51, WARPS * 32 * 4)
    c = integers.astype(np.int32 if dtype == "s8" else np.float32).view(np.uint32)
    return [packed(draw, dtype, count), packed(draw, dtype, count), metadata, c]


def emulated(ptx: str, inputs: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    """D as the emulator computes it."""
    memory = Memory()
    d = np.zeros(WARPS * 32 * 4, dtype=np.uint32)
    addresses = [memory.register(name, x, writable=False) for name, x in zip("abmc", inputs, strict=True)]
    launch = EmulatedLaunch(ptx, "sparse", (WARPS, 1, 1), (32, 1, 1), [*addresses, memory.register("d", d)], memory)
    assert launch.run().findings == ()
    return d


def on_gpu(gpu: Gpu, kernels: Kernels, cubin: Path, inputs: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
    """D as the GPU computes it."""
    size = WARPS * 32 * 4 * 4
    addresses = [gpu.allocate(max(x.nbytes, 256)) for x in inputs] + [gpu.allocate(size)]
    try:
        for address, values in zip(addresses, inputs, strict=False):
            gpu.upload(address, values.view(np.uint8))
        parameters = [address.to_bytes(8, "little") for address in addresses]
        kernels.get(str(cubin), "sparse").bind((WARPS, 1, 1), (32, 1, 1), parameters)()
        gpu.synchronise()
        return gpu.download(addresses[-1], size).view(np.uint32).copy()
    finally:
        for address in addresses:
            gpu.free(address)


@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "plain"])
@pytest.mark.parametrize(("dtype", "k", "selector"), FORMS)
def test_a_sparse_product_has_the_bits_of_the_gpu(
    gpu: Gpu, kernels: Kernels, tmp_path: Path, dtype: str, k: int, selector: int, ordered: bool
) -> None:
    text, count = program(dtype, k, selector, ordered)
    compiled = compile_program(text, "sparse.cu", device_of(gpu).arch)
    cubin = tmp_path / "sparse.cubin"
    cubin.write_bytes(compiled.cubin)
    for seed in range(3):
        inputs = operands(dtype, count, seed)
        expected, found = emulated(compiled.ptx, inputs), on_gpu(gpu, kernels, cubin, inputs)
        assert np.any(found != inputs[3])
        assert np.array_equal(found, expected)
