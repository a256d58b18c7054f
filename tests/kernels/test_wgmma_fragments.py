"""Tiles as the kernels ask the copy engine for them, and fragments of A and lines of B that meet in one order of k.

The kernels run in the emulator, the copy engine and its tensor maps are simulated.
"""

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
LOADS = (Path(__file__).parent / "tile_loads.cu").read_text()
LOG = 4 + 8 * 64
"""Words in which the boxes of a tile are written down."""
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
class Box:
    """What is asked of the copy engine: where to, by which map, from where, and who receives it (-1: this CTA)."""

    target: int
    phase: int
    row: int
    col: int
    peers: int


@dataclass(frozen=True)
class Side:
    """An operand in memory, and a tile of it as it is loaded, in `shares` parts."""

    problem: Problem
    name: str
    shares: int = 1

    @property
    def along_k(self) -> bool:
        return declaring.k_major(self.problem, self.name)

    @property
    def found(self) -> lines.Phases:
        return lines.phases(self.problem, TILE)

    @property
    def phases(self) -> int:
        return self.found[self.name]

    @property
    def extent(self) -> int:
        return BM if self.name == "a" else BN

    @property
    def spread(self) -> bool:
        return self.name == "a" and lines.is_spread(self.problem, self.found)

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

    def memory(self) -> Words:
        """Where the operand lies, with other numbers between its lines."""
        operand, values = self.problem.operands()[self.name], self.values()
        ld = self.problem.leading_dimension(self.name)
        memory = np.full(operand.offset + len(values) * ld + 64, 0xEEEE, np.uint16)
        for i, line in enumerate(values):
            memory[operand.offset + i * ld :][: len(line)] = line
        return memory

    def options(self) -> tuple[str, ...]:
        """Defines for a kernel whose A is this operand."""
        said = lines.defines(self.problem, self.found) | {"BM": self.extent, "TILE_SHARES": self.shares}
        own = {f"{key[:-2]}_A": value for key, value in said.items() if key.endswith(f"_{self.name.upper()}")}
        said |= own | {name: "true" if yes else "false" for name, yes in (
            ("K_MAJOR_A", self.along_k), ("TILE_SPREAD", self.spread)
        )}  # fmt: skip
        return (f"-I{INCLUDE}", f"-DTILE_LOG={LOG}", *(f"-D{name}={value}" for name, value in said.items()))

    def asked(self, outer: int, k: int) -> list[Box]:
        """The boxes that the kernel asks the copy engine for."""
        memory, found = Memory(), np.zeros(LOG, np.uint32)
        maps = memory.register("maps", np.zeros(128 * self.phases, np.uint8), writable=False)
        arguments = [maps, outer, k, memory.register("found", found)]
        ptx = ptx_of(LOADS, "sm_90", self.options())
        assert EmulatedLaunch(ptx, "ask", (1, 1, 1), (1, 1, 1), arguments, memory).run().findings == ()
        entries = found[4:].reshape(-1, 8).astype(np.int64)[: int(found[0])]
        return [
            Box(int(to), int(which - maps % 2**32) // 128, int(row), int(col), int(np.uint32(peers).astype(np.int32)))
            for to, which, row, col, peers, *_ in entries
        ]

    def image(self, outer: int, k: int) -> Words:
        """Shared memory as the copy engine fills it: 16-byte parts of a line permuted by its address."""
        maps = made(self.problem, tiling.box(self.problem, self.name, self.extent, self.phases, self.shares))
        memory = self.memory()
        size = tiling.tile_bytes(self.extent, self.along_k, self.spread)
        image = np.full(size // 2, 0xDDDD, np.uint16)
        for box in self.asked(outer, k):
            assert box.target % 128 == 0
            for i, line in enumerate(maps[box.phase].load(memory, box.row, box.col)):
                for part in range(8):
                    at = place(box.target + i * 128, part)
                    assert (image[at : at + 8] == 0xDDDD).all()
                    image[at : at + 8] = line[part * 8 : part * 8 + 8]
        return image


def place(address: int, part: int) -> int:
    """Where, in elements, the copy engine puts a 16-byte part of the line at a shared address."""
    return (address + (part ^ address // 128 % 8) * 16) // 2


def lines_of(image: Words) -> Words:
    """The lines of 128 bytes of a tile that is not spread, one below the other."""
    found = np.zeros((len(image) // 64, 64), np.uint16)
    for i, line in enumerate(found):
        for part in range(8):
            at = place(i * 128, part)
            line[part * 8 : part * 8 + 8] = image[at : at + 8]
    return found


def fragments(side: Side, image: Words) -> NDArray[np.int64]:
    """What a warpgroup has of the tile: rows in the order of its lines, columns in that of the multiplications.

    No load of it meets a bank conflict.
    """
    found = np.zeros((BM // 64, 4, 128, 4, 2), np.uint16)
    assert lines.meets_in_registers(side.problem, side.found)
    options = side.options()
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


@pytest.mark.parametrize(("ld", "offset"), [(155, 0), (155, 3), (154, 3), (156, 0)])
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_what_is_multiplied_is_of_the_same_k(layout: str, ld: int, offset: int) -> None:
    problem = off_alignment(layout, ld, offset)
    a, b = Side(problem, "a"), Side(problem, "b")
    assert (b if a.along_k else a).phases == 8
    for row, col, k in ((0, 0, 0), (BM, BN, DEPTH)):
        left, right = fragments(a, a.image(row, k)), lines_of(b.image(col, k))
        product = left @ (right.T if b.along_k else right).astype(np.int64)
        rows = row + (order(BM, a.phases) if a.along_k else np.arange(BM))
        columns = col + (order(BN, b.phases) if b.along_k else np.arange(BN))
        wanted = a.padded()[:, k : k + DEPTH] @ b.padded()[:, k : k + DEPTH].T
        assert np.array_equal(product, wanted[np.ix_(rows, columns)])


@pytest.mark.parametrize("shares", [1, 2])
@pytest.mark.parametrize(
    ("layout", "ld"), [("nn", 155), ("nt", 154), ("tn", 155), ("tn", 156), ("nt", 160), ("tn", 160)]
)
def test_a_tile_is_loaded_once_and_whole_however_many_ctas_share_it(layout: str, ld: int, shares: int) -> None:
    """Line t of the tile, or of a block of 64 across k, is the line that WgmmaTile::place says."""
    problem = off_alignment(layout, ld, 0)
    side = Side(problem, "a", shares)
    boxes = side.asked(BM, DEPTH)
    assert {box.peers for box in boxes} == {5 if shares > 1 else -1}
    assert sum(box.phase == 0 for box in boxes) == len(boxes) / side.phases
    tile = side.padded()[BM : 2 * BM, DEPTH : 2 * DEPTH]
    loaded = lines_of(side.image(BM, DEPTH))
    if side.along_k:
        assert np.array_equal(loaded, tile[order(BM, side.phases)])
    else:
        for block in range(BM // 64):
            lines_of_block = loaded[block * 64 : block * 64 + 64]
            assert np.array_equal(lines_of_block, tile[block * 64 : block * 64 + 64].T[order(DEPTH, side.phases)])
