"""Fragments of A and lines of B that meet in one order of k: loaded by simulated tensor maps and by the emulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from dgw.kernels import declaring
from dgw.kernels.declaring import INCLUDE
from dgw.kernels.hopper import lines, tiling
from dgw.model import Config, Problem, gemm
from dgw.workbench.emulator.counters import Counters
from dgw.workbench.emulator.machine import EmulatedLaunch
from dgw.workbench.emulator.measures import tabulate
from dgw.workbench.emulator.memory import Memory
from tests.workbench.emulator.compiling import ptx_of
from tests.workbench.fake_tensor_maps import made

SOURCE = (Path(__file__).parent / "wgmma_fragments.cu").read_text()
BM, BN, DEPTH = 128, 64, 64
M, N, K = 150, 91, 93
TILE: Config = {"BM": BM, "BN": BN, "PHASED": 1}
Words = NDArray[np.uint16]


def off_alignment(layout: str, ld: int, offset: int) -> Problem:
    """Sizes and distances of lines that are no multiples of 16 bytes."""
    plain = gemm(M, N, K, layout=layout)
    a, b = (msgspec.structs.replace(operand, ld=ld, offset=offset) for operand in (plain.a, plain.b))
    return msgspec.structs.replace(plain, a=a, b=b)


@dataclass(frozen=True)
class Side:
    """An operand in memory, and a tile of it as it is loaded."""

    problem: Problem
    name: str

    @property
    def along_k(self) -> bool:
        return declaring.k_major(self.problem, self.name)

    @property
    def phases(self) -> int:
        return lines.phases(self.problem, TILE)[self.name]

    def values(self) -> Words:
        """As it is stored: small numbers, none alike nearby."""
        count, length = lines.stored_shape(self.problem, self.name)
        return np.fromfunction(lambda i, j: (i * 31 + j * 7) % 251 + 1, (count, length)).astype(np.uint16)

    def padded(self) -> NDArray[np.int64]:
        """m or n by k, with zeros beyond the edges."""
        found = np.zeros((512, 512), np.int64)
        values = self.values() if self.along_k else self.values().T
        found[: values.shape[0], : values.shape[1]] = values
        return found

    def boxes(self, outer: int, k: int) -> list[Words]:
        """Of each block of 64 across k, or of the tile along k: 64 or as many lines as it has, phase after phase."""
        extent = BM if self.name == "a" else BN
        operand, values = self.problem.operands()[self.name], self.values()
        ld = self.problem.leading_dimension(self.name)
        memory = np.full(operand.offset + len(values) * ld + 64, 0xEEEE, np.uint16)
        for i, line in enumerate(values):
            memory[operand.offset + i * ld :][: len(line)] = line
        maps = made(self.problem, tiling.box(self.problem, self.name, extent, self.phases))
        said = lines.defines(self.problem, lines.phases(self.problem, TILE))
        first, step = (int(said[f"{word}_{self.name.upper()}"]) for word in ("SHIFT", "STEP"))
        shifts = [(first + phase * step) % 8 for phase in range(self.phases)]
        starts = [(outer, k)] if self.along_k else [(k, outer + block) for block in range(0, extent, 64)]
        return [
            np.concatenate([
                one.load(memory, line // self.phases, column + shift) for one, shift in zip(maps, shifts, strict=True)
            ])
            for line, column in starts
        ]  # fmt: skip


def image_of(boxes: list[Words], spread: bool) -> Words:
    """Shared memory as the copy engine fills it: 16-byte parts of a line permuted by its address."""
    pitch = 9216 if spread else boxes[0].nbytes
    image = np.full(pitch * len(boxes) // 2, 0xDDDD, np.uint16)
    for block, box in enumerate(boxes):
        for i, line in enumerate(box):
            address = block * pitch + i * 128 + (i // 8 * 128 if spread else 0)
            for part in range(8):
                at = (address + (part ^ address // 128 % 8) * 16) // 2
                image[at : at + 8] = line[part * 8 : part * 8 + 8]
    return image


def fragments(problem: Problem, image: Words) -> NDArray[np.int64]:
    """What a warpgroup has of the tile: rows in the order of its lines, columns in that of the multiplications.

    No load of it meets a bank conflict.
    """
    found = np.zeros((BM // 64, 4, 128, 4, 2), np.uint16)
    said = lines.defines(problem, lines.phases(problem, TILE))
    assert said["A_IN_REGISTERS"] == "true"
    said |= {"BM": BM, "K_MAJOR_A": "true" if declaring.k_major(problem, "a") else "false"}
    options = (f"-I{INCLUDE}", *(f"-D{name}={value}" for name, value in said.items()))
    memory = Memory()
    at = [memory.register("image", image.view(np.uint32), writable=False), memory.register("found", found)]
    launch = EmulatedLaunch(ptx_of(SOURCE, "sm_90", options), "load_fragments", (1, 1, 1), (128, 1, 1), at, memory)
    counters = Counters()
    assert launch.run(observer=counters).findings == ()
    counted = tabulate(counters.finish()).totals()
    assert counted["smem_wavefronts_actual"] == counted["smem_wavefronts_ideal"] > 0
    rows = np.zeros((BM, DEPTH), np.int64)
    for thread in range(128):
        row, pair = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
        for word in range(4):
            for step in range(4):
                column = step * 16 + word // 2 * 8 + pair
                rows[row + word % 2 * 8 :: 64, column : column + 2] = found[:, step, thread, word]
    return rows


def order(extent: int, phases: int) -> NDArray[np.int64]:
    """Of which m, n or k the lines of a tile are that were read in phases."""
    t = np.arange(extent)
    return t % (extent // phases) * phases + t // (extent // phases)


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("ld", [155, 154, 156])
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_what_is_multiplied_is_of_the_same_k(layout: str, ld: int, offset: int) -> None:
    problem = off_alignment(layout, ld, offset)
    a, b = Side(problem, "a"), Side(problem, "b")
    assert (b if a.along_k else a).phases == 8
    for row, col, k in ((0, 0, 0), (BM, BN, DEPTH), (0, BN, DEPTH)):
        left = fragments(problem, image_of(a.boxes(row, k), spread=not a.along_k))
        (right,) = b.boxes(col, k)
        product = left @ (right.T if b.along_k else right).astype(np.int64)
        rows = row + (order(BM, a.phases) if a.along_k else np.arange(BM))
        columns = col + (order(BN, b.phases) if b.along_k else np.arange(BN))
        wanted = a.padded()[:, k : k + DEPTH] @ b.padded()[:, k : k + DEPTH].T
        assert np.array_equal(product, wanted[np.ix_(rows, columns)])
