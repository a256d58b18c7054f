"""Where the tensor-core stages put their tiles (`Tile` in tile.cuh, `Lane` in the stages), and what reads cost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from dgw.workbench.emulator.costs import shared_cost

LANE = np.arange(32)
ALL = np.ones((1, 32), dtype=bool)
ROWS_FIRST, ROWS_LAST = LANE % 16, LANE // 16 * 8 + LANE % 8
SHAPES = [(extent, depth, side) for extent in (64, 128, 256) for depth in (32, 64) for side in (32, 64)]


class Tile:
    def __init__(self, size: int, k_major: bool, extent: int, depth: int) -> None:
        self.size, self.k_major, self.extent, self.depth = size, k_major, extent, depth
        self.row = (depth if k_major else extent) * size
        self.single = size == 4 and not k_major

    def twist(self, row: np.ndarray) -> np.ndarray:
        if self.single:
            return row % 4 * 32
        return row % 8 * 16 if self.row >= 128 else row * self.row // 128 * 16 % self.row

    def place(self, row: np.ndarray, byte: np.ndarray) -> np.ndarray:
        return row * self.row + (byte ^ self.twist(row))

    def matrix_loads(self, first: int, side: int, operand: str) -> Iterator[np.ndarray]:
        """Addresses of the lanes for each ldmatrix.x4 of a warp whose rows or columns begin at `first`."""
        rows_first = (operand == "a") == self.k_major
        row_low = ROWS_FIRST if rows_first else ROWS_LAST
        half = LANE // 16 if rows_first else LANE // 8 % 2
        for step in range(self.depth * self.size // 32):
            for square in range(side // 16):
                if self.k_major:
                    yield self.place(first + square * 16 + row_low, step * 32 + half * 16)
                else:
                    yield self.place(step * 16 + row_low, (first + square * 16) * self.size + half * 16)

    def single_loads(self, first: int, side: int) -> Iterator[np.ndarray]:
        for k in range(0, self.depth, 4):
            for group in range(side // 8):
                yield self.place(k + LANE % 4, (first + group * 8 + LANE // 4) * 4)

    def copies(self, threads: int) -> Iterator[np.ndarray]:
        """Addresses of the lanes for each cp.async of each warp."""
        in_row, rows = self.row // 16, self.extent if self.k_major else self.depth
        across = min(in_row, max(8, threads // rows))
        for copy in range(in_row * rows // threads):
            row, chunk = copy // (in_row // across) * (threads // across), copy % (in_row // across) * across
            for start in range(0, threads, 32):
                yield self.place(row + (start + LANE) // across, (chunk + (start + LANE) % across) * 16)


def conflicts(addresses: Iterator[np.ndarray], kind: str, width: int) -> int:
    costs = [shared_cost(kind, width, address[None, :], ALL) for address in addresses]  # type: ignore[arg-type]
    return sum(int(cost.wavefronts[0]) - int(cost.ideal[0]) for cost in costs)


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("k_major", [True, False])
@pytest.mark.parametrize("size", [2, 4])
def test_no_load_of_a_tensor_core_tile_conflicts(size: int, k_major: bool, operand: str) -> None:
    for extent, depth, side in SHAPES:
        tile = Tile(size, k_major, extent, depth)
        for first in range(0, extent, side):
            if tile.single:
                assert conflicts(tile.single_loads(first, side), "ld", 4) == 0
            else:
                assert conflicts(tile.matrix_loads(first, side, operand), "ldmatrix", 16) == 0


@pytest.mark.parametrize("k_major", [True, False])
@pytest.mark.parametrize("size", [2, 4])
def test_copies_write_whole_lines_and_every_place_once(size: int, k_major: bool) -> None:
    for (extent, depth, _), threads in product(SHAPES, (64, 128, 256)):
        tile = Tile(size, k_major, extent, depth)
        places = list(tile.copies(threads))
        assert conflicts(iter(places), "st", 16) == 0
        assert np.array_equal(np.sort(np.concatenate(places)), np.arange(0, extent * depth * size, 16))
